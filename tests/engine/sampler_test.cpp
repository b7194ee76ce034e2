// The sampler: hand-worked cases of each filter, the distribution of draws, and recorded ids for every machine.
#include "engine/session/sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>
#include <set>
#include <utility>

#include "engine/session/generation_config.h"
#include "tests/temp_folder.h"

namespace pinion {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// Ids 2, 0, 1, 3 have probabilities 0.5, 0.25, 0.125, 0.125.
const std::vector<float> kHalves = {std::log(0.25f), std::log(0.125f), std::log(0.5f), std::log(0.125f)};

int32_t greedy(const std::vector<float>& logits, std::vector<int32_t> history = {}, float penalty = 1) {
  Sampler sampler{.options = {.repetition_penalty = penalty}};
  return sample(sampler, logits, {}, history);
}

std::vector<int32_t> draw(SamplerOptions options, const std::vector<float>& logits, int draws) {
  Sampler sampler{.options = options};
  std::vector<int32_t> ids;
  for (int i = 0; i < draws; ++i) ids.push_back(sample(sampler, logits, {}, {}));
  return ids;
}

// The distinct ids of 2000 draws.
std::set<int32_t> drawn(SamplerOptions options, const std::vector<float>& logits) {
  const std::vector<int32_t> ids = draw(options, logits, 2000);
  return {ids.begin(), ids.end()};
}

using IdSet = std::set<int32_t>;

TEST(Greedy, LargestLogitLowerIdAmongEquals) {
  EXPECT_EQ(greedy({1, 3, 2}), 1);
  EXPECT_EQ(greedy({3, 1, 3}), 0);
  EXPECT_EQ(greedy({-2, -1, -1}), 1);
}

TEST(Greedy, NanNeverWins) {
  EXPECT_EQ(greedy({kNan, -5, -4, kNan}), 2);
  EXPECT_EQ(greedy({-kInfinity, kNan, 0}), 2);
  EXPECT_EQ(greedy({kNan, kNan}), 0);
}

TEST(RepetitionPenalty, DividesPositiveMultipliesNegative) {
  EXPECT_EQ(greedy({3, 2, 1}, {0}, 2), 1);            // 1.5, 2, 1
  EXPECT_EQ(greedy({3, 2, 1}, {0, 0, 1}, 1.25f), 0);  // 2.4, 1.6, 1: once per id
  EXPECT_EQ(greedy({-1, -1.5f, -3}, {0}, 2), 1);      // -2, -1.5, -3
  EXPECT_EQ(greedy({3, 2, 1}, {-1, 7}, 2), 0);        // ids outside the vocabulary are ignored
}

// Logits after the penalties.
std::vector<float> adjusted(const SamplerOptions& options, const std::vector<float>& logits,
                            const std::vector<int32_t>& history, int64_t prompt_tokens = 0) {
  Sampler sampler{.options = options, .prompt_tokens = prompt_tokens};
  sample(sampler, logits, {}, history);
  EXPECT_EQ(sampler.adjusted.size(), logits.size());
  for (const int32_t count : sampler.counts) EXPECT_EQ(count, 0);
  return sampler.adjusted;
}

using Logits = std::vector<float>;

TEST(PresenceAndFrequency, CountGeneratedTokensOnly) {
  const std::vector<int32_t> history = {3, 3, 0, 1, 1, 1, -1, 7};  // the first two are the prompt's
  EXPECT_EQ(adjusted({.presence_penalty = 0.5f}, {1, 2, 3, 4}, history, 2), Logits({0.5f, 1.5f, 3, 4}));
  EXPECT_EQ(adjusted({.frequency_penalty = 0.5f}, {1, 2, 3, 4}, history, 2), Logits({0.5f, 0.5f, 3, 4}));
  EXPECT_EQ(adjusted({.presence_penalty = 1, .frequency_penalty = -0.5f}, {1, 2, 3, 4}, history, 2),
            Logits({0.5f, 2.5f, 3, 4}));
  EXPECT_EQ(adjusted({.presence_penalty = 1}, {1, 2}, {0, 1}, 9), Logits({1, 2})) << "nothing was generated";
}

TEST(PresenceAndFrequency, FollowRepetitionPenalty) {
  EXPECT_EQ(adjusted({.repetition_penalty = 2, .presence_penalty = 1}, {4, 4}, {0, 1}, 1), Logits({2, 1}));
}

TEST(Dry, LongerRepetitionsCostMore) {
  const SamplerOptions dry = {.dry_multiplier = 1, .dry_base = 2, .dry_allowed_length = 2};
  const Logits zeros(10, 0);
  const auto lowered = [&](const SamplerOptions& options, const std::vector<int32_t>& history) {
    return adjusted(options, zeros, history);
  };
  const auto only = [&](size_t id, float logit) {
    Logits expected = zeros;
    expected[id] = logit;
    return expected;
  };
  EXPECT_EQ(lowered(dry, {1, 2, 3, 1}), zeros) << "one token only: 2 may follow";
  EXPECT_EQ(lowered(dry, {1, 2, 3, 1, 2}), only(3, -1));
  EXPECT_EQ(lowered(dry, {5, 1, 2, 3, 5, 1, 2}), only(3, -2));
  EXPECT_EQ(lowered(dry, {4, 5, 1, 2, 3, 9, 4, 5, 1, 2}), only(3, -4));
  Logits both = only(3, -1);
  both[4] = -2;
  EXPECT_EQ(lowered(dry, {1, 2, 3, 5, 1, 2, 4, 5, 1, 2}), both) << "3 would prolong two tokens, 4 three";
  EXPECT_EQ(lowered(dry, {7, 7, 7, 7}), only(7, -2)) << "a repetition may overlap itself";
  SamplerOptions breaks = dry;
  breaks.dry_breakers = {1};
  EXPECT_EQ(lowered(breaks, {5, 1, 2, 3, 5, 1, 2}), zeros) << "not across a breaker";
  breaks.dry_breakers = {3};
  EXPECT_EQ(lowered(breaks, {5, 1, 2, 3, 5, 1, 2}), zeros) << "a breaker may always follow";
  breaks.dry_breakers = {2};
  EXPECT_EQ(lowered(breaks, {5, 1, 2, 3, 5, 1, 2}), zeros) << "nothing begins with one";
  EXPECT_EQ(lowered(dry, {1, 2, 99, 1, 2}), zeros) << "no logit of this vocabulary";
  EXPECT_EQ(lowered(dry, {}), zeros);
  const std::vector<int32_t> long_history(3000, 7);
  EXPECT_EQ(lowered(dry, long_history)[7], -kInfinity);
}

// The algorithm of DRY's description, literally: compares the text before each occurrence of the last token.
TEST(Dry, MatchesReferenceAlgorithm) {
  uint32_t state = 1;
  for (int round = 0; round < 300; ++round) {
    std::vector<int32_t> history;
    const auto next = [&](uint32_t below) {
      return static_cast<int32_t>((state = state * 1664525u + 1013904223u) >> 8) % static_cast<int32_t>(below);
    };
    while (history.size() < 40) history.push_back(next(3));
    const SamplerOptions options = {
        .dry_multiplier = 0.5f, .dry_base = 1.5f, .dry_allowed_length = 1 + next(3), .dry_breakers = {next(6)}};
    const auto is_breaker = [&](int32_t id) { return id == options.dry_breakers[0]; };
    std::vector<int> longest(3, 0);
    const int n = static_cast<int>(history.size());
    const auto at = [&](int i) { return history[static_cast<size_t>(i)]; };
    for (int i = 0; i < n - 1; ++i) {
      if (is_breaker(at(n - 1)) || at(i) != at(n - 1) || is_breaker(at(i + 1))) continue;
      int length = 1;
      while (i - length >= 0 && at(i - length) == at(n - 1 - length) && !is_breaker(at(i - length))) ++length;
      longest[static_cast<size_t>(at(i + 1))] = std::max(longest[static_cast<size_t>(at(i + 1))], length);
    }
    const Logits logits = {1, 2, 3}, found = adjusted(options, logits, history);
    for (size_t id = 0; id < logits.size(); ++id) {
      const int beyond = longest[id] - options.dry_allowed_length;
      const double penalty = beyond >= 0 && longest[id] > 0 ? 0.5 * std::pow(1.5, beyond) : 0;
      EXPECT_NEAR(found[id], logits[id] - penalty, 1e-5 * (1 + penalty)) << "round " << round << ", id " << id;
    }
  }
}

TEST(LogitBias, HandWorked) {
  EXPECT_EQ(adjusted({.logit_bias = {{0, 2.5f}, {2, -1}}}, {1, 2, 3, 4}, {}), Logits({3.5f, 2, 2, 4}));
  EXPECT_EQ(draw({.logit_bias = {{1, 0.5f}}}, {1, 0.6f, 1.05f}, 1), std::vector<int32_t>({1}));
  // Before penalties: (2 + 2) / 2, not 2 / 2 + 2.
  EXPECT_EQ(adjusted({.repetition_penalty = 2, .logit_bias = {{1, 2}}}, {1, 2, 2.5f}, {1}), Logits({1, 2, 2.5f}));
  // An id outside a smaller vocabulary.
  EXPECT_EQ(adjusted({.logit_bias = {{1, 1}, {4, 1}, {900, 1}}}, {1, 2, 3, 4}, {}), Logits({1, 3, 3, 4}));
}

TEST(LogitBias, BansAndForces) {
  EXPECT_EQ(drawn({.temperature = 1, .logit_bias = {{2, -kInfinity}}}, kHalves), IdSet({0, 1, 3}));
  EXPECT_EQ(drawn({.temperature = 1, .logit_bias = {{2, -100}}}, kHalves), IdSet({0, 1, 3}));
  EXPECT_EQ(drawn({.temperature = 1, .logit_bias = {{3, 100}}}, kHalves), IdSet({3}));
  EXPECT_EQ(draw({.logit_bias = {{0, -kInfinity}, {1, -kInfinity}}}, {3, 2, 1}, 1), std::vector<int32_t>({2}));
}

// Equals logits with the bias included, although panel_best is that of the logits without it.
TEST(LogitBias, UpdatesThePanels) {
  std::mt19937 random(41);
  const auto below = [&](uint32_t n) { return static_cast<uint32_t>(random() % n); };
  int changed = 0;
  for (int round = 0; round < 2000; ++round) {
    const uint32_t vocab = 1 + below(300);
    Logits logits(vocab);
    for (float& logit : logits) logit = static_cast<float>(below(1000)) * 0.01f;
    std::vector<int32_t> best;
    for (uint32_t first = 0; first < vocab; first += 64) {
      const auto panel = logits.begin() + first, end = logits.begin() + std::min(first + 64, vocab);
      best.push_back(static_cast<int32_t>(std::max_element(panel, end) - logits.begin()));
    }
    SamplerOptions options = {.temperature = below(3) == 0 ? 0.0f : 0.5f,
                              .top_k = static_cast<int32_t>(below(2) * below(40)),
                              .top_p = below(2) ? 0.9f : 1.0f,
                              .min_p = below(2) ? 0.05f : 0.0f,
                              .repetition_penalty = below(2) ? 1.0f : 1.2f,
                              .frequency_penalty = below(2) ? 0.0f : 0.3f,
                              .seed = random()};
    std::vector<int32_t> history;
    for (uint32_t i = below(20); i > 0; --i) history.push_back(static_cast<int32_t>(below(vocab)));
    Sampler plain{.options = options};
    Logits biased = logits;
    const uint32_t step = 1 + below(100);
    for (uint32_t id = below(vocab); id < vocab; id += step) {
      const float biases[] = {-100, -kInfinity, 100, 1.5f, -1.5f, 0};
      options.logit_bias.push_back({static_cast<int32_t>(id), biases[below(6)]});
      biased[id] += options.logit_bias.back().bias;
    }
    Sampler sampler{.options = options}, without{.options = plain.options};
    for (int i = 0; i < 3; ++i) {
      const int32_t id = sample(sampler, logits, best, history);
      ASSERT_EQ(id, sample(plain, biased, {}, history)) << "round " << round;
      changed += id != sample(without, logits, best, history);
    }
  }
  EXPECT_GT(changed, 1000);
}

TEST(TopK, KeepsMostLikely) {
  EXPECT_EQ(drawn({.temperature = 1, .top_k = 1}, kHalves), IdSet({2}));
  EXPECT_EQ(drawn({.temperature = 1, .top_k = 2}, kHalves), IdSet({2, 0}));
  EXPECT_EQ(drawn({.temperature = 1, .top_k = 3}, kHalves), IdSet({2, 0, 1}));  // 1 and 3 are equally likely
  EXPECT_EQ(drawn({.temperature = 1, .top_k = 9}, kHalves), IdSet({0, 1, 2, 3}));
}

// The top k in one panel of 64 logits, in several, among more than k equals, and beside NaN.
TEST(TopK, FindsCandidatesInAllPanels) {
  std::vector<float> logits(300, 0.0f);
  for (const int32_t id : {70, 71, 75}) logits[static_cast<size_t>(id)] = 5;
  logits[299] = 4.5f;
  logits[72] = kNan;
  logits[130] = kNan;
  EXPECT_EQ(drawn({.temperature = 1, .top_k = 3}, logits), IdSet({70, 71, 75}));
  EXPECT_EQ(drawn({.temperature = 1, .top_k = 4}, logits), IdSet({70, 71, 75, 299}));
  EXPECT_EQ(drawn({.temperature = 4, .top_k = 6}, logits),
            IdSet({0, 1, 70, 71, 75, 299}));  // the first two of many equals
  EXPECT_EQ(drawn({.temperature = 4, .top_k = 8}, logits),
            IdSet({0, 1, 2, 3, 70, 71, 75, 299}));  // more candidates than panels
}

// All other logits are minus infinity, with any filters.
TEST(CandidatesNeeded, GiveTheSameTokens) {
  std::mt19937 random(42);
  const auto below = [&](uint32_t n) { return static_cast<uint32_t>(random() % n); };
  for (int round = 0; round < 1000; ++round) {
    Logits logits(1 + below(400));
    for (float& logit : logits) logit = static_cast<float>(below(40)) * 0.1f;  // many are equal
    const SamplerOptions options = {.temperature = below(3) == 0 ? 0.0f : 0.7f,
                                    .top_k = static_cast<int32_t>(1 + below(80)),
                                    .top_p = below(2) ? 0.9f : 1.0f,
                                    .min_p = below(2) ? 0.3f : 0.0f,
                                    .seed = random()};
    const auto needed = static_cast<size_t>(candidates_needed(options));
    EXPECT_EQ(needed, options.temperature > 0 ? static_cast<size_t>(options.top_k) : 1);
    std::vector<int32_t> ids(logits.size());
    std::iota(ids.begin(), ids.end(), 0);
    std::ranges::sort(ids, {}, [&](int32_t id) { return std::pair(-logits[static_cast<size_t>(id)], id); });
    Logits few(logits.size(), -kInfinity);
    for (size_t i = 0; i < std::min(needed, ids.size()); ++i) {
      few[static_cast<size_t>(ids[i])] = logits[static_cast<size_t>(ids[i])];
    }
    Sampler of_all{.options = options}, of_few{.options = options};
    for (int i = 0; i < 4; ++i) ASSERT_EQ(sample(of_few, few, {}, {}), sample(of_all, logits, {}, {})) << round;
  }
}

TEST(CandidatesNeeded, AllForBiasAndPenalties) {
  EXPECT_EQ(candidates_needed(SamplerOptions{}), 1);
  EXPECT_EQ(candidates_needed({.temperature = 1}), 0);
  EXPECT_EQ(candidates_needed({.temperature = 1, .top_p = 0.9f, .min_p = 0.1f}), 0);
  EXPECT_EQ(candidates_needed({.temperature = 1, .top_k = kMaxCandidates}), kMaxCandidates);
  EXPECT_EQ(candidates_needed({.temperature = 1, .top_k = kMaxCandidates + 1}), 0);
  EXPECT_EQ(candidates_needed({.repetition_penalty = 1.1f}), 0);
  EXPECT_EQ(candidates_needed({.temperature = 1, .top_k = 4, .presence_penalty = 0.1f}), 0);
  EXPECT_EQ(candidates_needed({.frequency_penalty = 0.1f}), 0);
  EXPECT_EQ(candidates_needed({.dry_multiplier = 0.8f}), 0);
  EXPECT_EQ(candidates_needed({.logit_bias = {{3, 1.0f}}}), 0);
  EXPECT_EQ(candidates_needed({.top_n_sigma = 1}), 0);
  EXPECT_EQ(candidates_needed({.allowed_ids = {3}}), 0);
  EXPECT_EQ(candidates_needed({.banned = {{3}}}), 0);
  EXPECT_EQ(candidates_needed({.temperature = 1, .top_k = -1}), 0);
  EXPECT_EQ(candidates_needed({.temperature = 1, .top_k = 4, .typical_p = 0.5f, .xtc_probability = 1}), 4);
}

TEST(TopK, UsesPenalisedLogits) {
  std::vector<float> logits(300, 0.0f);
  logits[10] = 8;
  logits[200] = 3;
  logits[201] = 2;
  for (const bool found_before : {false, true}) {
    const std::vector<int32_t> best = {10, 64, 128, 200, 256};
    Sampler sampler{.options = {.temperature = 0.01f, .top_k = 2, .repetition_penalty = 8}};
    const std::vector<int32_t> history = {10, 200};
    EXPECT_EQ(sample(sampler, logits, found_before ? best : std::vector<int32_t>{}, history), 201);  // 1, 0.375, 2
  }
}

TEST(TopP, KeepsFewestThatReachP) {
  EXPECT_EQ(drawn({.temperature = 1, .top_p = 0}, kHalves), IdSet({2}));
  EXPECT_EQ(drawn({.temperature = 1, .top_p = 0.49f}, kHalves), IdSet({2}));
  EXPECT_EQ(drawn({.temperature = 1, .top_p = 0.51f}, kHalves), IdSet({2, 0}));
  EXPECT_EQ(drawn({.temperature = 1, .top_p = 0.76f}, kHalves), IdSet({2, 0, 1}));
  EXPECT_EQ(drawn({.temperature = 1, .top_p = 0.99f}, kHalves), IdSet({0, 1, 2, 3}));
}

TEST(TopP, AppliesAfterTopK) {
  // Among ids 2 and 0, id 2 has probability 2/3.
  EXPECT_EQ(drawn({.temperature = 1, .top_k = 2, .top_p = 0.6f}, kHalves), IdSet({2}));
}

TEST(TopP, AppliesAfterTemperature) {
  // Half the temperature squares the probabilities: 16 : 4 : 1 : 1.
  EXPECT_EQ(drawn({.temperature = 0.5f, .top_p = 0.72f}, kHalves), IdSet({2}));
}

TEST(MinP, DropsUnlikelyTokens) {
  EXPECT_EQ(drawn({.temperature = 1, .min_p = 0.2f}, kHalves), IdSet({0, 1, 2, 3}));
  EXPECT_EQ(drawn({.temperature = 1, .min_p = 0.3f}, kHalves), IdSet({2, 0}));
  EXPECT_EQ(drawn({.temperature = 1, .min_p = 1}, kHalves), IdSet({2}));
}

// Surprises of kHalves: 2, 3, 1, 3 bits, 1.75 on average: id 0 is nearest, then 2.
TEST(Typical, KeepsTokensOfMeanSurprise) {
  EXPECT_EQ(drawn({.temperature = 1, .typical_p = 0.2f}, kHalves), IdSet({0}));
  EXPECT_EQ(drawn({.temperature = 1, .typical_p = 0.3f}, kHalves), IdSet({0, 2}));
  EXPECT_EQ(drawn({.temperature = 1, .typical_p = 0.8f}, kHalves), IdSet({0, 1, 2}));
  EXPECT_EQ(drawn({.temperature = 1, .typical_p = 0}, {kNan, 1, -kInfinity}), IdSet({1}));
  EXPECT_EQ(drawn({.temperature = 1, .top_k = 2, .typical_p = 0.5f}, kHalves), IdSet({2})) << "of 2/3 and 1/3";
}

TEST(Xtc, DropsAllButTheLeastLikelyTopChoice) {
  EXPECT_EQ(drawn({.temperature = 1, .xtc_probability = 1, .xtc_threshold = 0.2f}, kHalves), IdSet({0, 1, 3}));
  EXPECT_EQ(drawn({.temperature = 1, .xtc_probability = 1, .xtc_threshold = 0.1f}, kHalves), IdSet({3}));
  EXPECT_EQ(drawn({.temperature = 1, .xtc_probability = 1, .xtc_threshold = 0.6f}, kHalves), IdSet({0, 1, 2, 3}));
  EXPECT_EQ(drawn({.temperature = 1, .xtc_probability = 0.5f, .xtc_threshold = 0.2f}, kHalves), IdSet({0, 1, 2, 3}));
  EXPECT_EQ(draw({.temperature = 1, .xtc_probability = 0, .seed = 4}, kHalves, 50),
            draw({.temperature = 1, .seed = 4}, kHalves, 50));
}

// The standard deviation is 2.757.
TEST(TopNSigma, DropsLogitsFarBelowTheLargest) {
  const Logits logits = {5, -3, 3, 0, 0};
  EXPECT_EQ(adjusted({.top_n_sigma = 1}, logits, {}), Logits({5, -kInfinity, 3, -kInfinity, -kInfinity}));
  EXPECT_EQ(drawn({.temperature = 1, .top_n_sigma = 0.5f}, logits), IdSet({0}));
  EXPECT_EQ(drawn({.temperature = 9, .top_n_sigma = 2}, logits), IdSet({0, 2, 3, 4}));
  EXPECT_EQ(drawn({.temperature = 3, .top_n_sigma = 2, .allowed_ids = {1}}, logits), IdSet({1}))
      << "of the allowed ids";
  EXPECT_EQ(drawn({.temperature = 3, .top_n_sigma = 1}, {2, 2, 2}), IdSet({0, 1, 2}));
}

TEST(AllowedIds, ExcludeAllOthers) {
  EXPECT_EQ(drawn({.temperature = 5, .allowed_ids = {0, 3}}, kHalves), IdSet({0, 3}));
  EXPECT_EQ(draw({.allowed_ids = {1, 900}}, {3, 2, 5}, 1), std::vector<int32_t>({1}));
  EXPECT_EQ(draw({.logit_bias = {{0, 100}}, .allowed_ids = {1}}, {3, 2, 5}, 1), std::vector<int32_t>({1}));
}

TEST(Banned, LastIdDoesNotFollowTheOthers) {
  const SamplerOptions options = {.banned = {{2}, {1, 0}, {7, 7, 3}, {900}}};
  EXPECT_EQ(adjusted(options, {1, 2, 3, 4}, {}), Logits({1, 2, -kInfinity, 4}));
  EXPECT_EQ(adjusted(options, {1, 2, 3, 4}, {7, 1}), Logits({-kInfinity, 2, -kInfinity, 4}));
  EXPECT_EQ(adjusted(options, {1, 2, 3, 4}, {1, 7, 7}), Logits({1, 2, -kInfinity, -kInfinity}));
}

TEST(Forbidden, ExcludesIdsOfOneDraw) {
  Sampler sampler{.options = {}};
  sampler.forbidden = {2, 900};
  EXPECT_EQ(sample(sampler, Logits{1, 4, 5}, {}, {}), 1);
  EXPECT_EQ(sampler.adjusted, Logits({1, 4, -kInfinity}));
  sampler.forbidden.clear();
  EXPECT_EQ(sample(sampler, Logits{1, 4, 5}, {}, {}), 2);
  EXPECT_TRUE(sampler.adjusted.empty());
}

TEST(RepeatLastN, LimitsThePenalties) {
  EXPECT_EQ(adjusted({.repetition_penalty = 2, .repeat_last_n = 2}, {2, 2, 2}, {0, 1, 2}), Logits({2, 1, 1}));
  EXPECT_EQ(adjusted({.repetition_penalty = 2, .repeat_last_n = 0}, {2, 2, 2}, {0, 1, 2}), Logits({2, 2, 2}));
  EXPECT_EQ(adjusted({.presence_penalty = 1, .repeat_last_n = 1}, {2, 2, 2}, {0, 1, 2}, 1), Logits({2, 2, 1}));
  EXPECT_EQ(adjusted({.presence_penalty = 1, .repeat_last_n = 9}, {2, 2, 2}, {0, 1, 2}, 1), Logits({2, 1, 1}));
}

TEST(Draw, SkipsImpossibleTokens) {
  EXPECT_EQ(drawn({.temperature = 1}, {kNan, 1, -kInfinity, 1, kNan}), IdSet({1, 3}));
  EXPECT_EQ(drawn({.temperature = 1}, {-kInfinity, -kInfinity}), IdSet({0}));
  EXPECT_EQ(drawn({.temperature = 1, .top_p = 0.9f}, {kNan, kNan}), IdSet({0}));
  EXPECT_EQ(drawn({.temperature = 1e-30f}, {1, 2, 1.999f}), IdSet({1}));
  EXPECT_EQ(drawn({.temperature = 1, .top_k = 2}, {0, kInfinity, 5}), IdSet({1}));
}

TEST(Draw, FollowsSoftmax) {
  constexpr int kDraws = 100'000;
  const float temperature = 0.8f;
  std::vector<float> logits;
  for (int i = 0; i < 40; ++i) logits.push_back(3 * std::sin(2.0f * static_cast<float>(i)));
  std::vector<double> probability;
  for (const float logit : logits) probability.push_back(std::exp(static_cast<double>(logit) / temperature));
  const double total = std::accumulate(probability.begin(), probability.end(), 0.0);

  std::vector<int> count(logits.size());
  for (const int32_t id : draw({.temperature = temperature, .seed = 5}, logits, kDraws)) ++count[id];
  for (size_t id = 0; id < logits.size(); ++id) {
    const double expected = kDraws * probability[id] / total;
    EXPECT_NEAR(count[id], expected, 4 * std::sqrt(expected)) << "id " << id;
  }
}

TEST(Seed, DeterminesDraws) {
  const std::vector<float> flat(1000, 0.0f);
  const std::vector<int32_t> first = draw({.temperature = 1, .seed = 1}, flat, 50);
  EXPECT_EQ(first, draw({.temperature = 1, .seed = 1}, flat, 50));
  EXPECT_NE(first, draw({.temperature = 1, .seed = 2}, flat, 50));
  EXPECT_GT(std::set<int32_t>(first.begin(), first.end()).size(), 40u);
}

// A vocabulary of realistic size. Every architecture, compiler and library must draw the recorded ids.
TEST(Seed, DrawsRecordedIds) {
  std::vector<float> logits(151'936);
  uint32_t state = 1;
  for (float& logit : logits) {
    state = state * 1664525u + 1013904223u;
    logit = static_cast<float>(state >> 8) * 0x1p-20f;  // 0 to 16
  }
  const SamplerOptions plain = {.temperature = 0.7f, .seed = 42};
  SamplerOptions top_k = plain, top_p = plain, all = plain;
  top_k.top_k = 50;
  top_p.top_p = 0.5f;
  all.top_k = 1000;
  all.top_p = 0.9f;
  all.min_p = 0.1f;
  EXPECT_EQ(draw(plain, logits, 6), std::vector<int32_t>({52603, 145618, 74839, 10550, 103337, 10569}));
  EXPECT_EQ(draw(top_k, logits, 6), std::vector<int32_t>({41147, 85098, 86345, 11482, 839, 11482}));
  EXPECT_EQ(draw(top_p, logits, 6), std::vector<int32_t>({59341, 18555, 4596, 100539, 125963, 36576}));
  EXPECT_EQ(draw(all, logits, 6), std::vector<int32_t>({124096, 1988, 86299, 88321, 6210, 88321}));
}

TEST(GenerationConfig, ReadsDefaults) {
  const TempFolder folder;
  GenerationDefaults defaults;
  ASSERT_EQ(read_generation_config(folder.path, &defaults).message(), "") << "no file: the defaults";
  EXPECT_EQ(defaults.sampler.temperature, 0) << "greedy";
  EXPECT_EQ(defaults.sampler.top_k, 50);
  folder.write("generation_config.json", R"({"do_sample": true, "temperature": 0.6, "top_k": 20, "top_p": 0.95,
    "min_p": 0.05, "repetition_penalty": 1.1, "eos_token_id": [5, 6], "bos_token_id": 4, "max_new_tokens": 100})");
  ASSERT_EQ(read_generation_config(folder.path, &defaults).message(), "");
  EXPECT_EQ(defaults.sampler.temperature, 0.6f);
  EXPECT_EQ(defaults.sampler.top_k, 20);
  EXPECT_EQ(defaults.sampler.top_p, 0.95f);
  EXPECT_EQ(defaults.sampler.min_p, 0.05f);
  EXPECT_EQ(defaults.sampler.repetition_penalty, 1.1f);
  EXPECT_EQ(defaults.bos_id, 4);
  EXPECT_EQ(defaults.eos_ids, (std::vector<int64_t>{5, 6}));
  folder.write("generation_config.json", R"({"top_p": 1.5})");
  EXPECT_EQ(read_generation_config(folder.path, &defaults).message(),
            folder.path.string() + "/generation_config.json: top_p: out of range: want a number from 0 to 1, have 1.5");
}

}  // namespace
}  // namespace pinion
