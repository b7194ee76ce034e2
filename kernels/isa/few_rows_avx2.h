// Few rows as they lie, by AVX2 and AVX-VNNI. Their products are those of a Dot:
//   Weights, load(w)          eight columns' next four k of w8
//   add(sum, Weights, x)      the products with four codes of a row
//   start(a, k)               what the sums of a row begin at
//   add_codes(sum, codes, x)  the same of a format with groups, for a group; total(sum): in 32 bits
#pragma once

#include <immintrin.h>

#include "kernels/lanes/few_rows.h"
#include "kernels/lanes/row_tiles.h"

namespace pinion {
namespace {

// Four codes of a row, for every column.
[[gnu::always_inline]] inline __m256i four_codes(const int8_t* a) {
  int32_t four;
  __builtin_memcpy(&four, a, sizeof four);
  return _mm256_set1_epi32(four);
}

// acc += R rows by 16 columns of a piece, `column` the first. By itself: inlined for all R, GCC leaves vectors of
// AVX2's four rows on the stack.
template <class Dot, int R>
[[gnu::noinline]] void few_rows_tile(const int8_t* a, int64_t lda, const int8_t* panel, const PanelPiece& piece,
                                     int64_t column, int32_t* acc) {
  const auto at = [&](int r, int v) { return reinterpret_cast<__m256i*>(acc + r * kPanelColumns + column + v * 8); };
  __m256i sum[R][2];
  unrolled<R>([&](auto r) { unrolled<2>([&](auto v) { sum[r][v] = _mm256_loadu_si256(at(r, v)); }); });
  each_strip(piece, a, panel, column, [&](const int8_t* x, const int8_t* b, const int8_t* ahead) {
    for (const int8_t* end = x + piece.strip_k; x < end; x += 4, b += 4 * kPanelColumns, ahead += kAlignmentBytes) {
      prefetch<kAlignmentBytes, 1>(ahead);
      typename Dot::Weights w[2];
      unrolled<2>([&](auto v) { w[v] = Dot::load(b + v * 32); });
      unrolled<R>([&](auto r) {
        const __m256i four = four_codes(x + r * lda);
        unrolled<2>([&](auto v) { sum[r][v] = Dot::add(sum[r][v], w[v], four); });
      });
    }
  });
  unrolled<R>([&](auto r) { unrolled<2>([&](auto v) { _mm256_storeu_si256(at(r, v), sum[r][v]); }); });
}

// At most R rows at a time.
template <class Dot, int R>
void rows_s8(const int8_t* a, int64_t lda, int64_t rows, const int8_t* panel, int64_t k, int32_t* acc) {
  for (int64_t r = 0; r < rows; ++r) {
    const __m256i start = Dot::start(a + r * lda, k);
    for (int64_t c = 0; c < kPanelColumns; c += 8) {
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(acc + r * kPanelColumns + c), start);
    }
  }
  with_access_pattern([&](auto way) {
    each_piece<decltype(way), 4>(k, [&](const PanelPiece& piece) {
      for (int64_t c = 0; c < kPanelColumns; c += 16) {
        each_even_tile<1, R>(rows, [&](auto n, int64_t r) {
          few_rows_tile<Dot, n>(a + r * lda, lda, panel, piece, c, acc + r * kPanelColumns);
        });
      }
    });
  });
}

}  // namespace
}  // namespace pinion
