// What the NEON kernels of w4 share: the way from sums of a group to the totals. Where the sums alone take half of
// the registers, the totals wait in memory.
#pragma once

#include "kernels/kernels.h"
#include "kernels/lanes/neon.h"

namespace pinion {
namespace {

// acc[4] (+)= float(sum) * scale.
[[maybe_unused]] void add_scaled(int32x4_t sum, float32x4_t scale, bool accumulate, float* acc) {
  const float32x4_t total = accumulate ? vld1q_f32(acc) : vdupq_n_f32(0.0f);
  vst1q_f32(acc, vfmaq_f32(total, vcvtq_f32_s32(sum), scale));
}

// The sum of a group's codes of one row.
[[maybe_unused]] int32_t sum_of_codes(const int8_t* a) {
  return vaddlvq_s8(vld1q_s8(a)) + vaddlvq_s8(vld1q_s8(a + 16));
}

// For four columns: sums of code * x, less zero times x_sum, the sum of x.
[[maybe_unused]] void scale_group(int32x4_t sum, int32_t x_sum, const std::byte* record, bool has_zero_points,
                                  int64_t column, bool accumulate, float* acc) {
  const auto* scales = reinterpret_cast<const uint16_t*>(record + kW4CodeBytes);
  int32x4_t zero = vdupq_n_s32(8);
  if (has_zero_points) {
    uint32_t four;
    __builtin_memcpy(&four, record + kW4CodeBytes + kPanelColumns * 2 + column, sizeof four);
    zero = vreinterpretq_s32_u32(vmovl_u16(vget_low_u16(vmovl_u8(vcreate_u8(four)))));
  }
  const float32x4_t scale = vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(scales + column)));
  add_scaled(vmlsq_n_s32(sum, zero, x_sum), scale, accumulate, acc + column);
}

}  // namespace
}  // namespace pinion
