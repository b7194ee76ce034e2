// AVX-512 with VNNI. VPDPBUSD wants one unsigned side, made by adding 128: for one row w (128 times the sum of x is
// taken off), for several the packed rows (128 * column_sum is taken off). Exactly: int32 arithmetic wraps, the result
// fits.
#include "kernels/lanes/avx512.h"

#include "kernels/isa/grouped_avx512.h"  // over the lanes above
#include "kernels/lanes/few_rows.h"
#include "kernels/lanes/ops.h"
#include "kernels/lanes/row_tiles.h"
#include "kernels/lanes/streams.h"

namespace pinion {
namespace {

// 64 codes of a row of the panel; see streams.h. clang makes one load of the halves again.
template <class Way>
__m512i load_codes(const int8_t* w) {
  if constexpr (Way::kPattern.load_bytes == 32) {
    const __m256i low = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(w));
    const __m256i high = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(w + 32));
    return _mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1);
  } else {
    return _mm512_loadu_si512(w);
  }
}

// Eight sums wait less for each other than four; integer sums may be split anywhere. Of few streams, four do it.
template <class Way>
[[gnu::noinline]] void gemv_s8_by(const int8_t* a, const int8_t* b, int64_t row_bytes, int64_t k, int32_t* acc) {
  const __m512i flip = _mm512_set1_epi8(-128);
  __m512i sum[2][kVectors];
  __m512i ones[2];  // of x, for the correction
  unrolled<2>([&](auto h) {
    ones[h] = _mm512_setzero_si512();
    unrolled<kVectors>([&](auto v) { sum[h][v] = _mm512_setzero_si512(); });
  });
  each_four_k<Way>(a, b, row_bytes, k, [&](auto s, const int8_t* x4, const int8_t* w) {
    constexpr int h = s % 2;
    const __m512i x = four_codes(x4);
    ones[h] = _mm512_dpbusd_epi32(ones[h], flip, x);
    unrolled<kVectors>([&](auto v) {
      sum[h][v] = _mm512_dpbusd_epi32(sum[h][v], _mm512_xor_si512(load_codes<Way>(w + v * 64), flip), x);
    });
  });
  const __m512i correction = _mm512_add_epi32(ones[0], ones[1]);
  unrolled<kVectors>([&](auto v) {
    _mm512_storeu_si512(acc + v * 16, _mm512_sub_epi32(_mm512_add_epi32(sum[0][v], sum[1][v]), correction));
  });
}

void gemv_s8(const int8_t* a, const int8_t* b, int64_t row_bytes, int64_t k, int32_t* acc) {
  with_access_pattern([&](auto way) { gemv_s8_by<decltype(way)>(a, b, row_bytes, k, acc); });
}

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

// acc += R rows, as they lie, by a piece of a panel.
template <int R>
[[gnu::noinline]] void few_rows_tile(const int8_t* a, int64_t lda, const int8_t* panel, const PanelPiece& piece,
                                     int32_t* acc) {
  const __m512i flip = _mm512_set1_epi8(-128);
  __m512i sum[R][kVectors];
  unrolled<R>([&](auto r) {
    unrolled<kVectors>([&](auto v) { sum[r][v] = _mm512_loadu_si512(acc + r * kPanelColumns + v * 16); });
  });
  each_strip(piece, a, panel, 0, [&](const int8_t* x, const int8_t* b, const int8_t* ahead) {
    for (const int8_t* end = x + piece.strip_k; x < end; x += 4, b += 4 * kPanelColumns, ahead += 4 * kPanelColumns) {
      prefetch<4 * kPanelColumns, 1>(ahead);
      __m512i w[kVectors];
      unrolled<kVectors>([&](auto v) { w[v] = _mm512_xor_si512(_mm512_loadu_si512(b + v * 64), flip); });
      unrolled<R>([&](auto r) {
        const __m512i four = four_codes(x + r * lda);
        unrolled<kVectors>([&](auto v) { sum[r][v] = _mm512_dpbusd_epi32(sum[r][v], w[v], four); });
      });
    }
  });
  unrolled<R>([&](auto r) {
    unrolled<kVectors>([&](auto v) { _mm512_storeu_si512(acc + r * kPanelColumns + v * 16, sum[r][v]); });
  });
}

void rows_s8(const int8_t* a, int64_t lda, int64_t rows, const int8_t* panel, int64_t k, int32_t* acc) {
  for (int64_t r = 0; r < rows; ++r) {
    const __m512i start = _mm512_sub_epi32(_mm512_setzero_si512(), sum_times(128, a + r * lda, k));
    unrolled<kVectors>([&](auto v) { _mm512_storeu_si512(acc + r * kPanelColumns + v * 16, start); });
  }
  with_access_pattern([&](auto way) {
    each_piece<decltype(way), 4>(k, [&](const PanelPiece& piece) {
      each_even_tile<1, kRows>(
          rows, [&](auto n, int64_t r) { few_rows_tile<n>(a + r * lda, lda, panel, piece, acc + r * kPanelColumns); });
    });
  });
}

// R rows, as they lie, by 64 columns. Rows without a negative code are the unsigned side themselves.
template <int R, bool IsSigned>
void rows_tile(const int8_t* a, int64_t lda, const int8_t* b, int64_t row_bytes, int64_t k, int32_t* acc) {
  const __m512i flip = _mm512_set1_epi8(-128);
  __m512i sum[R][kVectors];
  unrolled<R>([&](auto r) {
    __m512i start = _mm512_setzero_si512();
    if constexpr (IsSigned) start = _mm512_sub_epi32(start, sum_times(128, a + r * lda, k));
    unrolled<kVectors>([&](auto v) { sum[r][v] = start; });
  });
  for (const int8_t* end = a + k; a < end; a += 4, b += row_bytes) {
    __m512i w[kVectors];
    unrolled<kVectors>([&](auto v) {
      w[v] = _mm512_loadu_si512(b + v * 64);
      if constexpr (R <= kFewRows) __builtin_prefetch(b + v * 64 + kCodesAheadBytes, 0, 2);
      if constexpr (IsSigned) w[v] = _mm512_xor_si512(w[v], flip);
    });
    unrolled<R>([&](auto r) {
      const __m512i x = four_codes(a + r * lda);
      unrolled<kVectors>([&](auto v) {
        sum[r][v] = IsSigned ? _mm512_dpbusd_epi32(sum[r][v], w[v], x) : _mm512_dpbusd_epi32(sum[r][v], x, w[v]);
      });
    });
  }
  unrolled<R>([&](auto r) {
    unrolled<kVectors>([&](auto v) { _mm512_storeu_si512(acc + r * kPanelColumns + v * 16, sum[r][v]); });
  });
}

template <bool IsSigned>
void multiply_rows(const int8_t* a, int64_t lda, int64_t rows, const int8_t* b, int64_t row_bytes, int64_t k,
                   int32_t* acc) {
  for (int64_t r = 0; r < rows; r += kRows) {
    with_rows<kRows>(
        rows - r, [&](auto n) { rows_tile<n, IsSigned>(a + r * lda, lda, b, row_bytes, k, acc + r * kPanelColumns); });
  }
}

using Attention = Digits<multiply_rows<true>, multiply_rows<false>>;

constexpr Kernels kTable = lanes_table("avx512_vnni", {gemv_s8,
                                                       pack_s8<4, 0x80>,
                                                       gemm_s8,
                                                       {.rows = kRows, .row_multiple = 1, .group = 4},
                                                       gemv_grouped,
                                                       gemm_grouped,
                                                       make_query_s8<Attention>,
                                                       attend_s8<Attention>,
                                                       kMostFewRows,
                                                       rows_s8,
                                                       rows_grouped});

}  // namespace

const Kernels& avx512_vnni_kernels() { return kTable; }

}  // namespace pinion
