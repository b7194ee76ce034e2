// AVX-512 with VNNI: formats with groups. Codes are VPDPBUSD's unsigned side as they lie; what they exceed the weights
// by, their zero times the sum of x, is taken off.
#pragma once

#include <immintrin.h>

#include "kernels/kernels.h"
#include "kernels/lanes/few_rows.h"
#include "kernels/lanes/grouped_tiles.h"
#include "kernels/lanes/record.h"
#include "kernels/lanes/row_tiles.h"
#include "kernels/lanes/streams.h"

namespace pinion {
namespace {

constexpr int kVectors = 4;  // a panel's columns
constexpr int kRows = 6;     // 6 x 4 sums, 4 vectors of w, one of x: 29 of the 32 registers

__m512i four_codes(const int8_t* a) {
  int32_t four;
  __builtin_memcpy(&four, a, sizeof four);
  return _mm512_set1_epi32(four);
}

// In every lane the sum of a row's k codes, times `weight`, at most 255.
[[gnu::always_inline]] inline __m512i sum_times(int weight, const int8_t* a, int64_t k) {
  __m512i sum = _mm512_setzero_si512();
  for (int64_t i = 0; i < k; i += 64) {
    const __mmask64 some = k - i < 64 ? (uint64_t{1} << (k - i)) - 1 : ~uint64_t{0};
    sum = _mm512_dpbusd_epi32(sum, _mm512_set1_epi8(static_cast<char>(weight)), _mm512_maskz_loadu_epi8(some, a + i));
  }
  return _mm512_set1_epi32(_mm512_reduce_add_epi32(sum));
}

// What sums of code * x exceed those of the weights by, in every lane: the sum of a group's x times the zero. Where
// columns have zeros of their own, the sum of x alone.
template <class Record>
[[gnu::always_inline]] inline __m512i group_excess(const int8_t* x) {
  return sum_times(Record::kHasZeros ? 1 : Record::kZero, x, Record::kK);
}

// Sixteen columns' codes of row R of a line.
template <class Record, int R>
[[gnu::always_inline]] inline __m512i row_of_line(__m512i line) {
  if constexpr (R > 0) line = _mm512_srli_epi16(line, R * Record::kBits);
  return _mm512_and_si512(line, _mm512_set1_epi8(Record::kMask));
}

// How a group of sixteen columns becomes part of the totals.
template <class Record>
struct GroupScale {
  __m512 scale;
  __m512i zeros;  // where columns have some of their own

  [[gnu::always_inline]] GroupScale(const std::byte* record, int64_t column) {
    const std::byte* scales = record + Record::kCodeBytes;
    scale = Lanes::load(reinterpret_cast<const f16*>(scales) + column).v;
    if constexpr (Record::kHasZeros) {
      const auto* zero_points = reinterpret_cast<const __m128i*>(scales + kPanelColumns * 2 + column);
      zeros = _mm512_cvtepu8_epi32(_mm_loadu_si128(zero_points));
    }
  }

  // The sum of x and a zero fit 16 bits: of each 32 the lower half holds them, and the zero's upper half is 0.
  [[gnu::always_inline]] void add(__m512i sum, __m512i excess, bool accumulate, float* acc) const {
    if constexpr (Record::kHasZeros) excess = _mm512_madd_epi16(excess, zeros);
    const __m512 total = accumulate ? _mm512_loadu_ps(acc) : _mm512_setzero_ps();
    const __m512 value = _mm512_cvtepi32_ps(_mm512_sub_epi32(sum, excess));
    _mm512_storeu_ps(acc, _mm512_fmadd_ps(value, scale, total));
  }
};

template <class Way, class Record>
[[gnu::noinline]] void gemv_grouped_by(const int8_t* a, const GroupedPanel& first, int64_t panels, float* acc) {
  const int8_t* x = a;  // a group's
  __m512i excess;
  each_record<Way, Record>(
      a, first, panels, acc,
      [&](const int8_t* codes) {
        x = codes;
        excess = group_excess<Record>(codes);
      },
      [&](const std::byte* record, const std::byte* ahead, bool accumulate, float* to) {
        prefetch_record<Way, Record>(ahead);
        __m512i sum[kVectors];
        unrolled<kVectors>([&](auto v) { sum[v] = _mm512_setzero_si512(); });
    // Unrolled, with the codes in registers, GCC reads the record here and there, which is slower.
#pragma GCC unroll 1
        for (int64_t line = 0; line < Record::kLines; ++line) {
          __m512i four[Record::kRows];
          unrolled<Record::kRows>([&](auto i) { four[i] = four_codes(x + (line * Record::kRows + i) * 4); });
          unrolled<kVectors>([&](auto v) {
            const __m512i codes = _mm512_loadu_si512(record + line * 256 + v * 64);
            unrolled<Record::kRows>(
                [&](auto i) { sum[v] = _mm512_dpbusd_epi32(sum[v], row_of_line<Record, i>(codes), four[i]); });
          });
        }
        unrolled<kVectors>(
            [&](auto v) { GroupScale<Record>(record, v * 16).add(sum[v], excess, accumulate, to + v * 16); });
      });
}

void gemv_grouped(const int8_t* a, const GroupedPanel& first, int64_t panels, float* acc) {
  with_access_pattern([&](auto way) {
    with_record(first.format,
                [&](auto record) { gemv_grouped_by<decltype(way), decltype(record)>(a, first, panels, acc); });
  });
}

constexpr int kFewGroupedRows = 8;  // 8 x 2 sums, 4 vectors of w, one of x

// R rows by a record, two vectors of columns at a time, while `ahead` is prefetched. x: the group's codes; excess: [R];
// acc: [R][64].
template <class Record, int R>
[[gnu::noinline]] void few_rows_record(const int8_t* x, int64_t lda, const std::byte* record, const std::byte* ahead,
                                       const __m512i* excess, bool accumulate, float* acc) {
  for (int64_t c = 0; c < kPanelColumns; c += 32) {
    __m512i sum[R][2];
    unrolled<R>([&](auto r) { unrolled<2>([&](auto v) { sum[r][v] = _mm512_setzero_si512(); }); });
#pragma GCC unroll 1
    for (int64_t line = 0; line < Record::kLines; ++line) {
      prefetch<128, 1>(ahead + line * 256 + c * 4);
      const std::byte* codes = record + line * 256 + c * 4;
      const __m512i lines[2] = {_mm512_loadu_si512(codes), _mm512_loadu_si512(codes + 64)};
      unrolled<Record::kRows>([&](auto i) {
        const __m512i w[2] = {row_of_line<Record, i>(lines[0]), row_of_line<Record, i>(lines[1])};
        unrolled<R>([&](auto r) {
          const __m512i four = four_codes(x + r * lda + (line * Record::kRows + i) * 4);
          unrolled<2>([&](auto v) { sum[r][v] = _mm512_dpbusd_epi32(sum[r][v], w[v], four); });
        });
      });
    }
    prefetch<kAlignmentBytes, 1>(ahead + Record::kCodeBytes + c * 2);
    if (Record::kHasZeros && c == 0) prefetch<kAlignmentBytes, 1>(ahead + Record::kCodeBytes + 2 * kPanelColumns);
    unrolled<2>([&](auto v) {
      const int64_t column = c + v * 16;
      const GroupScale<Record> group(record, column);
      unrolled<R>([&](auto r) { group.add(sum[r][v], excess[r], accumulate, acc + r * kPanelColumns + column); });
    });
  }
}

// As gemv_grouped for rows as they lie, all of them by a record before the next one.
template <class Way, class Record>
void few_rows_grouped_by(const int8_t* a, int64_t lda, int64_t rows, const GroupedPanel& first, int64_t panels,
                         float* acc) {
  const int8_t* x = a;  // a group's
  __m512i excess[kMostFewRows];
  each_record<Way, Record>(
      a, first, panels, acc,
      [&](const int8_t* codes) {
        x = codes;
        for (int64_t r = 0; r < rows; ++r) excess[r] = group_excess<Record>(codes + r * lda);
      },
      [&](const std::byte* record, const std::byte* ahead, bool accumulate, float* to) {
        each_even_tile<1, kFewGroupedRows>(rows, [&](auto n, int64_t r) {
          few_rows_record<Record, n>(x + r * lda, lda, record, r == 0 ? ahead : record, excess + r, accumulate,
                                     to + r * kPanelColumns);
        });
      },
      rows * kPanelColumns);
}

void rows_grouped(const int8_t* a, int64_t lda, int64_t rows, const GroupedPanel& first, int64_t panels, float* acc) {
  with_access_pattern([&](auto way) {
    with_record(first.format, [&](auto record) {
      few_rows_grouped_by<decltype(way), decltype(record)>(a, lda, rows, first, panels, acc);
    });
  });
}

void correct(const int8_t* w, int64_t k, int32_t* to) {
  __m512i sum = _mm512_setzero_si512();
  for (int64_t i = 0; i < k; i += 4, w += 4 * kPanelColumns) {
    sum = _mm512_dpbusd_epi32(sum, _mm512_set1_epi8(-128), _mm512_loadu_si512(w));
  }
  _mm512_storeu_si512(to, _mm512_sub_epi32(_mm512_setzero_si512(), sum));
}

template <class Record>
using Piece = CorrectedPiece<Record, 16, correct>;

// R rows by V vectors of 16 columns; `column` is the first. 6 x 2 sums of a group and of all, 2 vectors of w, one of x.
// Of w2, too: with the 6 x 4 sums that would fit without totals GCC keeps some of them in memory, at half the speed.
template <int R, int V, class Piece>
void grouped_tile(const RowTile& tile, const Piece& piece, int64_t column, bool accumulate, float* acc) {
  const auto at = [&](int r, int v) { return acc + r * kPanelColumns + column + v * 16; };
  __m512 total[R][V];
  unrolled<R>([&](auto r) {
    unrolled<V>([&](auto v) { total[r][v] = accumulate ? _mm512_loadu_ps(at(r, v)) : _mm512_setzero_ps(); });
  });
  const int8_t* a = static_cast<const int8_t*>(tile.terms->a) + tile.at_bytes;
  const int8_t* b = piece.codes + column * 4;
  for (int64_t g = column; g < piece.groups * kPanelColumns; g += kPanelColumns) {
    __m512i sum[R][V];
    unrolled<V>([&](auto v) {
      const __m512i correction = _mm512_loadu_si512(piece.corrections + g + v * 16);
      unrolled<R>([&](auto r) { sum[r][v] = correction; });
    });
    for (int64_t i = 0; i < Piece::kK; i += 4, a += tile.block_rows * 4, b += 4 * kPanelColumns) {
      __m512i w[V];
      unrolled<V>([&](auto v) { w[v] = _mm512_loadu_si512(b + v * 64); });
      unrolled<R>([&](auto r) {
        const __m512i x = four_codes(a + r * 4);
        unrolled<V>([&](auto v) { sum[r][v] = _mm512_dpbusd_epi32(sum[r][v], x, w[v]); });
      });
    }
    unrolled<V>([&](auto v) {
      const __m512 scale = _mm512_loadu_ps(piece.scales + g + v * 16);
      unrolled<R>([&](auto r) { total[r][v] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(sum[r][v]), scale, total[r][v]); });
    });
  }
  unrolled<R>([&](auto r) { unrolled<V>([&](auto v) { _mm512_storeu_ps(at(r, v), total[r][v]); }); });
}

void gemm_grouped(const int8_t* a, const RowBlocks& blocks, int64_t rows, const GroupedPanel& panel, float* acc) {
  with_codes_of(panel.format, [&](auto record) {
    each_grouped_tile<Piece<decltype(record)>, kRows, 32, 4>(
        a, blocks, rows, panel, acc, [](auto n, const auto&... args) { grouped_tile<n, 2>(args...); });
  });
}

}  // namespace
}  // namespace pinion
