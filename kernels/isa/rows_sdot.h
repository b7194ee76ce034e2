// Several unpacked rows by SDOT, for attention and for few rows by a panel.
#pragma once

#include <arm_neon.h>

#include <cstdint>

#include "kernels/lanes/neon.h"
#include "kernels/lanes/rows.h"
#include "kernels/lanes/streams.h"
#include "kernels/lanes/unroll.h"
#include "kernels/layout.h"

namespace pinion {
namespace {

// sum += R rows by V vectors of 4 columns, k a multiple of 16. A register holds sixteen k of a row; each SDOT selects
// four of them by lane. Ahead: prefetches as many lines as it reads, from `ahead` on.
template <bool Ahead, int R, int V>
[[gnu::always_inline]] inline void add_sdot(const int8_t* a, int64_t lda, const int8_t* b, int64_t row_bytes, int64_t k,
                                            const int8_t* ahead, int32x4_t (&sum)[R][V]) {
  for (const int8_t* end = a + k; a < end; a += 16) {
    if constexpr (Ahead) prefetch<V * 64, 1>(ahead), ahead += V * 64;
    int8x16_t x[R];
    unrolled<R>([&](auto r) { x[r] = vld1q_s8(a + r * lda); });
    unrolled<4>([&](auto lane) {
      unrolled<V / 4>([&](auto four) {
        int8x16_t w[4];
        unrolled<4>([&](auto v) { w[v] = ordered_load(b + four * 64 + v * 16); });
        unrolled<R, 4>([&](auto r, auto v) {
          constexpr int kAt = four * 4 + v, kLane = lane;
          sum[r][kAt] = vdotq_laneq_s32(sum[r][kAt], w[v], x[r], kLane);
        });
      });
      b += row_bytes;
    });
  }
}

constexpr int kSdotRows = 5;  // 5 x 4 sums, 5 of x, 4 of w: 29 of the 32 registers

// Vectors of columns of a tile: more for fewer rows, so that the chains of sums hide the latency.
template <int R>
constexpr int kSdotVectors = R == 1   ? 16
                             : R == 2 ? 8
                                      : 4;

// acc [rows][64] = rows by 64 columns, for attention.
[[maybe_unused]] void sdot_rows(const int8_t* a, int64_t lda, int64_t rows, const int8_t* b, int64_t row_bytes,
                                int64_t k, int32_t* acc) {
  for_each_even_tile<1, kSdotRows>(rows, [&](auto n, int64_t first) {
    constexpr int kV = kSdotVectors<n>;
    for (int64_t c = 0; c < kPanelColumns; c += 4 * kV) {
      int32x4_t sum[n][kV];
      unrolled<n, kV>([&](auto r, auto v) { sum[r][v] = vdupq_n_s32(0); });
      add_sdot<false>(a + first * lda, lda, b + c * 4, row_bytes, k, b, sum);
      unrolled<n, kV>([&](auto r, auto v) { vst1q_s32(acc + (first + r) * kPanelColumns + c + v * 4, sum[r][v]); });
    }
  });
}

}  // namespace
}  // namespace pinion
