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

// Codes and scales from the weights. Tries scales that map the largest weight to code 0, 1 or 15, each refined by a
// least-squares fit. With may_clip also smaller scales, which clip it. Clipping suits rotated weights, where squared
// error is what counts. In weights as trained the few large ones often meet the large inputs, and clipping them costs
// more than it gains (tools/quality_report).
void quantize_w4(W4Group* group, bool may_clip);

// The two halves of it: the scales; the codes of weights [first, first + count) of each column, the nearest ones by the
// scales, which are given as floats too.
void find_w4_scales(W4Group* group, bool may_clip);
void find_w4_codes(W4Group* group, const float* scales, int64_t first, int64_t count);

}  // namespace pinion
