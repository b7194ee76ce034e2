#include "engine/session/logprobs.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "kernels/base/math.h"

namespace pinion {

LogSoftmax log_softmax_of(std::span<const float> logits) {
  const double largest = *std::ranges::max_element(logits);
  double sum = 0;
  for (const float logit : logits) {
    const double x = static_cast<double>(logit) - largest;
    sum += x == x ? exp_weight(x) : x;
  }
  return {largest, sum == sum ? portable_log(sum) : sum};
}

Logprobs logprobs_of(std::span<const float> logits, int32_t id, int32_t top) {
  const LogSoftmax log_softmax = log_softmax_of(logits);
  const auto entry = [&](int32_t one) { return TokenLogprob{one, log_softmax(logits[static_cast<size_t>(one)])}; };
  // NaN goes last: sorting needs an order.
  const auto key = [&](int32_t one) {
    const float logit = logits[static_cast<size_t>(one)];
    return std::pair(logit == logit ? -logit : std::numeric_limits<float>::infinity(), one);
  };
  std::vector<int32_t> ids(logits.size());
  std::iota(ids.begin(), ids.end(), 0);
  const auto end = ids.begin() + std::min<int64_t>(top, std::ssize(ids));
  std::ranges::partial_sort(ids, end, {}, key);
  Logprobs result = {entry(id), {}};
  for (auto one = ids.begin(); one < end; ++one) result.top.push_back(entry(*one));
  return result;
}

}  // namespace pinion
