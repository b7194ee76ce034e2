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

// Bits whose upper half is the bf16's, without a branch, so that compilers turn loops over it into vectors. NaN stays
// NaN (made quiet: rounding must not carry it into infinity).
[[maybe_unused]] static uint32_t bf16_in_upper_half(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  const uint32_t rounded = bits + 0x7fffu + ((bits >> 16) & 1u);
  return value != value ? bits | 0x400000u : rounded;
}

[[maybe_unused]] static bf16 upper_half(uint32_t bits) { return {static_cast<uint16_t>(bits >> 16)}; }
[[maybe_unused]] static bf16 to_bf16(float value) { return upper_half(bf16_in_upper_half(value)); }

// What attention multiplies lies in pairs. The one that is added first has the upper half, where VDPBF16PS (AVX-512)
// and BFMLALT (Arm) begin.
struct bf16_pair {
  bf16 second;
  bf16 first;
};

// An operand of attention below this counts as zero. So all products, and all sums of them, are multiples of 2^-114:
// none is ever denormal, which some instruction sets keep and VDPBF16PS takes for zero.
constexpr float kLeastOperand = 0x1p-50f;
constexpr float kLogLeastOperand = -34.65736f;  // ln(kLeastOperand)

[[maybe_unused]] static uint32_t operand_in_upper_half(float value) {
  return __builtin_fabsf(value) < kLeastOperand ? 0 : bf16_in_upper_half(value);
}
[[maybe_unused]] static bf16 to_operand(float value) { return upper_half(operand_in_upper_half(value)); }

}  // namespace pinion
