#include "engine/forward/sparse_gate.h"

#include <algorithm>
#include <cmath>

#include "engine/forward/row_sums.h"

namespace pinion {
namespace {

constexpr int64_t kPartColumns = 8 * kPanelColumns;  // that a task takes of a single row

float cut_of(const float* gates, int64_t width, float deviations) {
  const auto n = static_cast<float>(width);
  const float mean = row_sum(width, [&](int64_t i) { return gates[i]; }) / n;
  const float square = row_sum(width, [&](int64_t i) { return (gates[i] - mean) * (gates[i] - mean); }) / n;
  return mean + std::sqrt(square) * deviations;
}

void cut_part(const Pass& p, const float* gates, float cut, int64_t count, float* up) {
  for (int64_t at = 0; at < count; at += kPanelColumns) {
    const int64_t columns = std::min(kPanelColumns, count - at);
    float above[kPanelColumns];
    for (int64_t i = 0; i < columns; ++i) above[i] = gates[at + i] < cut ? 0.0f : gates[at + i] - cut;  // NaN stays
    gate_row(p, above, up + at, columns, up + at);
  }
}

}  // namespace

// The kernel reads whole tiles: what stands behind a row may be another worker's.
void gate_row(const Pass& p, const float* gate, const float* x, int64_t n, float* out) {
  alignas(kAlignmentBytes) float gates[kPanelColumns] = {}, values[kPanelColumns] = {};
  for (int64_t at = 0; at < n; at += kPanelColumns) {
    const int64_t columns = std::min(kPanelColumns, n - at);
    std::copy_n(gate + at, columns, gates);
    std::copy_n(x + at, columns, values);
    const Epilogue ops = {.gate = gates, .gate_stride = kPanelColumns, .activation = p.model.config.activation};
    p.kernels.epilogue_f32(values, 1, columns, ops, values, kPanelColumns);
    std::copy_n(values, columns, out + at);
  }
}

void cut_gates(Worker& worker, const Pass& p, const Layer& layer, int64_t width) {
  const auto cut_of_row = [&](int64_t row) {
    return cut_of(p.activations.gates.data() + row * width, width, *layer.gate_cut);
  };
  // Every worker looks at a single row's mean for itself.
  const bool is_one = p.rows == 1;
  const float first = is_one ? cut_of_row(0) : 0.0f;
  const int64_t part = is_one ? kPartColumns : width, parts = (width + part - 1) / part;
  worker.for_each(p.rows * parts, [&](int64_t task) {
    const int64_t row = task / parts, begin = task % parts * part, at = row * width + begin;
    cut_part(p, p.activations.gates.data() + at, is_one ? first : cut_of_row(row), std::min(part, width - begin),
             p.activations.activation.data() + at);
  });
  worker.barrier();
}

}  // namespace pinion
