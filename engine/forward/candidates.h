// The top k of a row of logits. Skips panels whose largest logit is below a lower bound of the k-th largest.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <vector>

namespace pinion {

// Capacity of the boards' buffers for one row's candidates.
constexpr int32_t kMaxCandidates = 256;

// The logit of an id that is no candidate.
inline constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

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

// Sets `out` to the k > 0 largest logits of some panels, descending, or to all if they have fewer; never to NaN.
// logits: of all ids. panel_best: the id of the largest logit of each of these panels. scratch: any size.
void find_likeliest(int64_t k, std::span<const float> logits, std::span<const int32_t> panel_best,
                    std::vector<float>& scratch, std::vector<Candidate>& out);

}  // namespace pinion
