// Gated DeltaNet: a layer that keeps a state of fixed size (Yang et al. 2024, "Gated Delta Networks") where others
// attend to keys and values. Token by token for a head, heads spread over the workers: the same sums however a prompt
// is cut.
#pragma once

#include <cstdint>

#include "engine/matmul.h"

namespace pinion {

// Tokens of a head that go through a layer together.
constexpr int64_t kDeltaTokens = 16;

// What the layer computes of x, the input that its matrices share; what o multiplies.
Input delta_net(Worker& worker, const Pass& pass, const Layer& layer, const Input& x);

void make_delta_scratch(const ModelConfig& config, int64_t tokens, Room* room, Scratch* out);

}  // namespace pinion
