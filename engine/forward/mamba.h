// Mamba 2 (Dao and Gu 2024, "Transformers are SSMs"): a head's state decays and gets what a token brings, by a step
// that the token chooses. Its papers' B, C and x are the keys, queries and values of the other kinds.
#pragma once

#include "engine/forward/pass.h"
#include "engine/forward/recurrent_scratch.h"

namespace pinion {

// Into scratch.z, from what recur() projected. No barrier at the end.
void mix_by_mamba(Worker& worker, const Pass& pass, RecurrentScratch& scratch, const Layer& layer);

// A row of that, in which each group of the width is normed for itself. out may be x.
void norm_groups(const Pass& pass, const Layer& layer, const float* x, float* out);

}  // namespace pinion
