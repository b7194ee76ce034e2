// Shared by AVX2 and AVX-VNNI: few unpacked rows, and the GEMV of formats with groups. Totals of groups are in memory,
// because the sums of one group take half of the registers. Each file defines the products as a Dot:
//
//   Weights, load(w)          weights of w8: four k of eight columns
//   add(sum, Weights, x)      sum + products with four codes of a row
//   start(a, k)               initial value of the sums of a row
//   add_codes(sum, codes, x)  sum + products with the unsigned codes of a format with groups, within one group
//   total(sum)                such a sum as int32
#pragma once

#include <immintrin.h>

#include "kernels/kernels.h"
#include "kernels/lanes/avx2.h"
#include "kernels/lanes/rows.h"
#include "kernels/lanes/streams.h"

namespace pinion {
namespace {

// Four codes of a row, repeated for every column.
[[gnu::always_inline]] inline __m256i four_codes(const int8_t* a) {
  int32_t four;
  __builtin_memcpy(&four, a, sizeof four);
  return _mm256_set1_epi32(four);
}

// acc [R][64] += R rows by 16 columns of a slice, from `column` on. Not inlined: if the instances for all R are, GCC
// spills vectors of AVX2's four rows.
template <class Dot, int R>
[[gnu::noinline]] void few_rows_tile(const int8_t* a, int64_t lda, const int8_t* panel, const PanelSlice& slice,
                                     int64_t column, int32_t* acc) {
  const auto at = [&](int r, int v) { return reinterpret_cast<__m256i*>(acc + r * kPanelColumns + column + v * 8); };
  __m256i sum[R][2];
  unrolled<R>([&](auto r) { unrolled<2>([&](auto v) { sum[r][v] = _mm256_loadu_si256(at(r, v)); }); });
  for_each_strip(slice, a, panel, column, [&](const int8_t* x, const int8_t* b, const int8_t* ahead) {
    for (const int8_t* end = x + slice.strip_k; x < end; x += 4, b += 4 * kPanelColumns, ahead += kAlignmentBytes) {
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

// Kernels::rows_s8, in tiles of at most R rows.
template <class Dot, int R>
void rows_s8(const int8_t* a, int64_t lda, int64_t rows, const int8_t* panel, int64_t k, int32_t* acc) {
  for (int64_t r = 0; r < rows; ++r) {
    const __m256i start = Dot::start(a + r * lda, k);
    for (int64_t c = 0; c < kPanelColumns; c += 8) {
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(acc + r * kPanelColumns + c), start);
    }
  }
  with_access_pattern([&](auto access) {
    for_each_slice<decltype(access), 4>(k, [&](const PanelSlice& slice) {
      for (int64_t c = 0; c < kPanelColumns; c += 16) {
        for_each_even_tile<1, R>(rows, [&](auto n, int64_t r) {
          few_rows_tile<Dot, n>(a + r * lda, lda, panel, slice, c, acc + r * kPanelColumns);
        });
      }
    });
  });
}

// acc[8] (+)= sum * scale.
[[gnu::always_inline]] inline void add_scaled(__m256 sum, __m256 scale, bool accumulate, float* acc) {
  const __m256 total = accumulate ? _mm256_loadu_ps(acc) : _mm256_setzero_ps();
  _mm256_storeu_ps(acc, _mm256_fmadd_ps(sum, scale, total));
}

// Codes of eight columns, from row R of a line.
template <class Record, int R>
[[gnu::always_inline]] inline __m256i row_of_line(__m256i line) {
  if constexpr (R > 0) line = _mm256_srli_epi16(line, R * Record::kBits);
  return _mm256_and_si256(line, _mm256_set1_epi8(Record::kMask));
}

// The excess of sum(code * x) over sum(weight * x) for a group, in every lane: zero * sum(x). If each column has its
// own zero point, sum(x) / kZeroSteps.
template <class Dot, class Record>
[[gnu::always_inline]] inline __m256 group_excess(const int8_t* x) {
  const __m256i zero = _mm256_set1_epi8(Record::kHasZeros ? 1 : Record::kZero);
  __m256i sum = _mm256_setzero_si256();
  unrolled<Record::kK / 32>([&](auto i) {
    sum = Dot::add_codes(sum, zero, _mm256_loadu_si256(reinterpret_cast<const __m256i*>(x + i * 32)));
  });
  sum = Dot::total(sum);
  sum = _mm256_add_epi32(sum, _mm256_permute2x128_si256(sum, sum, 1));
  sum = _mm256_add_epi32(sum, _mm256_shuffle_epi32(sum, 0x4e));
  const __m256 all = _mm256_cvtepi32_ps(_mm256_add_epi32(sum, _mm256_shuffle_epi32(sum, 0xb1)));
  return Record::kHasZeros ? _mm256_mul_ps(all, _mm256_set1_ps(1.0f / kZeroSteps)) : all;
}

// Scales and zero points of eight columns of a group.
template <class Dot, class Record>
struct GroupScale {
  __m256 scale;
  __m256 zeros;  // times kZeroSteps; used only if the format has zero points

  [[gnu::always_inline]] GroupScale(const std::byte* record, int64_t column) {
    const std::byte* scales = record + Record::kCodeBytes;
    scale = Lanes::widen(reinterpret_cast<const f16*>(scales) + column);
    if constexpr (Record::kHasZeros) {
      const auto* zero_points = reinterpret_cast<const __m128i*>(scales + kPanelColumns * 2 + column);
      zeros = _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_loadl_epi64(zero_points)));
    }
  }

  // acc += (total(sum) - excess) * scale, where the difference is exact.
  [[gnu::always_inline]] void add(__m256i sum, __m256 excess, bool accumulate, float* acc) const {
    __m256 exact = _mm256_cvtepi32_ps(Dot::total(sum));
    exact = Record::kHasZeros ? _mm256_fnmadd_ps(zeros, excess, exact) : _mm256_sub_ps(exact, excess);
    add_scaled(exact, scale, accumulate, acc);
  }
};

template <class Dot, class Access, class Record>
[[gnu::noinline]] void gemv_grouped_by(const int8_t* a, const GroupedPanel& first, int64_t panels, float* acc) {
  constexpr int kVectors = 8;  // vectors of the columns of a panel
  const int8_t* x = a;         // codes of the current group
  __m256 excess;
  for_each_record<Access, Record>(
      a, first, panels, acc,
      [&](const int8_t* codes) {
        x = codes;
        excess = group_excess<Dot, Record>(codes);
      },
      [&](const std::byte* record, const std::byte* ahead, bool accumulate, float* to) {
        prefetch_record<Access, Record>(ahead);
        __m256i sum[kVectors];
        unrolled<kVectors>([&](auto v) { sum[v] = _mm256_setzero_si256(); });
#pragma GCC unroll 1  // if unrolled, GCC computes all products first and spills them
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
  with_access_pattern([&](auto access) {
    with_record(first.format,
                [&](auto record) { gemv_grouped_by<Dot, decltype(access), decltype(record)>(a, first, panels, acc); });
  });
}

// acc [R][64] (+)= R rows by a record, two vectors of columns at a time; prefetches the record `ahead`. x: codes of the
// group; excess: [R].
template <class Dot, class Record, int R>
[[gnu::noinline]] void few_rows_record(const int8_t* x, int64_t lda, const std::byte* record, const std::byte* ahead,
                                       const __m256* excess, bool accumulate, float* acc) {
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

// Kernels::rows_grouped, in tiles of at most R rows. All rows multiply a record before the next one.
template <class Dot, int R, class Access, class Record>
void few_rows_grouped_by(const int8_t* a, int64_t lda, int64_t rows, const GroupedPanel& first, int64_t panels,
                         float* acc) {
  const int8_t* x = a;  // codes of the current group
  __m256 excess[kMaxFewRows];
  for_each_record<Access, Record>(
      a, first, panels, acc,
      [&](const int8_t* codes) {
        x = codes;
        for (int64_t r = 0; r < rows; ++r) excess[r] = group_excess<Dot, Record>(codes + r * lda);
      },
      [&](const std::byte* record, const std::byte* ahead, bool accumulate, float* to) {
        for_each_even_tile<1, R>(rows, [&](auto n, int64_t r) {
          few_rows_record<Dot, Record, n>(x + r * lda, lda, record, r == 0 ? ahead : record, excess + r, accumulate,
                                          to + r * kPanelColumns);
        });
      },
      rows * kPanelColumns);
}

template <class Dot, int R>
void rows_grouped(const int8_t* a, int64_t lda, int64_t rows, const GroupedPanel& first, int64_t panels, float* acc) {
  with_access_pattern([&](auto access) {
    with_record(first.format, [&](auto record) {
      few_rows_grouped_by<Dot, R, decltype(access), decltype(record)>(a, lda, rows, first, panels, acc);
    });
  });
}

}  // namespace
}  // namespace pinion
