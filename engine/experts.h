// A layer with experts in place of an mlp: every token goes through the few that its router chooses.
#pragma once

#include "engine/forward.h"
#include "engine/matmul.h"

namespace pinion {

// x += branch scale * sum of weight * down(activation(gate y, up y)) over each token's experts, by rising index. `y`
// is what the router takes: the tokens after the layer's norm, as floats.
void add_experts(Worker& worker, const Pass& pass, const Layer& layer, const Input& y);

// Room for what add_experts writes in passes of at most `tokens` tokens; nothing where the model has no experts.
void make_expert_scratch(const Model& model, const Kernels& kernels, int64_t tokens, Room* room, Scratch* out);

}  // namespace pinion
