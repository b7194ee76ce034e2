#include "engine/forward/candidates.h"

#include <algorithm>
#include <functional>

#include "kernels/layout.h"

namespace pinion {
namespace {

// A lower bound of the k-th largest logit: the k-th largest of the panels' maxima, or -inf if there are fewer panels.
float lower_bound(int64_t k, std::span<const float> logits, std::span<const int32_t> panel_best,
                  std::vector<float>& maxima) {
  if (k > std::ssize(panel_best)) return kMinusInfinity;
  maxima.clear();
  for (const int32_t id : panel_best) maxima.push_back(logits[id] > kMinusInfinity ? logits[id] : kMinusInfinity);
  std::ranges::nth_element(maxima, maxima.begin() + (k - 1), std::greater());
  return maxima[k - 1];
}

}  // namespace

void find_likeliest(int64_t k, std::span<const float> logits, std::span<const int32_t> panel_best,
                    std::vector<float>& scratch, std::vector<Candidate>& out) {
  out.clear();
  const float bound = lower_bound(k, logits, panel_best, scratch);
  for (const int32_t best : panel_best) {
    if (!(logits[best] >= bound)) continue;
    const auto first = static_cast<int32_t>(best / kPanelColumns * kPanelColumns);
    const auto end = static_cast<int32_t>(std::min<int64_t>(std::ssize(logits), first + kPanelColumns));
    for (int32_t id = first; id < end; ++id) {
      if (logits[id] >= bound) out.push_back({logits[id], id});
    }
  }
  const auto count = std::min<int64_t>(k, std::ssize(out));
  std::ranges::partial_sort(out, out.begin() + count, more_likely);
  out.resize(count);
}

}  // namespace pinion
