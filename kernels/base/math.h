// exp, log, sine and cosine in double precision, computed with + - * / alone: the same bits with every compiler, C
// library and machine. They serve tables and single values; vectors use the functions of kernels/lanes/math.h.
#pragma once

#include <bit>
#include <cstdint>
#include <span>

namespace pinion {

// e^x, relative error at most 1e-15. Infinity above 709.78, 0 below -708, NaN for NaN.
double portable_exp(double x);

// e^x for x <= 0, relative error at most 1e-8; 0 below -64 and for NaN. The sampler computes it for every token.
inline double exp_weight(double x) {
  constexpr double kToInteger = 6755399441055744.0;  // 1.5 * 2^52: the low mantissa bits of the sum are the integer
  const double bounded = x > -64 ? x : -64;
  const double sum = bounded * 1.4426950408889634 + kToInteger;
  const double r = bounded - (sum - kToInteger) * 0.6931471805599453;  // |r| <= ln2 / 2
  double p = 1.0 / 5040;
  for (const double inverse_factorial : {1.0 / 720, 1.0 / 120, 1.0 / 24, 1.0 / 6, 0.5, 1.0, 1.0}) {
    p = p * r + inverse_factorial;
  }
  const uint64_t exponent = (std::bit_cast<uint64_t>(sum) << 52) + (uint64_t{1023} << 52);
  const double weight = p * std::bit_cast<double>(exponent);
  return x > -64 ? weight : 0;
}

// ln(x) for a positive, normal, finite x. Error at most 1e-15, relative, and absolute near x = 1.
double portable_log(double x);

// base^exponent for a positive, normal, finite base.
inline double portable_pow(double base, double exponent) { return portable_exp(exponent * portable_log(base)); }

// Absolute error at most 1e-15 for |x| <= 1e6, the range in which the argument reduction is exact.
void portable_sincos(double x, double* sine, double* cosine);

// Inverse of the standard normal distribution function, for 1e-6 <= p <= 1 - 1e-6. Error at most 1e-9.
double normal_quantile(double p);

// True if no value is NaN or infinite.
bool all_finite(std::span<const float> values);

}  // namespace pinion
