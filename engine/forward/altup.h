// AltUp, alternating updates (Baykal et al. 2023; Gemma 3n): a token has several residual vectors, the AltUp inputs,
// one of which is the active one. A layer predicts each input from all of them, computes the active one in x, then
// corrects all inputs by the difference between its result and the prediction.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/forward/layer_inputs.h"
#include "engine/forward/pass.h"

namespace pinion {

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
