// Number formats of checkpoints as fp32: BF16, F16, F32, FP8 E4M3, MXFP4 and the blocks of GGUF. Conversions are exact
// and the same on every machine.
#pragma once

#include <bit>

#include "loader/checkpoint/safetensors.h"

namespace pinion {

// E4M3 as in F8_E4M3 tensors: no infinities; NaN has all bits but the sign set.
constexpr float f8_e4m3_to_float(uint8_t byte) {
  const uint32_t magnitude = byte & 0x7fu;
  const float subnormal = static_cast<float>(magnitude) * 0x1p-9f;
  const uint32_t normal = (magnitude << 20) + (120u << 23);  // the exponent's bias differs by 120 (127 - 7)
  const uint32_t bits = magnitude < 8u ? std::bit_cast<uint32_t>(subnormal) : magnitude < 0x7fu ? normal : 0x7fc00000u;
  return std::bit_cast<float>(bits | static_cast<uint32_t>(byte & 0x80u) << 24);
}

// E2M1 by its code: a sign bit, two bits of exponent, one of mantissa.
constexpr float kE2m1Numbers[16] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6, -0.0f, -0.5f, -1, -1.5f, -2, -3, -4, -6};

// out [elements]: all elements of a BF16, F16 or F32 tensor, or of one stored in blocks (loader/gguf/gguf.h).
void read_floats(const TensorView& tensor, float* out);
// out [count]: its elements [first, first + count), whole blocks.
void read_floats(const TensorView& tensor, int64_t first, int64_t count, float* out);
// out [columns]: one row of a matrix.
void read_row(const TensorView& matrix, int64_t row, float* out);

// MXFP4 (OCP Microscaling Formats 1.0): E2M1 codes in groups of 32 that share a power of two.
constexpr int64_t kMxGroup = 32;       // numbers of a group (a block in the specification)
constexpr int64_t kMxGroupBytes = 16;  // of their codes

// out [groups * kMxGroup], exactly: the code's E2M1 number times 2^(scale - 127), NaN if the scale is 255.
// codes [groups][kMxGroupBytes], the lower nibble first; scales [groups]. bf16 represents every result, too: it has at
// most two significant bits.
void read_mxfp4(const std::byte* codes, const std::byte* scales, int64_t groups, float* out);

}  // namespace pinion
