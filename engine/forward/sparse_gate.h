// Gates on rows that are in memory, and those of which only the largest outputs pass: those that stand so many standard
// deviations above their row's mean.
#pragma once

#include <cstdint>

#include "engine/forward/pass.h"

namespace pinion {

// out[i] = activation(gate[i]) * x[i], i < n. out may be x.
void gate_row(const Pass& pass, const float* gate, const float* x, int64_t n, float* out);

// The mlp's activation, in place of up's outputs: activation(max(0, gate - cut)) * up, of rows that are whole. width:
// of both. Ends with a barrier.
void cut_gates(Worker& worker, const Pass& pass, const Layer& layer, int64_t width);

}  // namespace pinion
