// How a model is divided among several boards. Each has some rows of most matrices, and so computes these columns of
// their outputs: whole units of rows, one board's behind the other's. No sum is ever divided, so any number of boards
// gives the same bits.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "kernels/layout.h"

namespace pinion {

constexpr int32_t kMostBoards = 256;

// One board's place among those that share a model.
struct Shares {
  int32_t rank = 0;  // its own
  int32_t ranks = 1;
  int64_t unit = kPanelColumns;  // rows that stay together where no heads do; fewer only to test tiny models
  // [ranks + 1], from 0 to 1: where each board's part begins; the same on all of them. Empty: all have as much.
  std::vector<double> parts = {};

  // The first of `units` that a board has. Those of the next one, up to `ranks`, begin where its own end. Of even parts
  // what cannot be divided evenly is more for the first boards. A single unit is always the first one's.
  int64_t begin(int64_t units, int32_t board) const {
    if (parts.empty() || units == 1) return (units * board + ranks - 1) / ranks;
    return static_cast<int64_t>(parts[static_cast<size_t>(board)] * static_cast<double>(units) + 0.5);
  }
};

// Parts in proportion to how fast each board is; every speed is more than 0.
inline std::vector<double> parts_by(const std::vector<double>& speeds) {
  double all = 0, sum = 0;
  for (const double speed : speeds) all += speed;
  std::vector<double> parts = {0};
  for (const double speed : speeds) parts.push_back((sum += speed) / all);
  parts.back() = 1;
  return parts;
}

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
