// Statistics of `pinion quality`, against hand-worked values.
#include "engine/measure/statistics.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace pinion {
namespace {

TEST(CompareLogits, HandWorked) {
  // Probabilities 1/2, 1/4, 1/4 against 1/4, 1/2, 1/4: KL = 1/2 log 2 - 1/4 log 2.
  const float reference[] = {std::log(2.0f) + 5, 5, 5};
  const float other[] = {-3, std::log(2.0f) - 3, -3};
  const Divergence d = compare_logits(reference, other, 0);
  EXPECT_NEAR(d.reference_loss, std::log(2.0), 1e-6);
  EXPECT_NEAR(d.loss, std::log(4.0), 1e-6);
  EXPECT_NEAR(d.kl, 0.25 * std::log(2.0), 1e-6);
  EXPECT_FALSE(d.same_top);
  EXPECT_NEAR(compare_logits(reference, other, 2).loss, std::log(4.0), 1e-6);
}

TEST(CompareLogits, EqualAndHugeLogits) {
  const float logits[] = {1e4f, -1e4f, 1e4f};
  const Divergence d = compare_logits(logits, logits, 2);
  EXPECT_EQ(d.kl, 0);
  EXPECT_TRUE(d.same_top);
  EXPECT_NEAR(d.loss, std::log(2.0), 1e-12);
  EXPECT_NEAR(compare_logits(logits, logits, 1).loss, 2e4 + std::log(2.0), 1e-6);
}

TEST(CompareLogits, LowestIdAmongEquals) {
  const float first[] = {1, 2, 2}, second[] = {2, 2, 1}, third[] = {1, 2, 1};
  EXPECT_FALSE(compare_logits(first, second, 0).same_top);
  EXPECT_TRUE(compare_logits(first, third, 0).same_top);
}

TEST(CompareLogits, NanPropagates) {
  const float good[] = {1, 2}, bad[] = {1, std::numeric_limits<float>::quiet_NaN()};
  EXPECT_TRUE(std::isnan(compare_logits(good, bad, 0).kl));
  EXPECT_TRUE(std::isnan(compare_logits(good, bad, 0).loss));
}

TEST(Mean, HandWorked) {
  const double values[] = {1, 2, 6};  // squares 4 + 1 + 9 = 14; / 2 = 7; / 3
  EXPECT_DOUBLE_EQ(mean_of(values).value, 3);
  EXPECT_DOUBLE_EQ(mean_of(values).standard_error, std::sqrt(7.0 / 3));
  EXPECT_EQ(mean_of(std::span(values).first(1)).value, 1);
  EXPECT_EQ(mean_of(std::span(values).first(1)).standard_error, 0);
  EXPECT_EQ(mean_of({}).value, 0);
  EXPECT_DOUBLE_EQ(mean_of(std::span(values).first(2)).standard_error, 0.5) << "1/4 + 1/4; / 1; / 2";
}

TEST(Quantile, HandWorked) {
  std::vector<double> values;
  for (int i = 100; i >= 1; --i) values.push_back(i);
  EXPECT_EQ(quantile(values, 0.99), 99);
  EXPECT_EQ(quantile(values, 0.995), 100);
  EXPECT_EQ(quantile(values, 1), 100);
  EXPECT_EQ(quantile(values, 0.001), 1);
  EXPECT_EQ(quantile({7}, 0.99), 7);
  EXPECT_EQ(quantile({}, 0.5), 0);
}

}  // namespace
}  // namespace pinion
