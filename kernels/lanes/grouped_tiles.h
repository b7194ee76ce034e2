// Several rows by a panel of a format with groups. The codes of a slice of the panel are expanded to bytes once for all
// rows and stay in the L1 cache. Include it after the file that defines Lanes.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/kernels.h"
#include "kernels/lanes/rows.h"
#include "kernels/lanes/streams.h"

namespace pinion {
namespace {

constexpr int64_t kExpandedK = 128;  // k of a slice: four groups of w4, one of w2

// Up to kMaxGroups groups of a panel as bytes, and their scales as floats. Zipped: eight k of a column are side by
// side, as SMMLA reads them; else the layout is that of w8. Signed: the zero points are subtracted, for w4z from
// kZeroSteps times the codes, and the scales are divided by kZeroSteps; else the codes are unchanged. Levels are looked
// up and need neither.
template <class Record, bool Zipped, bool Signed = true>
struct ExpandedSlice {
  static constexpr int64_t kK = Record::kK;  // k of a group
  static constexpr int64_t kMaxGroups = kExpandedK / kK;
  static constexpr bool kHasZeros = Record::kHasZeros, kHasLevels = Record::kHasLevels;
  static constexpr int kSteps = Signed && Record::kHasZeros ? kZeroSteps : 1;

  int64_t groups;
  alignas(kAlignmentBytes) int8_t codes[kExpandedK * kPanelColumns];
  alignas(kAlignmentBytes) float scales[kMaxGroups * kPanelColumns];

  // The zero point of a column, for w4z times kZeroSteps.
  static uint32_t zero_of(const std::byte* record, int64_t column) {
    if constexpr (!Record::kHasZeros) return uint32_t{Record::kZero};
    return static_cast<uint32_t>(record[Record::kCodeBytes + kPanelColumns * 2 + column]);
  }

  // Expands one record. Four codes share a word, and compilers vectorise loops over words on every instruction set.
  void expand(int64_t group, const std::byte* record) {
    const auto* scale = reinterpret_cast<const f16*>(record + Record::kCodeBytes);
    float* to_scale = scales + group * kPanelColumns;
    for (int64_t c = 0; c < kPanelColumns; c += 16) {
      (Record::kHasScales ? Lanes::load(scale + c) : Lanes::broadcast(1.0f)).store(to_scale + c);
    }
    for (int64_t c = 0; kSteps > 1 && c < kPanelColumns; ++c) to_scale[c] *= 1.0f / kSteps;
    uint32_t zero_points[kPanelColumns];  // repeated in every byte
    for (int64_t c = 0; c < kPanelColumns; ++c) zero_points[c] = Signed ? 0x01010101u * zero_of(record, c) : 0;
    int8_t *const numbers = codes + group * kK * kPanelColumns, *to = numbers;
    for (int64_t line = 0; line < Record::kLines; ++line, record += 4 * kPanelColumns) {
      unrolled<Record::kRows / 2>([&](auto pair) {
        expand_pair<pair * 2 * Record::kBits>(record, zero_points, to);
        to += 8 * kPanelColumns;
      });
    }
    if constexpr (kHasLevels) Lanes::look_up(Record::kLevels, numbers, kK * kPanelColumns);
  }

  // Expands two rows of four k of a line. Shift: lowest bit of the first row's codes.
  template <int Shift>
  static void expand_pair(const std::byte* line, const uint32_t* zero_points, int8_t* to) {
    constexpr uint32_t kMask = 0x01010101u * Record::kMask, kNoBorrow = 0x80808080u;
    for (int64_t c = 0; c < kPanelColumns; ++c) {
      uint32_t all;
      __builtin_memcpy(&all, line + c * 4, sizeof all);
      const uint32_t low = (all >> Shift & kMask) * kSteps;
      const uint32_t high = (all >> (Shift + Record::kBits) & kMask) * kSteps;
      const uint32_t first = ((low | kNoBorrow) - zero_points[c]) ^ kNoBorrow;
      const uint32_t second = ((high | kNoBorrow) - zero_points[c]) ^ kNoBorrow;
      __builtin_memcpy(to + c * (Zipped ? 8 : 4), &first, sizeof first);
      __builtin_memcpy(to + (Zipped ? c * 8 + 4 : kPanelColumns * 4 + c * 4), &second, sizeof second);
    }
  }
};

// A slice of unsigned codes and their zero points. The tile subtracts a zero point times the sum of a row's codes.
template <class Record>
struct UnsignedSlice : ExpandedSlice<Record, false, false> {
  using Base = ExpandedSlice<Record, false, false>;

  alignas(kAlignmentBytes) float zero_points[Base::kMaxGroups * kPanelColumns];

  void expand(int64_t group, const std::byte* record) {
    Base::expand(group, record);
    for (int64_t c = 0; c < kPanelColumns; ++c) {
      const auto zero = static_cast<float>(static_cast<int32_t>(Base::zero_of(record, c)));
      zero_points[group * kPanelColumns + c] = Record::kHasZeros ? zero / kZeroSteps : zero;
    }
  }
};

// A slice for VPDPBUSD. Its unsigned operand are the packed rows, whose codes have 128 added, so every sum starts at a
// correction. Correct(w, k, to): to[c] = -128 * sum over a group of k codes, for Columns columns that start at w.
template <class Record, int Columns, void (*Correct)(const int8_t* w, int64_t k, int32_t* to)>
struct CorrectedSlice : ExpandedSlice<Record, false> {
  using Base = ExpandedSlice<Record, false>;

  alignas(kAlignmentBytes) int32_t corrections[Base::kMaxGroups * kPanelColumns];

  void expand(int64_t group, const std::byte* record) {
    Base::expand(group, record);
    const int8_t* w = Base::codes + group * Base::kK * kPanelColumns;
    for (int64_t c = 0; c < kPanelColumns; c += Columns) {
      Correct(w + c * 4, Base::kK, corrections + group * kPanelColumns + c);
    }
  }
};

// True if tiles keep the totals of all groups in registers between the groups of a slice. A slice of one group loads
// and stores each total once in any case, so its tiles use the registers for sums and are as large as those of w8.
template <class Slice>
constexpr bool kHoldsTotals = Slice::kMaxGroups > 1;

// Calls f(Index<n>, tile, slice, column, accumulate, acc) for every slice and every tile of n <= R rows by Columns
// columns that start at `column`. acc: [n][64], the sums of these rows over the panel. Group: codes of a row that are
// side by side.
template <class Slice, int R, int Columns, int Group, class F>
void for_each_grouped_tile(const int8_t* a, const RowBlocks& blocks, int64_t rows, const GroupedPanel& panel,
                           float* acc, F f) {
  const std::byte* record = panel.records;
  Slice slice;
  for (int64_t k = 0; k < panel.k; k += slice.groups * Slice::kK) {
    const int64_t left = (panel.k - k) / Slice::kK;
    slice.groups = left < Slice::kMaxGroups ? left : Slice::kMaxGroups;
    for (int64_t g = 0; g < slice.groups; ++g, record += record_bytes(panel.format)) slice.expand(g, record);
    const GemmTerm term = {a + k * blocks.rows, slice.codes, slice.groups * Slice::kK};
    for_each_register_tile<R, Group>(&term, 1, blocks, rows, [&](auto n, const RowTile& tile, int64_t row) {
      for (int64_t c = 0; c < kPanelColumns; c += Columns) f(n, tile, slice, c, k > 0, acc + row * kPanelColumns);
    });
  }
}

}  // namespace
}  // namespace pinion
