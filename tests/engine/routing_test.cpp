// Routing by hand: chosen experts, their order and their weights.
#include "engine/forward/experts.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace pinion {
namespace {

using Indices = std::vector<int32_t>;
using Floats = std::vector<float>;

struct Chosen {
  Indices experts;
  Floats weights;
};

Chosen choose(const Floats& logits, size_t k, const RoutingRule& rule) {
  Chosen chosen{Indices(k), Floats(k)};
  choose_experts(logits, rule, chosen.experts, chosen.weights.data());
  return chosen;
}

Chosen choose(const Floats& logits, size_t k, bool normalised) {
  return choose(logits, k, RoutingRule{.config = {.normalised = normalised}});
}

// exp of the logits: 1, 8, 2, 4.
const Floats kLogits = {0.0f, std::log(8.0f), std::log(2.0f), std::log(4.0f)};

void expect_near(const Floats& actual, const Floats& expected) {
  ASSERT_EQ(actual.size(), expected.size());
  for (size_t i = 0; i < expected.size(); ++i) EXPECT_NEAR(actual[i], expected[i], 1e-6f) << i;
}

TEST(Routing, NormalisedWeightsSumToOne) {
  const Chosen chosen = choose(kLogits, 2, true);
  EXPECT_EQ(chosen.experts, (Indices{1, 3}));
  expect_near(chosen.weights, {8.0f / 12.0f, 4.0f / 12.0f});
}

TEST(Routing, PlainWeightsAreFractionsOfAll) {
  const Chosen chosen = choose(kLogits, 2, false);
  EXPECT_EQ(chosen.experts, (Indices{1, 3}));
  expect_near(chosen.weights, {8.0f / 15.0f, 4.0f / 15.0f});
}

TEST(Routing, SingleExpertHasWeightOne) {
  EXPECT_EQ(choose(kLogits, 1, true).experts, Indices{1});
  EXPECT_EQ(choose(kLogits, 1, true).weights, Floats{1.0f});
}

TEST(Routing, ExpertsAreAscending) {
  for (const bool normalised : {false, true}) {
    const Chosen chosen = choose(kLogits, 4, normalised);
    EXPECT_EQ(chosen.experts, (Indices{0, 1, 2, 3}));
    expect_near(chosen.weights, {1.0f / 15.0f, 8.0f / 15.0f, 2.0f / 15.0f, 4.0f / 15.0f});
  }
}

TEST(Routing, TiesGoToTheLowerIndex) {
  EXPECT_EQ(choose({1, 2, 2, 2, 1}, 2, true).experts, (Indices{1, 2}));
  EXPECT_EQ(choose({1, 2, 1, 1, 3}, 3, true).experts, (Indices{0, 1, 4}));
  EXPECT_EQ(choose({5, 5, 5, 5, 5}, 3, true).experts, (Indices{0, 1, 2}));
  EXPECT_EQ(choose({-0.0f, 0.0f}, 1, true).experts, Indices{0});
  expect_near(choose({5, 5, 5, 5, 5}, 3, false).weights, {0.2f, 0.2f, 0.2f});
}

// Sigmoids of 0.5, 0.8, 0.2 and 0.6.
const Floats kOdds = {0.0f, std::log(4.0f), std::log(0.25f), std::log(1.5f)};

TEST(Routing, SigmoidWeights) {
  EXPECT_EQ(sigmoid(0.0f), 0.5f);
  EXPECT_EQ(sigmoid(-3e38f), 0.0f);
  EXPECT_EQ(sigmoid(3e38f), 1.0f);
  const Chosen plain = choose(kOdds, 2, RoutingRule{.config = {.normalised = false, .sigmoid = true, .scale = 2.5f}});
  EXPECT_EQ(plain.experts, (Indices{1, 3}));
  expect_near(plain.weights, {2.0f, 1.5f});
  const Chosen shares = choose(kOdds, 2, RoutingRule{.config = {.sigmoid = true, .scale = 2}});
  expect_near(shares.weights, {2 * 0.8f / 1.4f, 2 * 0.6f / 1.4f});
}

TEST(Routing, ScalesOfExpertsApplyLast) {
  const Floats scales = {9, 0.5f, 9, 3};
  const Chosen chosen = choose(kLogits, 2, RoutingRule{.config = {}, .scales = scales.data()});
  EXPECT_EQ(chosen.experts, (Indices{1, 3})) << "they do not affect the choice";
  expect_near(chosen.weights, {4.0f / 12.0f, 12.0f / 12.0f});
}

TEST(Routing, CorrectionAffectsTheChoiceOnly) {
  const Floats correction = {0.25f, -1.0f, 0.0f, 0.125f};
  const Chosen chosen =
      choose(kOdds, 2, RoutingRule{.config = {.normalised = false, .sigmoid = true}, .correction = correction.data()});
  EXPECT_EQ(chosen.experts, (Indices{0, 3})) << "0.75 and 0.725";
  expect_near(chosen.weights, {0.5f, 0.6f});
  const Floats equal = {0.0f, -1.0f, 0.5f, 0.0f};
  const Floats same = {0, 0, 0, 0};
  EXPECT_EQ(choose(same, 2, RoutingRule{.config = {.sigmoid = true}, .correction = equal.data()}).experts,
            (Indices{0, 2}));
}

// Shares of 1, 8, 2 and 4 in 15.
TEST(Routing, CorrectionsOfASoftmax) {
  const Floats correction = {0.5f, 0.0f, 0.25f, 0.0f};
  const Chosen chosen = choose(kLogits, 2, RoutingRule{.config = {}, .correction = correction.data()});
  EXPECT_EQ(chosen.experts, (Indices{0, 1})) << "0.57 and 0.53; 0.38 and 0.27";
  expect_near(chosen.weights, {1.0f / 9.0f, 8.0f / 9.0f});
}

// 9 + 1 beats 8 + 1 and 4 + 3, whose product is larger: logits are not summed.
TEST(Routing, GroupsBySumOfShares) {
  Floats logits;
  for (const float x : {1.0f, 8.0f, 9.0f, 1.0f, 4.0f, 3.0f}) logits.push_back(std::log(x));
  const RoutingRule rule = {.config = {.groups = 3, .groups_kept = 1, .group_best = 2}};
  EXPECT_EQ(choose(logits, 1, rule).experts, Indices{2});
}

// 2 is 0.6 below 5, relative to it, and 0.5 below 4.
TEST(Routing, SparseMixer) {
  const Chosen chosen = choose({4, 1, 5, 2}, 2, RoutingRule{.config = {.near = 0.55f}});
  EXPECT_EQ(chosen.experts, (Indices{0, 2}));
  const float first = 1.0f / (1.0f + std::exp(-1.0f)), second = 1.0f / (1.0f + std::exp(-2.0f));
  expect_near(chosen.weights, {second, first});
}

// exp of the logits: 1, 8, 2, 4, 9, 3: groups of two.
TEST(Routing, GroupsByLargestScore) {
  Floats logits;
  for (const float x : {1.0f, 8.0f, 2.0f, 4.0f, 9.0f, 3.0f}) logits.push_back(std::log(x));
  const Chosen chosen = choose(logits, 3, RoutingRule{.config = {.normalised = false, .groups = 3, .groups_kept = 2}});
  EXPECT_EQ(chosen.experts, (Indices{1, 4, 5})) << "4 is in the dropped group";
  expect_near(chosen.weights, {8.0f / 27, 9.0f / 27, 3.0f / 27});
  EXPECT_EQ(choose(logits, 2, RoutingRule{.config = {.groups = 3, .groups_kept = 1}}).experts, (Indices{4, 5}));
  EXPECT_EQ(choose({1, 1, 1, 1, 1, 1}, 2, RoutingRule{.config = {.groups = 3, .groups_kept = 1}}).experts,
            (Indices{0, 1}));
  EXPECT_EQ(choose(logits, 3, RoutingRule{.config = {.groups = 3, .groups_kept = 3}}).experts,
            choose(logits, 3, true).experts);
}

// Sigmoids of 0.5, 0.8, 0.2 and 0.6: with corrections 0.5 + 1.05 in the first group, 0.9 + 0.85 in the second.
TEST(Routing, GroupsBySumOfTwoLargest) {
  const Floats correction = {0.0f, 0.25f, 0.7f, 0.25f};
  ExpertsConfig config = {.normalised = false, .sigmoid = true, .groups = 2, .groups_kept = 1, .group_best = 2};
  const RoutingRule rule = {config, correction.data()};
  const Chosen chosen = choose(kOdds, 1, rule);
  EXPECT_EQ(chosen.experts, Indices{2});
  expect_near(chosen.weights, {0.2f});
  config.group_best = 1;
  EXPECT_EQ(choose(kOdds, 1, rule).experts, Indices{1}) << "1.05 is the largest single score";
}

TEST(Routing, LargeLogitsDoNotOverflow) {
  expect_near(choose({3e38f, -3e38f, 3e38f}, 2, true).weights, {0.5f, 0.5f});
  expect_near(choose({-3e38f, -3e38f}, 1, false).weights, {0.5f});
}

TEST(Routing, NanReachesWeightsAndChoicesAreDistinct) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const Floats& logits : {Floats{nan, nan, nan}, Floats{nan, 1, 2}, Floats{1, nan, 2}, Floats{1, 2, nan}}) {
    const Chosen chosen = choose(logits, 2, false);
    EXPECT_LT(chosen.experts[0], chosen.experts[1]);
    EXPECT_GE(chosen.experts[0], 0);
    EXPECT_LT(chosen.experts[1], 3);
    EXPECT_TRUE(std::isnan(chosen.weights[0]) && std::isnan(chosen.weights[1]));
  }
  const Chosen grouped = choose({nan, nan, nan, nan, 1, 2}, 3, RoutingRule{.config = {.groups = 3, .groups_kept = 2}});
  EXPECT_LT(grouped.experts[0], grouped.experts[1]);
  EXPECT_LT(grouped.experts[1], grouped.experts[2]);
  EXPECT_TRUE(std::isnan(grouped.weights[0]));
}

TEST(Routing, GroupsTokensByExpert) {
  const Choices choices = {{1, 3, 0, 3, 1, 3}, {0.1f, 0.2f, 0.3f, 0.4f, 0.5f, 0.6f}, {}};
  ExpertGroups groups;
  ScratchSizer sizer{.allocates = true};
  groups.make(&sizer, 6, 5);
  for (int repeated = 0; repeated < 2; ++repeated) {
    group_by_expert(choices, 3, 2, &groups);
    ASSERT_EQ(groups.experts.size(), 3u);
    const auto expect_group = [&](size_t group, int32_t expert, const Indices& tokens, const Floats& weights) {
      const ExpertRows& rows = groups.experts[group];
      EXPECT_EQ(rows.expert, expert);
      const Indices actual(groups.tokens.begin() + rows.first, groups.tokens.begin() + rows.first + rows.rows);
      EXPECT_EQ(actual, tokens);
      EXPECT_EQ(Floats(groups.weights.begin() + rows.first, groups.weights.begin() + rows.first + rows.rows), weights);
    };
    expect_group(0, 0, {1}, {0.3f});
    expect_group(1, 1, {0, 2}, {0.1f, 0.5f});
    expect_group(2, 3, {0, 1, 2}, {0.2f, 0.4f, 0.6f});
  }
  group_by_expert(choices, 1, 2, &groups);
  ASSERT_EQ(groups.experts.size(), 2u);
  EXPECT_EQ(groups.experts[1].expert, 3);
  EXPECT_EQ(groups.experts[1].rows, 1);
}

}  // namespace
}  // namespace pinion
