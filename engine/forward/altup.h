// Inputs of layers beside the residual vector (Gemma 3n and 4): per-layer embeddings and AltUp.
#pragma once

#include "engine/forward/pass.h"

namespace pinion {

// --- Per-layer embeddings (LayerInputConfig): a layer's own embedding of the token plus a projection of the main one
// is the layer input; after the layer it is gated, projected and added to the residual stream.

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

// --- AltUp, alternating updates (Baykal et al. 2023; Gemma 3n): a token has several residual vectors, the AltUp
// inputs, one of which is the active one. A layer predicts each input from all of them, computes the active one in x,
// then corrects all inputs by the difference between its result and the prediction.

struct AltupScratch {
  // [inputs][M][hidden]. Inside a layer these are the predictions, except the active input, which keeps its old value.
  std::vector<float> inputs;
  std::vector<float> predicted;  // [M][hidden] prediction of the active input
};

// For passes of at most `tokens`. Stays empty for models without AltUp.
void make_altup_scratch(const Model& model, int64_t tokens, ScratchSizer* sizer, AltupScratch* out);

// Sets all inputs from the token's embedding, which is in x.
void begin_altup(Worker& worker, const Pass& pass, AltupScratch& scratch);

// Predicts all AltUp inputs. x becomes the prediction of the active one.
void predict_altup(Worker& worker, const Pass& pass, AltupScratch& scratch, const Layer& layer);

// Corrects all AltUp inputs by the layer's result in x. Then adds the layer's per-layer embedding, gated by the active
// AltUp input, to all AltUp inputs but the first. `index`: of the layer.
void correct_altup(Worker& worker, const Pass& pass, AltupScratch& scratch, LayerInputScratch& layer_inputs,
                   const Layer& layer, int64_t index);

// x = mean of all AltUp inputs after their output projections, for the rows that get logits.
void join_altup(Worker& worker, const Pass& pass, AltupScratch& scratch);

}  // namespace pinion
