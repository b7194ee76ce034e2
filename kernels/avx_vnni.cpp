// AVX-VNNI (client CPUs without AVX-512): VPDPBUSD on 256 bits, the rest as AVX2. VPDPBUSD wants one unsigned side: x +
// 128, and 128 * column_sum is taken off the sum, exactly (int32 arithmetic wraps, the result fits).
#include <immintrin.h>

#include "kernels/kernels.h"

namespace pinion {
namespace {

template <int R, int V>
void gemm_w8_block(const int8_t* a, int64_t lda, const int8_t* panel, const int32_t* column_sum, int64_t k,
                   int32_t* acc) {
  const __m256i flip = _mm256_set1_epi8(-128);
  __m256i sum[R][V];
  for (int v = 0; v < V; ++v) {
    const __m256i correction =
        _mm256_slli_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(column_sum + v * 8)), 7);
    for (int r = 0; r < R; ++r) sum[r][v] = _mm256_sub_epi32(_mm256_setzero_si256(), correction);
  }
  for (int64_t i = 0; i < k; i += 4) {
    __m256i x[R];
    for (int r = 0; r < R; ++r) {
      int32_t four;
      __builtin_memcpy(&four, a + r * lda + i, sizeof four);
      x[r] = _mm256_xor_si256(_mm256_set1_epi32(four), flip);
    }
    for (int v = 0; v < V; ++v) {
      const __m256i w = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(panel + i * kPanelColumns + v * 32));
      for (int r = 0; r < R; ++r) sum[r][v] = _mm256_dpbusd_avx_epi32(sum[r][v], x[r], w);
    }
  }
  for (int r = 0; r < R; ++r) {
    for (int v = 0; v < V; ++v) {
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(acc + r * kPanelColumns + v * 8), sum[r][v]);
    }
  }
}

void gemm_w8(const int8_t* a, int64_t lda, int64_t rows, const int8_t* panel, const int32_t* column_sum, int64_t k,
             int32_t* acc) {
  int64_t r = 0;
  for (; r + 4 <= rows; r += 4) {
    for (int64_t c = 0; c < kPanelColumns; c += 16) {
      gemm_w8_block<4, 2>(a + r * lda, lda, panel + c * 4, column_sum + c, k, acc + r * kPanelColumns + c);
    }
  }
  for (; r < rows; ++r) gemm_w8_block<1, 8>(a + r * lda, lda, panel, column_sum, k, acc + r * kPanelColumns);
}

}  // namespace

const Kernels& avx_vnni_kernels() {
  static const Kernels kTable = [] {
    Kernels table = avx2_kernels();
    table.name = "avx_vnni";
    table.gemm_w8 = gemm_w8;
    return table;
  }();
  return kTable;
}

}  // namespace pinion
