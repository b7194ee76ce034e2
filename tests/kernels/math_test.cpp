// The portable functions against the C library in higher precision.
#include "kernels/base/math.h"

#include <algorithm>
#include <numbers>

#include "tests/kernels/guarded.h"

namespace pinion {
namespace {

constexpr int64_t kSamples = 100000 / kStride;

// Uniform in [0, 1), 53 random bits.
double uniform(Random& random) {
  const uint64_t high = random.next();
  return static_cast<double>((high << 32 | random.next()) >> 11) * 0x1p-53;
}

double relative_error(double actual, long double expected) {
  return static_cast<double>(std::abs((actual - expected) / expected));
}

TEST(PortableExp, Accuracy) {
  Random random;
  for (double limit : {1e-3, 1.0, 50.0, 708.0}) {
    double worst = 0;
    for (int64_t i = 0; i < kSamples; ++i) {
      const double x = limit * (2 * uniform(random) - 1);
      worst = std::max(worst, relative_error(portable_exp(x), std::exp(static_cast<long double>(x))));
    }
    EXPECT_LE(worst, 1e-15) << "|x| <= " << limit;
  }
}

TEST(PortableExp, SpecialValues) {
  EXPECT_EQ(portable_exp(0), 1);
  EXPECT_EQ(portable_exp(710), static_cast<double>(kInfinity));
  EXPECT_EQ(portable_exp(static_cast<double>(kInfinity)), static_cast<double>(kInfinity));
  EXPECT_EQ(portable_exp(-710), 0);
  EXPECT_EQ(portable_exp(-static_cast<double>(kInfinity)), 0);
  EXPECT_TRUE(std::isnan(portable_exp(static_cast<double>(kNan))));
}

TEST(ExpWeight, AccuracyAndSpecialValues) {
  Random random;
  double worst = 0;
  for (int64_t i = 0; i < kSamples; ++i) {
    const double x = -63.9 * uniform(random);
    worst = std::max(worst, relative_error(exp_weight(x), std::exp(static_cast<long double>(x))));
  }
  EXPECT_LE(worst, 1e-8);
  EXPECT_EQ(exp_weight(0), 1);
  EXPECT_EQ(exp_weight(-64), 0);
  EXPECT_EQ(exp_weight(-static_cast<double>(kInfinity)), 0);
  EXPECT_EQ(exp_weight(static_cast<double>(kNan)), 0);
}

TEST(PortableLog, Accuracy) {
  Random random;
  double worst = 0;
  for (int64_t i = 0; i < kSamples; ++i) {
    const double x = std::ldexp(1 + uniform(random), static_cast<int>(random.next() % 2046) - 1022);
    worst = std::max(worst, relative_error(portable_log(x), std::log(static_cast<long double>(x))));
  }
  EXPECT_LE(worst, 1e-15);
  double worst_near_one = 0;
  for (int64_t i = 0; i < kSamples; ++i) {
    const double x = 0.5 + 1.5 * uniform(random);
    const long double distance = portable_log(x) - std::log(static_cast<long double>(x));
    worst_near_one = std::max(worst_near_one, static_cast<double>(std::abs(distance)));
  }
  EXPECT_LE(worst_near_one, 1e-15);
  EXPECT_EQ(portable_log(1), 0);
  EXPECT_EQ(portable_log(2), std::numbers::ln2);
}

TEST(PortablePow, HandWorked) {
  EXPECT_NEAR(portable_pow(2, 10), 1024, 1e-11);
  EXPECT_NEAR(portable_pow(10000, -0.5), 0.01, 1e-16);
  EXPECT_EQ(portable_pow(500000, 0), 1);
}

TEST(PortableSincos, Accuracy) {
  Random random;
  for (double limit : {1.0, 10.0, 1e4, 1e6}) {
    double worst = 0;
    for (int64_t i = 0; i < kSamples; ++i) {
      const double x = limit * (2 * uniform(random) - 1);
      double sine, cosine;
      portable_sincos(x, &sine, &cosine);
      const long double exact = x;
      worst = std::max(worst, static_cast<double>(std::abs(sine - std::sin(exact))));
      worst = std::max(worst, static_cast<double>(std::abs(cosine - std::cos(exact))));
    }
    EXPECT_LE(worst, 1e-15) << "|x| <= " << limit;
  }
}

TEST(PortableSincos, Quadrants) {
  for (int quarter = -8; quarter <= 8; ++quarter) {
    double sine, cosine;
    portable_sincos(quarter * std::numbers::pi / 2, &sine, &cosine);
    constexpr double kSine[] = {0, 1, 0, -1};
    EXPECT_NEAR(sine, kSine[quarter & 3], 1e-15) << quarter;
    EXPECT_NEAR(cosine, kSine[(quarter + 1) & 3], 1e-15) << quarter;
  }
  double sine, cosine;
  portable_sincos(0, &sine, &cosine);
  EXPECT_EQ(sine, 0);
  EXPECT_EQ(cosine, 1);
}

// Values of published tables, and the distribution function of the C library.
TEST(NormalQuantile, InvertsTheDistribution) {
  EXPECT_EQ(normal_quantile(0.5), 0);
  EXPECT_NEAR(normal_quantile(0.95), 1.6448536269514722, 1e-12);
  EXPECT_NEAR(normal_quantile(0.975), 1.9599639845400545, 1e-12);
  EXPECT_NEAR(normal_quantile(0.999999), 4.7534243088229, 1e-9);
  EXPECT_EQ(normal_quantile(0.05), -normal_quantile(1.0 - 0.05));
  for (double p = 1e-6; p < 1 - 1e-6; p += 0.00317) {
    EXPECT_NEAR(0.5 * std::erfc(-normal_quantile(p) / std::numbers::sqrt2), p, 1e-15) << p;
  }
}

}  // namespace
}  // namespace pinion
