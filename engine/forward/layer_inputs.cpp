#include "engine/forward/layer_inputs.h"

#include <cmath>

#include "engine/forward/mlp.h"
#include "kernels/half.h"
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
  for (int64_t i = 0; i < c.size; ++i) {
    input[i] = (input[i] + to_float(to_bf16(scratch[i])) * scale) * kRootOfHalf;
  }
}

// The gated layer input, as the input of layer_out.
Input gated_input(Worker& worker, const Pass& p, LayerInputScratch& s, const Layer& layer, int64_t index) {
  const int64_t size = p.model.config.layer_input.size, layers = p.model.config.layers;
  const Multiplier m = begin_stage(worker, p, Stage::layer_out);
  const Input in =
      prepare(m, p.rows, size, forms_of(layer, {Stage::layer_out}), [&](int64_t first, int64_t count, float* out) {
        for (int64_t row = first; row < first + count; ++row) {
          const float* input = s.inputs.data() + (row * layers + index) * size;
          gate_row(p, s.gates.data() + row * size, input, size, out + (row - first) * size);
        }
        return out;
      });
  trace_input(worker, p.trace, index, Stage::layer_out, in);
  return in;
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
  trace_input(worker, p.trace, index, Stage::layer_gate, scaled);
  project(m, scaled, {{&layer[MatrixRole::layer_gate], s.gates.data()}});
  const Input gated = gated_input(worker, p, s, layer, index);
  project(begin_stage(worker, p, Stage::layer_out), gated, {{&layer[MatrixRole::layer_out], out}});
}

}  // namespace pinion
