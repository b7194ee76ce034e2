// Shared by the NEON kernels of formats with groups: the codes of a line, and the steps from sums of a group to totals.
// Kernels whose sums take half of the registers keep the totals in memory.
#pragma once

#include "kernels/kernels.h"
#include "kernels/lanes/neon.h"
#include "kernels/lanes/streams.h"
#include "kernels/lanes/unroll.h"

namespace pinion {
namespace {

// acc[4] (+)= sum * scale.
[[maybe_unused]] void add_scaled(float32x4_t sum, float32x4_t scale, bool accumulate, float* acc) {
  const float32x4_t total = accumulate ? vld1q_f32(acc) : vdupq_n_f32(0.0f);
  vst1q_f32(acc, vfmaq_f32(total, sum, scale));
}

constexpr int kZeroBits = 3;  // conversions divide by 2 to this power
static_assert(1 << kZeroBits == kZeroSteps);

// Scales of eight columns of a record, from `column` on: low and high half.
template <class Record>
void load_scales(const std::byte* record, int64_t column, float32x4_t (&scale)[2]) {
  scale[0] = scale[1] = vdupq_n_f32(1.0f);
  if constexpr (Record::kHasScales) {
    const auto* scales = reinterpret_cast<const uint16_t*>(record + Record::kCodeBytes);
    const float16x8_t halves = vreinterpretq_f16_u16(vld1q_u16(scales + column));
    scale[0] = vcvt_f32_f16(vget_low_f16(halves)), scale[1] = vcvt_high_f32_f16(halves);
  }
}

// Eight zero points of a record, from `column` on, times kZeroSteps.
template <class Record>
uint16x8_t zero_points_of(const std::byte* record, int64_t column) {
  const std::byte* zero_points = record + Record::kCodeBytes + kPanelColumns * 2 + column;
  return vmovl_u8(vld1_u8(reinterpret_cast<const uint8_t*>(zero_points)));
}

// The same as floats, low and high half.
template <class Record>
void load_zero_points(const std::byte* record, int64_t column, float32x4_t (&zero)[2]) {
  const uint16x8_t steps = zero_points_of<Record>(record, column);
  zero[0] = vcvtq_n_f32_u32(vmovl_u16(vget_low_u16(steps)), kZeroBits);
  zero[1] = vcvtq_n_f32_u32(vmovl_high_u16(steps), kZeroBits);
}

// Sums of a group are below 2^22 in magnitude. If they start at the bits of 1.5 * 2^23, whose unit in the last place is
// one, a float subtraction converts them. More pipes execute it than a conversion (Cortex-A7xx, Neoverse N2).
[[maybe_unused]] int32x4_t magic_zero() { return vreinterpretq_s32_f32(vdupq_n_f32(0x1.8p23f)); }
[[maybe_unused]] float32x4_t to_float(int32x4_t sum) {
  return vsubq_f32(vreinterpretq_f32_s32(sum), vdupq_n_f32(0x1.8p23f));
}

// Codes of four columns, from row R of a line.
template <class Record, int R>
[[gnu::always_inline]] inline int8x16_t row_of_line(int8x16_t line) {
  uint8x16_t codes = vreinterpretq_u8_s8(line);
  if constexpr (R > 0) codes = vshrq_n_u8(codes, R * Record::kBits);
  if constexpr (R + 1 < Record::kRows) codes = vandq_u8(codes, vdupq_n_u8(Record::kMask));
  if constexpr (Record::kHasLevels) return vqtbl1q_s8(vld1q_s8(Record::kLevels), codes);
  return vreinterpretq_s8_u8(codes);
}

// acc [R][64] = 0.
template <int R>
void clear_rows(float* acc) {
  for (int64_t i = 0; i < R * kPanelColumns; i += 4) vst1q_f32(acc + i, vdupq_n_f32(0.0f));
}

// The sum of a row's codes in a group.
template <class Record>
int32_t sum_of_codes(const int8_t* a) {
  int16x8_t pairs = vpaddlq_s8(vld1q_s8(a));
  unrolled<Record::kK / 16 - 1>([&](auto i) { pairs = vpadalq_s8(pairs, vld1q_s8(a + 16 * (i + 1))); });
  return vaddlvq_s16(pairs);
}

// Initial value of the sums of code * x: -zero * x_sum, with x_sum = sum(x); 0 if each column has its own zero point.
template <class Record>
int32x4_t initial_sums(int32_t x_sum) {
  return vdupq_n_s32(Record::kHasZeros ? 0 : -Record::kZero * x_sum);
}

// acc[column + i] += float(sum[i] - zero[i] * x_sum) * scale[i] for eight columns; zero[i] = 0 without zero points.
template <class Record>
void scale_group(int32x4_t low, int32x4_t high, int32_t x_sum, const std::byte* record, int64_t column, float* acc) {
  float32x4_t exact[2] = {vcvtq_f32_s32(low), vcvtq_f32_s32(high)};
  if constexpr (Record::kHasZeros) {
    const int16x8_t zero = vreinterpretq_s16_u16(zero_points_of<Record>(record, column));
    const int16x4_t x = vdup_n_s16(static_cast<int16_t>(x_sum));
    low = vmlsl_s16(vshlq_n_s32(low, kZeroBits), vget_low_s16(zero), x);
    high = vmlsl_s16(vshlq_n_s32(high, kZeroBits), vget_high_s16(zero), x);
    exact[0] = vcvtq_n_f32_s32(low, kZeroBits), exact[1] = vcvtq_n_f32_s32(high, kZeroBits);
  }
  float32x4_t scale[2];
  load_scales<Record>(record, column, scale);
  add_scaled(exact[0], scale[0], true, acc + column);
  add_scaled(exact[1], scale[1], true, acc + column + 4);
}

}  // namespace
}  // namespace pinion
