// Gates of which only the largest outputs pass: those that stand so many standard deviations above their row's mean.
#pragma once

#include <cstdint>

#include "engine/forward/pass.h"

namespace pinion {

// Rows of the mlp's activation from `first` on, [count][width]: activation(max(0, gate - cut)) * up, of what the pass's
// buffers hold of both.
void cut_gates(const Pass& pass, const Layer& layer, int64_t first, int64_t count, int64_t width, float* out);

}  // namespace pinion
