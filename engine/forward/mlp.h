// The mlp up to its last matrix: activation(gate y) * (up y), or activation(up y) without a gate. A sparse gate (Gemma
// 3n) subtracts a threshold, the row's mean plus a number of standard deviations, and sets negative results to zero.
#pragma once

#include "engine/forward/pass.h"

namespace pinion {

inline Gating gating_of(const ModelConfig& config, const Layer& layer) {
  const auto number = [&](VectorRole role) { return layer[role].weight ? *layer[role].weight : 0.0f; };
  const float beta = number(VectorRole::xielu_beta), n = beta + number(VectorRole::xielu_alpha_n);
  const Xielu curve = {number(VectorRole::xielu_alpha_p), n, beta, number(VectorRole::xielu_eps)};
  return {config.activation, config.activation_limit, curve};
}

// out[i] = activation(gate[i]) * x[i] for i < n. out may be x.
void gate_row(const Pass& pass, const float* gate, const float* x, int64_t n, float* out);

// Writes Activations::activation. y: the normed residual stream; index: of the layer, here and below.
void activate(Worker& worker, const Pass& pass, const Layer& layer, const Input& y, int64_t index);

// The activation as the input of down.
Input activated_input(Worker& worker, const Pass& pass, const Layer& layer, int64_t index);

}  // namespace pinion
