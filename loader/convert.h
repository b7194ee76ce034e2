// Number formats of checkpoints as fp32. Conversions are exact and the same on every machine.
#pragma once

#include <bit>
#include <cstdint>

#include "loader/safetensors.h"

namespace pinion {

inline float f16_to_float(uint16_t half) {
  // Shifted into place the exponent is short by 112 (127 - 15); the product restores it, subnormals included, exactly.
  const uint32_t magnitude = half & 0x7fffu;
  const float rebased = std::bit_cast<float>(magnitude << 13) * 0x1p112f;
  const uint32_t special = magnitude >= 0x7c00u ? 0x7f800000u : 0u;
  return std::bit_cast<float>(std::bit_cast<uint32_t>(rebased) | special | static_cast<uint32_t>(half & 0x8000u) << 16);
}

// out [elements]: all of a BF16, F16 or F32 tensor.
void read_floats(const TensorView& tensor, float* out);

// out [count]: its elements from `first` on.
void read_floats(const TensorView& tensor, int64_t first, int64_t count, float* out);

// out [columns]: one row of a BF16, F16 or F32 matrix.
void read_row(const TensorView& matrix, int64_t row, float* out);

}  // namespace pinion
