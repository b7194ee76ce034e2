// Token sequences, which + joins.
#pragma once

#include <cstdint>
#include <vector>

namespace pinion {

using Ids = std::vector<int32_t>;

inline Ids operator+(Ids a, const Ids& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

}  // namespace pinion
