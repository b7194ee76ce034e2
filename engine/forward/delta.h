// Gated DeltaNet (Yang et al. 2024, "Gated Delta Networks"): token by token for a head, heads spread over the workers:
// the same sums however a prompt is cut.
#pragma once

#include "engine/forward/pass.h"
#include "engine/forward/recurrent_scratch.h"

namespace pinion {

// Into scratch.z, from what recur() projected. No barrier at the end.
void mix_by_delta(Worker& worker, const Pass& pass, RecurrentScratch& scratch, const Layer& layer);

}  // namespace pinion
