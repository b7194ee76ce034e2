// Sixteen float lanes as an array: the definition for every other Lanes.
#pragma once

#include <cstdint>

#include "kernels/half.h"

namespace pinion {
namespace {

struct Lanes {
  float v[16];

  static constexpr int kRows = 2;            // kRows x kWide accumulators of a matmul tile fit the registers
  static constexpr int kWide = 1;            // vectors of a row of that tile
  static constexpr int kRotated = 4;         // vectors that a rotation holds in registers: a power of two, at most 16
  static constexpr int64_t kAheadBytes = 0;  // prefetch distance of float matmuls and attention; 0: no prefetch

  // Matmuls use the lanes' cheapest order to load: load_mixed(p) == load(p).mixed(); unmixed() undoes mixed().
  static Lanes load_mixed(const bf16* p) { return load(p); }
  Lanes mixed() const { return *this; }
  Lanes unmixed() const { return *this; }

  // Lane i is f(i).
  template <class F>
  static Lanes generate(F f) {
    Lanes r;
    for (int i = 0; i < 16; ++i) r.v[i] = f(i);
    return r;
  }
  static uint32_t bits(float x) { return __builtin_bit_cast(uint32_t, x); }
  static float from_bits(uint32_t x) { return __builtin_bit_cast(float, x); }

  static Lanes broadcast(float x) {
    return generate([=](int) { return x; });
  }
  static Lanes load(const float* p) {
    return generate([=](int i) { return p[i]; });
  }
  static Lanes load(const bf16* p) {
    return generate([=](int i) { return to_float(p[i]); });
  }
  static Lanes load(const f16* p) {
    return generate([=](int i) { return to_float(p[i]); });
  }
  static Lanes load(const int32_t* p) {
    return generate([=](int i) { return static_cast<float>(p[i]); });
  }
  // One element of each of sixteen pairs.
  static Lanes load_first(const bf16_pair* p) {
    return generate([=](int i) { return to_float(p[i].first); });
  }
  static Lanes load_second(const bf16_pair* p) {
    return generate([=](int i) { return to_float(p[i].second); });
  }
  Lanes rounded_to_bf16() const {
    return generate([this](int i) { return to_float(to_bf16(v[i])); });
  }
  void store(float* p) const { __builtin_memcpy(p, v, sizeof v); }
  // Stores integral values in [-128, 127] as bytes.
  void store_codes(int8_t* p) const {
    for (int i = 0; i < 16; ++i) p[i] = static_cast<int8_t>(v[i]);
  }
  // Rounds values in [0, 2^14) to nearest even and stores the two digits of base 128.
  void store_digits(int8_t* high, int8_t* low) const {
    for (int i = 0; i < 16; ++i) {
      const int code = static_cast<int>(__builtin_rintf(v[i]));
      high[i] = static_cast<int8_t>(code / 128);
      low[i] = static_cast<int8_t>(code % 128);
    }
  }

  static Lanes add(Lanes a, Lanes b) {
    return generate([&](int i) { return a.v[i] + b.v[i]; });
  }
  static Lanes sub(Lanes a, Lanes b) {
    return generate([&](int i) { return a.v[i] - b.v[i]; });
  }
  static Lanes mul(Lanes a, Lanes b) {
    return generate([&](int i) { return a.v[i] * b.v[i]; });
  }
  static Lanes div(Lanes a, Lanes b) {
    return generate([&](int i) { return a.v[i] / b.v[i]; });
  }
  // a * b + c, rounded once.
  static Lanes fma(Lanes a, Lanes b, Lanes c) {
    return generate([&](int i) { return __builtin_fmaf(a.v[i], b.v[i], c.v[i]); });
  }
  // The second operand if either is NaN.
  static Lanes max(Lanes a, Lanes b) {
    return generate([&](int i) { return a.v[i] > b.v[i] ? a.v[i] : b.v[i]; });
  }
  static Lanes min(Lanes a, Lanes b) {
    return generate([&](int i) { return a.v[i] < b.v[i] ? a.v[i] : b.v[i]; });
  }
  // a if x < y, else b; b if x or y is NaN.
  static Lanes if_less(Lanes x, Lanes y, Lanes a, Lanes b) {
    return generate([&](int i) { return x.v[i] < y.v[i] ? a.v[i] : b.v[i]; });
  }
  // The larger of a and |b| by bit pattern: NaN > infinity > every number.
  static Lanes max_magnitude(Lanes a, Lanes b) {
    return generate([&](int i) {
      const uint32_t magnitude = bits(b.v[i]) & 0x7fffffffu;
      return from_bits(bits(a.v[i]) > magnitude ? bits(a.v[i]) : magnitude);
    });
  }
  // Lane i gets lane i ^ Distance; Distance is 8, 4, 2 or 1.
  template <int Distance>
  static Lanes exchange(Lanes a) {
    return generate([&](int i) { return a.v[i ^ Distance]; });
  }
  float first() const { return v[0]; }
  // The bit pattern shifted left by 23.
  static Lanes shift_to_exponent(Lanes a) {
    return generate([&](int i) { return from_bits(bits(a.v[i]) << 23); });
  }
};

}  // namespace
}  // namespace pinion
