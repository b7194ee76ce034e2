// Number formats of checkpoints as fp32. Conversions are exact and the same on every machine.
#pragma once

#include <bit>
#include <cstdint>

#include "loader/checkpoint/safetensors.h"

namespace pinion {

// E4M3 as F8_E4M3 tensors have it: no infinities, and NaN in all bits but the sign.
constexpr float f8_e4m3_to_float(uint8_t byte) {
  const uint32_t magnitude = byte & 0x7fu;
  const float subnormal = static_cast<float>(magnitude) * 0x1p-9f;
  const uint32_t normal = (magnitude << 20) + (120u << 23);  // the exponent is short by 120 (127 - 7)
  const uint32_t bits = magnitude < 8u ? std::bit_cast<uint32_t>(subnormal) : magnitude < 0x7fu ? normal : 0x7fc00000u;
  return std::bit_cast<float>(bits | static_cast<uint32_t>(byte & 0x80u) << 24);
}

// out [elements]: all of a BF16, F16 or F32 tensor.
void read_floats(const TensorView& tensor, float* out);

// out [count]: its elements from `first` on.
void read_floats(const TensorView& tensor, int64_t first, int64_t count, float* out);

// out [columns]: one row of a BF16, F16 or F32 matrix.
void read_row(const TensorView& matrix, int64_t row, float* out);

}  // namespace pinion
