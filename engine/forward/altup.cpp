#include "engine/forward/altup.h"

#include <algorithm>
#include <cmath>

#include "engine/forward/row_sums.h"
#include "engine/forward/sparse_gate.h"
#include "engine/forward/trace.h"
#include "kernels/base/math.h"
#include "kernels/bf16.h"
#include "loader/checkpoint/convert.h"

namespace pinion {
namespace {

constexpr float kLeastSquare = 1e-5f;  // of what is brought to another's magnitude
constexpr float kRootOfHalf = 0.70710678f;

float tanh_of(float x) {
  const double e = portable_exp(-2.0 * std::abs(static_cast<double>(x)));
  return static_cast<float>(std::copysign((1.0 - e) / (1.0 + e), static_cast<double>(x)));
}

// A row of one stream.
float* stream_row(const Pass& p, AltupScratch& s, int64_t stream, int64_t row) {
  return s.streams.data() + (stream * p.rows + row) * p.model.config.hidden_size;
}

// What makes y as large as x. Rows: [hidden].
float magnitude_factor(const Pass& p, const float* x, const float* y) {
  const int64_t n = p.model.config.hidden_size;
  return std::sqrt(mean_square(x, n)) / std::sqrt(std::max(mean_square(y, n), kLeastSquare));
}

// What the router says of a row: [streams] in [-1, 1]. scratch: [hidden].
void route_row(const Pass& p, const AltupLayer& altup, const float* x, float* scratch, float* out) {
  const int64_t n = p.model.config.hidden_size;
  normalize(p, altup.norm, x, scratch);
  for (int64_t i = 0; i < p.model.config.altup.streams; ++i) {
    out[i] = tanh_of(dot(altup.router + i * n, scratch, n) / static_cast<float>(n));
  }
}

// [rows], those of a small matrix [rows][streams] times what the router says.
void coefficients(const Pass& p, const float* matrix, int64_t rows, const float* routed, float* out) {
  const int64_t streams = p.model.config.altup.streams;
  for (int64_t i = 0; i < rows; ++i) {
    out[i] = 0;
    for (int64_t j = 0; j < streams; ++j) out[i] += matrix[i * streams + j] * routed[j];
  }
}

constexpr int64_t kColumns = 64;

// Columns [at, at + count) of `to`, of one stream each, become those of `from` plus a sum of all of them: by[i][j] of
// each.
void add_combinations(float* const* from, float* const* to, const float* by, int64_t streams, int64_t at,
                      int64_t count) {
  float sums[kMostStreams][kColumns] = {};
  for (int64_t i = 0; i < streams; ++i) {
    for (int64_t j = 0; j < streams; ++j) {
      const float factor = by[i * streams + j];
      for (int64_t c = 0; c < count; ++c) sums[i][c] += from[j][at + c] * factor;
    }
  }
  for (int64_t i = 0; i < streams; ++i) {
    for (int64_t c = 0; c < count; ++c) to[i][at + c] = from[i][at + c] + sums[i][c];
  }
}

// prepare(row), then f(row, begin, end) for all columns of each row. A single row is prepared by every worker, which is
// less than a barrier costs, and its columns are shared out.
template <class Prepare, class F>
void for_each_row(Worker& worker, const Pass& p, Prepare prepare, F f) {
  const int64_t n = p.model.config.hidden_size, part = p.rows == 1 ? 4 * kColumns : n, parts = (n + part - 1) / part;
  if (p.rows == 1) prepare(0);
  worker.for_each(p.rows * parts, [&](int64_t task) {
    if (p.rows > 1) prepare(task);
    f(task / parts, task % parts * part, std::min(n, (task % parts + 1) * part));
  });
  worker.barrier();
}

// The layers' inputs of a token: the mean of two vectors of each layer, times sqrt(2). The first are there already.
void add_layer_embeddings(const Pass& p, AltupScratch& s, int64_t row, int64_t layer, float* scratch) {
  const LayerInputConfig& c = p.model.config.layer_input;
  const LayerInputs& model = p.model.layer_inputs;
  const Segment& segment = p.segment_of(row);
  const int32_t token = segment.tokens[static_cast<size_t>(row - segment.row)];
  const int64_t layers = p.model.config.layers;
  float* input = s.inputs.data() + (row * layers + layer) * c.size;
  read_row(model.embedding, (token < c.vocab_size ? token : 0) * layers + layer, scratch);
  p.kernels.rms_norm(input, model.norm.weight, c.size, p.model.config.norm_eps, input);
  const float scale = std::sqrt(static_cast<float>(c.size));
  for (int64_t i = 0; i < c.size; ++i) {
    input[i] = (input[i] + to_float(to_bf16(scratch[i])) * scale) * kRootOfHalf;
  }
}

// What a worker has for a row of its own.
float* row_scratch(const Pass& p, const Worker& worker) {
  return p.activations.own_inputs[static_cast<size_t>(worker.index)].values.data();
}

// out = the linear layer of some rows of the residual stream's width. row_of(i): where row i is.
template <class RowOf>
void project_rows(const Multiplier& m, const Linear& linear, int64_t rows, float* out, RowOf row_of) {
  const int64_t n = linear.weight.k;
  project(m,
          prepare(m, rows, n, {&linear},
                  [&](int64_t first, int64_t count, float* to) -> const float* {
                    if (count == 1) return row_of(first);
                    for (int64_t i = 0; i < count; ++i) std::copy_n(row_of(first + i), n, to + i * n);
                    return to;
                  }),
          {{&linear, out}});
}

// The layer's input, as much as its gate lets through: activation(gate) * input.
Input gated_input(Worker& worker, const Pass& p, AltupScratch& s, const Layer& layer, int64_t index) {
  const int64_t size = p.model.config.layer_input.size, layers = p.model.config.layers;
  const Multiplier m = begin_stage(worker, p, Stage::layer_out);
  const Input in = prepare(m, p.rows, size, {&layer.layer_out}, [&](int64_t first, int64_t count, float* out) {
    for (int64_t row = first; row < first + count; ++row) {
      const float* input = s.inputs.data() + (row * layers + index) * size;
      gate_row(p, s.gates.data() + row * size, input, size, out + (row - first) * size);
    }
    return out;
  });
  trace_input(worker, p, index, Stage::layer_out, in);
  return in;
}

// Through its gate into all streams but the first. What the gate reads is the active stream, scaled.
void add_layer_input(Worker& worker, const Pass& p, AltupScratch& s, const Layer& layer, int64_t index) {
  const ModelConfig& c = p.model.config;
  const int64_t n = c.hidden_size;
  const Multiplier m = begin_stage(worker, p, Stage::layer_gate);
  const Input scaled = prepare(m, p.rows, n, {&layer.layer_gate}, [&](int64_t first, int64_t count, float* out) {
    for (int64_t r = 0; r < count; ++r) {
      const float* x = stream_row(p, s, c.altup.active, first + r);
      for (int64_t i = 0; i < n; ++i) out[r * n + i] = x[i] * layer.altup.scale[i];
    }
    return out;
  });
  trace_input(worker, p, index, Stage::layer_gate, scaled);
  project(m, scaled, {{&layer.layer_gate, s.gates.data()}});
  const Input gated = gated_input(worker, p, s, layer, index);
  float* branch = p.activations.branch.data();
  project(begin_stage(worker, p, Stage::layer_out), gated, {{&layer.layer_out, branch}});
  float* normed = row_scratch(p, worker);
  for_each_row(
      worker, p, [&](int64_t row) { normalize(p, layer.layer_out_norm, branch + row * n, normed); },
      [&](int64_t row, int64_t begin, int64_t end) {
        for (int64_t stream = 1; stream < c.altup.streams; ++stream) {
          float* x = stream_row(p, s, stream, row);
          for (int64_t i = begin; i < end; ++i) x[i] += normed[i];
        }
      });
}

}  // namespace

void begin_streams(Worker& worker, const Pass& p, AltupScratch& s) {
  const ModelConfig& c = p.model.config;
  const int64_t n = c.hidden_size;
  const Multiplier m = begin_stage(worker, p, Stage::embed);
  const auto embedding = [&](int64_t row) { return p.activations.x.data() + row * n; };
  project_rows(m, p.model.layer_inputs.projection, p.rows, s.inputs.data(), embedding);
  for (int64_t i = 1; i < c.altup.streams; ++i) {
    project_rows(m, p.model.altup.in[static_cast<size_t>(i) - 1], p.rows, stream_row(p, s, i, 0), embedding);
  }
  worker.for_each(p.rows * c.altup.streams, [&](int64_t task) {
    const int64_t row = task % p.rows, stream = task / p.rows;
    float* to = stream_row(p, s, stream, row);
    if (stream == 0) {
      std::copy_n(embedding(row), n, to);
    } else {
      const float factor = magnitude_factor(p, embedding(row), to);
      for (int64_t i = 0; i < n; ++i) to[i] *= factor;
    }
  });
  worker.for_each(p.rows * c.layers, [&](int64_t task) {
    add_layer_embeddings(p, s, task / c.layers, task % c.layers, row_scratch(p, worker));
  });
  worker.barrier();
}

void predict_streams(Worker& worker, const Pass& p, AltupScratch& s, const Layer& layer) {
  const AltupConfig& c = p.model.config.altup;
  const int64_t n = p.model.config.hidden_size;
  float by[kMostStreams * kMostStreams];
  begin_stage(worker, p, Stage::streams);
  const auto mix = [&](int64_t row) {
    float routed[kMostStreams];
    route_row(p, layer.altup, stream_row(p, s, c.active, row), row_scratch(p, worker), routed);
    coefficients(p, layer.altup.prediction, c.streams * c.streams, routed, by);
  };
  for_each_row(worker, p, mix, [&](int64_t row, int64_t begin, int64_t end) {
    float *from[kMostStreams], *to[kMostStreams];
    for (int64_t stream = 0; stream < c.streams; ++stream) from[stream] = to[stream] = stream_row(p, s, stream, row);
    to[c.active] = s.predicted.data() + row * n;  // other workers may be reading the stream
    for (int64_t at = begin; at < end; at += kColumns) {
      add_combinations(from, to, by, c.streams, at, std::min(kColumns, end - at));
    }
    std::copy(to[c.active] + begin, to[c.active] + end, p.activations.x.data() + row * n + begin);
  });
}

void correct_streams(Worker& worker, const Pass& p, AltupScratch& s, const Layer& layer, int64_t index) {
  const AltupConfig& c = p.model.config.altup;
  const int64_t n = p.model.config.hidden_size;
  float by[kMostStreams];
  begin_stage(worker, p, Stage::streams);
  const auto mix = [&](int64_t row) {
    float routed[kMostStreams];
    route_row(p, layer.altup, p.activations.x.data() + row * n, row_scratch(p, worker), routed);
    coefficients(p, layer.altup.correction, c.streams, routed, by);
  };
  for_each_row(worker, p, mix, [&](int64_t row, int64_t begin, int64_t end) {
    const float *x = p.activations.x.data() + row * n, *predicted = s.predicted.data() + row * n;
    for (int64_t stream = 0; stream < c.streams; ++stream) {
      float* to = stream_row(p, s, stream, row);
      const float* from = stream == c.active ? predicted : to;
      for (int64_t i = begin; i < end; ++i) to[i] = from[i] + (x[i] - predicted[i]) * (by[stream] + 1.0f);
    }
  });
  add_layer_input(worker, p, s, layer, index);
}

void join_streams(Worker& worker, const Pass& p, AltupScratch& s) {
  const ModelConfig& c = p.model.config;
  const int64_t n = c.hidden_size, rows = std::ssize(p.activations.logit_rows);
  const float part = 1.0f / static_cast<float>(c.altup.streams);
  const Multiplier m = begin_stage(worker, p, Stage::streams);
  const auto row_of_pass = [&](int64_t i) { return p.activations.logit_rows[static_cast<size_t>(i)]; };
  float* branch = p.activations.branch.data();
  const auto add = [&](int64_t stream) {
    worker.for_each(rows, [&](int64_t i) {
      const int64_t row = row_of_pass(i);
      const float *first = stream_row(p, s, 0, row), *other = branch + i * n;
      float* x = p.activations.x.data() + row * n;
      if (stream == 0) std::copy_n(first, n, x);
      const float factor = stream == 0 ? 0.0f : magnitude_factor(p, first, other);
      for (int64_t at = 0; stream > 0 && at < n; ++at) x[at] += other[at] * factor;
      for (int64_t at = 0; stream + 1 == c.altup.streams && at < n; ++at) x[at] *= part;
    });
    worker.barrier();
  };
  add(0);
  for (int64_t stream = 1; stream < c.altup.streams; ++stream) {
    project_rows(m, p.model.altup.out[static_cast<size_t>(stream) - 1], rows, branch,
                 [&](int64_t i) { return stream_row(p, s, stream, row_of_pass(i)); });
    add(stream);
  }
}

void make_altup_scratch(const Model& model, int64_t tokens, ScratchSizer* sizer, AltupScratch* out) {
  const ModelConfig& c = model.config;
  sizer->make(&out->streams, c.altup.streams * tokens * c.hidden_size);
  sizer->make(&out->predicted, tokens * c.hidden_size);
  sizer->make(&out->inputs, tokens * c.layers * c.layer_input.size);
  sizer->make(&out->gates, tokens * c.layer_input.size);
}

}  // namespace pinion
