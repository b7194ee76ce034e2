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
  std::vector<float> router;         // [M][experts] logits; M: the most tokens in one pass
  std::vector<float> shared_weight;  // [M] likewise
  Choices choices;                   // of several tokens
  std::vector<OwnExpertScratch> workers;
};

// Of passes of at most `tokens`; widens the activations by what rows that are multiplied several times need.
void make_expert_scratch(const Model& model, const Kernels& kernels, int64_t tokens, ScratchSizer* sizer,
                         Activations* activations, ExpertScratch* out);

// What the router and the shared expert's weight say of the tokens after the layer's norm, which `y` has as floats.
void route(Worker& worker, const Pass& pass, ExpertScratch& scratch, const Layer& layer, const Input& y);

// x += weight * what the shared expert computed, which lies in the pass's branch; then
// x += branch scale * sum of weight * down(activation(gate y, up y)) over each token's experts, by rising index. Of a
// single token y has the floats.
void add_experts(Worker& worker, const Pass& pass, ExpertScratch& scratch, const Layer& layer, const Input& y);

}  // namespace pinion
