// Codes that are numbers themselves: FP8 and NVFP4.
#pragma once

#include <cstdint>

#include "loader/quant/code_layouts.h"

namespace pinion {

// The tensor's row of W, out [k], from the row's scales, [groups]: one product each.
void read_fp8_row(const CodedMatrix& matrix, int64_t row, const float* scales, float* out);
void read_nvfp4_row(const CodedMatrix& matrix, int64_t row, const float* scales, float* out);

// `count` scales from the first on that are FP8 themselves, divided by the matrix's divisor.
void read_fp8_scales(const CodedMatrix& matrix, int64_t first, int64_t count, float* out);

}  // namespace pinion
