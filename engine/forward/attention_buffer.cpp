#include "engine/forward/attention_buffer.h"

#include <algorithm>

namespace pinion {

void AttentionBuffer::make(ScratchSizer* sizer, int64_t rows, int64_t head_dim) {
  sizer->make(&max, rows);
  sizer->make(&sum, rows);
  sizer->make(&acc, rows * head_dim);
}

void AttentionBuffer::copy(int64_t row, const AttentionBuffer& other, int64_t other_row, int64_t rows,
                           int64_t head_dim) {
  std::copy_n(other.max.data() + other_row, rows, max.data() + row);
  std::copy_n(other.sum.data() + other_row, rows, sum.data() + row);
  std::copy_n(other.acc.data() + other_row * head_dim, rows * head_dim, acc.data() + row * head_dim);
}

AttentionState AttentionBuffer::from(int64_t row, int64_t head_dim) {
  return {max.data() + row, sum.data() + row, acc.data() + row * head_dim};
}

}  // namespace pinion
