#include "engine/measure/divergence.h"

#include <algorithm>
#include <cmath>

namespace pinion {
namespace {

struct Normalizer {
  double max = 0;
  double log_sum = 0;  // log of the sum of exp(logit - max)

  double log_probability(float logit) const { return static_cast<double>(logit) - max - log_sum; }
};

Normalizer normalizer_of(std::span<const float> logits) {
  const double max = *std::ranges::max_element(logits);
  double sum = 0;
  for (const float logit : logits) sum += std::exp(static_cast<double>(logit) - max);
  return {max, std::log(sum)};
}

}  // namespace

Divergence compare_logits(std::span<const float> reference, std::span<const float> other, int32_t next) {
  const Normalizer p = normalizer_of(reference);
  const Normalizer q = normalizer_of(other);
  Divergence result;
  result.reference_loss = -p.log_probability(reference[static_cast<size_t>(next)]);
  result.loss = -q.log_probability(other[static_cast<size_t>(next)]);
  for (size_t i = 0; i < reference.size(); ++i) {
    const double log_p = p.log_probability(reference[i]);
    result.kl += std::exp(log_p) * (log_p - q.log_probability(other[i]));
  }
  if (result.kl < 0) result.kl = 0;  // rounding, where the two are the same
  const auto top = [](std::span<const float> logits) { return std::ranges::max_element(logits) - logits.begin(); };
  result.same_top = top(reference) == top(other);
  return result;
}

}  // namespace pinion
