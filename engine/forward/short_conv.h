// LFM2's short convolution: each channel is multiplied by a gate, convolved over a few tokens, and multiplied by
// another gate. Channels do not meet, so runs of them are spread over the workers.
#pragma once

#include "engine/forward/pass.h"
#include "engine/forward/recurrent_scratch.h"

namespace pinion {

// Into scratch.z, from what recur() projected. No barrier at the end.
void mix_by_short_conv(Worker& worker, const Pass& pass, RecurrentScratch& scratch, const Layer& layer);

}  // namespace pinion
