#include "engine/forward/candidates.h"

#include <algorithm>
#include <cstddef>
#include <functional>
#include <limits>

#include "kernels/layout.h"

namespace pinion {
namespace {

// A lower bound of the k-th largest logit: k panels have a best that reaches it. Minus infinity if there are fewer.
float reached_by(int64_t k, std::span<const float> logits, std::span<const int32_t> panel_best,
                 std::vector<float>& largest) {
  constexpr float kLeast = -std::numeric_limits<float>::infinity();
  if (k > std::ssize(panel_best)) return kLeast;
  largest.clear();
  for (const int32_t id : panel_best) largest.push_back(logits[id] > kLeast ? logits[id] : kLeast);
  std::ranges::nth_element(largest, largest.begin() + (k - 1), std::greater());
  return largest[k - 1];
}

}  // namespace

void find_likeliest(int64_t k, std::span<const float> logits, std::span<const int32_t> panel_best,
                    std::vector<float>& panel_logits, std::vector<Candidate>& out) {
  out.clear();
  const float least = reached_by(k, logits, panel_best, panel_logits);
  for (const int32_t best : panel_best) {
    if (!(logits[best] >= least)) continue;
    const auto first = static_cast<int32_t>(best / kPanelColumns * kPanelColumns);
    const auto end = static_cast<int32_t>(std::min<int64_t>(std::ssize(logits), first + kPanelColumns));
    for (int32_t id = first; id < end; ++id) {
      if (logits[id] >= least) out.push_back({logits[id], id});
    }
  }
  const auto kept = std::min<int64_t>(k, std::ssize(out));
  std::ranges::partial_sort(out, out.begin() + kept, more_likely);
  out.resize(static_cast<size_t>(kept));
}

}  // namespace pinion
