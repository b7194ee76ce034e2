// AVX2 + FMA. int8: VPMADDUBSW of |w| (unsigned, <= 128) and x with w's sign (<= 127 in magnitude): a pair's sum is at
// most 32512 and cannot saturate.
#include "kernels/lanes_avx2.h"

#include "kernels/lanes_ops.h"  // over the lanes above
#include "kernels/row_tiles.h"
#include "kernels/streams.h"

namespace pinion {
namespace {

__m256i four_codes(const int8_t* a) {
  int32_t four;
  __builtin_memcpy(&four, a, sizeof four);
  return _mm256_set1_epi32(four);
}

// sum + the products of four codes of x with eight columns of w.
__m256i add_products(__m256i sum, __m256i x, __m256i w, __m256i magnitude) {
  const __m256i pairs = _mm256_maddubs_epi16(magnitude, _mm256_sign_epi8(x, w));
  return _mm256_add_epi32(sum, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
}

// R rows by V vectors of 8 columns over one term; c points at the first of them. Rows are a_row bytes apart, their next
// four codes a_step.
template <int R, int V>
void gemm_tile(const int8_t* a, int64_t a_row, int64_t a_step, const int8_t* b, int64_t b_step, int64_t k,
               bool accumulate, int32_t* c) {
  const auto at = [&](int r, int v) { return reinterpret_cast<__m256i*>(c + r * kPanelColumns + v * 8); };
  __m256i sum[R][V];
  unrolled<R>([&](auto r) {
    unrolled<V>([&](auto v) { sum[r][v] = accumulate ? _mm256_loadu_si256(at(r, v)) : _mm256_setzero_si256(); });
  });
  for (int64_t i = 0; i < k; i += 4, a += a_step, b += b_step) {
    __m256i x[R];
    unrolled<R>([&](auto r) { x[r] = four_codes(a + r * a_row); });
    unrolled<V>([&](auto v) {
      const __m256i w = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(b + v * 32));
      const __m256i magnitude = _mm256_abs_epi8(w);
      unrolled<R>([&](auto r) { sum[r][v] = add_products(sum[r][v], x[r], w, magnitude); });
    });
  }
  unrolled<R>([&](auto r) { unrolled<V>([&](auto v) { _mm256_storeu_si256(at(r, v), sum[r][v]); }); });
}

void gemv_s8(const int8_t* a, const int8_t* b, int64_t row_bytes, int64_t k, int32_t* acc) {
  constexpr int kVectors = 8;  // a panel's columns
  __m256i sum[kVectors];
  unrolled<kVectors>([&](auto v) { sum[v] = _mm256_setzero_si256(); });
  each_four_k(a, b, row_bytes, k, [&](auto, const int8_t* x4, const int8_t* from) {
    const __m256i x = four_codes(x4);
    unrolled<kVectors>([&](auto v) {
      const __m256i w = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from + v * 32));
      sum[v] = add_products(sum[v], x, w, _mm256_abs_epi8(w));
    });
  });
  unrolled<kVectors>([&](auto v) { _mm256_storeu_si256(reinterpret_cast<__m256i*>(acc + v * 8), sum[v]); });
}

constexpr int kRows = 4;

void gemm_s8(const GemmTerm* terms, int64_t count, const RowBlocks& blocks, int64_t rows, const int32_t* /*column_sum*/,
             int32_t* acc) {
  each_row_tile<kRows, 4>(terms, count, blocks, rows, [&](auto n, const RowTile& tile, int64_t row) {
    for (int64_t c = 0; c < kPanelColumns; c += 16) {
      for (int64_t i = 0; i < count; ++i) {
        gemm_tile<n, 2>(static_cast<const int8_t*>(terms[i].a) + tile.at_bytes, 4, tile.block_rows * 4,
                        static_cast<const int8_t*>(terms[i].b) + c * 4, 4 * kPanelColumns, terms[i].k, i > 0,
                        acc + row * kPanelColumns + c);
      }
    }
  });
}

constexpr Kernels kTable =
    lanes_table("avx2", {gemv_s8, pack_s8<4, 0>, gemm_s8, {.rows = kRows, .multiple = 1, .group = 4}});

}  // namespace

const Kernels& avx2_kernels() { return kTable; }

}  // namespace pinion
