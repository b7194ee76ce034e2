// Packed rows, a register tile at a time: shared by the int8 matmuls.
#pragma once

#include <cstdint>

#include "kernels/kernels.h"
#include "kernels/lanes/unroll.h"

namespace pinion {
namespace {

// Rows of one block that a register tile takes: the first operand lies at term.a + at_bytes.
struct RowTile {
  const GemmTerm* terms;
  int64_t count;
  int64_t block_rows;
  int64_t at_bytes;
};

// f(Index<n>, tile, row): n <= R rows from `row` on, until all are done. group: codes of a row that lie together.
template <int R, int Group, class F>
void each_row_tile(const GemmTerm* terms, int64_t count, const RowBlocks& blocks, int64_t rows, F f) {
  for (int64_t first = 0, at = 0; first < rows; first += blocks.rows, at += blocks.step_bytes) {
    const int64_t present = rows - first < blocks.rows ? rows - first : blocks.rows;
    for (int64_t r = 0; r < present; r += R) {
      with_rows<R>(present - r, [&](auto n) { f(n, RowTile{terms, count, blocks.rows, at + r * Group}, first + r); });
    }
  }
}

// f(Index<n>, first): n rows from `first` on, in tiles of at most R and of much the same size, since small ones cost
// most a row. Least: 1, or 2 where there are several rows.
template <int Least, int R, class F>
[[gnu::always_inline]] inline void each_even_tile(int64_t rows, F f) {
  static_assert(Least <= 2 && R >= 2 * Least - 1);
  for (int64_t first = 0, count; first < rows; first += count) {
    const int64_t tiles = (rows - first + R - 1) / R;
    count = (rows - first + tiles - 1) / tiles;
    with_rows<R, Least>(count, [&](auto n) { f(n, first); });
  }
}

// Terms in runs of at most kRunDepth k, longer ones in pieces: f(terms, count, accumulate). While a run lasts, a row
// tile and a few columns of the panel stay in the L1 cache, where every other use finds them.
constexpr int64_t kRunDepth = 1024;

template <class F>
void each_run(const GemmTerm* terms, int64_t count, const RowBlocks& blocks, F f) {
  bool accumulate = false;
  int64_t i = 0;
  do {
    int64_t fitting = 0;
    for (int64_t k = 0; i + fitting < count && k + terms[i + fitting].k <= kRunDepth; ++fitting) {
      k += terms[i + fitting].k;
    }
    if (fitting > 0 || count == 0) {
      f(terms + i, fitting, accumulate);
    } else {
      for (int64_t k = 0; k < terms[i].k; k += kRunDepth) {
        const int64_t rest = terms[i].k - k;
        const GemmTerm piece = {static_cast<const int8_t*>(terms[i].a) + k * blocks.rows,
                                static_cast<const int8_t*>(terms[i].b) + k * kPanelColumns,
                                rest < kRunDepth ? rest : kRunDepth};
        f(&piece, 1, accumulate || k > 0);
      }
      fitting = 1;
    }
    accumulate = true;
    i += fitting;
  } while (i < count);
}

}  // namespace
}  // namespace pinion
