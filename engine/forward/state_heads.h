// Layers with a state per head: which tokens go through it, and which are on trial.
#pragma once

#include "engine/forward/pass.h"
#include "engine/forward/recurrent_scratch.h"

namespace pinion {

// A segment's tokens [first, first + count) through a value head's state, and their outputs through their gates into
// scratch.z. What they write to the state goes through `writes`.
using HeadRows = void (*)(const Pass& pass, RecurrentScratch& scratch, const Layer& layer, const Segment& segment,
                          int64_t head, int64_t first, int64_t count, const StateWrites& writes, float* state,
                          StateRows* own);

// All tokens through all heads, which are spread over the workers. The last pass's drafts that were accepted come
// first; this pass's go through a copy of the state.
void mix_heads(Worker& worker, const Pass& pass, RecurrentScratch& scratch, const Layer& layer, HeadRows rows);

// log(1 + e^x)
double softplus(double x);

// e^(-rate * step)
float decay_of(float rate, double step);

}  // namespace pinion
