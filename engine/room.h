// Memory that many vectors take together: first only counted, so that it can be compared with what there is, then
// taken.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace pinion {

struct Room {
  bool takes = false;
  int64_t bytes = 0;  // counted; a vector that is widened twice counts as both widths where nothing is taken

  // At least n elements.
  template <class T>
  void make(std::vector<T>* v, int64_t n) {
    const size_t size = std::max(v->size(), static_cast<size_t>(n));
    bytes += static_cast<int64_t>((size - v->size()) * sizeof(T));
    if (takes) v->resize(size);
  }
};

}  // namespace pinion
