#include "engine/measure/divergence.h"

#include <algorithm>
#include <cmath>
#include <numeric>

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

Mean mean_of(std::span<const double> values) {
  const auto n = static_cast<double>(values.size());
  if (values.empty()) return {};
  const double mean = std::accumulate(values.begin(), values.end(), 0.0) / n;
  if (values.size() < 2) return {mean, 0};
  double squares = 0;
  for (const double value : values) squares += (value - mean) * (value - mean);
  return {mean, std::sqrt(squares / (n - 1) / n)};
}

double quantile(std::vector<double> values, double share) {
  if (values.empty()) return 0;
  const auto rank = static_cast<int64_t>(std::ceil(share * static_cast<double>(values.size())));
  const auto at = values.begin() + std::clamp<int64_t>(rank - 1, 0, std::ssize(values) - 1);
  std::ranges::nth_element(values, at);
  return *at;
}

}  // namespace pinion
