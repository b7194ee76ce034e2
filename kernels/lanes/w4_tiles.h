// Several rows by a panel of w4, a piece of the panel at a time: expanded once for all rows, it stays in the L1 cache.
// Include it after the file that defines Lanes.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/kernels.h"
#include "kernels/lanes/row_tiles.h"

namespace pinion {
namespace {

// f(panel, acc) for panels that lie one behind the other, each with its part of acc [panels][64].
template <class F>
[[maybe_unused]] void each_panel(W4Panel panel, int64_t panels, float* acc, F f) {
  const int64_t step_bytes = panel.k / kBlockK * w4_record_bytes(panel.has_zero_points);
  for (int64_t p = 0; p < panels; ++p, panel.records += step_bytes, acc += kPanelColumns) f(panel, acc);
}

constexpr int kPieceGroups = 4;

static inline uint32_t w4_zero(const std::byte* record, int64_t column, bool has_zero_points) {
  return has_zero_points ? static_cast<uint32_t>(record[kW4CodeBytes + kPanelColumns * 2 + column]) : 8u;
}

// Zipped: the eight k of a column side by side, for one pair of rows of four k after the other, as SMMLA takes them;
// else w8's layout. Signed: the codes are less their zeros; else they are 0 to 15, as they lie.
template <bool Zipped, bool Signed = true>
struct W4Piece {
  int64_t groups;
  alignas(kAlignmentBytes) int8_t codes[kPieceGroups * kBlockK * kPanelColumns];
  alignas(kAlignmentBytes) float scales[kPieceGroups * kPanelColumns];

  // Four codes at a time, in a word: the compiler makes vectors of that on every instruction set.
  void expand(int64_t group, const std::byte* record, bool has_zero_points) {
    constexpr uint32_t kNibbles = 0x0f0f0f0fu, kNoBorrow = 0x80808080u;
    const std::byte* scale = record + kW4CodeBytes;
    for (int64_t c = 0; c < kPanelColumns; c += 16) {
      Lanes::load(reinterpret_cast<const f16*>(scale) + c).store(scales + group * kPanelColumns + c);
    }
    uint32_t zero_points[kPanelColumns];  // in every byte
    for (int64_t c = 0; c < kPanelColumns; ++c) {
      zero_points[c] = Signed ? 0x01010101u * w4_zero(record, c, has_zero_points) : 0;
    }
    for (int64_t pair = 0; pair < kBlockK / 8; ++pair) {
      const std::byte* from = record + pair * kPanelColumns * 4;
      int8_t* to = codes + (group * kBlockK + pair * 8) * kPanelColumns;
      for (int64_t c = 0; c < kPanelColumns; ++c) {
        uint32_t both;
        __builtin_memcpy(&both, from + c * 4, sizeof both);
        const uint32_t first = (((both & kNibbles) | kNoBorrow) - zero_points[c]) ^ kNoBorrow;
        const uint32_t second = (((both >> 4 & kNibbles) | kNoBorrow) - zero_points[c]) ^ kNoBorrow;
        __builtin_memcpy(to + c * (Zipped ? 8 : 4), &first, sizeof first);
        __builtin_memcpy(to + (Zipped ? c * 8 + 4 : kPanelColumns * 4 + c * 4), &second, sizeof second);
      }
    }
  }
};

// A piece for VPDPBUSD, whose unsigned side are the packed rows, with 128 added to every code. Correct(w, to): for
// Columns columns, whose codes begin at w, -128 times the sum of a group's.
template <int Columns, void (*Correct)(const int8_t* w, int32_t* to)>
struct CorrectedPiece : W4Piece<false> {
  alignas(kAlignmentBytes) int32_t corrections[kPieceGroups * kPanelColumns];

  void expand(int64_t group, const std::byte* record, bool has_zero_points) {
    W4Piece::expand(group, record, has_zero_points);
    for (int64_t c = 0; c < kPanelColumns; c += Columns) {
      Correct(codes + group * kBlockK * kPanelColumns + c * 4, corrections + group * kPanelColumns + c);
    }
  }
};

// f(Index<n>, tile, piece, column, accumulate, acc): n <= R rows by Columns columns of one piece, from `column` on; the
// rows' sums of the panel begin at acc [n][64]. Piece after piece. Group: codes of a row that lie together.
template <class Piece, int R, int Columns, int Group, class F>
void each_w4_tile(const int8_t* a, const RowBlocks& blocks, int64_t rows, const W4Panel& panel, float* acc, F f) {
  const std::byte* record = panel.records;
  Piece piece;
  for (int64_t k = 0; k < panel.k; k += piece.groups * kBlockK) {
    const int64_t left = (panel.k - k) / kBlockK;
    piece.groups = left < kPieceGroups ? left : kPieceGroups;
    for (int64_t g = 0; g < piece.groups; ++g, record += w4_record_bytes(panel.has_zero_points)) {
      piece.expand(g, record, panel.has_zero_points);
    }
    const GemmTerm term = {a + k * blocks.rows, piece.codes, piece.groups * kBlockK};
    each_row_tile<R, Group>(&term, 1, blocks, rows, [&](auto n, const RowTile& tile, int64_t row) {
      for (int64_t c = 0; c < kPanelColumns; c += Columns) f(n, tile, piece, c, k > 0, acc + row * kPanelColumns);
    });
  }
}

}  // namespace
}  // namespace pinion
