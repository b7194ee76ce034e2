#include "engine/measure/divergence.h"

#include <algorithm>
#include <cmath>

#include "engine/session/logprobs.h"

namespace pinion {
Divergence compare_logits(std::span<const float> reference, std::span<const float> other, int32_t next) {
  const LogSoftmax p = log_softmax_of(reference);
  const LogSoftmax q = log_softmax_of(other);
  Divergence result;
  result.reference_loss = -p(reference[static_cast<size_t>(next)]);
  result.loss = -q(other[static_cast<size_t>(next)]);
  for (size_t i = 0; i < reference.size(); ++i) {
    const double log_p = p(reference[i]);
    result.kl += std::exp(log_p) * (log_p - q(other[i]));
  }
  if (result.kl < 0) result.kl = 0;  // rounding, where the two are the same
  const auto top = [](std::span<const float> logits) { return std::ranges::max_element(logits) - logits.begin(); };
  result.same_top = top(reference) == top(other);
  return result;
}

}  // namespace pinion
