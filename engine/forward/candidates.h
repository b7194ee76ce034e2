// The likeliest tokens of a row of logits, found without a look at most of them: panels whose likeliest is too unlikely
// are skipped.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace pinion {

// What boards have room for, of a row's likeliest tokens.
constexpr int32_t kMostCandidates = 256;

// A token that may be drawn.
struct Candidate {
  // Its logit. The sampler makes of it the probability over that of the likeliest: e^((logit - largest) / temperature).
  float weight;
  int32_t id;
};

// A total order, so that sorting gives the same candidates with every standard library.
inline bool more_likely(const Candidate& a, const Candidate& b) {
  return a.weight != b.weight ? a.weight > b.weight : a.id < b.id;
}

// Replaces `out` by the k > 0 likeliest ids of some panels, the likeliest first; by all, where they have fewer. logits:
// of all ids. panel_best: an id of each of the panels that no other one there exceeds. NaN is never among them.
// panel_logits: scratch.
void find_likeliest(int64_t k, std::span<const float> logits, std::span<const int32_t> panel_best,
                    std::vector<float>& panel_logits, std::vector<Candidate>& out);

}  // namespace pinion
