// bfloat16: the upper half of a float. Conversion rounds to nearest even, everywhere.
#pragma once

#include <cstdint>
#include <cstring>

namespace pinion {

struct bf16 {
  uint16_t bits;
};

// These are static, not inline: instruction-set files compile them with wide flags, and such code must not be the copy
// that the linker keeps for everybody.
[[maybe_unused]] static float to_float(bf16 value) {
  const uint32_t bits = static_cast<uint32_t>(value.bits) << 16;
  float result;
  std::memcpy(&result, &bits, sizeof result);
  return result;
}

// NaN stays NaN (made quiet: rounding must not carry it into infinity).
[[maybe_unused]] static bf16 to_bf16(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return {static_cast<uint16_t>((bits >> 16) | 0x40u)};
  bits += 0x7fffu + ((bits >> 16) & 1u);
  return {static_cast<uint16_t>(bits >> 16)};
}

}  // namespace pinion
