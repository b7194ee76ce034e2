// The top k of a row of logits. Panels whose largest logit is below the k-th best are skipped.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace pinion {

// Capacity of the boards' buffers for one row's candidates.
constexpr int32_t kMaxCandidates = 256;

// A token that may be sampled.
struct Candidate {
  // The logit. The sampler replaces it by e^((logit - largest) / temperature).
  float weight;
  int32_t id;
};

// A total order, so that every standard library sorts candidates alike.
inline bool more_likely(const Candidate& a, const Candidate& b) {
  return a.weight != b.weight ? a.weight > b.weight : a.id < b.id;
}

// Replaces `out` by the k > 0 largest logits of some panels, in descending order, or by all logits there if they are
// fewer. NaN is never a candidate. logits: of all ids. panel_best: for each of these panels the id of its largest
// logit. scratch: any size.
void find_likeliest(int64_t k, std::span<const float> logits, std::span<const int32_t> panel_best,
                    std::vector<float>& scratch, std::vector<Candidate>& out);

}  // namespace pinion
