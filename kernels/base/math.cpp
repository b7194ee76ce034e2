#include "kernels/base/math.h"

namespace pinion {
namespace {

constexpr double kLn2High = 0x1.62e42fee00000p-1;  // its low bits are zero: a product with an exponent is exact
constexpr double kLn2Low = 0x1.a39ef35793c76p-33;

// pi/2 = kHalfPi1 + kHalfPi2 + kHalfPi3 (fdlibm). The first two have 33 bits: their products with |n| < 2^20 are exact.
constexpr double kHalfPi1 = 0x1.921fb54400000p0;
constexpr double kHalfPi2 = 0x1.0b4611a600000p-34;
constexpr double kHalfPi3 = 0x1.3198a2e037073p-69;

double round_to_integer(double x) { return static_cast<double>(static_cast<int64_t>(x < 0 ? x - 0.5 : x + 0.5)); }

}  // namespace

double portable_exp(double x) {
  if (x != x) return x;
  if (x > 709.78) return std::bit_cast<double>(uint64_t{0x7ff0000000000000});
  if (x < -708.0) return 0.0;
  const double n = round_to_integer(x * 1.4426950408889634);
  const double r = (x - n * kLn2High) - n * kLn2Low;
  // Taylor series in Horner's form. |r| <= 0.3466, and the next term, 0.3466^15 / 15!, is below 1e-19.
  double sum = 1.0;
  for (int i = 14; i > 0; --i) sum = 1.0 + sum * r / i;
  // Two factors, because 2^n alone would overflow at n = 1024.
  const auto power = [](int64_t e) { return std::bit_cast<double>(static_cast<uint64_t>(e + 1023) << 52); };
  const int64_t exponent = static_cast<int64_t>(n);
  return sum * power(exponent / 2) * power(exponent - exponent / 2);
}

double portable_log(double x) {
  const uint64_t bits = std::bit_cast<uint64_t>(x);
  int64_t exponent = static_cast<int64_t>(bits >> 52) - 1023;
  double m = std::bit_cast<double>((bits & 0x000fffffffffffffu) | 0x3ff0000000000000u);
  if (m > 1.4142135623730951) {
    m /= 2;
    ++exponent;
  }
  // log m = 2 artanh s, s = (m - 1) / (m + 1), |s| < 0.172. The next term, s^27 / 27, is below 1e-22.
  const double s = (m - 1) / (m + 1);
  const double square = s * s;
  double sum = 0.0;
  for (int i = 25; i > 0; i -= 2) sum = sum * square + 1.0 / i;
  const double e = static_cast<double>(exponent);
  return e * kLn2High + (2 * s * sum + e * kLn2Low);
}

void portable_sincos(double x, double* sine, double* cosine) {
  const double n = round_to_integer(x * 0.6366197723675814);
  const double r = ((x - n * kHalfPi1) - n * kHalfPi2) - n * kHalfPi3;
  const double square = r * r;
  // Taylor series. |r| <= pi/4, and the omitted terms are below 1e-19.
  double s = 1.0;
  for (int i = 20; i > 0; i -= 2) s = 1.0 - s * square / (i * (i + 1));
  s *= r;
  double c = 1.0;
  for (int i = 19; i > 0; i -= 2) c = 1.0 - c * square / (i * (i + 1));
  const int quadrant = static_cast<int>(static_cast<int64_t>(n) & 3);
  const bool swap = quadrant & 1;
  *sine = (quadrant & 2 ? -1.0 : 1.0) * (swap ? c : s);
  *cosine = (quadrant == 1 || quadrant == 2 ? -1.0 : 1.0) * (swap ? s : c);
}

double normal_quantile(double p) {
  if (p < 0.5) return -normal_quantile(1.0 - p);
  constexpr double kRootOfTwoPi = 2.5066282746310005;
  // Newton's method from 0. The distribution function is concave for x > 0, so no step passes the root.
  double x = 0;
  for (int i = 0; i < 100; ++i) {
    const double density = portable_exp(-0.5 * x * x) / kRootOfTwoPi;
    // P(X < x) = 1/2 + density * (x + x^3 / 3 + x^5 / (3 * 5) + ...)
    double term = x, sum = x;
    for (int odd = 3; term > 1e-17 * sum; odd += 2) sum += term *= x * x / odd;
    const double step = (p - 0.5 - density * sum) / density;
    if (!(step > 1e-15)) break;
    x += step;
  }
  return x;
}

bool all_finite(std::span<const float> values) {
  constexpr uint32_t kExponent = 0x7f800000u;
  bool found = false;
  for (const float value : values) found |= (std::bit_cast<uint32_t>(value) & kExponent) == kExponent;
  return !found;
}

}  // namespace pinion
