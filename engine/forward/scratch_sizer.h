// Sizes scratch vectors, in two rounds: the first only counts their bytes, so that they can be compared with the memory
// that is free, the second takes them.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace pinion {

struct ScratchSizer {
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
