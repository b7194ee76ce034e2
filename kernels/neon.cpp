// NEON as every Armv8.0 core has it (Cortex-A53, A72). int8: SMULL, SMLAL, SADALP. Two products are at most 32512 in
// magnitude and are added in 16 bits, a third would not fit.
#include "kernels/lanes_neon.h"

#include "kernels/lanes_ops.h"  // over the lanes above
#include "kernels/load_here.h"
#include "kernels/row_tiles.h"

namespace pinion {
namespace {

int8x16_t four_codes(const int8_t* a) {
  int32_t four;
  __builtin_memcpy(&four, a, sizeof four);
  return vreinterpretq_s8_s32(vdupq_n_s32(four));
}

// R rows by V vectors of 4 columns; c points at the first of them. Rows are a_row bytes apart, their next four codes
// a_step. A register of sums holds two columns, each in two parts.
template <int R, int V>
void gemm_tile(const int8_t* a, int64_t a_row, int64_t a_step, const int8_t* b, int64_t b_step, int64_t k,
               bool accumulate, int32_t* c) {
  int32x4_t left[R][V];
  int32x4_t right[R][V];
  unrolled<R>([&](auto r) { unrolled<V>([&](auto v) { left[r][v] = right[r][v] = vdupq_n_s32(0); }); });
  for (int64_t i = 8; i <= k; i += 8, a += 2 * a_step, b += 2 * b_step) {
    int8x16_t x0[R];
    int8x16_t x1[R];
    unrolled<R>([&](auto r) { x0[r] = four_codes(a + r * a_row), x1[r] = four_codes(a + a_step + r * a_row); });
    unrolled<V>([&](auto v) {
      const int8x16_t w0 = load_here(b + v * 16);
      const int8x16_t w1 = load_here(b + b_step + v * 16);
      unrolled<R>([&](auto r) {
        const int16x8_t low = vmull_s8(vget_low_s8(w0), vget_low_s8(x0[r]));
        const int16x8_t high = vmull_high_s8(w0, x0[r]);
        left[r][v] = vpadalq_s16(left[r][v], vmlal_s8(low, vget_low_s8(w1), vget_low_s8(x1[r])));
        right[r][v] = vpadalq_s16(right[r][v], vmlal_high_s8(high, w1, x1[r]));
      });
    });
  }
  if (k % 8) {
    unrolled<V>([&](auto v) {
      const int8x16_t w = vld1q_s8(b + v * 16);
      unrolled<R>([&](auto r) {
        const int8x16_t x = four_codes(a + r * a_row);
        left[r][v] = vpadalq_s16(left[r][v], vmull_s8(vget_low_s8(w), vget_low_s8(x)));
        right[r][v] = vpadalq_s16(right[r][v], vmull_high_s8(w, x));
      });
    });
  }
  unrolled<R>([&](auto r) {
    unrolled<V>([&](auto v) {
      int32_t* to = c + r * kPanelColumns + v * 4;
      const int32x4_t sum = vpaddq_s32(left[r][v], right[r][v]);
      vst1q_s32(to, accumulate ? vaddq_s32(sum, vld1q_s32(to)) : sum);
    });
  });
}

void gemv_s8(const int8_t* a, const int8_t* b, int64_t row_bytes, int64_t k, int32_t* acc) {
  for (int64_t c = 0; c < kPanelColumns; c += 32) gemm_tile<1, 8>(a, 0, 4, b + c * 4, row_bytes, k, false, acc + c);
}

constexpr int kRows = 2;  // 2 x 4 x 2 sums, 4 of x, 2 of w, 2 of products: 24 of the 32 registers

void gemm_s8(const GemmTerm* terms, int64_t count, const RowBlocks& blocks, int64_t rows, const int32_t* /*column_sum*/,
             int32_t* acc) {
  each_run(terms, count, blocks, [&](const GemmTerm* run, int64_t length, bool accumulate) {
    each_row_tile<kRows, 4>(run, length, blocks, rows, [&](auto n, const RowTile& tile, int64_t row) {
      for (int64_t c = 0; c < kPanelColumns; c += 16) {
        for (int64_t i = 0; i < length; ++i) {
          gemm_tile<n, 4>(static_cast<const int8_t*>(run[i].a) + tile.at_bytes, 4, tile.block_rows * 4,
                          static_cast<const int8_t*>(run[i].b) + c * 4, 4 * kPanelColumns, run[i].k,
                          accumulate || i > 0, acc + row * kPanelColumns + c);
        }
      }
    });
  });
}

constexpr Kernels kTable =
    lanes_table("neon", {gemv_s8, pack_s8<4, 0>, gemm_s8, {.rows = kRows, .multiple = 1, .group = 4}});

}  // namespace

const Kernels& neon_kernels() { return kTable; }

}  // namespace pinion
