// Sixteen float lanes as four NEON registers; scalar.h defines each function. Also loads in program order.
#pragma once

#include <arm_neon.h>

#include <cstdint>

#include "kernels/half.h"

namespace pinion {
namespace {

// A load that keeps its order in the source: volatile. GCC moves a plain load next to its use, where an in-order core
// (Cortex-A55, A510) stalls on every vector, or moves all loads to the top of the loop, which spills sums.
[[maybe_unused]] int8x16_t ordered(int8x16_t value) {
  asm volatile("" : "+w"(value));
  return value;
}
[[maybe_unused]] int8x16_t ordered_load(const int8_t* p) { return ordered(vld1q_s8(p)); }

struct Lanes {
  float32x4_t v[4];

  static constexpr int kRows = 5;
  static constexpr int kWide = 1;
  static constexpr int kRotated = 4;
  static constexpr int64_t kAheadBytes = 0;

  template <class F>
  static Lanes generate(F f) {
    return {{f(0), f(1), f(2), f(3)}};
  }

  static Lanes broadcast(float x) {
    return generate([=](int) { return vdupq_n_f32(x); });
  }
  static Lanes load(const float* p) {
    return generate([=](int i) { return vld1q_f32(p + 4 * i); });
  }
  static Lanes load_mixed(const bf16* p) { return load(p); }
  Lanes mixed() const { return *this; }
  Lanes unmixed() const { return *this; }
  static Lanes load(const bf16* p) {
    const uint16_t* bits = &p->bits;
    return generate([=](int i) { return vreinterpretq_f32_u32(vshll_n_u16(vld1_u16(bits + 4 * i), 16)); });
  }
  static Lanes load(const f16* p) {
    const uint16_t* bits = &p->bits;
    return generate([=](int i) { return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(bits + 4 * i))); });
  }
  static Lanes load(const int32_t* p) {
    return generate([=](int i) { return vcvtq_f32_s32(vld1q_s32(p + 4 * i)); });
  }
  template <class F>
  static Lanes generate_halves(const bf16_pair* p, F f) {
    const uint16_t* bits = &p->second.bits;
    return generate([=](int i) { return vreinterpretq_f32_u32(f(vreinterpretq_u32_u16(vld1q_u16(bits + 8 * i)))); });
  }
  static Lanes load_first(const bf16_pair* p) {
    return generate_halves(p, [](uint32x4_t halves) { return vandq_u32(halves, vdupq_n_u32(0xffff0000u)); });
  }
  static Lanes load_second(const bf16_pair* p) {
    return generate_halves(p, [](uint32x4_t halves) { return vshlq_n_u32(halves, 16); });
  }
  Lanes rounded_to_bf16() const {
    return generate([this](int i) {
      const uint32x4_t bits = vreinterpretq_u32_f32(v[i]), odd = vandq_u32(vshrq_n_u32(bits, 16), vdupq_n_u32(1));
      const uint32x4_t rounded = vaddq_u32(vaddq_u32(bits, vdupq_n_u32(0x7fff)), odd);
      const uint32x4_t quiet = vorrq_u32(bits, vdupq_n_u32(0x400000));
      const uint32x4_t all = vbslq_u32(vceqq_f32(v[i], v[i]), rounded, quiet);
      return vreinterpretq_f32_u32(vandq_u32(all, vdupq_n_u32(0xffff0000u)));
    });
  }
  void store(float* p) const {
    // Not a loop, because GCC 12 would keep the sums in memory.
    vst1q_f32(p, v[0]);
    vst1q_f32(p + 4, v[1]);
    vst1q_f32(p + 8, v[2]);
    vst1q_f32(p + 12, v[3]);
  }
  void store_codes(int8_t* p) const {
    const int16x8_t a = vcombine_s16(vqmovn_s32(vcvtq_s32_f32(v[0])), vqmovn_s32(vcvtq_s32_f32(v[1])));
    const int16x8_t b = vcombine_s16(vqmovn_s32(vcvtq_s32_f32(v[2])), vqmovn_s32(vcvtq_s32_f32(v[3])));
    vst1q_s8(p, vcombine_s8(vqmovn_s16(a), vqmovn_s16(b)));
  }
  void store_digits(int8_t* high, int8_t* low) const {
    const uint16x8_t a = vcombine_u16(vmovn_u32(vcvtnq_u32_f32(v[0])), vmovn_u32(vcvtnq_u32_f32(v[1])));
    const uint16x8_t b = vcombine_u16(vmovn_u32(vcvtnq_u32_f32(v[2])), vmovn_u32(vcvtnq_u32_f32(v[3])));
    vst1q_s8(high, vreinterpretq_s8_u8(vcombine_u8(vshrn_n_u16(a, 7), vshrn_n_u16(b, 7))));
    const uint8x16_t lower = vcombine_u8(vmovn_u16(a), vmovn_u16(b));
    vst1q_s8(low, vreinterpretq_s8_u8(vandq_u8(lower, vdupq_n_u8(127))));
  }

  static Lanes add(Lanes a, Lanes b) {
    return generate([&](int i) { return vaddq_f32(a.v[i], b.v[i]); });
  }
  static Lanes sub(Lanes a, Lanes b) {
    return generate([&](int i) { return vsubq_f32(a.v[i], b.v[i]); });
  }
  static Lanes mul(Lanes a, Lanes b) {
    return generate([&](int i) { return vmulq_f32(a.v[i], b.v[i]); });
  }
  static Lanes div(Lanes a, Lanes b) {
    return generate([&](int i) { return vdivq_f32(a.v[i], b.v[i]); });
  }
  static Lanes fma(Lanes a, Lanes b, Lanes c) {
    return generate([&](int i) { return vfmaq_f32(c.v[i], a.v[i], b.v[i]); });
  }
  // Not vmaxq and vminq, which return NaN if either operand is NaN.
  static Lanes max(Lanes a, Lanes b) {
    return generate([&](int i) { return vbslq_f32(vcgtq_f32(a.v[i], b.v[i]), a.v[i], b.v[i]); });
  }
  static Lanes min(Lanes a, Lanes b) {
    return generate([&](int i) { return vbslq_f32(vcltq_f32(a.v[i], b.v[i]), a.v[i], b.v[i]); });
  }
  static Lanes if_less(Lanes x, Lanes y, Lanes a, Lanes b) {
    return generate([&](int i) { return vbslq_f32(vcltq_f32(x.v[i], y.v[i]), a.v[i], b.v[i]); });
  }
  static Lanes max_magnitude(Lanes a, Lanes b) {
    return generate([&](int i) {
      const uint32x4_t magnitude = vandq_u32(vreinterpretq_u32_f32(b.v[i]), vdupq_n_u32(0x7fffffffu));
      return vreinterpretq_f32_u32(vmaxq_u32(vreinterpretq_u32_f32(a.v[i]), magnitude));
    });
  }
  template <int Distance>
  static Lanes exchange(Lanes a) {
    return generate([&](int i) {
      if constexpr (Distance >= 4) return a.v[i ^ (Distance / 4)];
      return Distance == 2 ? vextq_f32(a.v[i], a.v[i], 2) : vrev64q_f32(a.v[i]);
    });
  }
  float first() const { return vgetq_lane_f32(v[0], 0); }
  static Lanes shift_to_exponent(Lanes a) {
    return generate([&](int i) { return vreinterpretq_f32_u32(vshlq_n_u32(vreinterpretq_u32_f32(a.v[i]), 23)); });
  }
  // Codes of four bits become levels, `count` of them, a multiple of 64.
  static void look_up(const int8_t* levels, int8_t* codes, int64_t count) {
    const int8x16_t all = vld1q_s8(levels);
    for (int64_t i = 0; i < count; i += 16) {
      vst1q_s8(codes + i, vqtbl1q_s8(all, vreinterpretq_u8_s8(vld1q_s8(codes + i))));
    }
  }
};

}  // namespace
}  // namespace pinion
