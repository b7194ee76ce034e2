// Which experts tokens go to, and with which weight. Plain arithmetic on one token's logits: nothing depends on threads
// or on what other tokens share the pass.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/forward/scratch_sizer.h"
#include "loader/config/model_config.h"

namespace pinion {

// Of every token the experts chosen, by rising index, and what their outputs count for.
struct Choices {
  std::vector<int32_t> experts;  // [tokens][per_token]
  std::vector<float> weights;    // [tokens][per_token]
  std::vector<float> shared;     // [tokens] what the shared expert's output counts for, where there is one
};

// How a family chooses.
struct RoutingRule {
  bool normalised = true;             // the weights of those chosen add up to `scale`
  bool sigmoid = false;               // scores are 1 / (1 + exp(-logit)), else exp(logit)
  const float* correction = nullptr;  // [experts] added to a sigmoid when choosing, but not to the weight; or null
  float scale = 1;                    // of the weights
  // Experts that follow one another are a group. Those of `groups_kept` groups can be chosen: of the ones with the
  // largest sums of their `group_best` largest logits (or corrected scores), among equals the first.
  int64_t groups = 1, groups_kept = 1, group_best = 1;  // each at most kMostGroups
};

// 1 / (1 + exp(-x)), by way of doubles.
float sigmoid(float x);

// Chooses the experts.size() experts with the largest logits (or corrected scores), among equals the lower index; at
// most one for each logit. A weight is the expert's score, over the sum of the scores of those chosen where
// `normalised`, else over 1 or, of exponentials, the sum of all; in double, summed by rising index.
void choose_experts(std::span<const float> logits, const RoutingRule& rule, std::span<int32_t> experts, float* weights);

// The tokens that one expert works on: entries [first, first + rows) of the groups.
struct ExpertRows {
  int32_t expert;
  int32_t first;
  int32_t rows;
};

// The same choices expert by expert.
struct ExpertGroups {
  std::vector<ExpertRows> experts;  // those that anyone chose, by rising index
  std::vector<int32_t> tokens;      // by entry; an expert's are rising
  std::vector<float> weights;       // likewise
  std::vector<int32_t> next;        // [experts] scratch

  // Takes the memory for `choices` in all, so that none is taken later.
  void make(ScratchSizer* sizer, int64_t choices, int64_t expert_count);
};

// Of the first `tokens` tokens, which have per_token choices each.
void group_by_expert(const Choices& choices, int64_t tokens, int64_t per_token, ExpertGroups* out);

}  // namespace pinion
