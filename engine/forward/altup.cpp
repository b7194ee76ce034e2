#include "engine/forward/altup.h"

#include <cmath>

#include "engine/forward/mlp.h"
#include "loader/checkpoint/number_formats.h"

namespace pinion {
namespace {

// input = (norm(input) + embedding * sqrt(size)) / sqrt(2), for one token and layer. scratch: [size].
void add_layer_embedding(const Pass& p, LayerInputScratch& s, int64_t row, int64_t layer, float* scratch) {
  constexpr float kRootOfHalf = 0.70710678f;
  const LayerInputConfig& c = p.model.config.layer_input;
  const LayerInputs& model = p.model.layer_inputs;
  const Segment& segment = p.segment_of(row);
  const int32_t token = segment.tokens[row - segment.row];
  const int64_t layers = p.model.config.layers;
  float* input = s.inputs.data() + (row * layers + layer) * c.size;
  const int32_t id = token < c.vocab_size ? token : 0;  // ids beyond the per-layer vocabulary use id 0
  read_row(model.embedding, id * layers + layer, scratch);
  p.kernels.rms_norm(input, model.norm.weight, c.size, p.model.config.norm_eps, input);
  const float scale = std::sqrt(static_cast<float>(c.size));
  for (int64_t i = 0; i < c.size; ++i) input[i] = (input[i] + to_float(to_bf16(scratch[i])) * scale) * kRootOfHalf;
}

constexpr float kMinMeanSquare = 1e-5f;
constexpr int64_t kStepColumns = 64;

// Computed in double: the coefficients are few, and the kernels' tanh rounds differently.
float tanh_of(float x) {
  const double e = portable_exp(-2.0 * std::abs(static_cast<double>(x)));
  return static_cast<float>(std::copysign((1.0 - e) / (1.0 + e), static_cast<double>(x)));
}

float* input_row(const Pass& p, AltupScratch& s, int64_t input, int64_t row) {
  return s.inputs.data() + (input * p.rows + row) * p.model.config.hidden_size;
}

// The factor that gives y the root mean square of x. x, y: [hidden].
float magnitude_factor(const Pass& p, const float* x, const float* y) {
  const int64_t n = p.model.config.hidden_size;
  return std::sqrt(mean_square(x, n)) / std::sqrt(std::max(mean_square(y, n), kMinMeanSquare));
}

// out [inputs] = tanh(router norm(x) / hidden), the modalities of the paper. scratch: [hidden].
void modalities_of(const Pass& p, const Layer& layer, const float* x, float* scratch, float* out) {
  const int64_t n = p.model.config.hidden_size;
  normalize(p, layer[VectorRole::altup_norm], x, scratch);
  for (int64_t i = 0; i < p.model.config.altup.inputs; ++i) {
    out[i] = tanh_of(dot(layer[VectorRole::altup_router].weight + i * n, scratch, n) / static_cast<float>(n));
  }
}

// out [rows] = matrix [rows][inputs] times the modalities.
void coefficients_of(const Pass& p, const float* matrix, int64_t rows, const float* modalities, float* out) {
  const int64_t inputs = p.model.config.altup.inputs;
  for (int64_t i = 0; i < rows; ++i) {
    out[i] = 0;
    for (int64_t j = 0; j < inputs; ++j) out[i] += matrix[i * inputs + j] * modalities[j];
  }
}

// to[i] = from[i] + sum over j of coefficients[i][j] * from[j], columns [at, at + count) of each input i.
void add_combinations(float* const* from, float* const* to, const float* coefficients, int64_t inputs, int64_t at,
                      int64_t count) {
  float sums[kMaxAltupInputs][kStepColumns] = {};
  for (int64_t i = 0; i < inputs; ++i) {
    for (int64_t j = 0; j < inputs; ++j) {
      const float factor = coefficients[i * inputs + j];
      for (int64_t c = 0; c < count; ++c) sums[i][c] += from[j][at + c] * factor;
    }
  }
  for (int64_t i = 0; i < inputs; ++i) {
    for (int64_t c = 0; c < count; ++c) to[i][at + c] = from[i][at + c] + sums[i][c];
  }
}

// Calls prepare(row), then f(row, begin, end) for all columns of each row. A task is a row. For a single row, a task is
// a range of columns, and every worker calls prepare(0), which costs less than a barrier.
template <class Prepare, class F>
void for_each_row(Worker& worker, const Pass& p, Prepare prepare, F f) {
  const int64_t n = p.model.config.hidden_size, step = p.rows == 1 ? 4 * kStepColumns : n,
                tasks = (n + step - 1) / step;
  if (p.rows == 1) prepare(0);
  worker.for_each(p.rows * tasks, [&](int64_t task) {
    if (p.rows > 1) prepare(task);
    f(task / tasks, task % tasks * step, std::min(n, (task % tasks + 1) * step));
  });
  worker.barrier();
}

// out = the linear layer applied to `rows` rows; row_of(i) points to row i [hidden].
template <class RowOf>
void project_rows(const Multiplier& m, const Linear& linear, int64_t rows, float* out, RowOf row_of) {
  const int64_t n = linear.weight.k;
  const Input in = prepare(m, rows, n, forms_of(linear), [&](int64_t first, int64_t count, float* to) -> const float* {
    if (count == 1) return row_of(first);
    for (int64_t i = 0; i < count; ++i) std::copy_n(row_of(first + i), n, to + i * n);
    return to;
  });
  project(m, in, {{&linear, out}});
}

}  // namespace

void make_layer_input_scratch(const Model& model, int64_t tokens, ScratchSizer* sizer, LayerInputScratch* out) {
  const ModelConfig& c = model.config;
  sizer->make(&out->inputs, tokens * c.layers * c.layer_input.size);
  sizer->make(&out->gates, tokens * c.layer_input.size);
}

void begin_layer_inputs(Worker& worker, const Pass& p, LayerInputScratch& s) {
  const int64_t n = p.model.config.hidden_size, layers = p.model.config.layers;
  const Linear& projection = p.model.layer_inputs.projection;
  const Multiplier m = begin_stage(worker, p, Stage::embed);
  const Input embedding = prepare(m, p.rows, n, forms_of(projection),
                                  [&](int64_t first, int64_t, float*) { return p.activations.x.data() + first * n; });
  project(m, embedding, {{&projection, s.inputs.data()}});
  worker.for_each(p.rows * layers, [&](int64_t task) {
    add_layer_embedding(p, s, task / layers, task % layers, row_scratch(p, worker));
  });
}

void project_layer_input(Worker& worker, const Pass& p, LayerInputScratch& s, const Layer& layer, int64_t index,
                         const float* x, const float* scale, float* out) {
  const int64_t n = p.model.config.hidden_size;
  const Multiplier m = begin_stage(worker, p, Stage::layer_gate);
  const InputForms forms = forms_of(layer, {Stage::layer_gate});
  const Input scaled = prepare(m, p.rows, n, forms, [&](int64_t first, int64_t count, float* rows) -> const float* {
    if (!scale) return x + first * n;
    for (int64_t r = 0; r < count; ++r) {
      for (int64_t i = 0; i < n; ++i) rows[r * n + i] = x[(first + r) * n + i] * scale[i];
    }
    return rows;
  });
  trace_input(worker, p.trace, {index, Stage::layer_gate}, scaled);
  project(m, scaled, {{&layer[MatrixRole::layer_gate], s.gates.data()}});
  const int64_t size = p.model.config.layer_input.size, layers = p.model.config.layers;
  const Multiplier to_out = begin_stage(worker, p, Stage::layer_out);
  const InputForms out_forms = forms_of(layer, {Stage::layer_out});
  const Input gated = prepare(to_out, p.rows, size, out_forms, [&](int64_t first, int64_t count, float* rows) {
    for (int64_t row = first; row < first + count; ++row) {
      const float* input = s.inputs.data() + (row * layers + index) * size;
      gate_row(p, s.gates.data() + row * size, input, size, rows + (row - first) * size);
    }
    return rows;
  });
  trace_input(worker, p.trace, {index, Stage::layer_out}, gated);
  project(to_out, gated, {{&layer[MatrixRole::layer_out], out}});
}

void make_altup_scratch(const Model& model, int64_t tokens, ScratchSizer* sizer, AltupScratch* out) {
  const ModelConfig& c = model.config;
  if (c.altup.inputs == 0) return;
  sizer->make(&out->inputs, c.altup.inputs * tokens * c.hidden_size);
  sizer->make(&out->predicted, tokens * c.hidden_size);
}

void begin_altup(Worker& worker, const Pass& p, AltupScratch& s) {
  const ModelConfig& c = p.model.config;
  const int64_t n = c.hidden_size;
  const Multiplier m = begin_stage(worker, p, Stage::embed);
  const auto embedding = [&](int64_t row) { return p.activations.x.data() + row * n; };
  for (int64_t i = 1; i < c.altup.inputs; ++i) {
    project_rows(m, p.model.altup.in[i - 1], p.rows, input_row(p, s, i, 0), embedding);
  }
  worker.for_each(p.rows * c.altup.inputs, [&](int64_t task) {
    const int64_t row = task % p.rows, input = task / p.rows;
    float* to = input_row(p, s, input, row);
    if (input == 0) {
      std::copy_n(embedding(row), n, to);
    } else {
      const float factor = magnitude_factor(p, embedding(row), to);
      for (int64_t i = 0; i < n; ++i) to[i] *= factor;
    }
  });
  worker.barrier();
}

void predict_altup(Worker& worker, const Pass& p, AltupScratch& s, const Layer& layer) {
  const AltupConfig& c = p.model.config.altup;
  const int64_t n = p.model.config.hidden_size;
  float coefficients[kMaxAltupInputs * kMaxAltupInputs];
  begin_stage(worker, p, Stage::altup);
  const auto route = [&](int64_t row) {
    float modalities[kMaxAltupInputs];
    modalities_of(p, layer, input_row(p, s, c.active, row), row_scratch(p, worker), modalities);
    coefficients_of(p, layer[VectorRole::altup_prediction].weight, c.inputs * c.inputs, modalities, coefficients);
  };
  for_each_row(worker, p, route, [&](int64_t row, int64_t begin, int64_t end) {
    float *from[kMaxAltupInputs], *to[kMaxAltupInputs];
    for (int64_t input = 0; input < c.inputs; ++input) from[input] = to[input] = input_row(p, s, input, row);
    to[c.active] = s.predicted.data() + row * n;  // other workers may still read the active input
    for (int64_t at = begin; at < end; at += kStepColumns) {
      add_combinations(from, to, coefficients, c.inputs, at, std::min(kStepColumns, end - at));
    }
    std::copy(to[c.active] + begin, to[c.active] + end, p.activations.x.data() + row * n + begin);
  });
}

void correct_altup(Worker& worker, const Pass& p, AltupScratch& s, LayerInputScratch& layer_inputs, const Layer& layer,
                   int64_t index) {
  const AltupConfig& c = p.model.config.altup;
  const int64_t n = p.model.config.hidden_size;
  float coefficients[kMaxAltupInputs];
  begin_stage(worker, p, Stage::altup);
  const auto route = [&](int64_t row) {
    float modalities[kMaxAltupInputs];
    modalities_of(p, layer, p.activations.x.data() + row * n, row_scratch(p, worker), modalities);
    coefficients_of(p, layer[VectorRole::altup_correction].weight, c.inputs, modalities, coefficients);
  };
  for_each_row(worker, p, route, [&](int64_t row, int64_t begin, int64_t end) {
    const float *x = p.activations.x.data() + row * n, *predicted = s.predicted.data() + row * n;
    for (int64_t input = 0; input < c.inputs; ++input) {
      float* to = input_row(p, s, input, row);
      const float* from = input == c.active ? predicted : to;
      for (int64_t i = begin; i < end; ++i) to[i] = from[i] + (x[i] - predicted[i]) * (coefficients[input] + 1.0f);
    }
  });
  float *branch = p.activations.branch.data(), *normed = row_scratch(p, worker);
  project_layer_input(worker, p, layer_inputs, layer, index, input_row(p, s, c.active, 0),
                      layer[VectorRole::altup_scale].weight, branch);
  for_each_row(
      worker, p, [&](int64_t row) { normalize(p, layer[VectorRole::layer_out_norm], branch + row * n, normed); },
      [&](int64_t row, int64_t begin, int64_t end) {
        for (int64_t input = 1; input < c.inputs; ++input) {
          float* x = input_row(p, s, input, row);
          for (int64_t i = begin; i < end; ++i) x[i] += normed[i];
        }
      });
}

void join_altup(Worker& worker, const Pass& p, AltupScratch& s) {
  const ModelConfig& c = p.model.config;
  const int64_t n = c.hidden_size, rows = std::ssize(p.activations.rows_with_logits);
  const float mean = 1.0f / static_cast<float>(c.altup.inputs);
  const Multiplier m = begin_stage(worker, p, Stage::altup);
  float* projected = p.activations.branch.data();
  const auto add = [&](int64_t input) {
    worker.for_each(rows, [&](int64_t i) {
      const int64_t row = p.activations.rows_with_logits[i];
      const float *first = input_row(p, s, 0, row), *other = projected + i * n;
      float* x = p.activations.x.data() + row * n;
      if (input == 0) std::copy_n(first, n, x);
      const float factor = input == 0 ? 0.0f : magnitude_factor(p, first, other);
      for (int64_t at = 0; input > 0 && at < n; ++at) x[at] += other[at] * factor;
      for (int64_t at = 0; input + 1 == c.altup.inputs && at < n; ++at) x[at] *= mean;
    });
    worker.barrier();
  };
  add(0);
  for (int64_t input = 1; input < c.altup.inputs; ++input) {
    project_rows(m, p.model.altup.out[input - 1], rows, projected,
                 [&](int64_t i) { return input_row(p, s, input, p.activations.rows_with_logits[i]); });
    add(input);
  }
}

}  // namespace pinion
