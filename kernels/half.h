// Floating-point numbers of 16 bits: bfloat16 (the upper half of a float) and IEEE half precision. Widening is exact;
// narrowing rounds to nearest even on every machine.
//
// The functions are static instead of inline. Instruction-set files compile them with wide flags, and the linker must
// never keep such a copy for the rest of the program; so they avoid std::bit_cast, too.
#pragma once

#include <cstdint>

namespace pinion {

struct bf16 {
  uint16_t bits;
};

struct f16 {
  uint16_t bits;
};

[[maybe_unused]] static float to_float(bf16 value) {
  return __builtin_bit_cast(float, static_cast<uint32_t>(value.bits) << 16);
}

// The bf16 in the upper half of 32 bits; the lower half is undefined. No branch, so that compilers vectorise loops over
// it. NaN stays NaN: it becomes quiet, since rounding could carry it into infinity.
[[maybe_unused]] static uint32_t bf16_in_upper_half(float value) {
  const auto bits = __builtin_bit_cast(uint32_t, value);
  const uint32_t rounded = bits + 0x7fffu + ((bits >> 16) & 1u);
  return value != value ? bits | 0x400000u : rounded;
}

[[maybe_unused]] static bf16 upper_half(uint32_t bits) { return {static_cast<uint16_t>(bits >> 16)}; }
[[maybe_unused]] static bf16 to_bf16(float value) { return upper_half(bf16_in_upper_half(value)); }

// Two neighbouring operands of attention. Sums add the upper half first, as VDPBF16PS (AVX-512) and BFMLALT (Arm) do.
struct bf16_pair {
  bf16 second;
  bf16 first;
};

// Attention replaces operands of a smaller magnitude by zero. All products and sums are then multiples of 2^-114 and
// never denormal. VDPBF16PS flushes denormals to zero; other instructions keep them.
constexpr float kMinOperand = 0x1p-50f;
constexpr float kLogMinOperand = -34.65736f;  // ln(kMinOperand)

[[maybe_unused]] static uint32_t operand_in_upper_half(float value) {
  return __builtin_fabsf(value) < kMinOperand ? 0 : bf16_in_upper_half(value);
}
[[maybe_unused]] static bf16 to_operand(float value) { return upper_half(operand_in_upper_half(value)); }

[[maybe_unused]] static float to_float(f16 value) {
  // After the shift the exponent is short by 112 (127 - 15). The product restores it exactly, subnormals included.
  const uint32_t magnitude = value.bits & 0x7fffu;
  const float rebased = __builtin_bit_cast(float, magnitude << 13) * 0x1p112f;
  const uint32_t special = magnitude >= 0x7c00u ? 0x7f800000u : 0u;  // infinity and NaN
  const uint32_t sign = static_cast<uint32_t>(value.bits & 0x8000u) << 16;
  return __builtin_bit_cast(float, __builtin_bit_cast(uint32_t, rebased) | special | sign);
}

// Infinity from 65520 on. NaN stays NaN.
[[maybe_unused]] static f16 to_f16(float value) {
  const auto bits = __builtin_bit_cast(uint32_t, value);
  const uint32_t magnitude = bits & 0x7fffffffu;
  const auto sign = static_cast<uint16_t>(bits >> 16 & 0x8000u);
  if (magnitude < 0x38800000u) {  // below 2^-14: adding 0.5 leaves a sum in units of 2^-24, the unit of subnormals
    const float sum = __builtin_bit_cast(float, magnitude) + 0.5f;
    return {static_cast<uint16_t>(sign | (__builtin_bit_cast(uint32_t, sum) - 0x3f000000u))};
  }
  if (magnitude >= 0x477ff000u) {  // 65520
    return {static_cast<uint16_t>(sign | (magnitude > 0x7f800000u ? 0x7e00u : 0x7c00u))};
  }
  const uint32_t rounded = magnitude + 0xfffu + (magnitude >> 13 & 1u) - (112u << 23);
  return {static_cast<uint16_t>(sign | rounded >> 13)};
}

}  // namespace pinion
