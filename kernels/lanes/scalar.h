// Sixteen float lanes as an array. It defines what every other Lanes must compute.
#pragma once

#include <cstdint>
#include <cstring>

#include "kernels/bf16.h"
#include "kernels/f16.h"

namespace pinion {
namespace {

struct Lanes {
  float v[16];

  // Accumulators of a matmul tile: kRows x kWide of these fit the registers.
  static constexpr int kRows = 2;
  static constexpr int kWide = 1;
  static constexpr int kRotated = 4;  // vectors that a rotation holds at once: a power of two, at most 16
  static constexpr int64_t kAheadBytes = 0;

  // Where another order of the lanes costs less to load, a matmul uses that one: load_mixed(p) is load(p).mixed().
  static Lanes load_mixed(const bf16* p) { return load(p); }
  Lanes mixed() const { return *this; }
  Lanes unmixed() const { return *this; }

  template <class F>
  static Lanes each(F f) {
    Lanes r;
    for (int i = 0; i < 16; ++i) r.v[i] = f(i);
    return r;
  }
  static uint32_t bits(float x) {
    uint32_t b;
    std::memcpy(&b, &x, 4);
    return b;
  }
  static float from_bits(uint32_t b) {
    float x;
    std::memcpy(&x, &b, 4);
    return x;
  }

  static Lanes broadcast(float x) {
    return each([=](int) { return x; });
  }
  static Lanes load(const float* p) {
    return each([=](int i) { return p[i]; });
  }
  static Lanes load(const bf16* p) {
    return each([=](int i) { return to_float(p[i]); });
  }
  static Lanes load(const f16* p) {
    return each([=](int i) { return to_float(p[i]); });
  }
  static Lanes load(const int32_t* p) {
    return each([=](int i) { return static_cast<float>(p[i]); });
  }
  // Of sixteen pairs.
  static Lanes load_first(const bf16_pair* p) {
    return each([=](int i) { return to_float(p[i].first); });
  }
  static Lanes load_second(const bf16_pair* p) {
    return each([=](int i) { return to_float(p[i].second); });
  }
  Lanes rounded_to_bf16() const {
    return each([this](int i) { return to_float(to_bf16(v[i])); });
  }
  void store(float* p) const { std::memcpy(p, v, sizeof v); }
  // Integral values in [-128, 127].
  void store_codes(int8_t* p) const {
    for (int i = 0; i < 16; ++i) p[i] = static_cast<int8_t>(v[i]);
  }
  // Values in [0, 2^14), rounded to nearest even, as digits of base 128.
  void store_digits(int8_t* high, int8_t* low) const {
    for (int i = 0; i < 16; ++i) {
      const int code = static_cast<int>(__builtin_rintf(v[i]));
      high[i] = static_cast<int8_t>(code / 128);
      low[i] = static_cast<int8_t>(code % 128);
    }
  }

  static Lanes add(Lanes a, Lanes b) {
    return each([&](int i) { return a.v[i] + b.v[i]; });
  }
  static Lanes sub(Lanes a, Lanes b) {
    return each([&](int i) { return a.v[i] - b.v[i]; });
  }
  static Lanes mul(Lanes a, Lanes b) {
    return each([&](int i) { return a.v[i] * b.v[i]; });
  }
  static Lanes div(Lanes a, Lanes b) {
    return each([&](int i) { return a.v[i] / b.v[i]; });
  }
  // a * b + c, rounded once.
  static Lanes fma(Lanes a, Lanes b, Lanes c) {
    return each([&](int i) { return __builtin_fmaf(a.v[i], b.v[i], c.v[i]); });
  }
  // The second operand wins when either is NaN.
  static Lanes max(Lanes a, Lanes b) {
    return each([&](int i) { return a.v[i] > b.v[i] ? a.v[i] : b.v[i]; });
  }
  static Lanes min(Lanes a, Lanes b) {
    return each([&](int i) { return a.v[i] < b.v[i] ? a.v[i] : b.v[i]; });
  }
  // Where x < y a, else b (NaN too).
  static Lanes if_less(Lanes x, Lanes y, Lanes a, Lanes b) {
    return each([&](int i) { return x.v[i] < y.v[i] ? a.v[i] : b.v[i]; });
  }
  // The larger of a and |b| as bit patterns: NaN > infinity > every number.
  static Lanes max_magnitude(Lanes a, Lanes b) {
    return each([&](int i) {
      const uint32_t magnitude = bits(b.v[i]) & 0x7fffffffu;
      return from_bits(bits(a.v[i]) > magnitude ? bits(a.v[i]) : magnitude);
    });
  }
  // Lane i gets lane i ^ Distance; Distance is 8, 4, 2 or 1.
  template <int Distance>
  static Lanes exchange(Lanes a) {
    return each([&](int i) { return a.v[i ^ Distance]; });
  }
  float first() const { return v[0]; }
  // The bit pattern shifted left by 23.
  static Lanes shift_to_exponent(Lanes a) {
    return each([&](int i) { return from_bits(bits(a.v[i]) << 23); });
  }
};

}  // namespace
}  // namespace pinion
