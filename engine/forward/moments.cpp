#include "engine/forward/moments.h"

#include <algorithm>

namespace pinion {
namespace {

// Row `row` of an input of floats (see RowBlocks), and zeros behind it.
void copy_row(const Input& in, int64_t row, float* out) {
  const int64_t block_rows = in.rows == 1 ? 1 : in.block;
  const float* from = in.values + row / block_rows * block_rows * in.k + row % block_rows;
  for (int64_t i = 0; i < in.k; ++i) out[i] = from[i * block_rows];
  std::fill(out + in.k, out + padded_n(in.k), 0.0f);
}

// Adds the columns of one panel, down to the diagonal: sums over the pass's rows, in their order.
void add_panel(const Kernels& kernels, const std::vector<float>& rows, int64_t tokens, int64_t n, int64_t column,
               float* out) {
  const int64_t block = kernels.f32_shape.rows;
  std::vector<float> left(static_cast<size_t>(tokens * block)), right(static_cast<size_t>(tokens * kPanelColumns));
  std::vector<float> sums(static_cast<size_t>(block * kPanelColumns));
  const auto gather = [&](int64_t first, int64_t count, int64_t width, std::vector<float>* to) {
    for (int64_t t = 0; t < tokens; ++t) std::copy_n(rows.data() + t * n + first, count, to->data() + t * width);
  };
  gather(column, kPanelColumns, kPanelColumns, &right);
  for (int64_t first = 0; first < column + kPanelColumns; first += block) {
    const int64_t count = std::min(block, column + kPanelColumns - first);
    gather(first, count, block, &left);
    const GemmTerm term = {left.data(), right.data(), tokens};
    kernels.gemm_f32(&term, 1, {block, 0}, count, sums.data());
    for (int64_t r = 0; r < count; ++r) {
      float* to = out + (first + r) * n + column;
      for (int64_t c = 0; c < kPanelColumns; ++c) to[c] += sums[static_cast<size_t>(r * kPanelColumns + c)];
    }
  }
}

}  // namespace

Moments::Sum* Moments::find(int64_t layer, Stage stage) {
  if (layer < first_layer || layer >= first_layer + std::ssize(layers)) return nullptr;
  Sum& sum = layers[static_cast<size_t>(layer - first_layer)][static_cast<size_t>(stage)];
  return sum.k > 0 ? &sum : nullptr;
}

void add_moments(Worker& worker, int64_t layer, Stage stage, const Input& in, Moments* moments) {
  Moments::Sum* sum = moments->find(layer, stage);
  if (!sum) return;
  const Kernels& kernels = best_kernels();
  const int64_t n = padded_n(in.k);
  worker.for_each(in.rows, [&](int64_t row) {
    float* to = moments->rows.data() + row * n;
    copy_row(in, row, to);
    if (moments->rotate) kernels.rotate(to, in.k, rotation_of(in.k), to);
  });
  worker.barrier();
  worker.for_each(n / kPanelColumns, [&](int64_t panel) {
    add_panel(kernels, moments->rows, in.rows, n, panel * kPanelColumns, sum->values.data());
  });
  worker.barrier();
}

}  // namespace pinion
