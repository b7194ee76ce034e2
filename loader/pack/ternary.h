// Ternary weights in files that hold them as numbers: in groups of kW2GroupK inputs each weight is -s, 0 or s. w2
// (kernels/layout.h) holds those exactly.
#pragma once

#include <cstdint>
#include <span>

#include "loader/checkpoint/safetensors.h"

namespace pinion {

// What the scales of one column are divided by to become f16: 1 where all of them are f16 numbers; the largest,
// whatever its bits, where the quotients are, as where all scales are the same; else the power of two that brings the
// largest into [2^15, 2^16), the highest that f16 reaches. 0 where none of these does.
float ternary_column_scale(std::span<const float> scales);

// The scales of a row's groups, scales [k / kW2GroupK], none negative; k is a multiple of kW2GroupK. False where a
// group has other weights, or f16 cannot hold the scales.
bool find_ternary_scales(std::span<const float> row, float* scales);

// Whether a matrix of floats may be ternary, by a look at some of its rows, one of which is not all zeros.
bool looks_ternary(const TensorView& weight);

}  // namespace pinion
