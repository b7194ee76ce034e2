// Codes and scales of w4 (kernels/layout.h): of each group the scale whose codes leave about the least squared error.
#pragma once

#include <cstdint>

#include "kernels/f16.h"
#include "kernels/layout.h"

namespace pinion {

// Columns quantised together: each vector lane has a column, so sums along a group have one order on every machine.
constexpr int64_t kW4Columns = 16;

struct W4Group {
  float weights[kBlockK][kW4Columns];  // at most 4 in magnitude, or somewhat more where they were corrected
  uint8_t codes[kBlockK][kW4Columns];  // weight = (code - 8) * scale
  f16 scales[kW4Columns];
};

// Codes and scales from the weights. Tried are some scales around those that give the largest weight the code 0, 1 or
// 15, each followed by the least-squares fit to its codes; where the largest weight may be clipped also such as make it
// smaller than it is. That leaves the least squared error, which is what counts for rotated weights. As trained, the
// few large weights are often those that meet the large inputs, and clipping them costs more than it gains
// (tools/quality_report).
void quantize_w4(W4Group* group, bool may_clip);

// The two halves of it: the scales; the codes of weights [first, first + count) of each column, the nearest ones by the
// scales, which are given as floats too.
void find_w4_scales(W4Group* group, bool may_clip);
void find_w4_codes(W4Group* group, const float* scales, int64_t first, int64_t count);

}  // namespace pinion
