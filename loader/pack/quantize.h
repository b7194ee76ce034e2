// Codes and scales from floats (layouts: kernels/layout.h): w4 and w4n by a search for the scales, optionally with
// error feedback; w2 for weights that are ternary already.
#pragma once

#include "kernels/half.h"
#include "kernels/layout.h"
#include "loader/checkpoint/safetensors.h"

namespace pinion {

// --- w4 and w4n: for each group the scale whose codes leave about the least squared error.

// Columns quantised together: one in each vector lane, so sums along a group have the same order on every machine.
constexpr int64_t kW4Columns = 16;

struct W4Group {
  float weights[kGroupK][kW4Columns];  // at most 4 in magnitude, somewhat more after corrections
  uint8_t codes[kGroupK][kW4Columns];  // weight = (code - 8) * scale; w4n: level; w4z: code - zero_point / kZeroSteps
  f16 scales[kW4Columns];
  uint8_t zero_points[kW4Columns];  // w4z, for codes of files
};

// Codes and scales from the weights. Tries scales that map the largest weight to the first or last codes, each refined
// by a least-squares fit. With may_clip also smaller scales, which clip the largest weight. Clipping suits rotated
// weights, whose squared error decides. Without rotation the few large weights often meet the large inputs, and
// clipping them costs more than it gains (tools/quality_report).
void quantize_w4(W4Group* group, Format format, bool may_clip);

// --- Error feedback: weights of later inputs compensate the rounding errors of earlier ones, as far as the
// inputs are correlated. From the second moments of a matrix's inputs, H = sum over tokens of x x^T, each weight of a
// row in turn becomes
//   q[k] = nearest code to w[k] + sum over j < k of (w[j] - q[j]) U[j][k],   H = U D U^T, U unit upper triangular
// which is GPTQ (Frantar et al. 2022) in the form of LDLQ (Chee et al. 2023).

// The upper triangle of a symmetric matrix in panels of 64 columns: panel p is [64 p + 64][64], from this element on.
constexpr int64_t triangle_panel(int64_t p) { return p * (p + 1) / 2 * kPanelColumns * kPanelColumns; }

// Elements of the moments, a triangle. Entries below the diagonal are not used, and entries beyond k are zero.
constexpr int64_t moments_elements(int64_t k) { return triangle_panel(padded_n(k) / kPanelColumns); }

// U of one input, for all matrices that multiply it.
struct Feedback {
  int64_t k = 0;                // padded_n of the input's k
  std::vector<float> triangle;  // zero on and below the diagonal

  const float* panel(int64_t p) const { return triangle.data() + triangle_panel(p); }
};

// Adds a tenth of the mean moment to the diagonal, which damps inputs that the calibration text rarely excites; GPTQ's
// hundredth is worse on other texts. The same bits on every machine.
Feedback make_feedback(std::vector<float> moments, int64_t k);

constexpr int kW8Zero = 128;  // added to codes of w8 in W4Group

// Quantises kW4Columns rows of a matrix, from their first group to their last.
class FeedbackRows {
 public:
  explicit FeedbackRows(const Feedback& feedback);

  // Codes and scales of the group that begins at k. group->weights become the corrected weights.
  // w8_scales [kW4Columns]: the rows' scales for codes of w8.
  void quantise(int64_t k, Format format, bool may_clip, const float* w8_scales, W4Group* group);

 private:
  void begin_panel(int64_t panel);

  const Feedback& feedback_;
  int64_t tile_rows_;              // rows of a tile of the matmul's left side
  std::vector<float> errors_;      // [tiles][k][tile_rows] w - q so far
  std::vector<float> sums_;        // [kW4Columns][64] corrections from earlier panels
  std::vector<float> correction_;  // [64][kW4Columns] of this panel's columns
};

// --- w2: in groups of kW2GroupK inputs each weight is -s, 0 or s. w2 stores such weights exactly.

// The divisor that turns the group scales of one column into f16 numbers: 1 if they are f16 numbers; the largest scale
// if all quotients by it are (say, because all scales are equal); else the power of two that brings the largest into
// [2^15, 2^16), the top of f16's range. 0 if none of these works.
float ternary_column_scale(std::span<const float> scales);

// Group scales of a row, scales [k / kW2GroupK], none negative; k is a multiple of kW2GroupK. False if a group is not
// ternary, or f16 cannot represent the scales.
bool find_ternary_scales(std::span<const float> row, float* scales);

// True if a few rows of a matrix of floats are ternary and not all zero.
bool looks_ternary(const TensorView& weight);

}  // namespace pinion
