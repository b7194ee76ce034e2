#include "engine/model/layer.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "kernels/base/math.h"

namespace pinion {
namespace {

// Weights of value_norm, for which files have no tensor.
constexpr auto kOnes = [] {
  std::array<float, kMaxHeadDim> ones = {};
  ones.fill(1.0f);
  return ones;
}();

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

void init_layer(const ModelConfig& config, int64_t index, Layer* out) {
  out->attends = config.attends[index];
  out->recurrent = config.recurrent[index];
  out->owns_kv = config.owns_kv(index);
  const int64_t owner = out->owns_kv ? index : config.kv_layers[index];
  for (int64_t layer = 0; layer < owner; ++layer) {
    out->slot += config.attends[layer] && config.owns_kv(layer);
  }
  if (config.value_norm) out->v_norm = kOnes.data();
  if (config.has_sparse_gate(index)) {
    out->gate_cut = static_cast<float>(normal_quantile(static_cast<double>(config.gate_sparsity[index])));
  }
  out->state_slot = std::count(config.recurrent.begin(), config.recurrent.begin() + index, true);
  out->window = config.windows[index];
  out->rope = config.layer_ropes[index];
  if (config.has_experts(index)) out->experts.resize(config.experts.count);
}

void balance_heads(const ModelConfig& config, Layer* layer) {
  const float *q_norm = (*layer)[VectorRole::q_norm].weight, *k_norm = (*layer)[VectorRole::k_norm].weight;
  if (!q_norm || !k_norm) return;
  const int64_t dims = config.head_dim;
  const bool is_per_head = config.qk_norm_rows(2) > 1;  // else all heads share the norms' weights
  const bool rotates_after = layer->rope != kNoRope && config.qk_norm != QkNorm::rotated_heads;
  const int64_t half = rotates_after ? config.ropes[layer->rope].dims / 2 : 0;
  const int64_t group = config.heads / config.kv_heads;
  for (int64_t kv_head = 0; kv_head < config.kv_heads; ++kv_head) {
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

void balance_heads(const ModelConfig& config, int64_t index, std::vector<Layer>* layers) {
  Layer* layer = &(*layers)[index];
  if (layer->owns_kv) return balance_heads(config, layer);
  layer->query_balance = (*layers)[config.kv_layers[index]].query_balance;
}

}  // namespace pinion
