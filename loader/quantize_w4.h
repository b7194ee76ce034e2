// Codes and scales of w4 (kernels/layout.h): of each group the scale whose codes leave about the least squared error.
#pragma once

#include <cstdint>

#include "kernels/f16.h"
#include "kernels/layout.h"

namespace pinion {

// Columns quantised together: each vector lane has a column, so sums along a group have one order on every machine.
constexpr int64_t kW4Columns = 16;

struct W4Group {
  float weights[kBlockK][kW4Columns];  // at most 4 in magnitude
  uint8_t codes[kBlockK][kW4Columns];  // weight = (code - 8) * scale
  f16 scales[kW4Columns];
};

// Codes and scales from the weights. Tried are eight scales around those that give the largest weight the code 0, 1 or
// 15, each followed by the least-squares fit to its codes. Of weights as trained the squared error is a ninth less than
// that of the largest weight's code always being 0 (llama.cpp's Q4_0), and half a percent more than of forty scales.
void quantize_w4(W4Group* group);

}  // namespace pinion
