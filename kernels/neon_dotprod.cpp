// NEON with SDOT (Cortex-A55, A76 and later, Apple): four columns of four k an instruction, read as they lie.
#include <arm_neon.h>

#include "kernels/kernels.h"
#include "kernels/load_here.h"
#include "kernels/pack_rows.h"
#include "kernels/row_tiles.h"

namespace pinion {
namespace {

// Sixteen k at a time: the codes fill one register and each SDOT names its four of them by lane.
void gemv_s8(const int8_t* a, const int8_t* b, int64_t row_bytes, int64_t k, int32_t* acc) {
  constexpr int kVectors = 16;  // a panel's columns
  int32x4_t sum[kVectors];
  unrolled<kVectors>([&](auto v) { sum[v] = vdupq_n_s32(0); });
  int64_t i = 0;
  for (; i + 16 <= k; i += 16, b += 4 * row_bytes) {
    const int8x16_t x = vld1q_s8(a + i);
    unrolled<4>([&](auto lane) {
      unrolled<kVectors / 4>([&](auto four) {
        const int8_t* from = b + lane * row_bytes + four * 64;
        int8x16_t w[4];
        unrolled<4>([&](auto v) { w[v] = load_here(from + v * 16); });
        unrolled<4>([&](auto v) {
          constexpr int kLane = lane;
          constexpr int kAt = four * 4 + v;
          sum[kAt] = vdotq_laneq_s32(sum[kAt], w[v], x, kLane);
        });
      });
    });
  }
  for (; i < k; i += 4, b += row_bytes) {
    int32_t four;
    __builtin_memcpy(&four, a + i, sizeof four);
    const int8x16_t x = vreinterpretq_s8_s32(vdupq_n_s32(four));
    unrolled<kVectors>([&](auto v) { sum[v] = vdotq_s32(sum[v], vld1q_s8(b + v * 16), x); });
  }
  unrolled<kVectors>([&](auto v) { vst1q_s32(acc + v * 4, sum[v]); });
}

constexpr int kRows = 6;     // 6 x 4 sums, 4 vectors of w, 3 of x: 31 of the 32 registers
constexpr int kVectors = 4;  // a whole cache line of w

// R rows by 16 columns; `column` is the first of these, c its sum. Codes of two rows fill a register of 8 bytes.
template <int R>
void gemm_tile(const RowTile& tile, int64_t column, bool accumulate, int32_t* c) {
  int32x4_t sum[R][kVectors];
  unrolled<R>([&](auto r) { unrolled<kVectors>([&](auto v) { sum[r][v] = vdupq_n_s32(0); }); });
  for (const GemmTerm* term = tile.terms; term < tile.terms + tile.count; ++term) {
    const int8_t* a = static_cast<const int8_t*>(term->a) + tile.at_bytes;
    const int8_t* b = static_cast<const int8_t*>(term->b) + column * 4;
    for (int64_t i = 0; i < term->k; i += 4, a += tile.block_rows * 4, b += 4 * kPanelColumns) {
      int8x8_t x[(R + 1) / 2];
      unrolled<(R + 1) / 2>([&](auto p) { x[p] = vld1_s8(a + p * 8); });
      int8x16_t w[kVectors];
      unrolled<kVectors>([&](auto v) { w[v] = vld1q_s8(b + v * 16); });
      unrolled<R>([&](auto r) {
        unrolled<kVectors>([&](auto v) {
          constexpr int kLane = r % 2;
          sum[r][v] = vdotq_lane_s32(sum[r][v], w[v], x[r / 2], kLane);
        });
      });
    }
  }
  unrolled<R>([&](auto r) {
    unrolled<kVectors>([&](auto v) {
      int32_t* to = c + r * kPanelColumns + v * 4;
      vst1q_s32(to, accumulate ? vaddq_s32(sum[r][v], vld1q_s32(to)) : sum[r][v]);
    });
  });
}

void gemm_s8(const GemmTerm* terms, int64_t count, const RowBlocks& blocks, int64_t rows, const int32_t* /*column_sum*/,
             int32_t* acc) {
  each_run(terms, count, blocks, [&](const GemmTerm* run, int64_t length, bool accumulate) {
    each_row_tile<kRows, 4>(run, length, blocks, rows, [&](auto n, const RowTile& tile, int64_t row) {
      for (int64_t c = 0; c < kPanelColumns; c += 4 * kVectors) {
        gemm_tile<n>(tile, c, accumulate, acc + row * kPanelColumns + c);
      }
    });
  });
}

}  // namespace

const Kernels& neon_dotprod_kernels() {
  static const Kernels kTable = [] {
    Kernels table = neon_kernels();
    table.name = "neon_dotprod";
    table.gemv_s8 = gemv_s8;
    table.pack_s8 = pack_s8<4, 0>;
    table.gemm_s8 = gemm_s8;
    table.s8 = {.rows = kRows, .multiple = 2, .group = 4};
    return table;
  }();
  return kTable;
}

}  // namespace pinion
