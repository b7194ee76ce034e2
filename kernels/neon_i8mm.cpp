// NEON with SMMLA (Cortex-A510, A710 and later): 2 rows by 2 columns by 8 k an instruction. Its operand is made from
// two neighbouring k4 rows of the panel by zip1/zip2 on 32-bit lanes. A single row has nothing to gain: SDOT does it.
#include <arm_neon.h>

#include "kernels/kernels.h"

namespace pinion {
namespace {

// 2P rows by 16 columns; panel and acc point at the first of these columns.
template <int P>
void gemm_w8_block(const int8_t* a, int64_t lda, const int8_t* panel, int64_t k, int32_t* acc) {
  int32x4_t sum[P][8];  // [row pair][column pair]: row 0 column 0, 0 1, 1 0, 1 1
  for (int p = 0; p < P; ++p) {
    for (int c = 0; c < 8; ++c) sum[p][c] = vdupq_n_s32(0);
  }
  for (int64_t i = 0; i < k; i += 8) {
    int8x16_t x[P];
    for (int p = 0; p < P; ++p) {
      x[p] = vcombine_s8(vld1_s8(a + 2 * p * lda + i), vld1_s8(a + (2 * p + 1) * lda + i));
    }
    const int8_t* w = panel + i * kPanelColumns;
    for (int v = 0; v < 4; ++v) {
      const int32x4_t w0 = vreinterpretq_s32_s8(vld1q_s8(w + v * 16));
      const int32x4_t w1 = vreinterpretq_s32_s8(vld1q_s8(w + 4 * kPanelColumns + v * 16));
      const int8x16_t low = vreinterpretq_s8_s32(vzip1q_s32(w0, w1));
      const int8x16_t high = vreinterpretq_s8_s32(vzip2q_s32(w0, w1));
      for (int p = 0; p < P; ++p) {
        sum[p][2 * v] = vmmlaq_s32(sum[p][2 * v], x[p], low);
        sum[p][2 * v + 1] = vmmlaq_s32(sum[p][2 * v + 1], x[p], high);
      }
    }
  }
  for (int p = 0; p < P; ++p) {
    for (int v = 0; v < 4; ++v) {
      const int64x2_t left = vreinterpretq_s64_s32(sum[p][2 * v]);
      const int64x2_t right = vreinterpretq_s64_s32(sum[p][2 * v + 1]);
      int32_t* to = acc + 2 * p * kPanelColumns + v * 4;
      vst1q_s32(to, vreinterpretq_s32_s64(vzip1q_s64(left, right)));
      vst1q_s32(to + kPanelColumns, vreinterpretq_s32_s64(vzip2q_s64(left, right)));
    }
  }
}

void gemm_w8(const int8_t* a, int64_t lda, int64_t rows, const int8_t* panel, const int32_t* column_sum, int64_t k,
             int32_t* acc) {
  int64_t r = 0;
  for (; r + 4 <= rows; r += 4) {
    for (int64_t c = 0; c < kPanelColumns; c += 16) {
      gemm_w8_block<2>(a + r * lda, lda, panel + c * 4, k, acc + r * kPanelColumns + c);
    }
  }
  for (; r + 2 <= rows; r += 2) {
    for (int64_t c = 0; c < kPanelColumns; c += 16) {
      gemm_w8_block<1>(a + r * lda, lda, panel + c * 4, k, acc + r * kPanelColumns + c);
    }
  }
  if (r < rows) {
    neon_dotprod_kernels().gemm_w8(a + r * lda, lda, rows - r, panel, column_sum, k, acc + r * kPanelColumns);
  }
}

}  // namespace

const Kernels& neon_i8mm_kernels() {
  static const Kernels kTable = [] {
    Kernels table = neon_dotprod_kernels();
    table.name = "neon_i8mm";
    table.gemm_w8 = gemm_w8;
    return table;
  }();
  return kTable;
}

}  // namespace pinion
