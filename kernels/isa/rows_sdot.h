// Rows of attention by SDOT: several rows as they lie by 64 columns, four k of each an instruction.
#pragma once

#include <arm_neon.h>

#include <cstdint>

#include "kernels/lanes/unroll.h"
#include "kernels/layout.h"

namespace pinion {
namespace {

// R rows by V vectors of 4 columns. Sixteen k of a row fill a register; each SDOT names its four of them by lane.
template <int R, int V>
[[gnu::always_inline]] inline void sdot_tile(const int8_t* a, int64_t lda, const int8_t* b, int64_t row_bytes,
                                             int64_t k, int32_t* acc) {
  int32x4_t sum[R][V];
  unrolled<R>([&](auto r) { unrolled<V>([&](auto v) { sum[r][v] = vdupq_n_s32(0); }); });
  for (const int8_t* end = a + k; a < end; a += 16) {
    int8x16_t x[R];
    unrolled<R>([&](auto r) { x[r] = vld1q_s8(a + r * lda); });
    unrolled<4>([&](auto lane) {
      unrolled<V>([&](auto v) {
        const int8x16_t w = vld1q_s8(b + v * 16);
        unrolled<R>([&](auto r) {
          constexpr int kLane = lane;
          sum[r][v] = vdotq_laneq_s32(sum[r][v], w, x[r], kLane);
        });
      });
      b += row_bytes;
    });
  }
  unrolled<R>([&](auto r) { unrolled<V>([&](auto v) { vst1q_s32(acc + r * kPanelColumns + v * 4, sum[r][v]); }); });
}

// k: a multiple of 16. Few rows take more columns at once: their sums hide each other's latency.
inline void sdot_rows(const int8_t* a, int64_t lda, int64_t rows, const int8_t* b, int64_t row_bytes, int64_t k,
                      int32_t* acc) {
  constexpr int kMost = 5;  // 5 x 4 sums, 5 of x, 4 of w: 29 of the 32 registers
  for (int64_t first = 0, count; first < rows; first += count) {
    const int64_t tiles = (rows - first + kMost - 1) / kMost;
    count = (rows - first + tiles - 1) / tiles;
    with_rows<kMost>(count, [&](auto n) {
      constexpr int kVectors = n == 1 ? 16 : n <= 3 ? 8 : 4;
      for (int64_t c = 0; c < kPanelColumns; c += 4 * kVectors) {
        sdot_tile<n, kVectors>(a + first * lda, lda, b + c * 4, row_bytes, k, acc + first * kPanelColumns + c);
      }
    });
  }
}

}  // namespace
}  // namespace pinion
