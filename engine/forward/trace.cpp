#include "engine/forward/trace.h"

#include <algorithm>
#include <cmath>
#include <span>

#include "kernels/base/hash.h"
#include "kernels/base/math.h"

namespace pinion {
namespace {

// Codes stand for the numbers they were made of: the scale cancels out.
template <class T>
void add_row(const T* row, int64_t k, Spread* out) {
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

Trace::Trace(int64_t layers) : residual(static_cast<size_t>(layers), kHashSeed), inputs(static_cast<size_t>(layers)) {}

int64_t first_difference(const Trace& a, const Trace& b) {
  const auto [first, second] = std::ranges::mismatch(a.residual, b.residual);
  return first == a.residual.end() ? -1 : first - a.residual.begin();
}

void trace_residual(const Worker& worker, const Pass& pass, Place after) {
  if (!pass.trace || worker.index != 0) return;
  const size_t count = static_cast<size_t>(pass.rows * pass.model.config.hidden_size);
  const std::span<const float> stream = std::span(pass.activations.x).first(count);
  if (!pass.trace->first_unfit && !all_finite(stream)) pass.trace->first_unfit = after;
  if (after.stage != Stage::down) return;
  uint64_t& hash = pass.trace->residual[static_cast<size_t>(after.layer)];
  hash = hash_floats(hash, stream);
}

void trace_input(Worker& worker, const Pass& pass, int64_t layer, Stage stage, const Input& in) {
  if (!pass.trace) return;
  if (pass.trace->moments) add_moments(worker, layer, stage, in, pass.trace->moments);
  if (worker.index != 0 || in.rows != 1) return;
  Spread* spread = &pass.trace->inputs[static_cast<size_t>(layer)][static_cast<size_t>(stage)];
  if (in.values) {
    add_row(in.values, in.k, spread);
  } else {
    add_row((in.rotated.codes ? in.rotated : in.plain).codes, in.k, spread);
  }
}

}  // namespace pinion
