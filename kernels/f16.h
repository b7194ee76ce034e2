// IEEE half precision. Widening is exact; conversion rounds to nearest even, everywhere.
#pragma once

#include <cstdint>
#include <cstring>

namespace pinion {

struct f16 {
  uint16_t bits;
};

// Static, not inline: see bf16.h.
[[maybe_unused]] static float to_float(f16 value) {
  // Shifted into place the exponent is short by 112 (127 - 15); the product restores it, subnormals included, exactly.
  const uint32_t magnitude = value.bits & 0x7fffu;
  const uint32_t shifted = magnitude << 13;
  float rebased;
  std::memcpy(&rebased, &shifted, sizeof rebased);
  rebased *= 0x1p112f;
  uint32_t bits;
  std::memcpy(&bits, &rebased, sizeof bits);
  bits |= (magnitude >= 0x7c00u ? 0x7f800000u : 0u) | static_cast<uint32_t>(value.bits & 0x8000u) << 16;
  float result;
  std::memcpy(&result, &bits, sizeof result);
  return result;
}

// From 65520 on infinite. NaN stays NaN.
[[maybe_unused]] static f16 to_f16(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  const uint32_t magnitude = bits & 0x7fffffffu;
  const auto sign = static_cast<uint16_t>(bits >> 16 & 0x8000u);
  if (magnitude < 0x38800000u) {  // below 2^-14: adding 0.5 leaves a sum whose unit is 2^-24, a subnormal's
    float sum;
    std::memcpy(&sum, &magnitude, sizeof sum);
    sum += 0.5f;
    uint32_t sum_bits;
    std::memcpy(&sum_bits, &sum, sizeof sum_bits);
    return {static_cast<uint16_t>(sign | (sum_bits - 0x3f000000u))};
  }
  if (magnitude >= 0x477ff000u) {  // 65520
    return {static_cast<uint16_t>(sign | (magnitude > 0x7f800000u ? 0x7e00u : 0x7c00u))};
  }
  const uint32_t rounded = magnitude + 0xfffu + (magnitude >> 13 & 1u) - (112u << 23);
  return {static_cast<uint16_t>(sign | rounded >> 13)};
}

}  // namespace pinion
