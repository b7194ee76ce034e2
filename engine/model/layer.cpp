#include "engine/model/model.h"

#include <cmath>

#include "kernels/base/math.h"

namespace pinion {
namespace {

constexpr float kMaxBalance = 1024;

// Adds the squared norm weights of a head to the sizes of its channels.
void add_squares(const float* weights, std::vector<float>* sizes) {
  for (float& size : *sizes) {
    size += *weights * *weights;
    ++weights;
  }
}

// Replaces the sizes of channels i and i + half, which rope rotates as a pair, by their sum.
void pair_up(int64_t half, std::vector<float>* sizes) {
  for (auto i = sizes->begin(); i < sizes->begin() + half; ++i) *i = *(i + half) = *i + *(i + half);
}

float balance_of(float query_size, float key_size) {
  if (!(query_size > 0 && key_size > 0)) return 1;
  return std::clamp(std::sqrt(std::sqrt(query_size / key_size)), 1 / kMaxBalance, kMaxBalance);
}

}  // namespace

const float* ones() {
  static const std::vector<float> kOnes(kMaxK, 1.0f);
  return kOnes.data();
}

void init_layer(const ModelConfig& config, int64_t index, Layer* out) {
  static_cast<LayerConfig&>(*out) = config.layer[index];
  const auto before = std::span(config.layer).first(index);
  out->slot = std::ranges::count_if(before.first(out->owns_kv() ? index : out->kv_layer),
                                    [](const LayerConfig& layer) { return layer.attends && layer.owns_kv(); });
  out->state_slot = std::ranges::count(before, true, &LayerConfig::recurrent);
  if (config.recurrence.unit_norms) {
    using enum VectorRole;
    for (const VectorRole role : {state_dt_norm, state_k_norm, state_q_norm}) (*out)[role].weight = ones();
  }
  if (config.value_norm) out->v_norm = ones();
  if (!config.norm_weights) {
    for (const VectorRole role : {VectorRole::attention_norm, VectorRole::mlp_norm}) (*out)[role].weight = ones();
  }
  const bool rotates = out->rope != kNoRope && config.ropes[out->rope].dims > 0;
  const bool has_unit_norms = rotates && config.qk_norm != QkNorm::none && config.name("q_norm").empty();
  if (has_unit_norms) (*out)[VectorRole::q_norm].weight = (*out)[VectorRole::k_norm].weight = ones();
  if (out->gate_sparsity > 0.0f) {
    out->gate_cut = static_cast<float>(normal_quantile(static_cast<double>(out->gate_sparsity)));
  }
  if (out->has_experts) out->experts.resize(config.experts.count);
  if (out->attends && out->is_latent()) out->latent_heads.resize(out->heads);
}

void balance_heads(const ModelConfig& config, int64_t index, std::vector<Layer>* layers) {
  Layer* layer = &(*layers)[index];
  if (!layer->owns_kv()) {
    layer->query_balance = (*layers)[layer->kv_layer].query_balance;
    return;
  }
  const float *q_norm = (*layer)[VectorRole::q_norm].weight, *k_norm = (*layer)[VectorRole::k_norm].weight;
  if (!q_norm || !k_norm) return;
  const int64_t dims = layer->head_dim;
  const bool is_per_head = config.qk_norm_rows(2) > 1;  // else all heads share the norms' weights
  const bool rotates_after = layer->rope != kNoRope && config.qk_norm != QkNorm::rotated_heads;
  const int64_t half = rotates_after ? config.ropes[layer->rope].dims / 2 : 0;
  const int64_t group = layer->group();
  for (int64_t kv_head = 0; kv_head < layer->kv_heads; ++kv_head) {
    std::vector<float> key(dims), query(dims);
    add_squares(k_norm + (is_per_head ? kv_head * dims : 0), &key);
    for (int64_t head = kv_head * group; head < kv_head * group + (is_per_head ? group : 1); ++head) {
      add_squares(q_norm + (is_per_head ? head * dims : 0), &query);
    }
    pair_up(half, &key);
    pair_up(half, &query);
    for (int64_t i = 0; i < dims; ++i) {
      layer->key_balance.push_back(balance_of(query[i], key[i]));
      layer->query_balance.push_back(1 / layer->key_balance.back());
    }
  }
}

}  // namespace pinion
