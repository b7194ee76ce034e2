// The formats of codes, and the parts of their layouts that readers of whole matrices need.
#pragma once

#include <cstdint>
#include <cstring>

#include "loader/checkpoint/safetensors.h"
#include "loader/quant/stored_weights.h"

namespace pinion {

const CodeFormat& format_of(const CodeScheme& scheme);

// Element i of an I32 tensor, which may be unaligned.
inline uint32_t word(const TensorView& tensor, int64_t i) {
  uint32_t value;
  std::memcpy(&value, tensor.data + i * static_cast<int64_t>(sizeof value), sizeof value);
  return value;
}

// Finds the scales of 8-bit weights: one for each of n rows, or one for all rows.
Error bind_row_scales(const ModuleTensors& tensors, const char* suffix, int64_t n, TensorView* out);

// True if every zero point of 4-bit codes is 8. Compares whole words, so the padding of the last ones counts, too.
bool zeros_are_middle(const CodedMatrix& matrix);

// FP8 scales [first, first + count), divided by the matrix's divisor.
void read_fp8_scales(const CodedMatrix& matrix, int64_t first, int64_t count, float* out);

}  // namespace pinion
