// Layers that keep a state of fixed size, most where others attend to keys and values.
#pragma once

#include "engine/forward/pass.h"
#include "engine/forward/recurrent_scratch.h"

namespace pinion {

// A recurrent layer over x, the input that its matrices share: its tokens through its state.
void recur(Worker& worker, const Pass& pass, RecurrentScratch& scratch, const Layer& layer, const Input& x);

// What that left in scratch, as the layer's last matrix multiplies it.
Input recurrent_output(Worker& worker, const Pass& pass, RecurrentScratch& scratch, const Layer& layer);

}  // namespace pinion
