// AVX2 + FMA. int8: VPMADDUBSW of |w| (unsigned, <= 128) and x with w's sign (<= 127 in magnitude): a pair's sum is at
// most 32512 and cannot saturate.
#include "kernels/lanes_avx2.h"

#include "kernels/lanes_ops.h"  // over the lanes above

namespace pinion {
namespace {

// R rows by V vectors of 8 columns; panel and acc point at the first of these columns.
template <int R, int V>
void gemm_w8_block(const int8_t* a, int64_t lda, const int8_t* panel, int64_t k, int32_t* acc) {
  const __m256i ones = _mm256_set1_epi16(1);
  __m256i sum[R][V];
  for (int r = 0; r < R; ++r) {
    for (int v = 0; v < V; ++v) sum[r][v] = _mm256_setzero_si256();
  }
  for (int64_t i = 0; i < k; i += 4) {
    __m256i x[R];
    for (int r = 0; r < R; ++r) {
      int32_t four;
      __builtin_memcpy(&four, a + r * lda + i, sizeof four);
      x[r] = _mm256_set1_epi32(four);
    }
    for (int v = 0; v < V; ++v) {
      const __m256i w = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(panel + i * kPanelColumns + v * 32));
      const __m256i magnitude = _mm256_abs_epi8(w);
      for (int r = 0; r < R; ++r) {
        const __m256i pairs = _mm256_maddubs_epi16(magnitude, _mm256_sign_epi8(x[r], w));
        sum[r][v] = _mm256_add_epi32(sum[r][v], _mm256_madd_epi16(pairs, ones));
      }
    }
  }
  for (int r = 0; r < R; ++r) {
    for (int v = 0; v < V; ++v) {
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(acc + r * kPanelColumns + v * 8), sum[r][v]);
    }
  }
}

void gemm_w8(const int8_t* a, int64_t lda, int64_t rows, const int8_t* panel, const int32_t* /*column_sum*/, int64_t k,
             int32_t* acc) {
  int64_t r = 0;
  for (; r + 4 <= rows; r += 4) {
    for (int64_t c = 0; c < kPanelColumns; c += 16) {
      gemm_w8_block<4, 2>(a + r * lda, lda, panel + c * 4, k, acc + r * kPanelColumns + c);
    }
  }
  for (; r < rows; ++r) gemm_w8_block<1, 8>(a + r * lda, lda, panel, k, acc + r * kPanelColumns);
}

constexpr Kernels kTable = lanes_table("avx2", gemm_w8);

}  // namespace

const Kernels& avx2_kernels() { return kTable; }

}  // namespace pinion
