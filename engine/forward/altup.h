// AltUp, alternating updates (Baykal et al. 2023; Gemma 3n): a token has several residual vectors, the AltUp inputs.
// Before a layer all inputs are predicted from all; the layer computes the active one, in x; then all are corrected by
// the difference between the layer's result and the prediction.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/forward/layer_inputs.h"
#include "engine/forward/pass.h"

namespace pinion {

struct AltupScratch {
  // [inputs][M][hidden] predictions while a layer computes, but the active input keeps its value from before the layer
  std::vector<float> inputs;
  std::vector<float> predicted;  // [M][hidden] prediction of the active input
};

// For passes of at most `tokens`. Empty for other models.
void make_altup_scratch(const Model& model, int64_t tokens, ScratchSizer* sizer, AltupScratch* out);

// Sets all inputs from the token's embedding, which is in x.
void begin_altup(Worker& worker, const Pass& pass, AltupScratch& scratch);

// Predicts all inputs. x becomes the prediction of the active one.
void predict_altup(Worker& worker, const Pass& pass, AltupScratch& scratch, const Layer& layer);

// Corrects all inputs by the layer's result in x, then adds the layer's own input, which its gate reads from the active
// one, to all but the first. `index`: of the layer.
void correct_altup(Worker& worker, const Pass& pass, AltupScratch& scratch, LayerInputScratch& layer_inputs,
                   const Layer& layer, int64_t index);

// x = mean of all inputs, for the rows that get logits.
void join_altup(Worker& worker, const Pass& pass, AltupScratch& scratch);

}  // namespace pinion
