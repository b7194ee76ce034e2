// Models of random weights, made straight in the packed form.
#include <omp.h>

#include <cstring>

#include "engine/memory.h"
#include "engine/model.h"
#include "engine/weight_format.h"
#include "kernels/f16.h"
#include "loader/json.h"
#include "loader/mapped_file.h"
#include "loader/pack.h"

namespace pinion {
namespace {

// SplitMix64 (Steele et al. 2014) of a counter.
uint64_t random_bits(uint64_t counter) {
  uint64_t z = (counter + 1) * 0x9e3779b97f4a7c15u;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

// Codes in [-127, 127], about uniform.
void random_codes(std::byte* panel, int64_t bytes, uint64_t seed) {
  for (int64_t i = 0; i < bytes; i += 8) {
    uint64_t eight = random_bits(seed + static_cast<uint64_t>(i));
    for (int b = 0; b < 64; b += 8) {
      if ((eight >> b & 0xff) == 0x80) eight += uint64_t{1} << b;  // -128 is not a code
    }
    std::memcpy(panel + i, &eight, 8);
  }
}

// Magnitudes in [2^-7, 2^-5): small enough that sums stay tame.
void random_bf16(std::byte* row, int64_t bytes, uint64_t seed) {
  for (int64_t i = 0; i < bytes; i += 8) {
    const uint64_t four = (random_bits(seed + static_cast<uint64_t>(i)) & 0x80ff80ff80ff80ffu) | 0x3c003c003c003c00u;
    std::memcpy(row + i, &four, static_cast<size_t>(std::min<int64_t>(8, bytes - i)));
  }
}

// The scales and column sums of a w8 panel whose codes stand.
void describe_panel(const int8_t* codes, int64_t k, float* scale, int32_t* column_sum) {
  std::fill_n(scale, kPanelColumns, 2.4e-4f);  // about 0.03 at the most: as in_features of 1000 usually have
  std::fill_n(column_sum, kPanelColumns, 0);
  for (int64_t i = 0; i < padded_k(k) * kPanelColumns; ++i) column_sum[i / 4 % kPanelColumns] += codes[i];
}

// Records of w4: any nibble is a code; the scales are 4.
void random_records(std::byte* panel, int64_t bytes, uint64_t seed) {
  const std::vector<f16> scales(kPanelColumns, to_f16(4.0f));
  for (int64_t at = 0; at < bytes; at += w4_record_bytes(false)) {
    for (int64_t i = at; i < at + kW4CodeBytes; i += 8) {
      const uint64_t eight = random_bits(seed + static_cast<uint64_t>(i));
      std::memcpy(panel + i, &eight, 8);
    }
    std::memcpy(panel + at + kW4CodeBytes, scales.data(), kPanelColumns * sizeof(f16));
  }
}

// A matrix that is placed.
void fill_matrix(const Matrix& m, uint64_t seed, int threads) {
  const int64_t bytes = panel_bytes(m.format, m.k);
  auto* scale = const_cast<float*>(m.scale);
  auto* column_sum = const_cast<int32_t*>(m.column_sum);
#pragma omp parallel for num_threads(threads)
  for (int64_t p = 0; p < panel_count(m.n); ++p) {
    auto* panel = const_cast<std::byte*>(panel_of(m, p));
    const uint64_t panel_seed = seed + static_cast<uint64_t>(p * bytes);
    if (m.format == Format::w8) {
      random_codes(panel, bytes, panel_seed);
      describe_panel(reinterpret_cast<const int8_t*>(panel), m.k, scale + p * kPanelColumns,
                     column_sum + p * kPanelColumns);
    } else if (m.format == Format::w4) {
      random_records(panel, bytes, panel_seed);
      std::fill_n(scale + p * kPanelColumns, kPanelColumns, 0x1p-10f);
    } else {
      random_bf16(panel, bytes, panel_seed);
    }
  }
}

const float* constant_vector(Model* model, int64_t n, float value) {
  auto values = std::make_unique<float[]>(static_cast<size_t>(n));
  std::fill_n(values.get(), n, value);
  model->vectors.push_back(std::move(values));
  model->parameters += n;
  return model->vectors.back().get();
}

void shape_layer(Model* model, int64_t index, const LoadOptions& options, Layer* layer,
                 std::vector<Matrix*>* matrices) {
  const ModelConfig& c = model->config;
  const GatedDelta& d = c.delta;
  const int64_t q = c.heads * c.head_dim;
  const int64_t kv = c.kv_heads * c.head_dim;
  const auto linear = [&](const std::string& name, int64_t n, int64_t k, bool bias, Linear* out) {
    const Format format = weight_format(options, module_name(name, index) + ".weight", false);
    out->weight = {.format = format, .n = n, .k = k, .rotation = weight_rotation(options, format, k)};
    if (bias) out->bias = constant_vector(model, n, 0.01f);
    model->parameters += n * k;
    matrices->push_back(&out->weight);
  };
  const auto put_in_turns = [](Linear* gate, Linear* up) {
    gate->weight.in_turns = up->weight.in_turns = turns_of(gate->weight, up->weight);
  };
  const auto norm = [&](const std::string& name, int64_t n, const float** out) {
    *out = name.empty() ? nullptr : constant_vector(model, n, 1.0f);
  };
  const bool whole = c.qk_norm == QkNorm::all_heads;
  norm(c.names.attention_norm, c.hidden_size, &layer->attention_norm);
  norm(c.names.attention_out_norm, c.hidden_size, &layer->attention_out_norm);
  norm(c.names.mlp_norm, c.hidden_size, &layer->mlp_norm);
  norm(c.names.mlp_out_norm, c.hidden_size, &layer->mlp_out_norm);
  place_layer(c, index, layer);
  if (layer->recurrent) {
    linear(c.names.delta_qkv, d.channels(), c.hidden_size, false, &layer->delta.qkv);
    linear(c.names.delta_z, d.value_width(), c.hidden_size, false, &layer->delta.z);
    linear(c.names.delta_b, d.value_heads, c.hidden_size, false, &layer->delta.b);
    linear(c.names.delta_a, d.value_heads, c.hidden_size, false, &layer->delta.a);
    layer->delta.conv = constant_vector(model, d.channels() * d.taps, 0.5f);
    layer->delta.rate = constant_vector(model, d.value_heads, 0.2f);
    layer->delta.step = constant_vector(model, d.value_heads, 0.1f);
    layer->delta.norm = constant_vector(model, d.value_dim, 1.0f);
    linear(c.names.delta_out, c.hidden_size, d.value_width(), false, &layer->o);
  } else {
    norm(c.names.q_norm, whole ? q : c.head_dim, &layer->q_norm);
    norm(c.names.k_norm, whole ? kv : c.head_dim, &layer->k_norm);
    linear(c.names.q, c.attention_gate ? 2 * q : q, c.hidden_size, c.qkv_bias, &layer->q);
    linear(c.names.k, kv, c.hidden_size, c.qkv_bias, &layer->k);
    linear(c.names.v, kv, c.hidden_size, c.qkv_bias, &layer->v);
    linear(c.names.o, c.hidden_size, q, c.o_bias, &layer->o);
    if (!c.names.sinks.empty()) layer->sinks = constant_vector(model, c.heads, 1.0f);
  }
  if (!c.has_experts(index)) {
    linear(c.names.gate, c.intermediate_size, c.hidden_size, c.mlp_bias, &layer->gate);
    linear(c.names.up, c.intermediate_size, c.hidden_size, c.mlp_bias, &layer->up);
    put_in_turns(&layer->gate, &layer->up);
    linear(c.names.down, c.hidden_size, c.intermediate_size, c.mlp_bias, &layer->down);
    return;
  }
  linear(c.names.router, c.experts.count, c.hidden_size, c.experts.router_bias, &layer->router);
  layer->router.weight.format = Format::bf16;
  layer->router.weight.rotation = 1;
  layer->experts.resize(static_cast<size_t>(c.experts.count));
  for (int64_t i = 0; i < c.experts.count; ++i) {
    Expert& expert = layer->experts[static_cast<size_t>(i)];
    const int64_t inner = c.experts.inner_size, parameters = model->parameters;
    linear(module_name(c.names.expert_gate, index, i), inner, c.hidden_size, c.mlp_bias, &expert.gate);
    linear(module_name(c.names.expert_up, index, i), inner, c.hidden_size, c.mlp_bias, &expert.up);
    put_in_turns(&expert.gate, &expert.up);
    linear(module_name(c.names.expert_down, index, i), c.hidden_size, inner, c.mlp_bias, &expert.down);
    model->expert_parameters += model->parameters - parameters;
    for (const Linear* m : {&expert.gate, &expert.up, &expert.down}) {
      model->expert_bytes += packed_bytes(m->weight.format, m->weight.n, m->weight.k);
    }
  }
}

}  // namespace

Error synthetic_model(const std::string& config_path, const LoadOptions& options, std::unique_ptr<Model>* out) {
  std::string text;
  if (Error e = read_text_file(config_path, kMaxJsonBytes, &text)) return e;
  auto model = std::make_unique<Model>();
  if (Error e = parse_model_config(text, config_path, &model->config)) return e;
  if (Error e = check_head_format(options, model->config)) return e;
  const ModelConfig& c = model->config;
  model->quant = options.quant;

  std::vector<Matrix*> matrices;
  model->layers.resize(static_cast<size_t>(c.layers));
  for (int64_t i = 0; i < c.layers; ++i) {
    shape_layer(model.get(), i, options, &model->layers[static_cast<size_t>(i)], &matrices);
  }
  model->final_norm = constant_vector(model.get(), c.hidden_size, 1.0f);
  const Format head = weight_format(options, c.names.head + ".weight", true);
  model->head.weight = {
      .format = head, .n = c.vocab_size, .k = c.hidden_size, .rotation = weight_rotation(options, head, c.hidden_size)};
  model->parameters += c.vocab_size * c.hidden_size * (c.tied_head ? 1 : 2);
  matrices.push_back(&model->head.weight);

  for (const Matrix* m : matrices) model->weight_bytes += packed_bytes(m->format, m->n, m->k);
  const int64_t embedding_bytes = c.vocab_size * c.hidden_size * 2;
  if (Error e = check_memory(model->weight_bytes + embedding_bytes, config_path)) return e;
  if (Error e = allocate_arena(model->weight_bytes + embedding_bytes, &model->arena)) return e;
  int64_t offset = 0;
  for (std::span<Matrix*> left = matrices; !left.empty();) {
    const auto block = left.first(static_cast<size_t>(left[0]->in_turns));
    place_in_turns(block, model->arena.data + offset);
    for (const Matrix* m : block) {
      fill_matrix(*m, static_cast<uint64_t>(offset), std::max(1, options.threads));
      offset += packed_bytes(m->format, m->n, m->k);
      if (options.progress) options.progress(offset, model->weight_bytes);
    }
    left = left.subspan(block.size());
  }
  random_bf16(model->arena.data + offset, embedding_bytes, static_cast<uint64_t>(offset));
  model->embedding = {
      "embedding", DType::bf16, {c.vocab_size, c.hidden_size}, model->arena.data + offset, embedding_bytes};
  *out = std::move(model);
  return {};
}

}  // namespace pinion
