// A layer with experts in place of an mlp: every token goes through the few that its router chooses.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/forward/pass.h"
#include "engine/forward/routing.h"
#include "engine/forward/scratch_sizer.h"

namespace pinion {

struct OwnExpertScratch {
  Choices choices;      // of one token
  ExpertGroups groups;  // the pass's choices, by expert
};

// Empty where the model has no experts.
struct ExpertScratch {
  std::vector<float> router;  // [M][experts] logits; M: the most tokens in one pass
  Choices choices;            // of several tokens
  std::vector<OwnExpertScratch> workers;
};

// Of passes of at most `tokens`; widens the activations by what rows that are multiplied several times need.
void make_expert_scratch(const Model& model, const Kernels& kernels, int64_t tokens, ScratchSizer* sizer,
                         Activations* activations, ExpertScratch* out);

// x += branch scale * sum of weight * down(activation(gate y, up y)) over each token's experts, by rising index. `y`
// is what the router takes: the tokens after the layer's norm, as floats.
void add_experts(Worker& worker, const Pass& pass, ExpertScratch& scratch, const Layer& layer, const Input& y);

}  // namespace pinion
