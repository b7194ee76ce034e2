// NEON as every Armv8.0 core has it (Cortex-A53, A72). int8: SMULL and SADALP; a pair of products is at most 32512, so
// it is added in 16 bits.
#include "kernels/lanes_neon.h"

#include "kernels/lanes_ops.h"  // over the lanes above

namespace pinion {
namespace {

// R rows by V vectors of 4 columns; panel and acc point at the first of these columns.
template <int R, int V>
void gemm_w8_block(const int8_t* a, int64_t lda, const int8_t* panel, int64_t k, int32_t* acc) {
  int32x4_t sum[R][V];
  for (int r = 0; r < R; ++r) {
    for (int v = 0; v < V; ++v) sum[r][v] = vdupq_n_s32(0);
  }
  for (int64_t i = 0; i < k; i += 4) {
    int8x8_t x[R];
    for (int r = 0; r < R; ++r) {
      int32_t four;
      __builtin_memcpy(&four, a + r * lda + i, sizeof four);
      x[r] = vreinterpret_s8_s32(vdup_n_s32(four));
    }
    for (int v = 0; v < V; ++v) {
      const int8x16_t w = vld1q_s8(panel + i * kPanelColumns + v * 16);
      for (int r = 0; r < R; ++r) {
        const int16x8_t low = vmull_s8(vget_low_s8(w), x[r]);    // columns 0 and 1, four products each
        const int16x8_t high = vmull_s8(vget_high_s8(w), x[r]);  // columns 2 and 3
        sum[r][v] = vpadalq_s16(sum[r][v], vpaddq_s16(low, high));
      }
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

constexpr Kernels kTable = lanes_table("neon", gemm_w8);

}  // namespace

const Kernels& neon_kernels() { return kTable; }

}  // namespace pinion
