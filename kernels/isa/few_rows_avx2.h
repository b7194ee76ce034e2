// Few rows as they lie, by AVX2 and AVX-VNNI. Their products are those of a Dot:
//   Weights, load(w)          eight columns' next four k of w8
//   add(sum, Weights, x)      the products with four codes of a row
//   start(a, k)               what the sums of a row begin at
//   add_w4(sum, codes, x)     the same of w4, for a group; total_w4(sum): in 32 bits
#pragma once

#include "kernels/isa/w4_avx2.h"
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

// R rows by a record of w4, two vectors of columns at a time, while `ahead` is prefetched. x: the group's codes; x_sum:
// [R] their sums, times the zero where that is always 8; acc: [R][64].
template <class Dot, bool HasZeros, int R>
[[gnu::noinline]] void few_rows_record(const int8_t* x, int64_t lda, const std::byte* record, const std::byte* ahead,
                                       const __m256i* x_sum, bool accumulate, float* acc) {
  const __m256i nibble = _mm256_set1_epi8(15);
  for (int64_t c = 0; c < kPanelColumns; c += 16) {
    __m256i sum[R][2];
    unrolled<R>([&](auto r) { unrolled<2>([&](auto v) { sum[r][v] = _mm256_setzero_si256(); }); });
#pragma GCC unroll 1  // unrolled, GCC adds up the products first and spills them all
    for (int64_t pair = 0; pair < 4; ++pair) {
      prefetch<kAlignmentBytes, 1>(ahead + pair * 256 + c * 4);
      __m256i w[2][2];  // the pair's rows, two vectors of columns of each
      unrolled<2>([&](auto v) {
        const auto* codes = reinterpret_cast<const __m256i*>(record + pair * 256 + c * 4 + v * 32);
        const __m256i both = _mm256_loadu_si256(codes);
        w[0][v] = _mm256_and_si256(both, nibble);
        w[1][v] = _mm256_and_si256(_mm256_srli_epi16(both, 4), nibble);
      });
      unrolled<2>([&](auto i) {
        unrolled<R>([&](auto r) {
          const __m256i four = four_codes(x + r * lda + pair * 8 + i * 4);
          unrolled<2>([&](auto v) { sum[r][v] = Dot::add_w4(sum[r][v], w[i][v], four); });
        });
      });
    }
    if (c % 32 == 0) prefetch<kAlignmentBytes, 1>(ahead + kW4CodeBytes + c * 2);
    if (HasZeros && c == 0) prefetch<kAlignmentBytes, 1>(ahead + kW4CodeBytes + 2 * kPanelColumns);
    unrolled<2>([&](auto v) {
      const int64_t column = c + v * 8;
      const __m256 scale = Lanes::widen(reinterpret_cast<const f16*>(record + kW4CodeBytes) + column);
      __m256i zero;
      if constexpr (HasZeros) zero = eight_zeros(record, column);
      unrolled<R>([&](auto r) {
        __m256i excess = x_sum[r];
        if constexpr (HasZeros) excess = _mm256_madd_epi16(excess, zero);
        add_scaled(_mm256_sub_epi32(Dot::total_w4(sum[r][v]), excess), scale, accumulate,
                   acc + r * kPanelColumns + column);
      });
    });
  }
}

template <class Dot, bool HasZeros>
[[gnu::always_inline]] inline __m256i group_sum(const int8_t* x) {
  __m256i sum = _mm256_setzero_si256();
  unrolled<kBlockK / 4>([&](auto i) { sum = Dot::add_w4(sum, _mm256_set1_epi8(1), four_codes(x + i * 4)); });
  return HasZeros ? Dot::total_w4(sum) : _mm256_slli_epi32(Dot::total_w4(sum), 3);
}

// At most R rows at a time, all of them by a record before the next one.
template <class Dot, int R, class Way, bool HasZeros>
void few_rows_w4_by(const int8_t* a, int64_t lda, int64_t rows, const W4Panel& first, int64_t panels, float* acc) {
  const int8_t* x = a;  // a group's
  __m256i x_sum[kMostFewRows];
  each_record<Way, HasZeros>(
      a, first, panels, acc,
      [&](const int8_t* codes) {
        x = codes;
        for (int64_t r = 0; r < rows; ++r) x_sum[r] = group_sum<Dot, HasZeros>(codes + r * lda);
      },
      [&](const std::byte* record, const std::byte* ahead, bool accumulate, float* to) {
        each_even_tile<1, R>(rows, [&](auto n, int64_t r) {
          few_rows_record<Dot, HasZeros, n>(x + r * lda, lda, record, r == 0 ? ahead : record, x_sum + r, accumulate,
                                            to + r * kPanelColumns);
        });
      },
      rows * kPanelColumns);
}

template <class Dot, int R>
void rows_w4(const int8_t* a, int64_t lda, int64_t rows, const W4Panel& first, int64_t panels, float* acc) {
  with_access_pattern([&](auto way) {
    using Way = decltype(way);
    (first.has_zero_points ? few_rows_w4_by<Dot, R, Way, true>
                           : few_rows_w4_by<Dot, R, Way, false>)(a, lda, rows, first, panels, acc);
  });
}

}  // namespace
}  // namespace pinion
