// AVX-512 with VNNI. VPDPBUSD wants one unsigned side: x + 128, and 128 * column_sum is taken off the sum, exactly
// (int32 arithmetic wraps, the result fits).
#include "kernels/lanes_avx512.h"

#include "kernels/lanes_ops.h"  // over the lanes above

namespace pinion {
namespace {

constexpr int kRows = 6;  // 6 x 4 sums, 4 vectors of w, one of x: 29 of the 32 registers

template <int R>
void gemm_w8_block(const int8_t* a, int64_t lda, const int8_t* panel, const int32_t* column_sum, int64_t k,
                   int32_t* acc) {
  const __m512i flip = _mm512_set1_epi8(-128);
  __m512i sum[R][4];
  for (int v = 0; v < 4; ++v) {
    const __m512i correction = _mm512_slli_epi32(_mm512_loadu_si512(column_sum + v * 16), 7);
    for (int r = 0; r < R; ++r) sum[r][v] = _mm512_sub_epi32(_mm512_setzero_si512(), correction);
  }
  for (int64_t i = 0; i < k; i += 4) {
    __m512i w[4];
    for (int v = 0; v < 4; ++v) w[v] = _mm512_loadu_si512(panel + i * kPanelColumns + v * 64);
    for (int r = 0; r < R; ++r) {
      int32_t four;
      __builtin_memcpy(&four, a + r * lda + i, sizeof four);
      const __m512i x = _mm512_xor_si512(_mm512_set1_epi32(four), flip);
      for (int v = 0; v < 4; ++v) sum[r][v] = _mm512_dpbusd_epi32(sum[r][v], x, w[v]);
    }
  }
  for (int r = 0; r < R; ++r) {
    for (int v = 0; v < 4; ++v) _mm512_storeu_si512(acc + r * kPanelColumns + v * 16, sum[r][v]);
  }
}

// One row: both halves of k at once. Two streams from memory keep more loads under way than one, and eight sums wait
// less for each other than four; integer sums may be split anywhere.
void gemv_w8(const int8_t* a, const int8_t* panel, const int32_t* column_sum, int64_t k, int32_t* acc) {
  const __m512i flip = _mm512_set1_epi8(-128);
  __m512i sum[2][4];
  for (int v = 0; v < 4; ++v) {
    const __m512i correction = _mm512_slli_epi32(_mm512_loadu_si512(column_sum + v * 16), 7);
    sum[0][v] = _mm512_sub_epi32(_mm512_setzero_si512(), correction);
    sum[1][v] = _mm512_setzero_si512();
  }
  const int64_t half = k / 2;
  for (int64_t i = 0; i < half; i += 4) {
    for (int h = 0; h < 2; ++h) {
      const int64_t at = h * half + i;
      int32_t four;
      __builtin_memcpy(&four, a + at, sizeof four);
      const __m512i x = _mm512_xor_si512(_mm512_set1_epi32(four), flip);
      for (int v = 0; v < 4; ++v) {
        sum[h][v] = _mm512_dpbusd_epi32(sum[h][v], x, _mm512_loadu_si512(panel + at * kPanelColumns + v * 64));
      }
    }
  }
  for (int v = 0; v < 4; ++v) _mm512_storeu_si512(acc + v * 16, _mm512_add_epi32(sum[0][v], sum[1][v]));
}

void gemm_w8(const int8_t* a, int64_t lda, int64_t rows, const int8_t* panel, const int32_t* column_sum, int64_t k,
             int32_t* acc) {
  int64_t r = 0;
  for (; r + kRows <= rows; r += kRows) {
    gemm_w8_block<kRows>(a + r * lda, lda, panel, column_sum, k, acc + r * kPanelColumns);
  }
  for (; r + 2 <= rows; r += 2) gemm_w8_block<2>(a + r * lda, lda, panel, column_sum, k, acc + r * kPanelColumns);
  for (; r < rows; ++r) gemv_w8(a + r * lda, panel, column_sum, k, acc + r * kPanelColumns);
}

constexpr Kernels kTable = lanes_table("avx512_vnni", gemm_w8);

}  // namespace

const Kernels& avx512_vnni_kernels() { return kTable; }

}  // namespace pinion
