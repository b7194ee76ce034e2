// Which experts tokens go to, and with which weight. Plain arithmetic on one token's logits: nothing depends on threads
// or on what other tokens share the pass.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/forward/scratch_sizer.h"

namespace pinion {

// Of every token the experts chosen, by rising index, and what their outputs count for.
struct Choices {
  std::vector<int32_t> experts;  // [tokens][per_token]
  std::vector<float> weights;    // [tokens][per_token]
};

// Chooses the experts.size() experts with the largest logits, among equals the lower index; at most one for each logit.
// Weights are exp(logit) over the sum of exp(logit) of those chosen where `normalised`, else of all, in double, summed
// by rising index.
void choose_experts(std::span<const float> logits, bool normalised, std::span<int32_t> experts, float* weights);

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
