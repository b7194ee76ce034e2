#include "engine/model/layer_tensors.h"

#include <cmath>

namespace pinion {
namespace {

// The row order of heads that rope rotates. rows: of a head.
RowOrder order_of_heads(const ModelConfig& c, int64_t rows) {
  return c.rope_interleaved ? RowOrder{.head_rows = rows, .pairs = c.ropes[0].dims / 2} : RowOrder{};
}

// Collects the matrices of one layer.
struct MatrixList {
  using enum MatrixRole;
  using enum DividedBy;

  const ModelConfig& c;
  int64_t layer;
  std::vector<MatrixTensor> list;

  MatrixTensor& add(MatrixRole role, const std::string& pattern, int64_t outputs, int64_t inputs, bool has_bias,
                    DividedBy divided_by) {
    return list.emplace_back(MatrixTensor{.role = role,
                                          .pattern = pattern,
                                          .layer = layer,
                                          .n = outputs,
                                          .k = inputs,
                                          .has_bias = has_bias,
                                          .divided_by = divided_by});
  }

  MatrixTensor& add_recurrent(MatrixRole role, const std::string& pattern, int64_t n) {
    return add(role, pattern, n, c.hidden_size, c.recurrence.proj_bias, first);
  }

  // The last matrix of a branch. Its bias is scaled by branch_scale, too, unless a norm follows: then the norm's output
  // is scaled.
  MatrixTensor& add_last(MatrixRole role, const std::string& pattern, int64_t inputs, bool has_bias,
                         const std::string& norm_after, float scale = 1.0f) {
    MatrixTensor& last = add(role, pattern, c.hidden_size, inputs, has_bias, panels);
    last.alpha = last.bias_scale = scale;
    if (norm_after.empty()) last.bias_scale *= c.branch_scale;
    return last;
  }

  // The rows of q (0), k (1) or v (2) in a fused tensor that holds q, k and v of head 0, then of head 1 and so on.
  RowOrder order_in_qkv(int64_t index) const {
    const int64_t d = c.head_dim;
    return {.head_rows = d, .rows = c.heads * d, .step = 3 * d, .first = index * d};
  }

  // In the file, the rotated rows of a head come last; tail_rows moves them to the front.
  void latent_attention() {
    const LatentConfig& l = c.latent;
    const bool has_query_latent = l.query_rank > 0;
    const int64_t pairs = c.rope_interleaved ? c.ropes[0].dims / 2 : 0;
    const int64_t fixed = c.head_dim - l.rope_dims, step = fixed + c.value_dim();
    if (has_query_latent) add(latent_q_a, c.names.q_a, l.query_rank, c.hidden_size, false, nothing);
    add(latent_kv_a, c.names.kv_a, l.rank, c.hidden_size, false, nothing);
    add(latent_k_rope, c.names.kv_a, l.rope_dims, c.hidden_size, false, nothing).order = {.head_rows = l.rope_dims,
                                                                                          .pairs = pairs};
    add(has_query_latent ? latent_q : q, has_query_latent ? c.names.q_b : c.names.q, c.heads * c.head_dim,
        has_query_latent ? l.query_rank : c.hidden_size, false, kv_heads)
        .order = {.head_rows = c.head_dim, .pairs = pairs, .tail_rows = l.rope_dims};
    add(latent_k, c.names.kv_b, c.heads * fixed, l.rank, false, kv_heads).order = {
        .head_rows = fixed, .rows = c.heads * fixed, .step = step, .first = 0};
    add(latent_v, c.names.kv_b, c.heads * c.value_dim(), l.rank, false, kv_heads).order = {
        .head_rows = c.value_dim(), .rows = c.heads * c.value_dim(), .step = step, .first = fixed};
    add_last(o, c.names.o, c.heads * c.value_dim(), false, c.names.attention_out_norm);
  }

  void attention() {
    if (c.latent.rank > 0) return latent_attention();
    const OutputScales& scales = c.output_scales;
    MatrixTensor& queries = add(q, c.names.q, c.heads * c.query_stride(), c.hidden_size, c.qkv_bias, kv_heads);
    queries.alpha = scales.qkv;
    queries.order = c.qkv_by_head ? order_in_qkv(0) : order_of_heads(c, c.query_stride());
    if (c.owns_kv(layer)) keys_and_values();
    if (c.laurel_rank > 0) {
      add(laurel_left, c.names.laurel_left, c.laurel_rank, c.hidden_size, false, nothing);
      add(laurel_right, c.names.laurel_right, c.hidden_size, c.laurel_rank, false, nothing);
    }
    add_last(o, c.names.o, c.heads * c.head_dim, c.o_bias, c.names.attention_out_norm, scales.o);
  }

  void keys_and_values() {
    const int64_t kv_width = c.kv_heads * c.head_dim;
    const OutputScales& scales = c.output_scales;
    MatrixTensor& keys = add(k, c.names.k, kv_width, c.hidden_size, c.qkv_bias, kv_heads);
    keys.alpha = scales.qkv * scales.key;
    keys.bias_scale = scales.key;
    keys.order = c.qkv_by_head ? order_in_qkv(1) : order_of_heads(c, c.head_dim);
    MatrixTensor& values = add(v, c.names.v, kv_width, c.hidden_size, c.qkv_bias, kv_heads);
    values.alpha = scales.qkv;
    values.order = c.qkv_by_head ? order_in_qkv(2) : RowOrder{};
  }

  // Rows [begin, begin + count) of the `all` rows that a fused tensor has for each key head. Some files have q, k, v
  // and z in one such tensor and b and a in another.
  RowOrder of_key_heads(int64_t begin, int64_t count, int64_t all) const {
    const int64_t heads = c.recurrence.key_heads;
    if (!c.recurrence.by_key_head) return {};
    return {.head_rows = count, .rows = heads * count, .step = all, .first = begin};
  }

  void delta() {
    const Recurrence& r = c.recurrence;
    const int64_t heads = r.value_heads / r.key_heads, keys = r.key_dim, values = heads * r.value_dim;
    const int64_t all = 2 * (keys + values);
    RowOrder qkv;
    if (r.by_key_head) {
      qkv.rows = r.channels();
      qkv.sections = {of_key_heads(0, keys, all), of_key_heads(keys, keys, all), of_key_heads(2 * keys, values, all)};
    }
    add_recurrent(state_qkv, c.names.state_qkv, r.channels()).order = qkv;
    add_recurrent(state_z, c.names.state_z, r.value_width()).order = of_key_heads(2 * keys + values, values, all);
    add_recurrent(state_b, c.names.state_b, r.write_gates()).order = of_key_heads(0, heads, 2 * heads);
    add_recurrent(state_a, c.names.state_a, r.value_heads).order = of_key_heads(heads, heads, 2 * heads);
  }

  // Adds matrices that are fused in one tensor in the order of their rows in it.
  void recurrence() {
    const Recurrence& r = c.recurrence;
    switch (r.kind) {
      case RecurrenceKind::gated_delta:
        delta();
        break;
      case RecurrenceKind::short_conv:
        add_recurrent(state_b, c.names.state_b, r.write_gates());
        add_recurrent(state_z, c.names.state_z, r.value_width());
        add_recurrent(state_qkv, c.names.state_qkv, r.channels());
        break;
      case RecurrenceKind::mamba2:
        add_recurrent(state_z, c.names.state_z, r.value_width()).alpha = c.output_scales.state_z;
        add_recurrent(state_qkv, c.names.state_qkv, r.channels());
        add_recurrent(state_a, c.names.state_a, r.value_heads).alpha = c.output_scales.state_a;
        break;
    }
    add_last(state_out, c.names.state_out, r.value_width(), r.out_bias, c.names.attention_out_norm,
             c.output_scales.state_out);
  }

  void mlp() {
    const int64_t size = c.mlp_size(layer);
    if (!c.names.gate.empty()) {
      MatrixTensor& gates = add(gate, c.names.gate, size, c.hidden_size, c.mlp_bias, panels);
      gates.alpha = gates.bias_scale = c.output_scales.gate;
    }
    add(up, c.names.up, size, c.hidden_size, c.mlp_bias, panels);
    add_last(down, c.names.down, size, c.mlp_bias, c.names.mlp_out_norm, c.output_scales.down);
  }

  void shared_expert() {
    const int64_t size = c.experts.shared_size;
    if (size == 0) return;
    if (!c.names.shared_weight.empty())
      add(shared_weight, c.names.shared_weight, 1, c.hidden_size, false, nothing).is_exact = true;
    if (!c.names.shared_gate.empty()) add(gate, c.names.shared_gate, size, c.hidden_size, c.mlp_bias, panels);
    add(up, c.names.shared_up, size, c.hidden_size, c.mlp_bias, panels);
    add_last(down, c.names.shared_down, size, c.mlp_bias, {});
  }

  void experts() {
    const int64_t inner = c.experts.inner_size;
    add(router, c.names.router, c.experts.count, c.hidden_size, c.experts.router_bias, nothing).is_exact = true;
    shared_expert();
    for (int64_t i = 0; i < c.experts.count; ++i) {
      if (!c.names.expert_gate.empty()) {
        add(gate, c.names.expert_gate, inner, c.hidden_size, c.mlp_bias, panels).expert = i;
      }
      add(up, c.names.expert_up, inner, c.hidden_size, c.mlp_bias, panels).expert = i;
      add_last(down, c.names.expert_down, inner, c.mlp_bias, {}).expert = i;
    }
  }
};

// Parameters of the per-layer embeddings of all layers.
int64_t layer_embeddings(const ModelConfig& c) { return c.layer_input.vocab_size * c.layers * c.layer_input.size; }

int64_t parameters_of(const MatrixTensor& m) { return m.n * m.k + (m.has_bias ? m.n : 0); }

}  // namespace

std::vector<MatrixTensor> layer_matrices(const ModelConfig& config, int64_t layer) {
  using enum MatrixRole;
  using enum DividedBy;
  MatrixList matrices{config, layer, {}};
  if (config.attends[layer]) matrices.attention();
  if (config.recurrent[layer]) matrices.recurrence();
  if (config.has_mlp(layer)) config.has_experts(layer) ? matrices.experts() : matrices.mlp();
  if (config.layer_input.size > 0) {
    matrices.add(layer_gate, config.names.layer_gate, config.layer_input.size, config.hidden_size, false, nothing);
    matrices.add(layer_out, config.names.layer_out, config.hidden_size, config.layer_input.size, false, nothing);
  }
  return std::move(matrices.list);
}

std::vector<MatrixTensor> model_matrices(const ModelConfig& config) {
  using enum MatrixRole;
  const int64_t hidden = config.hidden_size;
  std::vector<MatrixTensor> list;
  if (config.layer_input.size > 0) {
    list.push_back({layer_input, config.names.layer_input, 0, config.layers * config.layer_input.size, hidden});
    list.back().alpha = 1.0f / std::sqrt(static_cast<float>(hidden));
  }
  for (int64_t i = 0; i + 1 < config.altup.inputs; ++i)
    list.push_back({altup_in, config.names.altup_in, i, hidden, hidden});
  for (int64_t i = 0; i + 1 < config.altup.inputs; ++i)
    list.push_back({altup_out, config.names.altup_out, i, hidden, hidden});
  return list;
}

MatrixTensor head_matrix(const ModelConfig& config) {
  return {.role = MatrixRole::head,
          .pattern = config.names.head,
          .layer = 0,
          .n = config.vocab_size,
          .k = config.hidden_size,
          .has_bias = config.head_bias,
          .bias_scale = config.logit_scale,
          .divided_by = DividedBy::panels};
}

MatrixTensor mtp_matrix(const ModelConfig& config) {
  return {MatrixRole::mtp_fc, config.names.mtp_fc, 0, config.hidden_size, 2 * config.hidden_size};
}

Division division_of(const ModelConfig& config, const MatrixTensor& matrix, const Shares& shares) {
  using enum DividedBy;
  switch (matrix.divided_by) {
    case panels:
      // The head is divided by whole panels even in tests, since each panel has one most likely id.
      return {matrix.n, matrix.role == MatrixRole::head ? kPanelColumns : shares.unit};
    case kv_heads:
      return {matrix.n, matrix.n / config.kv_heads};
    case nothing:
    case first:
      break;
  }
  return {matrix.n, matrix.n};
}

RowRange own_rows(const ModelConfig& config, const MatrixTensor& matrix, const Shares& shares) {
  if (matrix.divided_by == DividedBy::nothing) return {0, matrix.n};
  return division_of(config, matrix, shares).own(shares);
}

namespace {

void add_altup(const ModelConfig& c, int64_t layer, std::vector<VectorTensor>* list) {
  const int64_t inputs = c.altup.inputs;
  const auto add = [&](VectorRole role, const std::string& name, int64_t n, int64_t rows) {
    list->push_back({.role = role, .name = module_name(name, layer), .n = n, .rows = rows});
  };
  add(VectorRole::altup_norm, c.names.altup_norm + ".weight", c.hidden_size, 0);
  list->back().offset = c.norm_offset;
  add(VectorRole::altup_router, c.names.altup_router + ".weight", inputs * c.hidden_size, inputs);
  add(VectorRole::altup_prediction, c.names.altup_prediction + ".weight", inputs * inputs * inputs, inputs * inputs);
  add(VectorRole::altup_correction, c.names.altup_correction + ".weight", inputs * inputs, inputs);
  add(VectorRole::altup_scale, c.names.altup_scale, c.hidden_size, 0);
}

}  // namespace

std::vector<VectorTensor> layer_vectors(const ModelConfig& config, int64_t layer) {
  using enum VectorRole;
  const ModelConfig& c = config;
  const ModuleNames& names = c.names;
  std::vector<VectorTensor> list;
  const auto add = [&](VectorRole role, const std::string& name, int64_t n) {
    list.push_back({role, module_name(name, layer), n});
  };
  // An empty module name: the family has no such module.
  const auto add_weight = [&](VectorRole role, const std::string& module, int64_t n) {
    if (!module.empty()) list.push_back({role, module_name(module, layer) + ".weight", n, c.norm_offset});
  };
  const auto add_norm = [&](VectorRole weight, VectorRole bias, const std::string& module) {
    add_weight(weight, module, c.hidden_size);
    if (c.norm_bias && !module.empty()) add(bias, module + ".bias", c.hidden_size);
  };
  const bool has_mixer = c.attends[layer] || c.recurrent[layer];
  if (has_mixer) add_norm(attention_norm, attention_norm_bias, names.attention_norm);
  if (c.recurrent[layer]) {
    const Recurrence& r = c.recurrence;
    add(state_conv, names.state_conv + ".weight", r.channels() * r.taps);
    if (r.conv_bias) add(state_conv_bias, names.state_conv + ".bias", r.channels());
    if (r.has_heads()) {
      add(state_rate, names.state_rate, r.value_heads);
      add(state_step, names.state_step, r.value_heads);
    }
    if (r.kind == RecurrenceKind::mamba2) add(state_skip, names.state_skip, r.value_heads);
    if (r.norm_width() > 0) add(state_norm, names.state_norm + ".weight", r.norm_width());
  }
  if (c.attends[layer]) {
    if (c.qk_norm != QkNorm::none) {
      const auto add_head_norm = [&](VectorRole role, const std::string& module, int64_t heads) {
        list.push_back({role, module_name(module, layer) + ".weight", c.qk_norm_rows(heads) * c.head_dim, c.norm_offset,
                        order_of_heads(c, c.head_dim), c.qk_norm == QkNorm::layer_norm_heads});
      };
      add_head_norm(q_norm, names.q_norm, c.heads);
      if (c.owns_kv(layer)) add_head_norm(k_norm, names.k_norm, c.kv_heads);
    }
    if (c.latent.query_rank > 0) add(latent_q_norm, names.q_a_norm + ".weight", c.latent.query_rank);
    if (c.latent.rank > 0) add(latent_kv_norm, names.kv_a_norm + ".weight", c.latent.rank);
    if (!names.sinks.empty()) add(sinks, names.sinks, c.heads);
    add_weight(o_norm, names.o_norm, c.heads * c.head_dim);
  }
  if (has_mixer) add_norm(attention_out_norm, attention_out_norm_bias, names.attention_out_norm);
  add_weight(laurel_norm, names.laurel_norm, c.hidden_size);
  if (c.altup.inputs > 0) add_altup(c, layer, &list);
  add_weight(layer_out_norm, names.layer_out_norm, c.hidden_size);
  if (!c.has_mlp(layer)) return list;
  if (!c.shared_norm) add_norm(mlp_norm, mlp_norm_bias, names.mlp_norm);
  if (c.has_experts(layer)) {
    if (!names.router_correction.empty()) add(router_correction, names.router_correction, c.experts.count);
    return list;
  }
  if (c.activation == Activation::xielu) {
    add(xielu_alpha_p, names.xielu + ".alpha_p", 1);
    add(xielu_alpha_n, names.xielu + ".alpha_n", 1);
    add(xielu_beta, names.xielu + ".beta", 1);
    add(xielu_eps, names.xielu + ".eps", 1);
  }
  add_weight(down_norm, names.down_norm, c.mlp_size(layer));
  add_norm(mlp_out_norm, mlp_out_norm_bias, names.mlp_out_norm);
  return list;
}

ParameterCounts count_parameters(const ModelConfig& config) {
  const int64_t embedding = config.vocab_size * config.hidden_size;
  ParameterCounts counts = {embedding * (config.tied_head ? 1 : 2) + config.hidden_size * (config.norm_bias ? 2 : 1),
                            0};
  if (config.head_bias) counts.all += config.vocab_size;
  for (const MatrixTensor& matrix : model_matrices(config)) counts.all += parameters_of(matrix);
  counts.all += layer_embeddings(config) + config.layer_input.size;
  for (int64_t layer = 0; layer < config.layers; ++layer) {
    for (const VectorTensor& vector : layer_vectors(config, layer)) counts.all += vector.n;
    for (const MatrixTensor& matrix : layer_matrices(config, layer)) {
      counts.all += parameters_of(matrix);
      if (matrix.expert != kNoExpert) counts.in_experts += parameters_of(matrix);
    }
  }
  return counts;
}

int64_t active_parameters(const ModelConfig& config) {
  const ParameterCounts counts = count_parameters(config);
  return counts.all - layer_embeddings(config) - counts.in_experts + config.experts.max_active(counts.in_experts, 1);
}

}  // namespace pinion
