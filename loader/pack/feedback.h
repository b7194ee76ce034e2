// Error feedback: what rounding one input's weights leaves over is made good by the weights of later inputs, as far as
// inputs move together. From the second moments of a matrix's inputs, H = sum over tokens of x x^T, those weights of a
// row that leave the least squared error of its outputs, one after the other:
//   q[k] = nearest code to w[k] + sum over j < k of (w[j] - q[j]) U[j][k],   H = U D U^T, U unit upper triangular
// which is GPTQ (Frantar et al. 2022) as LDLQ writes it (Chee et al. 2023).
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/layout.h"
#include "loader/pack/quantize_w4.h"

namespace pinion {

// Moments are kept [padded_n(k)][padded_n(k)], of which the upper triangle is used, and zeros beyond k.
constexpr int64_t moments_elements(int64_t k) { return padded_n(k) * padded_n(k); }

// U of one input, for all matrices that share it.
struct Feedback {
  int64_t k = 0;              // padded_n of the input's
  std::vector<float> panels;  // panel p of 64 columns: [64 p + 64][64], zero on and below the diagonal

  const float* panel(int64_t p) const { return panels.data() + p * (p + 1) / 2 * kPanelColumns * kPanelColumns; }
};

// From the moments, whose memory it works in. A tenth of their mean is added to the diagonal: inputs that a text hardly
// shows are not trusted (GPTQ adds a hundredth, which is worse for other texts). The same bits on every machine.
Feedback make_feedback(std::vector<float>* moments, int64_t k);

// kW4Columns rows of a matrix, quantised from their first group to their last.
class FeedbackRows {
 public:
  explicit FeedbackRows(const Feedback& feedback);

  // Codes and scales of the group that begins at k, whose weights become the corrected ones.
  void quantise(int64_t k, bool may_clip, W4Group* group);

 private:
  void begin_panel(int64_t panel);

  const Feedback& feedback_;
  int64_t block_;                  // rows of a block of the matmul's left side
  std::vector<float> errors_;      // [blocks][k][block]: w - q so far
  std::vector<float> sums_;        // [kW4Columns][64] of earlier panels
  std::vector<float> correction_;  // [64][kW4Columns] of this panel's columns
};

}  // namespace pinion
