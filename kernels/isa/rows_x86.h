// Shared by the x86 kernels: few unpacked rows, and the GEMV of formats with groups, over the Register of the lanes,
// which are included first. Totals of groups are in memory, because the sums of one group take half of AVX2's
// registers. Each file defines the products as a Dot:
//
//   Weights, load(w)          weights of w8: four k of a register of columns
//   add(sum, Weights, x)      sum + products with four codes of a row
//   start(a, k)               initial value of the sums of a row
//   add_codes(sum, codes, x)  sum + products with the unsigned codes of a format with groups, within one group
//   total(sum)                such a sum as int32; <true>: of levels instead of codes, here and in add_codes
//   sum_of<K>(weight, x)      weight times the sum of K codes of a row, in every lane; weight is at most 15
#pragma once

#include "kernels/kernels.h"
#include "kernels/lanes/rows.h"
#include "kernels/lanes/streams.h"

namespace pinion {
namespace {

using Ints = Register::Ints;
using Floats = Register::Floats;
constexpr int kColumns = Register::kColumns;
constexpr int kVectors = kPanelColumns / kColumns;  // vectors of the columns of a panel
constexpr int kVectorBytes = 4 * kColumns;

// Four codes of a row, repeated for every column.
[[gnu::always_inline]] inline Ints four_codes(const int8_t* a) {
  int32_t four;
  __builtin_memcpy(&four, a, sizeof four);
  return Register::broadcast(four);
}

// acc += R rows by V vectors of columns of a slice, from `column` on, where acc begins. Not inlined: if the instances
// for all R are, GCC spills vectors of AVX2's four rows.
template <class Dot, int V, int R>
[[gnu::noinline]] void few_rows_tile(const int8_t* a, int64_t lda, const int8_t* panel, const PanelSlice& slice,
                                     int64_t column, int32_t* acc) {
  const auto at = [&](int r, int v) { return acc + r * kPanelColumns + v * kColumns; };
  Ints sum[R][V];
  unrolled<R, V>([&](auto r, auto v) { sum[r][v] = Register::load(at(r, v)); });
  for_each_strip(slice, a, panel, column, [&](const int8_t* x, const int8_t* b, const int8_t* ahead) {
    for (const int8_t* end = x + slice.strip_k; x < end; x += 4, b += 4 * kPanelColumns, ahead += V * kVectorBytes) {
      prefetch<V * kVectorBytes, 1>(ahead);
      typename Dot::Weights w[V];
      unrolled<V>([&](auto v) { w[v] = Dot::load(b + v * kVectorBytes); });
      unrolled<R>([&](auto r) {
        const Ints four = four_codes(x + r * lda);
        unrolled<V>([&](auto v) { sum[r][v] = Dot::add(sum[r][v], w[v], four); });
      });
    }
  });
  unrolled<R, V>([&](auto r, auto v) { Register::store(sum[r][v], at(r, v)); });
}

// Kernels::rows_s8, in tiles of at most R rows by V vectors of columns.
template <class Dot, int R, int V>
void rows_s8(const int8_t* a, int64_t lda, int64_t rows, const int8_t* panel, int64_t k, int32_t* acc) {
  for (int64_t r = 0; r < rows; ++r) {
    const Ints start = Dot::start(a + r * lda, k);
    for (int64_t c = 0; c < kPanelColumns; c += kColumns) Register::store(start, acc + r * kPanelColumns + c);
  }
  with_access_pattern([&](auto access) {
    for_each_slice<decltype(access), 4>(k, [&](const PanelSlice& slice) {
      for (int64_t c = 0; c < kPanelColumns; c += V * kColumns) {
        for_each_even_tile<1, R>(rows, [&](auto n, int64_t r) {
          few_rows_tile<Dot, V, n>(a + r * lda, lda, panel, slice, c, acc + r * kPanelColumns + c);
        });
      }
    });
  });
}

// acc (+)= sum * scale.
[[gnu::always_inline]] inline void add_scaled(Floats sum, Floats scale, bool accumulate, float* acc) {
  const Floats total = accumulate ? Register::load(acc) : Register::broadcast(0.0f);
  Register::store(Register::fma(sum, scale, total), acc);
}

// Levels of a format as the operand of Dot::add_codes, which are kLevelZero above the weights.
template <class Dot, class Record>
struct LevelTable {
  alignas(16) int8_t levels[16];
  constexpr LevelTable() : levels() {
    for (int i = 0; i < 16; ++i) levels[i] = static_cast<int8_t>(Record::kLevels[i] + Dot::kLevelZero);
  }
};

// Codes or levels from row R of a line.
template <class Dot, class Record, int R>
[[gnu::always_inline]] inline Ints row_of_line(Ints line) {
  const Ints codes = Register::bits<R * Record::kBits, Record::kMask>(line);
  if constexpr (Record::kHasLevels) {
    static constexpr LevelTable<Dot, Record> kTable;
    return Register::lookup(kTable.levels, codes);
  }
  return codes;
}

// The excess of sum(code * x) over sum(weight * x) for a group, in every lane: zero * sum(x). If each column has its
// own zero point, sum(x) / kZeroSteps.
template <class Dot, class Record>
[[gnu::always_inline]] inline Floats group_excess(const int8_t* x) {
  constexpr int kZero = Record::kHasLevels ? Dot::kLevelZero : Record::kZero;
  if constexpr (kZero == 0 && !Record::kHasZeros) return Register::broadcast(0.0f);
  const Floats sum = Register::to_floats(Dot::template sum_of<Record::kK>(Record::kHasZeros ? 1 : kZero, x));
  return Record::kHasZeros ? sum * Register::broadcast(1.0f / kZeroSteps) : sum;
}

// Scales and zero points of a register of columns of a group.
template <class Dot, class Record>
struct GroupScale {
  Floats scale;
  Floats zeros;  // times kZeroSteps; used only if the format has zero points

  [[gnu::always_inline]] GroupScale(const std::byte* record, int64_t column) {
    const std::byte* scales = record + Record::kCodeBytes;
    scale = Register::broadcast(1.0f);
    if constexpr (Record::kHasScales) scale = Register::load(reinterpret_cast<const f16*>(scales) + column);
    if constexpr (Record::kHasZeros) {
      zeros = Register::load(reinterpret_cast<const uint8_t*>(scales) + kPanelColumns * 2 + column);
    }
  }

  // acc += (total(sum) - excess) * scale, where the difference is exact.
  [[gnu::always_inline]] void add(Ints sum, Floats excess, bool accumulate, float* acc) const {
    const Floats all = Register::to_floats(Dot::template total<Record::kHasLevels>(sum));
    add_scaled(Record::kHasZeros ? Register::subtract_product(zeros, excess, all) : all - excess, scale, accumulate,
               acc);
  }
};

template <class Dot, class Access, class Record>
[[gnu::noinline]] void gemv_grouped_by(const int8_t* a, const GroupedPanel& first, int64_t panels, float* acc) {
  const int8_t* x = a;  // codes of the current group
  Floats excess;
  for_each_record<Access, Record>(
      a, first, panels, acc,
      [&](const int8_t* codes) {
        x = codes;
        excess = group_excess<Dot, Record>(codes);
      },
      [&](const std::byte* record, const std::byte* ahead, bool accumulate, float* to) {
        prefetch_record<Access, Record>(ahead);
        Ints sum[kVectors];
        unrolled<kVectors>([&](auto v) { sum[v] = Register::zero(); });
// If unrolled, GCC computes all products first and spills them, or reads the record out of order, which is slower.
#pragma GCC unroll 1
        for (int64_t line = 0; line < Record::kLines; ++line) {
          Ints four[Record::kRows];
          unrolled<Record::kRows>([&](auto i) { four[i] = four_codes(x + (line * Record::kRows + i) * 4); });
          unrolled<kVectors>([&](auto v) {
            const Ints codes = Register::load(record + line * 256 + v * kVectorBytes);
            unrolled<Record::kRows>([&](auto i) {
              sum[v] = Dot::template add_codes<Record::kHasLevels>(sum[v], row_of_line<Dot, Record, i>(codes), four[i]);
            });
          });
        }
        unrolled<kVectors>([&](auto v) {
          GroupScale<Dot, Record>(record, v * kColumns).add(sum[v], excess, accumulate, to + v * kColumns);
        });
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
[[gnu::noinline]] void few_rows_record(int64_t lda, const int8_t* x, const Floats* excess, const std::byte* record,
                                       const std::byte* ahead, bool accumulate, float* acc) {
  for (int64_t c = 0; c < kPanelColumns; c += 2 * kColumns) {
    Ints sum[R][2];
    unrolled<R, 2>([&](auto r, auto v) { sum[r][v] = Register::zero(); });
#pragma GCC unroll 1  // as in gemv_grouped_by
    for (int64_t line = 0; line < Record::kLines; ++line) {
      prefetch<2 * kVectorBytes, 1>(ahead + line * 256 + c * 4);
      const std::byte* codes = record + line * 256 + c * 4;
      const Ints lines[2] = {Register::load(codes), Register::load(codes + kVectorBytes)};
      unrolled<Record::kRows>([&](auto i) {
        const Ints w[2] = {row_of_line<Dot, Record, i>(lines[0]), row_of_line<Dot, Record, i>(lines[1])};
        unrolled<R>([&](auto r) {
          const Ints four = four_codes(x + r * lda + (line * Record::kRows + i) * 4);
          unrolled<2>([&](auto v) { sum[r][v] = Dot::template add_codes<Record::kHasLevels>(sum[r][v], w[v], four); });
        });
      });
    }
    if (Record::kHasScales && c % 32 == 0) prefetch<kAlignmentBytes, 1>(ahead + Record::kCodeBytes + c * 2);
    if (Record::kHasZeros && c == 0) prefetch<kAlignmentBytes, 1>(ahead + Record::kCodeBytes + 2 * kPanelColumns);
    unrolled<2>([&](auto v) {
      const int64_t column = c + v * kColumns;
      const GroupScale<Dot, Record> group(record, column);
      unrolled<R>([&](auto r) { group.add(sum[r][v], excess[r], accumulate, acc + r * kPanelColumns + column); });
    });
  }
}

template <class Dot, int R>
void rows_grouped(const int8_t* a, int64_t lda, int64_t rows, const GroupedPanel& first, int64_t panels, float* acc) {
  with_access_pattern([&](auto access) {
    with_record(first.format, [&](auto type) {
      using Record = decltype(type);
      for_each_record_tile<decltype(access), Record, 1, R>(
          a, lda, rows, first, panels, acc, [](const int8_t* x) { return group_excess<Dot, Record>(x); },
          [=](auto n, const auto&... args) { few_rows_record<Dot, Record, n>(lda, args...); });
    });
  });
}

}  // namespace
}  // namespace pinion
