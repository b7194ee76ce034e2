// How a model is divided among several boards. Each has some rows of most matrices, and so computes these columns of
// their outputs: whole units of rows, one board's behind the other's. No sum is ever divided, so any number of boards
// gives the same bits.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/layout.h"

namespace pinion {

constexpr int32_t kMostBoards = 256;

// One board's place among those that share a model.
struct Shares {
  int32_t rank = 0;  // its own
  int32_t ranks = 1;
  int64_t unit = kPanelColumns;  // rows that stay together where no heads do; fewer only to test tiny models

  // The first of `units` that a board has. Those of the next one, up to `ranks`, begin where its own end; what cannot
  // be divided evenly is more for the first boards, and a single unit is the first one's.
  int64_t begin(int64_t units, int32_t board) const { return (units * board + ranks - 1) / ranks; }
};

struct RowRange {
  int64_t first = 0;
  int64_t count = 0;
};

// The rows of a matrix, or the columns of what it computes: `count` in all, of which `unit` stay together.
struct Division {
  int64_t count = 0;
  int64_t unit = 1;

  int64_t begin(const Shares& shares, int32_t board) const {
    const int64_t units = (count + unit - 1) / unit;
    return std::min(count, unit * shares.begin(units, board));
  }
  RowRange of(const Shares& shares, int32_t board) const {
    const int64_t first = begin(shares, board);
    return {first, begin(shares, board + 1) - first};
  }
  RowRange own(const Shares& shares) const { return of(shares, shares.rank); }
};

}  // namespace pinion
