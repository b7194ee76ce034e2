// Per-layer embeddings (Gemma 3n and 4, LayerInputConfig): a layer's own embedding of the token plus a projection of
// the main one is the layer input; after the layer it is gated, projected and added to the residual stream.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/forward/pass.h"

namespace pinion {

struct LayerInputScratch {
  std::vector<float> inputs;  // [M][layers][size]
  std::vector<float> gates;   // [M][size]
};

// For passes of at most `tokens`. Stays empty for models without per-layer embeddings.
void make_layer_input_scratch(const Model& model, int64_t tokens, ScratchSizer* sizer, LayerInputScratch* out);

// Computes the layer inputs of all layers from the token's embedding, which is in x. No barrier at the end.
void begin_layer_inputs(Worker& worker, const Pass& pass, LayerInputScratch& scratch);

// out = layer_out(activation(layer_gate(x * scale)) * layer input). x, out: [M][hidden]; scale: [hidden] or null.
void project_layer_input(Worker& worker, const Pass& pass, LayerInputScratch& scratch, const Layer& layer,
                         int64_t index, const float* x, const float* scale, float* out);

}  // namespace pinion
