// NEON with SDOT (Cortex-A55, A76 and later, Apple): four columns of four k an instruction, read as they lie.
#include <arm_neon.h>

#include "kernels/kernels.h"

namespace pinion {
namespace {

// R rows by V vectors of 4 columns; panel and acc point at the first of these columns. Sixteen k at a time: a row's
// codes fill one register and each SDOT names its four of them by lane.
template <int R, int V>
void gemm_w8_block(const int8_t* a, int64_t lda, const int8_t* panel, int64_t k, int32_t* acc) {
  int32x4_t sum[R][V];
  for (int r = 0; r < R; ++r) {
    for (int v = 0; v < V; ++v) sum[r][v] = vdupq_n_s32(0);
  }
  for (int64_t i = 0; i < k; i += 16) {
    int8x16_t x[R];
    for (int r = 0; r < R; ++r) x[r] = vld1q_s8(a + r * lda + i);
    const int8_t* w = panel + i * kPanelColumns;
    constexpr int64_t kStep = 4 * kPanelColumns;
    for (int v = 0; v < V; ++v) {
      const int8x16_t w0 = vld1q_s8(w + v * 16);
      for (int r = 0; r < R; ++r) sum[r][v] = vdotq_laneq_s32(sum[r][v], w0, x[r], 0);
    }
    for (int v = 0; v < V; ++v) {
      const int8x16_t w1 = vld1q_s8(w + kStep + v * 16);
      for (int r = 0; r < R; ++r) sum[r][v] = vdotq_laneq_s32(sum[r][v], w1, x[r], 1);
    }
    for (int v = 0; v < V; ++v) {
      const int8x16_t w2 = vld1q_s8(w + 2 * kStep + v * 16);
      for (int r = 0; r < R; ++r) sum[r][v] = vdotq_laneq_s32(sum[r][v], w2, x[r], 2);
    }
    for (int v = 0; v < V; ++v) {
      const int8x16_t w3 = vld1q_s8(w + 3 * kStep + v * 16);
      for (int r = 0; r < R; ++r) sum[r][v] = vdotq_laneq_s32(sum[r][v], w3, x[r], 3);
    }
  }
  for (int r = 0; r < R; ++r) {
    for (int v = 0; v < V; ++v) vst1q_s32(acc + r * kPanelColumns + v * 4, sum[r][v]);
  }
}

void gemm_w8(const int8_t* a, int64_t lda, int64_t rows, const int8_t* panel, const int32_t* /*column_sum*/, int64_t k,
             int32_t* acc) {
  int64_t r = 0;
  for (; r + 4 <= rows; r += 4) {
    for (int64_t c = 0; c < kPanelColumns; c += 16) {
      gemm_w8_block<4, 4>(a + r * lda, lda, panel + c * 4, k, acc + r * kPanelColumns + c);
    }
  }
  for (; r < rows; ++r) gemm_w8_block<1, 16>(a + r * lda, lda, panel, k, acc + r * kPanelColumns);
}

}  // namespace

const Kernels& neon_dotprod_kernels() {
  static const Kernels kTable = [] {
    Kernels table = neon_kernels();
    table.name = "neon_dotprod";
    table.gemm_w8 = gemm_w8;
    return table;
  }();
  return kTable;
}

}  // namespace pinion
