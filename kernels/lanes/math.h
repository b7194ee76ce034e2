// Elementary functions over sixteen lanes, of operations that round alike everywhere. Include it after Lanes.
#pragma once

#include <cstdint>

#include "kernels/half.h"
#include "kernels/layout.h"

namespace pinion {
namespace {

constexpr int kLanes = 16;

// Loads the first count elements of p; the other lanes are `rest`.
template <class T>
Lanes load_partial(const T* p, int64_t count, T rest = {}) {
  if (count >= kLanes) return Lanes::load(p);
  T padded[kLanes];
  for (T& lane : padded) lane = rest;
  for (int64_t i = 0; i < count; ++i) padded[i] = p[i];
  return Lanes::load(padded);
}

inline void store_partial(Lanes value, bf16* p, int64_t count) {
  float all[kLanes];
  value.store(all);
  for (int i = 0; i < kLanes && i < count; ++i) p[i] = to_bf16(all[i]);
}

inline void store_partial(Lanes value, float* p, int64_t count) {
  if (count >= kLanes) return value.store(p);
  float all[kLanes];
  value.store(all);
  for (int64_t i = 0; i < count; ++i) p[i] = all[i];
}

// Reduces the lanes with f, combining lanes 8, 4, 2, 1 apart in this order.
template <class F>
float fold(Lanes value, F f) {
  value = f(value, Lanes::exchange<8>(value));
  value = f(value, Lanes::exchange<4>(value));
  value = f(value, Lanes::exchange<2>(value));
  return f(value, Lanes::exchange<1>(value)).first();
}

// Adding 1.5 * 2^23 leaves no mantissa bits for a fraction.
constexpr float kRoundingMagic = 12582912.0f;

// The nearest integer, ties to even, for |x| < 2^22.
inline Lanes round_half_even(Lanes x) {
  const Lanes magic = Lanes::broadcast(kRoundingMagic);
  return Lanes::sub(Lanes::add(x, magic), magic);
}

// 2^n for integral n in [-126, 127]. The lowest mantissa bits of the sum are n + 127 and move into the exponent field.
inline Lanes exp2_integer(Lanes n) {
  return Lanes::shift_to_exponent(Lanes::add(n, Lanes::broadcast(kRoundingMagic + 127.0f)));
}

// x = n ln2 + r with |r| <= ln2 / 2; power = e^r - 1 by a polynomial of degree 7 (Cephes expf).
struct ReducedExp {
  Lanes n, power;
};

inline ReducedExp reduced_exp(Lanes x) {
  const Lanes n = round_half_even(Lanes::mul(x, Lanes::broadcast(1.44269504088896341f)));
  Lanes r = Lanes::fma(n, Lanes::broadcast(-0.693359375f), x);
  r = Lanes::fma(n, Lanes::broadcast(2.12194440e-4f), r);
  constexpr float kCoefficients[] = {1.3981999507e-3f, 8.3334519073e-3f, 4.1665795894e-2f, 1.6666665459e-1f,
                                     5.0000001201e-1f};
  Lanes p = Lanes::broadcast(1.9875691500e-4f);
  for (float c : kCoefficients) p = Lanes::fma(p, r, Lanes::broadcast(c));
  return {n, Lanes::fma(p, Lanes::mul(r, r), r)};
}

// e^x; 0 below -104, infinity above 88.73, NaN for NaN. 2^n in two steps rounds denormal results only once.
inline Lanes exp_lanes(Lanes x) {
  const auto [n, power] = reduced_exp(Lanes::min(Lanes::broadcast(89.0f), Lanes::max(Lanes::broadcast(-104.0f), x)));
  const Lanes half = round_half_even(Lanes::mul(n, Lanes::broadcast(0.5f)));
  const Lanes p = Lanes::add(power, Lanes::broadcast(1.0f));
  return Lanes::mul(Lanes::mul(p, exp2_integer(half)), exp2_integer(Lanes::sub(n, half)));
}

// e^x - 1 for x <= 0; -1 below -40, NaN for NaN.
inline Lanes expm1_lanes(Lanes x) {
  const auto [n, power] = reduced_exp(Lanes::max(Lanes::broadcast(-40.0f), x));
  const Lanes scale = exp2_integer(n);
  return Lanes::fma(power, scale, Lanes::sub(scale, Lanes::broadcast(1.0f)));
}

// e^x for x <= 0, relative error at most 2^-18, 0 if the result is below kMinOperand. The error changes one in several
// thousand results after rounding to bf16. Polynomial of degree 4 for 2^r, minimax for |r| <= 1/2.
inline Lanes exp_to_operand(Lanes x) {
  const Lanes log2_e = Lanes::broadcast(1.44269504088896341f), magic = Lanes::broadcast(kRoundingMagic + 127.0f);
  const Lanes shifted = Lanes::fma(x, log2_e, magic);  // its lowest bits: the exponent field of 2^round(x log2 e)
  const Lanes r = Lanes::fma(x, log2_e, Lanes::sub(magic, shifted));
  Lanes p = Lanes::broadcast(0.009582852f);
  constexpr float kCoefficients[] = {0.055906426f, 0.24024099f, 0.69312418f, 1.0f};
  for (float c : kCoefficients) p = Lanes::fma(p, r, Lanes::broadcast(c));
  p = Lanes::mul(p, Lanes::shift_to_exponent(shifted));
  return Lanes::if_less(x, Lanes::broadcast(kLogMinOperand), Lanes::broadcast(0.0f), p);
}

// tanh x: below 0.625, where the quotient would lose digits, an odd polynomial (Cephes tanhf); else from e^(-2|x|).
inline Lanes tanh_lanes(Lanes x) {
  const Lanes zero = Lanes::broadcast(0.0f);
  const Lanes magnitude = Lanes::max(x, Lanes::sub(zero, x));
  const Lanes square = Lanes::mul(x, x);
  constexpr float kCoefficients[] = {2.06390887954e-2f, -5.37397155531e-2f, 1.33314422036e-1f, -3.33332819422e-1f};
  Lanes p = Lanes::broadcast(-5.70498872745e-3f);
  for (float c : kCoefficients) p = Lanes::fma(p, square, Lanes::broadcast(c));
  const Lanes small = Lanes::fma(Lanes::mul(p, square), x, x);
  const Lanes one = Lanes::broadcast(1.0f);
  const Lanes e = exp_lanes(Lanes::mul(magnitude, Lanes::broadcast(-2.0f)));
  const Lanes large = Lanes::div(Lanes::sub(one, e), Lanes::add(one, e));
  const Lanes with_sign = Lanes::if_less(x, zero, Lanes::sub(zero, large), large);
  return Lanes::if_less(magnitude, Lanes::broadcast(0.625f), small, with_sign);
}

// cap * tanh(x / cap).
inline Lanes soft_cap(Lanes x, float cap) {
  const Lanes limit = Lanes::broadcast(cap);
  return Lanes::mul(tanh_lanes(Lanes::div(x, limit)), limit);
}

// x / (1 + exp(-z)), with an exponential that cannot overflow.
inline Lanes times_sigmoid(Lanes x, Lanes z) {
  const Lanes zero = Lanes::broadcast(0.0f);
  const Lanes e = exp_lanes(Lanes::min(z, Lanes::sub(zero, z)));
  const Lanes one = Lanes::broadcast(1.0f);
  return Lanes::div(Lanes::if_less(z, zero, Lanes::mul(x, e), x), Lanes::add(one, e));
}

// log(1 + e^x) = max(x, 0) + 2 atanh(e / (2 + e)) with e = e^-|x|, by the series of atanh, relative error below 1e-6.
inline Lanes softplus(Lanes x) {
  const Lanes zero = Lanes::broadcast(0.0f);
  const Lanes e = exp_lanes(Lanes::min(x, Lanes::sub(zero, x)));
  const Lanes s = Lanes::div(e, Lanes::add(e, Lanes::broadcast(2.0f))), square = Lanes::mul(s, s);
  Lanes p = Lanes::broadcast(2.0f / 13.0f);
  constexpr float kOdd[] = {11, 9, 7, 5, 3, 1};
  for (const float n : kOdd) p = Lanes::fma(p, square, Lanes::broadcast(2.0f / n));
  return Lanes::fma(p, s, Lanes::max(zero, x));
}

inline Lanes silu(Lanes x) { return times_sigmoid(x, x); }

// (1 - erf(x / sqrt 2)) / 2 for x >= 0, the upper tail of the normal distribution: e^(-x^2 / 2) times a polynomial in u
// = 1 / (1 + 0.345 x) without constant term, minimax, relative error at most 2.5e-8 until e^(-x^2 / 2) underflows.
inline Lanes normal_tail(Lanes x) {
  constexpr float kCoefficients[] = {0.143829301f, -0.268374681f, 0.184229061f, -0.0357131436f,
                                     0.111063585f, 0.117409281f,  0.137999296f, 0.137620419f};
  const Lanes one = Lanes::broadcast(1.0f);
  const Lanes u = Lanes::div(one, Lanes::fma(x, Lanes::broadcast(0.345f), one));
  Lanes p = Lanes::broadcast(-0.0280631054f);
  for (float c : kCoefficients) p = Lanes::fma(p, u, Lanes::broadcast(c));
  const Lanes e = exp_lanes(Lanes::mul(Lanes::mul(x, Lanes::broadcast(-0.5f)), x));
  return Lanes::mul(Lanes::mul(p, u), e);
}

inline Lanes gelu(Lanes x) {
  const Lanes zero = Lanes::broadcast(0.0f);
  const Lanes tail = normal_tail(Lanes::max(x, Lanes::sub(zero, x)));
  return Lanes::mul(x, Lanes::if_less(x, zero, tail, Lanes::sub(Lanes::broadcast(1.0f), tail)));
}

inline Lanes gelu_tanh(Lanes x) {
  const Lanes linear = Lanes::broadcast(1.59576912160573f);  // sqrt(8 / pi)
  const Lanes cubic = Lanes::broadcast(0.0713548162726f);    // 0.044715 sqrt(8 / pi)
  return times_sigmoid(x, Lanes::mul(x, Lanes::fma(Lanes::mul(x, x), cubic, linear)));
}

}  // namespace
}  // namespace pinion
