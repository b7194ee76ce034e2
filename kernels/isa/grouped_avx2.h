// What the AVX2 and AVX-VNNI kernels of formats with groups share: one row, a few rows, and the way from the sums of a
// group to the totals. Totals wait in memory, for the sums alone take half of the registers. Products are those of a
// Dot (few_rows_avx2.h).
#pragma once

#include "kernels/isa/few_rows_avx2.h"
#include "kernels/kernels.h"
#include "kernels/lanes/avx2.h"
#include "kernels/lanes/record.h"
#include "kernels/lanes/row_tiles.h"
#include "kernels/lanes/streams.h"

namespace pinion {
namespace {

// acc[8] (+)= float(sum) * scale.
[[gnu::always_inline]] inline void add_scaled(__m256i sum, __m256 scale, bool accumulate, float* acc) {
  const __m256 total = accumulate ? _mm256_loadu_ps(acc) : _mm256_setzero_ps();
  _mm256_storeu_ps(acc, _mm256_fmadd_ps(_mm256_cvtepi32_ps(sum), scale, total));
}

// Eight columns' codes of row R of a line.
template <class Record, int R>
[[gnu::always_inline]] inline __m256i row_of_line(__m256i line) {
  if constexpr (R > 0) line = _mm256_srli_epi16(line, R * Record::kBits);
  return _mm256_and_si256(line, _mm256_set1_epi8(Record::kMask));
}

// What sums of code * x exceed those of the weights by, in every lane: the sum of a group's x times the zero. Where
// columns have zeros of their own, the sum of x alone.
template <class Dot, class Record>
[[gnu::always_inline]] inline __m256i group_excess(const int8_t* x) {
  const __m256i zero = _mm256_set1_epi8(Record::kHasZeros ? 1 : Record::kZero);
  __m256i sum = _mm256_setzero_si256();
  unrolled<Record::kK / 32>([&](auto i) {
    sum = Dot::add_codes(sum, zero, _mm256_loadu_si256(reinterpret_cast<const __m256i*>(x + i * 32)));
  });
  sum = Dot::total(sum);
  sum = _mm256_add_epi32(sum, _mm256_permute2x128_si256(sum, sum, 1));
  sum = _mm256_add_epi32(sum, _mm256_shuffle_epi32(sum, 0x4e));
  return _mm256_add_epi32(sum, _mm256_shuffle_epi32(sum, 0xb1));
}

// How a group of eight columns becomes part of the totals.
template <class Dot, class Record>
struct GroupScale {
  __m256 scale;
  __m256i zeros;  // where columns have some of their own

  [[gnu::always_inline]] GroupScale(const std::byte* record, int64_t column) {
    const std::byte* scales = record + Record::kCodeBytes;
    scale = Lanes::widen(reinterpret_cast<const f16*>(scales) + column);
    if constexpr (Record::kHasZeros) {
      const auto* zero_points = reinterpret_cast<const __m128i*>(scales + kPanelColumns * 2 + column);
      zeros = _mm256_cvtepu8_epi32(_mm_loadl_epi64(zero_points));
    }
  }

  // sum: as Dot leaves it. The sum of x and a zero fit 16 bits: of each 32 the lower half holds them, and the zero's
  // upper half is 0.
  [[gnu::always_inline]] void add(__m256i sum, __m256i excess, bool accumulate, float* acc) const {
    if constexpr (Record::kHasZeros) excess = _mm256_madd_epi16(excess, zeros);
    add_scaled(_mm256_sub_epi32(Dot::total(sum), excess), scale, accumulate, acc);
  }
};

template <class Dot, class Way, class Record>
[[gnu::noinline]] void gemv_grouped_by(const int8_t* a, const GroupedPanel& first, int64_t panels, float* acc) {
  constexpr int kVectors = 8;  // a panel's columns
  const int8_t* x = a;         // a group's
  __m256i excess;
  each_record<Way, Record>(
      a, first, panels, acc,
      [&](const int8_t* codes) {
        x = codes;
        excess = group_excess<Dot, Record>(codes);
      },
      [&](const std::byte* record, const std::byte* ahead, bool accumulate, float* to) {
        prefetch_record<Way, Record>(ahead);
        __m256i sum[kVectors];
        unrolled<kVectors>([&](auto v) { sum[v] = _mm256_setzero_si256(); });
#pragma GCC unroll 1  // unrolled, GCC adds up the products first and spills them all
        for (int64_t line = 0; line < Record::kLines; ++line) {
          __m256i four[Record::kRows];
          unrolled<Record::kRows>([&](auto i) { four[i] = four_codes(x + (line * Record::kRows + i) * 4); });
          unrolled<kVectors>([&](auto v) {
            const auto* from = reinterpret_cast<const __m256i*>(record + line * 256 + v * 32);
            const __m256i codes = _mm256_loadu_si256(from);
            unrolled<Record::kRows>(
                [&](auto i) { sum[v] = Dot::add_codes(sum[v], row_of_line<Record, i>(codes), four[i]); });
          });
        }
        unrolled<kVectors>(
            [&](auto v) { GroupScale<Dot, Record>(record, v * 8).add(sum[v], excess, accumulate, to + v * 8); });
      });
}

template <class Dot>
void gemv_grouped(const int8_t* a, const GroupedPanel& first, int64_t panels, float* acc) {
  with_access_pattern([&](auto way) {
    with_record(first.format,
                [&](auto record) { gemv_grouped_by<Dot, decltype(way), decltype(record)>(a, first, panels, acc); });
  });
}

// R rows by a record, two vectors of columns at a time, while `ahead` is prefetched. x: the group's codes; excess: [R];
// acc: [R][64].
template <class Dot, class Record, int R>
[[gnu::noinline]] void few_rows_record(const int8_t* x, int64_t lda, const std::byte* record, const std::byte* ahead,
                                       const __m256i* excess, bool accumulate, float* acc) {
  for (int64_t c = 0; c < kPanelColumns; c += 16) {
    __m256i sum[R][2];
    unrolled<R>([&](auto r) { unrolled<2>([&](auto v) { sum[r][v] = _mm256_setzero_si256(); }); });
#pragma GCC unroll 1  // as in gemv_grouped_by
    for (int64_t line = 0; line < Record::kLines; ++line) {
      prefetch<kAlignmentBytes, 1>(ahead + line * 256 + c * 4);
      const auto* codes = reinterpret_cast<const __m256i*>(record + line * 256 + c * 4);
      const __m256i lines[2] = {_mm256_loadu_si256(codes), _mm256_loadu_si256(codes + 1)};
      unrolled<Record::kRows>([&](auto i) {
        const __m256i w[2] = {row_of_line<Record, i>(lines[0]), row_of_line<Record, i>(lines[1])};
        unrolled<R>([&](auto r) {
          const __m256i four = four_codes(x + r * lda + (line * Record::kRows + i) * 4);
          unrolled<2>([&](auto v) { sum[r][v] = Dot::add_codes(sum[r][v], w[v], four); });
        });
      });
    }
    if (c % 32 == 0) prefetch<kAlignmentBytes, 1>(ahead + Record::kCodeBytes + c * 2);
    if (Record::kHasZeros && c == 0) prefetch<kAlignmentBytes, 1>(ahead + Record::kCodeBytes + 2 * kPanelColumns);
    unrolled<2>([&](auto v) {
      const int64_t column = c + v * 8;
      const GroupScale<Dot, Record> group(record, column);
      unrolled<R>([&](auto r) { group.add(sum[r][v], excess[r], accumulate, acc + r * kPanelColumns + column); });
    });
  }
}

// At most R rows at a time, all of them by a record before the next one.
template <class Dot, int R, class Way, class Record>
void few_rows_grouped_by(const int8_t* a, int64_t lda, int64_t rows, const GroupedPanel& first, int64_t panels,
                         float* acc) {
  const int8_t* x = a;  // a group's
  __m256i excess[kMostFewRows];
  each_record<Way, Record>(
      a, first, panels, acc,
      [&](const int8_t* codes) {
        x = codes;
        for (int64_t r = 0; r < rows; ++r) excess[r] = group_excess<Dot, Record>(codes + r * lda);
      },
      [&](const std::byte* record, const std::byte* ahead, bool accumulate, float* to) {
        each_even_tile<1, R>(rows, [&](auto n, int64_t r) {
          few_rows_record<Dot, Record, n>(x + r * lda, lda, record, r == 0 ? ahead : record, excess + r, accumulate,
                                          to + r * kPanelColumns);
        });
      },
      rows * kPanelColumns);
}

template <class Dot, int R>
void rows_grouped(const int8_t* a, int64_t lda, int64_t rows, const GroupedPanel& first, int64_t panels, float* acc) {
  with_access_pattern([&](auto way) {
    with_record(first.format, [&](auto record) {
      few_rows_grouped_by<Dot, R, decltype(way), decltype(record)>(a, lda, rows, first, panels, acc);
    });
  });
}

}  // namespace
}  // namespace pinion
