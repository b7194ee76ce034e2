// Several rows by a panel of a format with groups, a piece of the panel at a time: expanded once for all rows, it stays
// in the L1 cache. Include it after the file that defines Lanes.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/kernels.h"
#include "kernels/lanes/record.h"
#include "kernels/lanes/row_tiles.h"

namespace pinion {
namespace {

// f(panel, acc) for panels that lie one behind the other, each with its part of acc [panels][64].
template <class F>
[[maybe_unused]] void each_panel(GroupedPanel panel, int64_t panels, float* acc, F f) {
  const int64_t step_bytes = panel_bytes(panel.format, panel.k);
  for (int64_t p = 0; p < panels; ++p, panel.records += step_bytes, acc += kPanelColumns) f(panel, acc);
}

constexpr int64_t kExpandedK = 128;  // of a piece: four groups of w4, one of w2

// Zipped: the eight k of a column side by side, for one pair of rows of four k after the other, as SMMLA takes them;
// else w8's layout. Signed: the codes are less their zeros; else they are what they are in the record.
template <class Record, bool Zipped, bool Signed = true>
struct ExpandedPiece {
  static constexpr int64_t kK = Record::kK;  // of a group
  static constexpr int64_t kMostGroups = kExpandedK / kK;

  int64_t groups;
  alignas(kAlignmentBytes) int8_t codes[kExpandedK * kPanelColumns];
  alignas(kAlignmentBytes) float scales[kMostGroups * kPanelColumns];

  static uint32_t zero_of(const std::byte* record, int64_t column, bool has_zero_points) {
    const std::byte* zero_points = record + Record::kCodeBytes + kPanelColumns * 2;
    return has_zero_points ? static_cast<uint32_t>(zero_points[column]) : uint32_t{Record::kZero};
  }

  // Four codes at a time, in a word: the compiler makes vectors of that on every instruction set.
  void expand(int64_t group, const std::byte* record, bool has_zero_points) {
    const auto* scale = reinterpret_cast<const f16*>(record + Record::kCodeBytes);
    for (int64_t c = 0; c < kPanelColumns; c += 16) Lanes::load(scale + c).store(scales + group * kPanelColumns + c);
    uint32_t zero_points[kPanelColumns];  // in every byte
    for (int64_t c = 0; c < kPanelColumns; ++c) {
      zero_points[c] = Signed ? 0x01010101u * zero_of(record, c, has_zero_points) : 0;
    }
    int8_t* to = codes + group * kK * kPanelColumns;
    for (int64_t line = 0; line < Record::kLines; ++line, record += 4 * kPanelColumns) {
      unrolled<Record::kRows / 2>([&](auto pair) {
        expand_pair<pair * 2 * Record::kBits>(record, zero_points, to);
        to += 8 * kPanelColumns;
      });
    }
  }

  // Two rows of four k of a line; Shift: where the first one's bits begin.
  template <int Shift>
  static void expand_pair(const std::byte* line, const uint32_t* zero_points, int8_t* to) {
    constexpr uint32_t kMask = 0x01010101u * Record::kMask, kNoBorrow = 0x80808080u;
    for (int64_t c = 0; c < kPanelColumns; ++c) {
      uint32_t all;
      __builtin_memcpy(&all, line + c * 4, sizeof all);
      const uint32_t first = (((all >> Shift & kMask) | kNoBorrow) - zero_points[c]) ^ kNoBorrow;
      const uint32_t second = (((all >> (Shift + Record::kBits) & kMask) | kNoBorrow) - zero_points[c]) ^ kNoBorrow;
      __builtin_memcpy(to + c * (Zipped ? 8 : 4), &first, sizeof first);
      __builtin_memcpy(to + (Zipped ? c * 8 + 4 : kPanelColumns * 4 + c * 4), &second, sizeof second);
    }
  }
};

// A piece for VPDPBUSD, whose unsigned side are the packed rows, with 128 added to every code. Correct(w, k, to): for
// Columns columns, whose codes begin at w, -128 times the sum of a group's.
template <class Record, int Columns, void (*Correct)(const int8_t* w, int64_t k, int32_t* to)>
struct CorrectedPiece : ExpandedPiece<Record, false> {
  using Base = ExpandedPiece<Record, false>;

  alignas(kAlignmentBytes) int32_t corrections[Base::kMostGroups * kPanelColumns];

  void expand(int64_t group, const std::byte* record, bool has_zero_points) {
    Base::expand(group, record, has_zero_points);
    const int8_t* w = Base::codes + group * Base::kK * kPanelColumns;
    for (int64_t c = 0; c < kPanelColumns; c += Columns) {
      Correct(w + c * 4, Base::kK, corrections + group * kPanelColumns + c);
    }
  }
};

// Between the groups of a piece totals stay in registers. Of one group they are read and written once anyway, and the
// registers are the sums': then a tile is as large as one of w8.
template <class Piece>
constexpr bool kHoldsTotals = Piece::kMostGroups > 1;

// f(Index<n>, tile, piece, column, accumulate, acc): n <= R rows by Columns columns of one piece, from `column` on; the
// rows' sums of the panel begin at acc [n][64]. Piece after piece. Group: codes of a row that lie together.
template <class Piece, int R, int Columns, int Group, class F>
void each_grouped_tile(const int8_t* a, const RowBlocks& blocks, int64_t rows, const GroupedPanel& panel, float* acc,
                       F f) {
  const bool has_zero_points = traits_of(panel.format).has_zero_points;
  const std::byte* record = panel.records;
  Piece piece;
  for (int64_t k = 0; k < panel.k; k += piece.groups * Piece::kK) {
    const int64_t left = (panel.k - k) / Piece::kK;
    piece.groups = left < Piece::kMostGroups ? left : Piece::kMostGroups;
    for (int64_t g = 0; g < piece.groups; ++g, record += record_bytes(panel.format)) {
      piece.expand(g, record, has_zero_points);
    }
    const GemmTerm term = {a + k * blocks.rows, piece.codes, piece.groups * Piece::kK};
    each_row_tile<R, Group>(&term, 1, blocks, rows, [&](auto n, const RowTile& tile, int64_t row) {
      for (int64_t c = 0; c < kPanelColumns; c += Columns) f(n, tile, piece, c, k > 0, acc + row * kPanelColumns);
    });
  }
}

}  // namespace
}  // namespace pinion
