// Softmax states of several rows, with their memory.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/forward/scratch_sizer.h"
#include "kernels/kernels.h"

namespace pinion {

struct AttentionBuffer {
  std::vector<float> max;  // [rows]
  std::vector<float> sum;  // [rows]
  std::vector<float> acc;  // [rows][padded head_dim]

  void make(ScratchSizer* sizer, int64_t rows, int64_t head_dim);
  AttentionState from(int64_t row, int64_t head_dim);
  // Copies rows of another buffer to `row` and those after it.
  void copy(int64_t row, const AttentionBuffer& other, int64_t other_row, int64_t rows, int64_t head_dim);
};

}  // namespace pinion
