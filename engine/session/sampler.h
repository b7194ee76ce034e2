// From logits to the next token and log probabilities. The same logits, history, options and seed give the same bits on
// every machine (counter-based generator, own exp and log, fixed order of sums, ties go to the lower id).
#pragma once

#include "engine/forward/candidates.h"
#include "engine/session/generation_config.h"

namespace pinion {

struct Sampler {
  SamplerOptions options;
  int64_t prompt_tokens = 0;  // ids at the start of the history that were not generated
  uint64_t draws = 0;         // counter of the generator
  // Token mask of the next draw, in the format of TextRules::allowed. Empty: all tokens.
  std::span<const uint32_t> allowed{};
  std::vector<int32_t> forbidden{};  // ids that the next draw excludes

  // Scratch.
  std::vector<Candidate> candidates{};
  std::vector<int32_t> best{};        // [panels] the most likely id of each panel
  std::vector<float> panel_logits{};  // [panels] their logits
  std::vector<float> adjusted{};      // [vocab] logits after bias and penalties; empty: none was applied
  std::vector<bool> changed{};        // [panels] true: `adjusted` differs from the logits
  std::vector<int32_t> counts{};      // [vocab]; all 0 between uses
  // DRY: [history], by distance from the end: length of the common suffix of the history up to there and the whole.
  std::vector<int64_t> common_with_end{};
};

// True if a bias, a penalty or a list of ids is active.
bool adjusts_logits(const SamplerOptions& options);

// Number of largest logits that suffice to draw the same token as from all logits; 0: all are needed.
int64_t candidates_needed(const SamplerOptions& options);

// Draws a token. history: the prompt and the generated ids, for penalties. panel_best: the most likely id of each panel
// of logits (Activations::panel_best); empty: searched here. A token whose logit is NaN is not drawn.
int32_t sample(Sampler& sampler, std::span<const float> logits, std::span<const int32_t> panel_best,
               std::span<const int32_t> history);

// Log probabilities (natural logarithms) of the unmodified logits, before penalties and temperature.
struct LogSoftmax {
  double largest = 0;
  double log_sum = 0;  // log of the sum of e^(logit - largest)

  double operator()(float logit) const { return static_cast<double>(logit) - largest - log_sum; }
};

// NaN if any logit is NaN.
LogSoftmax log_softmax_of(std::span<const float> logits);

struct TokenLogprob {
  int32_t id;
  double logprob;

  bool operator==(const TokenLogprob&) const = default;
};

struct Logprobs {
  TokenLogprob token;             // the actual token
  std::vector<TokenLogprob> top;  // the most likely tokens, best first, the lower id first among equals

  bool operator==(const Logprobs&) const = default;
};

Logprobs logprobs_of(std::span<const float> logits, int32_t id, int32_t top);

}  // namespace pinion
