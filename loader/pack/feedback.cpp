#include "loader/pack/feedback.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernels/kernels.h"

namespace pinion {
namespace {

constexpr float kDamping = 0.1f;  // of the mean moment
constexpr int64_t kPanel = kPanelColumns;

// What stands inside a panel of columns from c on, once later columns have taken their part: its diagonal block becomes
// the factor's, then the rows above.
void factorise_panel(float* h, int64_t n, int64_t c) {
  float block[kPanel][kPanel];  // block[j][i] = R[c + i][c + j]
  for (int64_t j = kPanel - 1; j >= 0; --j) {
    const float square = h[(c + j) * n + c + j];
    const float pivot = square > 0.0f ? std::sqrt(square) : 1.0f;  // an input that was always zero
    for (int64_t i = 0; i < j; ++i) block[j][i] = h[(c + i) * n + c + j] / pivot;
    block[j][j] = pivot;
    for (int64_t to = 0; to < j; ++to) {
      for (int64_t i = 0; i <= to; ++i) h[(c + i) * n + c + to] -= block[j][i] * block[j][to];
    }
  }
  for (int64_t j = 0; j < kPanel; ++j) {
    for (int64_t i = 0; i <= j; ++i) h[(c + i) * n + c + j] = block[j][i];
  }
  for (int64_t row = 0; row < c; ++row) {
    float* x = h + row * n + c;
    for (int64_t j = kPanel - 1; j >= 0; --j) {
      x[j] /= block[j][j];
      for (int64_t to = 0; to < j; ++to) x[to] -= x[j] * block[j][to];
    }
  }
}

// H = R R^T with R upper triangular, in the place of H's upper triangle: from the last panel of columns to the first,
// each less what the later ones say of it.
void factorise(float* h, int64_t n) {
  const Kernels& kernels = best_kernels();
  const int64_t block = kernels.f32_shape.rows;
  std::vector<float> left(static_cast<size_t>(block * n)), right(static_cast<size_t>(n * kPanel));
  std::vector<float> sums(static_cast<size_t>(block * kPanel));
  for (int64_t c = n - kPanel; c >= 0; c -= kPanel) {
    const int64_t later = n - c - kPanel;
    for (int64_t l = 0; l < later; ++l) {
      for (int64_t j = 0; j < kPanel; ++j) right[static_cast<size_t>(l * kPanel + j)] = h[(c + j) * n + c + kPanel + l];
    }
    for (int64_t row = 0; later > 0 && row < c + kPanel; row += block) {
      const int64_t rows = std::min(block, c + kPanel - row);
      kernels.pack_f32(h + row * n + c + kPanel, n, rows, later, block, left.data());
      const GemmTerm term = {left.data(), right.data(), later};
      kernels.gemm_f32(&term, 1, {block, 0}, rows, sums.data());
      for (int64_t r = 0; r < rows; ++r) {
        for (int64_t j = 0; j < kPanel; ++j) h[(row + r) * n + c + j] -= sums[static_cast<size_t>(r * kPanel + j)];
      }
    }
    factorise_panel(h, n, c);
  }
}

}  // namespace

Feedback make_feedback(std::vector<float>* moments, int64_t k) {
  const int64_t n = padded_n(k);
  float* h = moments->data();
  double sum = 0;
  for (int64_t i = 0; i < k; ++i) sum += static_cast<double>(h[i * n + i]);
  const auto damping = static_cast<float>(sum / static_cast<double>(k) * static_cast<double>(kDamping));
  for (int64_t i = 0; i < n; ++i) h[i * n + i] += damping;
  factorise(h, n);

  Feedback feedback{n, {}};
  const int64_t panels = n / kPanel;
  feedback.panels.resize(static_cast<size_t>(panels * (panels + 1) / 2 * kPanel * kPanel));
  float* to = feedback.panels.data();
  for (int64_t c = 0; c < n; c += kPanel) {
    for (int64_t row = 0; row < c + kPanel; ++row, to += kPanel) {
      for (int64_t j = std::max<int64_t>(0, row + 1 - c); j < kPanel; ++j) {
        to[j] = h[row * n + c + j] / h[(c + j) * n + c + j];
      }
    }
  }
  return feedback;
}

FeedbackRows::FeedbackRows(const Feedback& feedback)
    : feedback_(feedback),
      block_(std::min<int64_t>(best_kernels().f32_shape.rows, kW4Columns)),
      errors_(static_cast<size_t>((kW4Columns + block_ - 1) / block_ * block_ * feedback.k)),
      sums_(kW4Columns * kPanel),
      correction_(kPanel * kW4Columns) {}

void FeedbackRows::begin_panel(int64_t panel) {
  if (panel == 0) return;  // all is zero yet
  const GemmTerm term = {errors_.data(), feedback_.panel(panel), panel * kPanel};
  const int64_t step_bytes = block_ * feedback_.k * static_cast<int64_t>(sizeof(float));
  best_kernels().gemm_f32(&term, 1, {block_, step_bytes}, kW4Columns, sums_.data());
  for (size_t c = 0; c < kPanel; ++c) {
    for (size_t r = 0; r < kW4Columns; ++r) correction_[c * kW4Columns + r] = sums_[r * kPanel + c];
  }
}

void FeedbackRows::quantise(int64_t k, bool may_clip, W4Group* group) {
  const int64_t panel = k / kPanel, first = k % kPanel;
  if (first == 0) begin_panel(panel);
  float wanted[kBlockK][kW4Columns];
  std::memcpy(wanted, group->weights, sizeof wanted);
  float* correction = correction_.data() + first * kW4Columns;
  for (int64_t i = 0; i < kBlockK; ++i) {
    for (int64_t r = 0; r < kW4Columns; ++r) group->weights[i][r] += correction[i * kW4Columns + r];
  }
  find_w4_scales(group, may_clip);
  float scales[kW4Columns];
  for (int64_t r = 0; r < kW4Columns; ++r) scales[r] = to_float(group->scales[r]);
  for (int64_t i = 0; i < kBlockK; ++i) {
    float error[kW4Columns];
    for (int64_t r = 0; r < kW4Columns; ++r) group->weights[i][r] = wanted[i][r] + correction[i * kW4Columns + r];
    find_w4_codes(group, scales, i, 1);
    for (int64_t r = 0; r < kW4Columns; ++r) {
      error[r] = wanted[i][r] - static_cast<float>(group->codes[i][r] - 8) * scales[r];
      errors_[static_cast<size_t>(r / block_ * block_ * feedback_.k + (k + i) * block_ + r % block_)] = error[r];
    }
    const float* factors = feedback_.panel(panel) + (k + i) * kPanel;
    for (int64_t to = first + i + 1; to < kPanel; ++to) {
      float* later = correction_.data() + to * kW4Columns;
      for (int64_t r = 0; r < kW4Columns; ++r) later[r] += error[r] * factors[to];
    }
  }
}

}  // namespace pinion
