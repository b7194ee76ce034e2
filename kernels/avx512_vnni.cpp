// AVX-512 with VNNI. VPDPBUSD wants one unsigned side, made by adding 128: for one row w (128 times the sum of x is
// taken off), for several the packed rows (128 * column_sum is taken off). Exactly: int32 arithmetic wraps, the result
// fits.
#include "kernels/lanes_avx512.h"

#include "kernels/lanes_ops.h"  // over the lanes above
#include "kernels/row_tiles.h"
#include "kernels/streams.h"

namespace pinion {
namespace {

constexpr int kVectors = 4;  // a panel's columns

__m512i four_codes(const int8_t* a) {
  int32_t four;
  __builtin_memcpy(&four, a, sizeof four);
  return _mm512_set1_epi32(four);
}

// Eight sums wait less for each other than four; integer sums may be split anywhere.
void gemv_s8(const int8_t* a, const int8_t* b, int64_t row_bytes, int64_t k, int32_t* acc) {
  const __m512i flip = _mm512_set1_epi8(-128);
  __m512i sum[2][kVectors];
  __m512i ones[2];  // of x, for the correction
  unrolled<2>([&](auto h) {
    ones[h] = _mm512_setzero_si512();
    unrolled<kVectors>([&](auto v) { sum[h][v] = _mm512_setzero_si512(); });
  });
  each_four_k(a, b, row_bytes, k, [&](auto s, const int8_t* x4, const int8_t* w) {
    constexpr int h = s % 2;
    const __m512i x = four_codes(x4);
    ones[h] = _mm512_dpbusd_epi32(ones[h], flip, x);
    unrolled<kVectors>([&](auto v) {
      sum[h][v] = _mm512_dpbusd_epi32(sum[h][v], _mm512_xor_si512(_mm512_loadu_si512(w + v * 64), flip), x);
    });
  });
  const __m512i correction = _mm512_add_epi32(ones[0], ones[1]);
  unrolled<kVectors>([&](auto v) {
    _mm512_storeu_si512(acc + v * 16, _mm512_sub_epi32(_mm512_add_epi32(sum[0][v], sum[1][v]), correction));
  });
}

constexpr int kRows = 6;  // 6 x 4 sums, 4 vectors of w, one of x: 29 of the 32 registers

template <int R>
void gemm_tile(const RowTile& tile, const int32_t* column_sum, int32_t* acc) {
  __m512i sum[R][kVectors];
  unrolled<kVectors>([&](auto v) {
    const __m512i correction = _mm512_slli_epi32(_mm512_loadu_si512(column_sum + v * 16), 7);
    unrolled<R>([&](auto r) { sum[r][v] = _mm512_sub_epi32(_mm512_setzero_si512(), correction); });
  });
  for (const GemmTerm* term = tile.terms; term < tile.terms + tile.count; ++term) {
    const int8_t* a = static_cast<const int8_t*>(term->a) + tile.at_bytes;
    const int8_t* b = static_cast<const int8_t*>(term->b);
    const int8_t* end = b + term->k * kPanelColumns;
    for (; b < end; b += 4 * kPanelColumns, a += tile.block_rows * 4) {
      __m512i w[kVectors];
      unrolled<kVectors>([&](auto v) { w[v] = _mm512_loadu_si512(b + v * 64); });
      unrolled<R>([&](auto r) {
        const __m512i x = four_codes(a + r * 4);
        unrolled<kVectors>([&](auto v) { sum[r][v] = _mm512_dpbusd_epi32(sum[r][v], x, w[v]); });
      });
    }
  }
  unrolled<R>([&](auto r) {
    unrolled<kVectors>([&](auto v) { _mm512_storeu_si512(acc + r * kPanelColumns + v * 16, sum[r][v]); });
  });
}

void gemm_s8(const GemmTerm* terms, int64_t count, const RowBlocks& blocks, int64_t rows, const int32_t* column_sum,
             int32_t* acc) {
  each_row_tile<kRows, 4>(terms, count, blocks, rows, [&](auto n, const RowTile& tile, int64_t row) {
    gemm_tile<n>(tile, column_sum, acc + row * kPanelColumns);
  });
}

constexpr Kernels kTable =
    lanes_table("avx512_vnni", {gemv_s8, pack_s8<4, 0x80>, gemm_s8, {.rows = kRows, .multiple = 1, .group = 4}});

}  // namespace

const Kernels& avx512_vnni_kernels() { return kTable; }

}  // namespace pinion
