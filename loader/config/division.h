// The rows of each board, if several boards share one model.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "kernels/layout.h"

namespace pinion {

// The division of a model among boards. Each board holds some rows of most matrices and so computes these columns of
// outputs: whole units of rows, by rank. No sum is divided, so the number of boards does not change the bits.
struct Shares {
  int32_t rank = 0;  // of this board
  int32_t ranks = 1;
  int64_t unit = kPanelColumns;  // rows that stay together, except in matrices of heads; smaller in tests
  // [ranks + 1] from 0 to 1: the beginning of each board's share; the same on all boards. Empty: equal shares.
  std::vector<double> bounds = {};

  // Index of a board's first unit out of `units`. The board's range ends at begin(units, board + 1). Equal shares
  // differ by at most one unit. A single unit always belongs to board 0.
  int64_t begin(int64_t units, int32_t board) const {
    if (bounds.empty() || units == 1) return (units * board + ranks - 1) / ranks;
    return static_cast<int64_t>(bounds[board] * static_cast<double>(units) + 0.5);
  }
};

// Bounds of shares in proportion to the boards' speeds, which are all above 0.
inline std::vector<double> bounds_by_speed(const std::vector<double>& speeds) {
  double all = 0, sum = 0;
  for (const double speed : speeds) all += speed;
  std::vector<double> bounds = {0};
  for (const double speed : speeds) bounds.push_back((sum += speed) / all);
  bounds.back() = 1;
  return bounds;
}

struct RowRange {
  int64_t first = 0;
  int64_t count = 0;
};

// Division of `count` rows of a matrix, or columns of its output, among boards, in units of `unit` consecutive rows.
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
