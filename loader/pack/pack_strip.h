// Rows of a matrix into the packed layout of kernels/layout.h, sixteen at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/half.h"
#include "kernels/layout.h"
#include "loader/pack/quantize.h"

namespace pinion {

// Fills whole cache lines of a w8 panel, and is small enough to stay in cache between the passes over it.
constexpr int64_t kStripRows = 16;

// Destination of rows [n, n + kStripRows) of a matrix.
struct RowStrip {
  int64_t rows = 0;  // rows that exist; the others are padding
  int64_t k = 0;
  std::byte* panel = nullptr;          // the strip's first column in its panel, at k = 0
  int64_t column = 0;                  // index of that column in the panel
  float* scale = nullptr;              // [kStripRows]; null for bf16
  int32_t* column_sum = nullptr;       // [kStripRows]; w8 only
  const Feedback* feedback = nullptr;  // w8 and w4 only
};

// Rows that a file stores as 4-bit codes.
struct W4Rows {
  std::vector<uint8_t> codes;        // [rows][padded_k] 0 to 15; beyond k the group's zero point, at most 15
  std::vector<uint8_t> zero_points;  // [rows][padded_k / kGroupK] at most kMaxZero
  std::vector<f16> group_scales;     // [rows][padded_k / kGroupK]
  std::vector<float> scales;         // [rows]
};

// False for w4z, which only keeps codes of files.
bool packs_floats(Format format);

// Packs values [rows][k] by the rules of pack_all (pack.h). Rotates them in place. Returns the first row with a NaN or
// an infinity (for w2 also a row that is not ternary), or -1.
int64_t pack_floats(Format format, const RowStrip& strip, float* values, int64_t rotation);

// Packs int8 codes [rows][k] unchanged, with their scales [rows].
void pack_w8_codes(const RowStrip& strip, const int8_t* codes, const float* scales);

// Packs 4-bit codes unchanged, as w4z or, if all zero points are 8, as w4.
void pack_w4_codes(Format format, const RowStrip& strip, const W4Rows& rows);

}  // namespace pinion
