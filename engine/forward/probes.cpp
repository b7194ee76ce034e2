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

// Adds the pass to the first `end` rows of one panel of the moments. Each sum adds the rows of the pass in their order.
// left: row blocks of the inputs; right: the panel.
void add_moment_panel(const Kernels& kernels, const float* left, const float* right, int64_t tokens, int64_t end,
                      float* out) {
  constexpr int64_t kBlocks = 16;  // at once: their sums stay in the cache
  const int64_t block = kernels.f32_shape.rows;
  std::vector<float> sums(kBlocks * block * kPanelColumns);
  for (int64_t first = 0; first < end; first += kBlocks * block) {
    const int64_t count = std::min(kBlocks * block, end - first);
    const GemmTerm term = {left + first * tokens, right, tokens};
    kernels.gemm_f32(&term, 1, {block, tokens * block * static_cast<int64_t>(sizeof(float))}, count, sums.data());
    for (int64_t i = 0; i < count * kPanelColumns; ++i) out[first * kPanelColumns + i] += sums[i];
  }
}

void add_moments(Worker& worker, const InputId& id, const Input& in, Moments* moments) {
  const auto found = moments->sums.find(id);
  if (found == moments->sums.end()) return;
  Moments::Sum& sum = found->second;
  const Kernels& kernels = best_kernels();
  const int64_t n = padded_n(in.k), tokens = in.rows, block = kernels.f32_shape.rows;
  float *panels = moments->scratch.data(), *blocks = panels + tokens * n;
  std::vector<float> row(round_up(n, block));
  worker.for_each(tokens, [&](int64_t token) {
    copy_row(in, token, row.data());
    if (moments->rotate) kernels.rotate(row.data(), in.k, rotation_of(in.k), row.data());
    for (const auto& [to, width] : {std::pair(panels, kPanelColumns), std::pair(blocks, block)}) {
      for (int64_t i = 0; i < n; i += width) std::copy_n(row.data() + i, width, to + i * tokens + token * width);
    }
  });
  worker.barrier();
  const int64_t count = n / kPanelColumns;
  worker.for_each(count, [&](int64_t task) {
    const int64_t panel = count - 1 - task, column = panel * kPanelColumns;  // the longest first
    add_moment_panel(kernels, blocks, panels + column * tokens, tokens, column + kPanelColumns,
                     sum.values.data() + triangle_panel(panel));
  });
  if (worker.index == 0) sum.rows += tokens;
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
