#include "engine/forward/forward.h"

#include "engine/forward/head.h"
#include "engine/forward/mlp.h"
#include "loader/checkpoint/number_formats.h"

namespace pinion {
namespace {

// The residual stream, or `branch`, as the input of some matrices, normed if the layer has this norm.
Input normalized(const Multiplier& m, const Pass& p, const Vector& norm, InputForms forms, bool of_branch = false) {
  const int64_t k = p.model.config.hidden_size;
  const float* x = of_branch ? p.activations.branch.data() : p.activations.x.data();
  return prepare(m, p.rows, k, forms, [&](int64_t first, int64_t count, float* out) -> const float* {
    if (!norm.weight) return x + first * k;
    for (int64_t r = 0; r < count; ++r) normalize(p, norm, x + (first + r) * k, out + r * k);
    return out;
  });
}

// The input of a layer's first matrices.
Input attention_input(Worker& worker, const Pass& p, const Layer& layer) {
  const Multiplier m = begin_stage(worker, p, Stage::attention_norm);
  const InputForms forms =
      p.model.config.shared_norm ? forms_of(layer, {Stage::qkv, Stage::gate_up}) : forms_of(layer, {Stage::qkv});
  return normalized(m, p, layer[VectorRole::attention_norm], forms, layer.follows_block);
}

// The input of the head: the final norm of the rows that get logits; some models have a dense layer behind it.
Input head_input(const Multiplier& m, const Pass& p) {
  const int64_t k = p.model.config.hidden_size;
  const std::vector<int32_t>& rows = p.activations.rows_with_logits;
  const Linear &head = p.model.head, &dense = p.model.head_dense;
  const bool is_last = dense.rows.count == 0;
  const Input last =
      prepare(m, std::ssize(rows), k, forms_of(is_last ? head : dense), [&](int64_t first, int64_t count, float* out) {
        for (int64_t r = 0; r < count; ++r) {
          normalize(p, p.model.final_norm, p.activations.x.data() + rows[first + r] * k, out + r * k);
        }
        return out;
      });
  if (is_last) return last;
  float* activated = p.activations.branch.data();
  project_activated(m, last, {}, dense, gating_of(p.model.config, p.model.layers.front()), activated);
  return prepare(m, std::ssize(rows), k, forms_of(head), [&](int64_t first, int64_t count, float* out) {
    for (int64_t r = 0; r < count; ++r) normalize(p, p.model.head_norm, activated + (first + r) * k, out + r * k);
    return out;
  });
}

// Row `id` of the embedding, rounded to bf16 like all weights.
void embed_row(const Model& model, int64_t id, float* out) {
  const ModelConfig& c = model.config;
  read_row(model.embedding, id, out);
  for (int64_t i = 0; i < c.hidden_size; ++i) out[i] = to_float(to_bf16(out[i])) * c.embedding_scale;
}

// x += the embedding of a position, rounded in the same way.
void add_position(const Model& model, int64_t position, float* scratch, float* x) {
  const ModelConfig& c = model.config;
  read_row(model.positions, c.position_rows - c.max_positions + position, scratch);
  for (int64_t i = 0; i < c.hidden_size; ++i) x[i] += to_float(to_bf16(scratch[i]));
}

// x = embeddings of the tokens, and the rope angles of their positions.
void embed(Worker& worker, const Pass& p) {
  const ModelConfig& c = p.model.config;
  Activations& s = p.activations;
  worker.for_each(2 * p.rows, [&](int64_t task) {
    const int64_t row = task / 2;
    const Segment& segment = p.segment_of(row);
    const int64_t token = row - segment.row, position = segment.position + token;
    if (task % 2 == 0) {
      if (p.model.reads_hidden()) return;
      float* x = s.x.data() + row * c.hidden_size;
      embed_row(p.model, segment.tokens[token], x);
      if (c.position_rows > 0) add_position(p.model, position, row_scratch(p, worker), x);
      if (p.model.embedding_norm.weight) normalize(p, p.model.embedding_norm, x, x);
    } else {
      for (size_t i = 0; i < c.ropes.size(); ++i) {
        const int64_t at = row * c.ropes[i].dims / 2;
        s.angles[i].query_scale[row] = query_scale(c.ropes[i], position);
        rope_angles(segment.ropes[i], position, s.angles[i].cos.data() + at, s.angles[i].sin.data() + at);
      }
    }
  });
  worker.barrier();
}

// x = the input of an MTP layer, from the next tokens' embeddings and the hidden states before them.
void join_hidden(Worker& worker, const Pass& p) {
  const MtpInput& mtp = p.model.mtp;
  const int64_t width = p.model.config.hidden_size;
  const Multiplier m = begin_stage(worker, p, Stage::embed);
  const Input both = prepare(m, p.rows, 2 * width, forms_of(mtp.fc), [&](int64_t first, int64_t count, float* out) {
    for (int64_t row = first; row < first + count; ++row, out += 2 * width) {
      const Segment& segment = p.segment_of(row);
      const int64_t token = row - segment.row;
      embed_row(p.model, segment.tokens[token], out);
      normalize(p, mtp.embedding_norm, out, out);
      normalize(p, mtp.hidden_norm, segment.hidden + token * width, out + width);
    }
    return out - count * 2 * width;
  });
  project(m, both, {{&mtp.fc, p.activations.x.data()}});
}

// x = factor (x + scale norm(branch)). Without weights there is no norm.
void add_normed(Worker& worker, const Pass& p, const Vector& norm, float factor) {
  const ModelConfig& c = p.model.config;
  worker.for_each(p.rows, [&](int64_t row) {
    float* x = p.activations.x.data() + row * c.hidden_size;
    float* branch = p.activations.branch.data() + row * c.hidden_size;
    if (norm.weight) normalize(p, norm, branch, branch);
    for (int64_t i = 0; i < c.hidden_size; ++i) x[i] = (x[i] + c.branch_scale * branch[i]) * factor;
  });
  worker.barrier();
}

// x += scale W in, or x = factor (x + scale norm(W in)) in families with a norm after the branch.
void add_branch(const Multiplier& m, const Pass& p, const Input& in, const Linear& linear, const Vector& norm,
                float factor = 1.0f) {
  const ModelConfig& c = p.model.config;
  Activations& s = p.activations;
  if (!norm.weight) {
    project(m, in, {{&linear, s.x.data()}}, {.alpha = c.branch_scale, .beta = 1});
    return gather(m.worker, p, s.x.data(), p.rows, linear.rows);
  }
  project(m, in, {{&linear, s.branch.data()}});
  gather(m.worker, p, s.branch.data(), p.rows, linear.rows);
  add_normed(m.worker, p, norm, factor);
}

void trace_x(const Worker& worker, const Pass& p, TracePoint after) {
  const int64_t floats = p.rows * p.model.config.hidden_size;
  trace_residual(worker, p.trace, std::span(p.activations.x).first(floats), after);
}

// Adds the branches of attention and of a recurrent state. Both read the same input x: the outputs of the state are
// kept in its scratch while attention changes the residual stream.
void add_attention(Worker& worker, const Pass& p, Scratch& s, const Layer& layer, const Input& x, int64_t index) {
  trace_input(worker, p.trace, {index, Stage::qkv}, x);
  if (layer.recurrent) recur(worker, p, s.recurrent, layer, x, index);
  if (layer.attends) {
    const Input attended = attend(worker, p, s.attention, layer, x, index);
    trace_input(worker, p.trace, {index, Stage::o}, attended);
    add_branch(begin_stage(worker, p, Stage::o), p, attended, layer[MatrixRole::o],
               layer[VectorRole::attention_out_norm]);
    if (p.model.config.laurel_rank > 0) add_laurel(worker, p);
  }
  if (layer.recurrent) {
    const Input mixed = recurrent_output(worker, p, s.recurrent, layer);
    trace_input(worker, p.trace, {index, Stage::state_out}, mixed);
    add_branch(begin_stage(worker, p, Stage::state_out), p, mixed, layer[MatrixRole::state_out],
               layer[VectorRole::attention_out_norm]);
  }
}

// The layer's factor of x behind its last branch.
float factor_of(const Layer& layer) {
  const float* scalar = layer[VectorRole::layer_scalar].weight;
  return scalar ? *scalar : 1.0f;
}

// Per-layer embeddings without AltUp are a branch behind the mlp.
bool has_input_branch(const ModelConfig& c) { return c.layer_input.size > 0 && c.altup.inputs == 0; }

float factor_after_mlp(const Pass& p, const Layer& layer) {
  return has_input_branch(p.model.config) ? 1.0f : factor_of(layer);
}

void add_down(Worker& worker, const Pass& p, const Layer& layer, int64_t index) {
  const Input in = activated_input(worker, p, layer, index);
  add_branch(begin_stage(worker, p, Stage::down), p, in, layer[MatrixRole::down], layer[VectorRole::mlp_out_norm],
             factor_after_mlp(p, layer));
}

// Experts beside an mlp (Gemma 4): both have norms of their own, and so has their sum.
void add_mlp_and_experts(Worker& worker, const Pass& p, Scratch& s, const Layer& layer, const Input& y, int64_t index) {
  const Linear& down = layer[MatrixRole::down];
  const int64_t width = p.model.config.hidden_size;
  float* branch = p.activations.branch.data();
  activate(worker, p, layer, y, index);
  const Input in = activated_input(worker, p, layer, index);
  project(begin_stage(worker, p, Stage::down), in, {{&down, branch}});
  gather(worker, p, branch, p.rows, down.rows);
  const Multiplier m = begin_stage(worker, p, Stage::router);
  route(worker, p, s.experts, layer,
        normalized(m, p, layer[VectorRole::router_scale], forms_of(layer, {Stage::router})));
  const bool is_single = p.rows == 1;
  add_experts(worker, p, s.experts, layer,
              is_single ? normalized(m, p, layer[VectorRole::expert_norm], {.values = true}) : Input{}, index);
  worker.for_each(p.rows, [&](int64_t row) {
    float *to = branch + row * width, *sum = s.experts.sums.data() + row * width;
    normalize(p, layer[VectorRole::shared_out_norm], to, to);
    normalize(p, layer[VectorRole::expert_out_norm], sum, sum);
    for (int64_t i = 0; i < width; ++i) to[i] += sum[i];
  });
  worker.barrier();
  add_normed(worker, p, layer[VectorRole::mlp_out_norm], factor_after_mlp(p, layer));
}

// Adds the shared expert and the experts to the stream, or sums them in `branch`.
void add_mixture(Worker& worker, const Pass& p, Scratch& s, const Layer& layer, const Input& y, int64_t index) {
  if (layer[MatrixRole::up].rows.count == 0) trace_input(worker, p.trace, {index, Stage::gate_up}, y);
  route(worker, p, s.experts, layer, y);
  if (layer[MatrixRole::up].rows.count > 0) {  // the shared expert; its output stays in `branch` while others read x
    activate(worker, p, layer, y, index);
    const Input in = activated_input(worker, p, layer, index);
    project(begin_stage(worker, p, Stage::down), in, {{&layer[MatrixRole::down], p.activations.branch.data()}},
            {.alpha = sums_experts(p.model.config, layer) ? 1.0f : p.model.config.branch_scale});
  }
  add_experts(worker, p, s.experts, layer, y, index);
}

void add_mlp(Worker& worker, const Pass& p, Scratch& s, const Layer& layer, int64_t index) {
  const bool is_apart = layer[VectorRole::expert_norm].weight;  // the router reads another input
  const Input y =
      normalized(begin_stage(worker, p, Stage::mlp_norm), p, layer[VectorRole::mlp_norm],
                 is_apart ? forms_of(layer, {Stage::gate_up}) : forms_of(layer, {Stage::router, Stage::gate_up}));
  if (is_apart) return add_mlp_and_experts(worker, p, s, layer, y, index);
  const Vector& norm = layer[VectorRole::mlp_out_norm];
  if (layer.experts.empty()) {
    activate(worker, p, layer, y, index);
    return add_down(worker, p, layer, index);
  }
  add_mixture(worker, p, s, layer, y, index);
  if (norm.weight) add_normed(worker, p, norm, factor_after_mlp(p, layer));
}

// Parallel branches: x is updated only after both have read it. Attention leaves the mlp's activations alone.
void add_parallel_branches(Worker& worker, const Pass& p, Scratch& s, const Layer& layer, int64_t index) {
  if (p.model.config.shared_norm) {
    const Input both = attention_input(worker, p, layer);
    activate(worker, p, layer, both, index);
    add_attention(worker, p, s, layer, both, index);
  } else {
    const Input y = normalized(begin_stage(worker, p, Stage::mlp_norm), p, layer[VectorRole::mlp_norm],
                               forms_of(layer, {Stage::router, Stage::gate_up}));
    layer.has_experts ? add_mixture(worker, p, s, layer, y, index) : activate(worker, p, layer, y, index);
    add_attention(worker, p, s, layer, attention_input(worker, p, layer), index);
  }
  trace_x(worker, p, {index, Stage::o});
  if (p.trace) worker.barrier();  // trace_x reads x, and for a single row down would change it without a barrier before
  layer.has_experts ? add_normed(worker, p, {}, 1.0f) : add_down(worker, p, layer, index);
}

// Zamba's block of attention and an mlp, without residuals: branch = x + its output, for the recurrence behind it.
void add_block(Worker& worker, const Pass& p, Scratch& s, const Layer& layer, int64_t index) {
  const ModelConfig& c = p.model.config;
  const int64_t width = c.hidden_size;
  Activations& a = p.activations;
  const auto multiply = [&](Stage stage, const Input& in, const Linear& linear, std::vector<float>& out, float beta) {
    project(begin_stage(worker, p, stage), in, {{&linear, out.data()}}, {.beta = beta});
    gather(worker, p, out.data(), p.rows, linear.rows);
  };
  const auto joined = [&](int64_t first, int64_t count, float* out) {  // with the embedding
    for (int64_t row = first; row < first + count; ++row, out += 2 * width) {
      const Segment& segment = p.segment_of(row);
      std::copy_n(a.x.data() + row * width, width, out);
      embed_row(p.model, segment.tokens[row - segment.row], out + width);
      p.kernels.rms_norm(out, layer[VectorRole::attention_norm].weight, 2 * width, c.norm_eps, out);
    }
    return out - count * 2 * width;
  };
  const Input both =
      prepare(begin_stage(worker, p, Stage::attention_norm), p.rows, 2 * width, forms_of(layer, {Stage::qkv}), joined);
  trace_input(worker, p.trace, {index, Stage::qkv}, both);
  const Input attended = attend(worker, p, s.attention, layer, both, index);
  trace_input(worker, p.trace, {index, Stage::o}, attended);
  multiply(Stage::o, attended, layer[MatrixRole::o], a.branch, 0);
  const Input y = normalized(begin_stage(worker, p, Stage::mlp_norm), p, layer[VectorRole::mlp_norm],
                             forms_of(layer, {Stage::gate_up}), true);
  activate(worker, p, layer, y, index);
  worker.for_each(p.rows,
                  [&](int64_t row) { std::copy_n(a.x.data() + row * width, width, a.branch.data() + row * width); });
  multiply(Stage::down, activated_input(worker, p, layer, index), layer[MatrixRole::down], a.attended, 0);
  const Input out = narrow_input(worker, p, Stage::layer_out, a.attended, width, nullptr, 0.0f, layer, index);
  multiply(Stage::layer_out, out, layer[MatrixRole::layer_out], a.branch, 1);
}

// Writes the final norm of all rows to Pass::hidden. No barrier: only the caller of the pass reads it.
void store_hidden(Worker& worker, const Pass& p) {
  begin_stage(worker, p, Stage::final_norm);
  worker.for_each(p.rows, [&](int64_t row) {
    const int64_t at = row * p.model.config.hidden_size;
    normalize(p, p.model.final_norm, p.activations.x.data() + at, p.hidden + at);
  });
}

// Sizes the buffers for models without experts (E = 1); make_expert_scratch() enlarges them.
void make_activations(const Model& model, const Kernels& kernels, int64_t tokens, int32_t workers, ScratchSizer* sizer,
                      Activations* out) {
  const ModelConfig& c = model.config;
  Activations& s = *out;
  sizer->make(&s.x, tokens * c.hidden_size);
  const bool has_out_norms = std::ranges::any_of(model.layers, [&](const Layer& l) {
    return l.is_block || l[VectorRole::attention_out_norm].weight || sums_experts(model.config, l);
  });
  if (has_out_norms || c.experts.shared_size > 0 || model.head_dense.rows.count > 0)
    sizer->make(&s.branch, tokens * c.hidden_size);
  sizer->make(&s.attended, tokens * std::max(c.hidden_size, c.largest(&LayerConfig::attended)));
  sizer->make(&s.activation, tokens * max_rows(model, MatrixRole::up));
  const bool has_cuts = std::ranges::any_of(model.layers, [](const Layer& l) { return l.gate_cut.has_value(); });
  if (has_cuts) sizer->make(&s.gates, tokens * max_rows(model, MatrixRole::gate));
  sizer->make(&s.laurel_narrow, tokens * c.laurel_rank);
  if (c.laurel_rank > 0) sizer->make(&s.laurel, tokens * c.hidden_size);
  for (const Rope& rope : c.ropes) {
    RopeAngles& angles = s.angles.emplace_back();
    sizer->make(&angles.cos, tokens * rope.dims / 2);
    sizer->make(&angles.sin, tokens * rope.dims / 2);
    sizer->make(&angles.query_scale, tokens);
  }
  sizer->make(&s.panel_best, tokens * panel_count(c.vocab_size));
  if (model.head.weight.format == Format::w8h) {
    sizer->make(&s.head_bounds, std::min(tokens, kMaxRankedRows) * workers * kMaxCandidates);
  }
  sizer->make(&s.segment_of, tokens);
  sizer->make(&s.rows_with_logits, tokens);
  sizer->make(&s.gathered, gather_floats(model, tokens));
  make_candidate_buffers(model, tokens, sizer, &s.candidates);

  InputForms forms;
  int64_t widest = c.hidden_size;
  const auto add_input = [&](const Linear& linear) {
    forms.add(linear.weight);
    widest = std::max(widest, linear.weight.k);
  };
  model.each_outer_matrix(add_input);
  for (const Layer& layer : model.layers) {
    std::ranges::for_each(layer.matrix, add_input);
    for (const LatentHead& head : layer.latent_heads) std::ranges::for_each(head.matrix, add_input);
  }
  const int64_t rows = std::max(packed_rows(kernels.s8_shape, tokens), packed_rows(kernels.f32_shape, tokens));
  s.inputs.make(sizer, forms, rows, widest);
  const int64_t widest_of_head = std::max(c.latent.rank, c.latent.nope_dims);
  if (c.latent.rank > 0) s.inputs.make(sizer, forms, rows * c.largest(&LayerConfig::heads), widest_of_head);
  s.local_inputs.resize(workers);
  for (LocalInputBuffers& local : s.local_inputs) {
    local.make(sizer, forms, std::max(kernels.s8_shape.rows, kernels.f32_shape.rows), widest);
  }
}

}  // namespace

void forward(Worker& worker, const Pass& p, Scratch& s) {
  const ModelConfig& c = p.model.config;
  if (p.profile) {
    WorkerProfile& profile = p.profile->workers[worker.index];
    profile.begin();
    worker.listener = &profile;
  }
  embed(worker, p);
  if (p.model.reads_hidden()) join_hidden(worker, p);
  if (c.layer_input.size > 0) begin_layer_inputs(worker, p, s.layer_inputs);
  if (c.altup.inputs > 0) begin_altup(worker, p, s.altup);
  trace_x(worker, p, {kNoLayer, Stage::embed});
  const int64_t layers = p.trace && p.trace->moments ? p.trace->moments->layers() : c.layers;
  for (int64_t i = 0; i < layers; ++i) {
    const Layer& layer = p.model.layers[i];
    if (c.altup.inputs > 0) predict_altup(worker, p, s.altup, layer);
    if (layer.is_block) {
      add_block(worker, p, s, layer, i);
    } else if (c.parallel_branches) {
      add_parallel_branches(worker, p, s, layer, i);
    } else {
      if (layer.attends || layer.recurrent) {
        add_attention(worker, p, s, layer, attention_input(worker, p, layer), i);
        trace_x(worker, p, {i, Stage::o});
      }
      if (layer.has_mlp) add_mlp(worker, p, s, layer, i);
    }
    if (has_input_branch(c)) {
      project_layer_input(worker, p, s.layer_inputs, layer, i, p.activations.x.data(), nullptr,
                          p.activations.branch.data());
      add_normed(worker, p, layer[VectorRole::layer_out_norm], factor_of(layer));
    }
    trace_x(worker, p, {i, Stage::down});
    if (c.altup.inputs > 0) correct_altup(worker, p, s.altup, s.layer_inputs, layer, i);
  }
  if (p.hidden) store_hidden(worker, p);
  if (p.activations.rows_with_logits.empty()) return;
  if (c.altup.inputs > 0) join_altup(worker, p, s.altup);
  const Input last = head_input(begin_stage(worker, p, Stage::final_norm), p);
  const Multiplier m = begin_stage(worker, p, Stage::head);
  const Epilogue after = {.alpha = c.logit_scale, .cap = c.logit_cap};
  if (p.model.head.weight.low) {
    project_head(m, p, last, after);
  } else {
    project(m, last, {{&p.model.head, p.logits, p.activations.panel_best.data()}}, after);
  }
  gather_logits(worker, p, last.rows);
}

void plan(const Pass& p, Scratch* s) {
  Activations& a = s->activations;
  a.rows_with_logits.clear();
  for (const Segment& segment : p.segments) {
    const auto index = static_cast<int32_t>(&segment - p.segments.data());
    std::fill_n(a.segment_of.begin() + segment.row, segment.size(), index);
    for (int64_t i = segment.size() - segment.logit_rows; i < segment.size(); ++i) {
      a.rows_with_logits.push_back(static_cast<int32_t>(segment.row + i));
    }
  }
  plan_attention(p, &s->attention);
}

void make_scratch(const Model& model, const Kernels& kernels, int64_t tokens, int64_t positions, int32_t workers,
                  ScratchSizer* sizer, Scratch* out) {
  make_activations(model, kernels, tokens, workers, sizer, &out->activations);
  make_attention_scratch(model, tokens, positions, workers, sizer, &out->attention);
  make_recurrent_scratch(model.config, tokens, workers, sizer, &out->recurrent);
  make_expert_scratch(model, kernels, tokens, sizer, &out->activations, &out->experts);
  make_layer_input_scratch(model, tokens, sizer, &out->layer_inputs);
  make_altup_scratch(model, tokens, sizer, &out->altup);
}

}  // namespace pinion
