#include "loader/checkpoint/number_formats.h"
#include "loader/config/model_config.h"
#include "loader/quant/stored_weights.h"

namespace pinion {
namespace {

Error bind_matrix(const Checkpoint& checkpoint, const ExpertsConfig& experts, FusedMatrix* m) {
  if (experts.halves) return checkpoint.bind(m->module, {experts.count, m->k, m->n}, &m->values);
  if (Error e = checkpoint.bind(m->module + "_bias", {experts.count, m->n}, &m->bias)) return e;
  if (!experts.mxfp4) return checkpoint.bind(m->module, {experts.count, m->k, m->n}, &m->values);
  if (m->k % kMxGroup != 0) {
    return error("MXFP4 needs whole groups of inputs", checkpoint.folder + ": " + m->module,
                 "a multiple of " + std::to_string(kMxGroup), std::to_string(m->k));
  }
  const int64_t groups = m->k / kMxGroup;
  m->stored_as = "MXFP4";
  if (Error e = checkpoint.bind(m->module + "_blocks", {experts.count, m->n, groups, kMxGroupBytes}, {DType::u8},
                                &m->values)) {
    return e;
  }
  return checkpoint.bind(m->module + "_scales", {experts.count, m->n, groups}, {DType::u8}, &m->scales);
}

}  // namespace

Error bind_fused_experts(const Checkpoint& checkpoint, const ModelConfig& config, int64_t layer, FusedExperts* out) {
  const int64_t hidden = config.hidden_size, inner = config.experts.inner_size;
  out->gate_up = {module_name(config.name("expert_gate"), layer), 2 * inner, hidden, {}, {}, {}};
  out->down = {module_name(config.name("expert_down"), layer), hidden, inner, {}, {}, {}};
  if (Error e = bind_matrix(checkpoint, config.experts, &out->gate_up)) return e;
  return bind_matrix(checkpoint, config.experts, &out->down);
}

void find_stacked_experts(const Checkpoint& checkpoint, ModelConfig* config) {
  const std::string &gate_up = config->name("stacked_gate_up"), &down = config->name("stacked_down");
  if (gate_up.empty()) return;
  const auto first = std::ranges::find(config->layer, true, &LayerConfig::has_experts) - config->layer.begin();
  const std::string name = module_name(gate_up, first);
  const TensorView* found = checkpoint.find(checkpoint.find(name) ? name : name + ".weight");
  if (!found) return;
  ExpertsConfig& experts = config->experts;
  experts.fused = experts.halves =
      found->shape == std::vector<int64_t>{experts.count, config->hidden_size, 2 * experts.inner_size} &&
      config->hidden_size != 2 * experts.inner_size;
  experts.stacked = !experts.fused;
  config->names["expert_gate"] = config->names["expert_up"] = gate_up;
  config->names["expert_down"] = down;
}

Error bind_stacked_experts(const Checkpoint& checkpoint, const std::string& module, int64_t experts, int64_t rows,
                           int64_t k, LinearWeight* out) {
  const std::string name = checkpoint.find(module) ? module : module + ".weight";
  *out = {};
  if (Error e = checkpoint.bind(name, {experts, rows, k}, &out->weight)) return e;
  out->weight.shape = {experts * rows, k};
  if (is_block(out->weight.dtype)) out->stored_as = dtype_name(out->weight.dtype);
  out->tensors = {name};
  return {};
}

void split_gate_up(int64_t inner, std::span<float> numbers) {
  const std::vector<float> stored(numbers.begin(), numbers.end());
  for (int64_t i = 0; i < std::ssize(stored); i++) {
    const int64_t column = i % (2 * inner);
    numbers[i - column + column % 2 * inner + column / 2] = stored[i];
  }
}

PackJob expert_job(const FusedMatrix& matrix, int64_t expert, const SteppedRows& rows, Format format, Matrix* out) {
  const int64_t first = rows.first, step = rows.step, count = rows.count;
  const int64_t bytes = matrix.values.bytes / matrix.values.shape[0];
  PackJob job = {.source = {}, .format = format, .out = out};
  job.source = {matrix.module + "[" + std::to_string(expert) + "]",
                matrix.values.dtype,
                {count, matrix.k},
                matrix.values.data + expert * bytes,
                bytes};
  if (step > 1) {
    job.source.name += " rows " + std::to_string(first) + ", " + std::to_string(first + step) + ", ...";
  } else if (count < matrix.n) {
    job.source.name += "[" + std::to_string(first) + ":" + std::to_string(first + count) + "]";
  }
  const int64_t k = matrix.k, groups = k / kMxGroup;
  if (matrix.scales.data) {
    const std::byte *codes = job.source.data, *scales = matrix.scales.data + expert * matrix.n * groups;
    job.reader.stored_as = matrix.stored_as;
    job.reader.read = [=](int64_t row, int64_t rows_read, float* numbers) {
      for (int64_t r = row; r < row + rows_read; ++r, numbers += k) {
        const int64_t group = (first + r * step) * groups;
        read_mxfp4(codes + group * kMxGroupBytes, scales + group, groups, numbers);
      }
    };
    return job;
  }
  // Columns of the expert's numbers [k, n] are rows of its matrix.
  job.reader.stored_as = "columns";
  job.reader.scattered = true;
  job.reader.read = [=, values = matrix.values, n = matrix.n](int64_t row, int64_t columns, float* numbers) {
    const int64_t width = (columns - 1) * step + 1;
    std::vector<float> line(width);
    for (int64_t i = 0; i < k; ++i) {
      read_floats(values, (expert * k + i) * n + first + row * step, width, line.data());
      for (int64_t r = 0; r < columns; ++r) numbers[r * k + i] = line[r * step];
    }
  };
  return job;
}

}  // namespace pinion
