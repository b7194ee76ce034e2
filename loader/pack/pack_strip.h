// Rows of a matrix into the packed layout of kernels/layout.h, sixteen at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/f16.h"
#include "kernels/layout.h"
#include "loader/checkpoint/safetensors.h"
#include "loader/pack/feedback.h"

namespace pinion {

// Whole cache lines of a w8 panel, and small enough to be in cache when they are read again.
constexpr int64_t kStripRows = 16;

// Rows [n, n + kStripRows) of a matrix, of which `rows` exist (the others are padding), and where they go.
struct RowStrip {
  int64_t rows = 0;
  int64_t k = 0;
  std::byte* panel = nullptr;          // the group's first column in its panel, at k = 0
  int64_t column = 0;                  // which one of the panel that is
  float* scale = nullptr;              // [kStripRows], all but bf16
  int32_t* column_sum = nullptr;       // [kStripRows], w8 only
  const Feedback* feedback = nullptr;  // w4 only
};

// Rows that are 4-bit codes already.
struct W4Rows {
  std::vector<uint8_t> codes;        // [rows][padded_k]: 0 to 15, beyond k the group's zero, or 15
  std::vector<uint8_t> zero_points;  // [rows][padded_k / kBlockK], at most kMaxZero
  std::vector<f16> group_scales;     // likewise
  std::vector<float> scales;         // [rows]
};

// Whether floats can become it; of w4z only codes of a file can.
bool packs_floats(Format format);

// Packs numbers, [rows][k], by the rules of pack_all (loader/pack/pack.h); they are rotated in place. Returns the first
// row that holds a NaN or an infinity, or for w2 is not ternary, or -1.
int64_t pack_floats(Format format, const RowStrip& group, float* values, int64_t rotation);

// Packs int8 codes, [rows][k], that stay what they are.
void pack_w8_codes(const RowStrip& group, const int8_t* codes, const float* scales);

// Likewise 4-bit codes: w4z, or w4 where all zeros are 8.
void pack_w4_codes(Format format, const RowStrip& group, const W4Rows& rows);

}  // namespace pinion
