// Several residual streams, of which a layer computes one (alternating updates), and the embeddings that each layer has
// of its own. Rows are tasks; of a single one, some columns are.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/forward/pass.h"
#include "engine/forward/scratch_sizer.h"

namespace pinion {

// M: the most tokens in one pass.
struct AltupScratch {
  std::vector<float> streams;    // [streams][M][hidden]; while a layer computes, the active one is as it was before
  std::vector<float> predicted;  // [M][hidden] what was expected of the active one
  std::vector<float> inputs;     // [M][layers][size] of each layer, from its embedding and the token's
  std::vector<float> gates;      // [M][size]
};

// For passes of at most `tokens`. Nothing for models with one stream.
void make_altup_scratch(const Model& model, int64_t tokens, ScratchSizer* sizer, AltupScratch* out);

// From the token's embedding, which is in x: the layers' inputs and all streams.
void begin_streams(Worker& worker, const Pass& pass, AltupScratch& scratch);

// What the layer is expected to make of the streams. x becomes the active one.
void predict_streams(Worker& worker, const Pass& pass, AltupScratch& scratch, const Layer& layer);

// All streams, corrected by what the layer made of x; then its own input, through a gate, into all but the first.
// `index`: the layer's.
void correct_streams(Worker& worker, const Pass& pass, AltupScratch& scratch, const Layer& layer, int64_t index);

// The mean of the streams into x, of the rows that get logits.
void join_streams(Worker& worker, const Pass& pass, AltupScratch& scratch);

}  // namespace pinion
