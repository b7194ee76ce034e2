#include "engine/measure/statistics.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "engine/session/sampler.h"

namespace pinion {

Mean mean_of(std::span<const double> values) {
  const auto n = static_cast<double>(values.size());
  if (values.empty()) return {};
  const double mean = std::accumulate(values.begin(), values.end(), 0.0) / n;
  if (values.size() < 2) return {mean, 0};
  double squares = 0;
  for (const double value : values) squares += (value - mean) * (value - mean);
  return {mean, std::sqrt(squares / (n - 1) / n)};
}

double quantile(std::vector<double> values, double fraction) {
  if (values.empty()) return 0;
  const auto rank = static_cast<int64_t>(std::ceil(fraction * static_cast<double>(values.size())));
  const auto at = values.begin() + std::clamp<int64_t>(rank - 1, 0, std::ssize(values) - 1);
  std::ranges::nth_element(values, at);
  return *at;
}

double median_of(std::vector<double> values) {
  if (values.empty()) return 0;
  std::ranges::sort(values);
  const size_t half = values.size() / 2;
  return values.size() % 2 ? values[half] : (values[half - 1] + values[half]) / 2;
}

Divergence compare_logits(std::span<const float> reference, std::span<const float> other, int32_t next) {
  const LogSoftmax p = log_softmax_of(reference);
  const LogSoftmax q = log_softmax_of(other);
  Divergence result;
  result.reference_loss = -p(reference[next]);
  result.loss = -q(other[next]);
  for (size_t i = 0; i < reference.size(); ++i) {
    const double log_p = p(reference[i]);
    result.kl += std::exp(log_p) * (log_p - q(other[i]));
  }
  if (result.kl < 0) result.kl = 0;  // rounding; NaN stays
  const auto top = [](std::span<const float> logits) { return std::ranges::max_element(logits) - logits.begin(); };
  result.same_top = top(reference) == top(other);
  return result;
}

}  // namespace pinion
