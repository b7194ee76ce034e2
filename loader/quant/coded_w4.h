// 4-bit codes of a file (loader/quant/stored_weights.h) as w4 and w4z hold them (kernels/layout.h): the same codes,
// zeros and scales, so that code, zero and scale still give exactly the number that they stand for.
#pragma once

#include <cstdint>
#include <string>

#include "kernels/layout.h"
#include "loader/pack/pack_strip.h"
#include "loader/quant/code_layouts.h"

namespace pinion {

// The format that holds the whole of such a matrix as it is: w4 where all zeros are 8, else w4z. Where neither does,
// gives why, in a few words, and leaves `out` alone. Reads the zeros, and scales that are not F16, and lets go of their
// pages: the tensors must lie in mapped files.
std::string find_w4_format(const CodedMatrix& matrix, Format* out);

// Rows [first, first + count) of a matrix for which there is a format. Returns the first that has a scale which is no
// number, or a zero that nobody can tell; -1: none.
int64_t read_w4_rows(const CodedMatrix& matrix, int64_t first, int64_t count, W4Rows* out);

}  // namespace pinion
