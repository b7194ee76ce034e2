// AVX-VNNI (client CPUs without AVX-512): VPDPBUSD on 256 bits, the rest as AVX2. It wants one unsigned side, made by
// adding 128: for one row w (128 times the sum of x is taken off), for several the packed rows (128 * column_sum is
// taken off). Exactly: int32 arithmetic wraps, the result fits.
#include <immintrin.h>

#include "kernels/kernels.h"
#include "kernels/pack_rows.h"
#include "kernels/row_tiles.h"
#include "kernels/streams.h"

namespace pinion {
namespace {

constexpr int kVectors = 8;  // a panel's columns

__m256i four_codes(const int8_t* a) {
  int32_t four;
  __builtin_memcpy(&four, a, sizeof four);
  return _mm256_set1_epi32(four);
}
__m256i load(const void* p) { return _mm256_loadu_si256(static_cast<const __m256i*>(p)); }
void store(int32_t* p, __m256i value) { _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), value); }

void gemv_s8(const int8_t* a, const int8_t* b, int64_t row_bytes, int64_t k, int32_t* acc) {
  const __m256i flip = _mm256_set1_epi8(-128);
  __m256i sum[kVectors];
  __m256i correction = _mm256_setzero_si256();  // 128 times the sum of x
  unrolled<kVectors>([&](auto v) { sum[v] = _mm256_setzero_si256(); });
  each_four_k(a, b, row_bytes, k, [&](auto, const int8_t* x4, const int8_t* w) {
    const __m256i x = four_codes(x4);
    correction = _mm256_dpbusd_avx_epi32(correction, flip, x);
    unrolled<kVectors>(
        [&](auto v) { sum[v] = _mm256_dpbusd_avx_epi32(sum[v], _mm256_xor_si256(load(w + v * 32), flip), x); });
  });
  unrolled<kVectors>([&](auto v) { store(acc + v * 8, _mm256_sub_epi32(sum[v], correction)); });
}

constexpr int kRows = 6;  // 6 x 2 sums, 2 vectors of w, one of x: 15 of the 16 registers

// R rows by 16 columns; `column` is the first.
template <int R>
void gemm_tile(const RowTile& tile, const int32_t* column_sum, int64_t column, int32_t* acc) {
  __m256i sum[R][2];
  unrolled<2>([&](auto v) {
    const __m256i correction = _mm256_slli_epi32(load(column_sum + column + v * 8), 7);
    unrolled<R>([&](auto r) { sum[r][v] = _mm256_sub_epi32(_mm256_setzero_si256(), correction); });
  });
  for (const GemmTerm* term = tile.terms; term < tile.terms + tile.count; ++term) {
    const int8_t* a = static_cast<const int8_t*>(term->a) + tile.at_bytes;
    const int8_t* b = static_cast<const int8_t*>(term->b) + column * 4;
    for (int64_t i = 0; i < term->k; i += 4, b += 4 * kPanelColumns, a += tile.block_rows * 4) {
      __m256i w[2];
      unrolled<2>([&](auto v) { w[v] = load(b + v * 32); });
      unrolled<R>([&](auto r) {
        const __m256i x = four_codes(a + r * 4);
        unrolled<2>([&](auto v) { sum[r][v] = _mm256_dpbusd_avx_epi32(sum[r][v], x, w[v]); });
      });
    }
  }
  unrolled<R>(
      [&](auto r) { unrolled<2>([&](auto v) { store(acc + r * kPanelColumns + column + v * 8, sum[r][v]); }); });
}

void gemm_s8(const GemmTerm* terms, int64_t count, const RowBlocks& blocks, int64_t rows, const int32_t* column_sum,
             int32_t* acc) {
  each_row_tile<kRows, 4>(terms, count, blocks, rows, [&](auto n, const RowTile& tile, int64_t row) {
    for (int64_t c = 0; c < kPanelColumns; c += 16) gemm_tile<n>(tile, column_sum, c, acc + row * kPanelColumns);
  });
}

}  // namespace

const Kernels& avx_vnni_kernels() {
  static const Kernels kTable = [] {
    Kernels table = avx2_kernels();
    table.name = "avx_vnni";
    table.gemv_s8 = gemv_s8;
    table.pack_s8 = pack_s8<4, 0x80>;
    table.gemm_s8 = gemm_s8;
    table.s8 = {.rows = kRows, .multiple = 1, .group = 4};
    return table;
  }();
  return kTable;
}

}  // namespace pinion
