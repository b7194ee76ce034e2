// exp, log, sine and cosine in double precision from + - * / alone: the same bits with every compiler, C library and
// machine. For tables and single values; vectors have their own in lanes/ops.h.
#pragma once

#include <bit>
#include <cstdint>
#include <initializer_list>
#include <span>

namespace pinion {

// Within 1e-15 relative. From 709.78 on the result is infinity, below -708 it is 0; NaN stays NaN.
double portable_exp(double x);

// e^x for x <= 0, to 1e-8: the weight of a token beside the likeliest. 0 for NaN and for less than e^-64.
inline double exp_weight(double x) {
  constexpr double kRoundingMagic = 6755399441055744.0;  // 1.5 * 2^52: the sum's low mantissa bits are the integer
  const double bounded = x > -64 ? x : -64;
  const double sum = bounded * 1.4426950408889634 + kRoundingMagic;
  const double r = bounded - (sum - kRoundingMagic) * 0.6931471805599453;  // |r| <= ln2 / 2
  double p = 1.0 / 5040;
  for (const double inverse_factorial : {1.0 / 720, 1.0 / 120, 1.0 / 24, 1.0 / 6, 0.5, 1.0, 1.0}) {
    p = p * r + inverse_factorial;
  }
  const uint64_t exponent = (std::bit_cast<uint64_t>(sum) << 52) + (uint64_t{1023} << 52);
  const double weight = p * std::bit_cast<double>(exponent);
  return x > -64 ? weight : 0;
}

// Within 1e-15 relative, or absolute near 1. x must be positive, normal and finite.
double portable_log(double x);

// base^exponent for a positive base.
inline double portable_pow(double base, double exponent) { return portable_exp(exponent * portable_log(base)); }

// Within 1e-15 absolute for |x| <= 1e6, as far as the reduction by pi/2 in three parts is exact.
void portable_sincos(double x, double* sine, double* cosine);

// The x that a standard normal number is below with probability p, within 1e-9. 1e-6 <= p <= 1 - 1e-6.
double normal_quantile(double p);

// No NaN and no infinity among them.
bool all_finite(std::span<const float> values);

}  // namespace pinion
