// The causal convolution over time that recurrent layers begin with. Its inputs are the last tokens' numbers: those of
// this pass in scratch, earlier ones in the state.
#pragma once

#include <cstdint>

#include "engine/forward/pass.h"
#include "engine/forward/recurrent_scratch.h"

namespace pinion {

// The input of a segment's token, or of one of the taps - 1 before it. A single row's is where the state keeps it.
float* conv_input(const Pass& pass, RecurrentScratch& scratch, const Layer& layer, const Segment& segment,
                  int64_t token);

// Channels [first, first + count) of a token after the convolution.
void convolve(const Pass& pass, RecurrentScratch& scratch, const Layer& layer, const Segment& segment, int64_t token,
              int64_t first, int64_t count, float* out);

// The inputs of the last pass's accepted drafts, to where convolutions look for them.
void take_draft_inputs(Worker& worker, const Pass& pass, const Layer& layer);

// The inputs that the next pass's convolutions begin with, and those of drafts. The places may be those that this
// pass's have read.
void keep_inputs(Worker& worker, const Pass& pass, RecurrentScratch& scratch, const Layer& layer);

}  // namespace pinion
