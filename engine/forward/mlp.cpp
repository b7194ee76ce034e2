#include "engine/forward/mlp.h"

#include <cmath>

namespace pinion {
namespace {

constexpr int64_t kTaskColumns = 8 * kPanelColumns;  // of a single row, in one task of a sparse gate

// The mean of the gates plus `deviations` standard deviations.
float threshold_of(const float* gates, int64_t width, float deviations) {
  const auto n = static_cast<float>(width);
  const float mean = row_sum(width, [&](int64_t i) { return gates[i]; }) / n;
  const float square = row_sum(width, [&](int64_t i) { return (gates[i] - mean) * (gates[i] - mean); }) / n;
  return mean + std::sqrt(square) * deviations;
}

// up[i] = activation(max(0, gates[i] - threshold)) * up[i]
void gate_columns(const Pass& p, const float* gates, float threshold, int64_t count, float* up) {
  for (int64_t at = 0; at < count; at += kPanelColumns) {
    const int64_t columns = std::min(kPanelColumns, count - at);
    float above[kPanelColumns];
    for (int64_t i = 0; i < columns; ++i) {
      above[i] = gates[at + i] < threshold ? 0.0f : gates[at + i] - threshold;  // NaN remains NaN
    }
    gate_row(p, above, up + at, columns, up + at);
  }
}

// Applies the sparse gates to `width` columns of up's outputs. The threshold needs whole rows: a stage of its own.
void apply_sparse_gates(Worker& worker, const Pass& p, const Layer& layer, int64_t width) {
  const auto threshold_of_row = [&](int64_t row) {
    return threshold_of(p.activations.gates.data() + row * width, width, *layer.gate_cut);
  };
  // Every worker computes the threshold of a single row, which costs less than a barrier.
  const bool is_single = p.rows == 1;
  const float single = is_single ? threshold_of_row(0) : 0.0f;
  const int64_t step = is_single ? kTaskColumns : width, tasks = (width + step - 1) / step;
  worker.for_each(p.rows * tasks, [&](int64_t task) {
    const int64_t row = task / tasks, begin = task % tasks * step, at = row * width + begin;
    gate_columns(p, p.activations.gates.data() + at, is_single ? single : threshold_of_row(row),
                 std::min(step, width - begin), p.activations.activation.data() + at);
  });
  worker.barrier();
}

}  // namespace

// Copies to padded buffers: the kernel reads whole tiles, and columns beyond the row may belong to another worker.
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

void activate(Worker& worker, const Pass& p, const Layer& layer, const Input& y, int64_t index) {
  trace_input(worker, p.trace, {index, Stage::gate_up}, y);
  const Multiplier m = begin_stage(worker, p, Stage::gate_up);
  const Linear &gate = layer[MatrixRole::gate], &up = layer[MatrixRole::up];
  float *activation = p.activations.activation.data(), *gates = p.activations.gates.data();
  if (layer.gate_cut) {
    project(m, y, {{&gate, gates}, {&up, activation}});
    gather(worker, p, gates, p.rows, gate.rows);
  } else {
    project_activated(m, y, gate, up, gating_of(p.model.config, layer), activation);
  }
  gather(worker, p, activation, p.rows, up.rows);
  if (layer.gate_cut) apply_sparse_gates(worker, p, layer, up.rows.count);
}

Input activated_input(Worker& worker, const Pass& p, const Layer& layer, int64_t index) {
  const float* activation = p.activations.activation.data();
  const Linear& down = layer[MatrixRole::down];
  const int64_t width = down.weight.k;
  const Input in =
      prepare(begin_stage(worker, p, Stage::down_input), p.rows, width, forms_of(down),
              [&](int64_t first, int64_t count, float* out) {
                return normed_rows(p, layer[VectorRole::down_norm], activation + first * width, count, width, out);
              });
  trace_input(worker, p.trace, {index, Stage::down}, in);
  return in;
}

}  // namespace pinion
