// Log probabilities of tokens as a model's logits have them, before penalties and temperature. The same bits on every
// machine: exp and log are those of kernels/base/math.h, and sums run in the order of the ids. Natural logarithms.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace pinion {

struct LogSoftmax {
  double largest = 0;
  double log_sum = 0;  // of e^(logit - largest)

  double operator()(float logit) const { return static_cast<double>(logit) - largest - log_sum; }
};

// NaN where a logit is.
LogSoftmax log_softmax_of(std::span<const float> logits);

struct TokenLogprob {
  int32_t id;
  double logprob;

  bool operator==(const TokenLogprob&) const = default;
};

struct Logprobs {
  TokenLogprob token;             // the one that came
  std::vector<TokenLogprob> top;  // the likeliest, best first, the lower id first among equals

  bool operator==(const Logprobs&) const = default;
};

Logprobs logprobs_of(std::span<const float> logits, int32_t id, int32_t top);

}  // namespace pinion
