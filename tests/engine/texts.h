// Random prompts and options, for tests that compare two ways to generate the same text.
#pragma once

#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "engine/session/continuation.h"
#include "tests/engine/pattern_rules.h"

namespace pinion {

struct TextCase {
  std::vector<int32_t> prompt;
  GenerateOptions options;
  int64_t stop_after;  // tokens; the callback then returns false
};

inline uint32_t below(std::mt19937& random, uint32_t n) { return static_cast<uint32_t>(random() % n); }

inline GenerateOptions random_options(std::mt19937& random, uint32_t max_tokens) {
  GenerateOptions options;
  SamplerOptions& s = options.sampler;
  s.seed = random();
  s.temperature = below(random, 3) == 0 ? 0.0f : 0.2f * static_cast<float>(1 + below(random, 8));
  s.top_k = static_cast<int32_t>(below(random, 2) * below(random, 50));
  s.top_p = below(random, 2) ? 0.9f : 1.0f;
  s.min_p = below(random, 2) ? 0.05f : 0.0f;
  s.repetition_penalty = below(random, 3) ? 1.0f : 1.1f;
  s.presence_penalty = below(random, 3) ? 0.0f : 0.5f;
  s.frequency_penalty = below(random, 3) ? 0.0f : 0.2f;
  s.dry_multiplier = below(random, 3) ? 0.0f : 0.8f;
  options.max_tokens = 1 + below(random, max_tokens);
  options.ignore_eos = below(random, 2) == 0;
  options.tokens_per_hash = 1;
  if (s.seed % 5 == 0) s.logit_bias = {{7, 2.0f}, {20, -100.0f}, {21, 1.0f}};
  if (s.seed % 4 == 0) options.logprobs = static_cast<int32_t>(s.seed / 4 % 3);
  if (s.seed % 7 == 2) options.rules = [seed = s.seed] { return std::make_unique<PatternRules>(seed, 5 + seed % 60); };
  if (s.seed % 6 == 1) options.prompt_logprobs = static_cast<int32_t>(s.seed / 6 % 3);
  return options;
}

// A prompt with repetitions.
inline TextCase random_text(std::mt19937& random, int64_t vocab, uint32_t max_tokens) {
  TextCase text;
  const uint32_t period = 3 + below(random, 12), length = 8 + below(random, 40);
  std::vector<int32_t> unit;
  for (uint32_t i = 0; i < period; ++i) {
    unit.push_back(static_cast<int32_t>(3 + below(random, static_cast<uint32_t>(vocab - 3))));
  }
  for (uint32_t i = 0; i < length; ++i) text.prompt.push_back(unit[i % period]);
  text.options = random_options(random, max_tokens);
  text.stop_after = below(random, 4) == 0 ? 1 + below(random, 20) : 1000;
  return text;
}

// The hashes cover all logits that tokens were drawn from.
inline void expect_same_text(const GenerateResult& a, const GenerateResult& b) {
  EXPECT_EQ(a.ids, b.ids);
  EXPECT_EQ(a.finish_reason, b.finish_reason);
  EXPECT_EQ(a.hashes, b.hashes);
  EXPECT_EQ(a.logits_hash, b.logits_hash);
  EXPECT_EQ(a.logprobs, b.logprobs);
  EXPECT_EQ(a.prompt_logprobs, b.prompt_logprobs);
}

}  // namespace pinion
