// exp, log, sine and cosine in double precision from + - * / alone: the same bits with every compiler, C library and
// machine. For tables and single values; vectors have their own in lanes/ops.h.
#pragma once

namespace pinion {

// Within 1e-15 relative. From 709.78 on the result is infinity, below -708 it is 0; NaN stays NaN.
double portable_exp(double x);

// Within 1e-15 relative, or absolute near 1. x must be positive, normal and finite.
double portable_log(double x);

// base^exponent for a positive base.
inline double portable_pow(double base, double exponent) { return portable_exp(exponent * portable_log(base)); }

// Within 1e-15 absolute for |x| <= 1e6, as far as the reduction by pi/2 in three parts is exact.
void portable_sincos(double x, double* sine, double* cosine);

}  // namespace pinion
