#include "engine/forward/probes.h"

#include <cmath>

#include "kernels/base/hash.h"
#include "kernels/base/math.h"

namespace pinion {
namespace {

// Copies one row of the floats of an input out of its row block (see RowBlocks) and pads it with zeros.
void copy_row(const Input& in, int64_t row, float* out) {
  const int64_t block_rows = in.rows == 1 ? 1 : in.block;
  const float* from = in.values + row / block_rows * block_rows * in.k + row % block_rows;
  for (int64_t i = 0; i < in.k; ++i) out[i] = from[i * block_rows];
  std::fill(out + in.k, out + padded_n(in.k), 0.0f);
}

// Adds the pass to the columns of one panel of the moments, from the top down to the diagonal, since the matrix is
// symmetric. Each sum adds the rows of the pass in their order.
void add_moment_panel(const Kernels& kernels, const std::vector<float>& rows, int64_t tokens, int64_t n, int64_t column,
                      float* out) {
  const int64_t block = kernels.f32_shape.rows;
  std::vector<float> left(tokens * block), right(tokens * kPanelColumns), sums(block * kPanelColumns);
  const auto copy_columns = [&](int64_t first, int64_t count, int64_t width, std::vector<float>* to) {
    for (int64_t t = 0; t < tokens; ++t) std::copy_n(rows.data() + t * n + first, count, to->data() + t * width);
  };
  copy_columns(column, kPanelColumns, kPanelColumns, &right);
  for (int64_t first = 0; first < column + kPanelColumns; first += block) {
    const int64_t count = std::min(block, column + kPanelColumns - first);
    copy_columns(first, count, block, &left);
    const GemmTerm term = {left.data(), right.data(), tokens};
    kernels.gemm_f32(&term, 1, {block, 0}, count, sums.data());
    for (int64_t r = 0; r < count; ++r) {
      float* to = out + (first + r) * n + column;
      for (int64_t c = 0; c < kPanelColumns; ++c) to[c] += sums[r * kPanelColumns + c];
    }
  }
}

void add_moments(Worker& worker, const InputId& id, const Input& in, Moments* moments) {
  const auto found = moments->sums.find(id);
  if (found == moments->sums.end()) return;
  Moments::Sum& sum = found->second;
  const Kernels& kernels = best_kernels();
  const int64_t n = padded_n(in.k);
  worker.for_each(in.rows, [&](int64_t row) {
    float* to = moments->scratch.data() + row * n;
    copy_row(in, row, to);
    if (moments->rotate) kernels.rotate(to, in.k, rotation_of(in.k), to);
  });
  worker.barrier();
  worker.for_each(n / kPanelColumns, [&](int64_t panel) {
    add_moment_panel(kernels, moments->scratch, in.rows, n, panel * kPanelColumns, sum.values.data());
  });
  if (worker.index == 0) sum.rows += in.rows;
  worker.barrier();
}

// row: floats or codes; the scale of codes cancels out.
template <class T>
void add_spread(const T* row, int64_t k, Spread* out) {
  double largest = 0, squares = 0;
  for (int64_t i = 0; i < k; ++i) {
    const double value = row[i];
    largest = std::max(largest, std::abs(value));
    squares += value * value;
  }
  const double spread = squares > 0 ? largest / std::sqrt(squares / static_cast<double>(k)) : 0;
  out->worst = std::max(out->worst, spread);
  out->sum += spread;
  ++out->rows;
}

}  // namespace

Trace::Trace(int64_t layers) : residual(layers, kHashSeed), inputs(layers) {}

int64_t first_difference(const Trace& a, const Trace& b) {
  const auto [first, second] = std::ranges::mismatch(a.residual, b.residual);
  return first == a.residual.end() ? -1 : first - a.residual.begin();
}

void trace_residual(const Worker& worker, Trace* trace, std::span<const float> x, TracePoint after) {
  if (!trace || worker.index != 0) return;
  if (!trace->first_non_finite && !all_finite(x)) trace->first_non_finite = after;
  if (after.stage != Stage::down) return;
  uint64_t& hash = trace->residual[after.layer];
  hash = hash_floats(hash, x);
}

void trace_input(Worker& worker, Trace* trace, const InputId& id, const Input& in) {
  if (!trace) return;
  if (trace->moments) add_moments(worker, id, in, trace->moments);
  if (worker.index != 0 || in.rows != 1 || id.expert != kNoExpert) return;
  Spread* spread = &trace->inputs[id.layer][static_cast<size_t>(id.stage)];
  if (in.values) {
    add_spread(in.values, in.k, spread);
  } else {
    add_spread((in.rotated.codes ? in.rotated : in.plain).codes, in.k, spread);
  }
}

}  // namespace pinion
