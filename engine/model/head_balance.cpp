#include "engine/model/head_balance.h"

#include <algorithm>
#include <cmath>

namespace pinion {
namespace {

constexpr float kMostFactor = 1024;

// Adds the squares of a head's weights to the sizes of its channels.
void add_squares(const float* weights, std::vector<float>* sizes) {
  for (float& size : *sizes) {
    size += *weights * *weights;
    ++weights;
  }
}

// Channels i and i + half, which are turned into each other, both get the sum.
void pair_up(int64_t half, std::vector<float>* sizes) {
  for (auto i = sizes->begin(); i < sizes->begin() + half; ++i) *i = *(i + half) = *i + *(i + half);
}

float factor_of(float query_size, float key_size) {
  if (!(query_size > 0 && key_size > 0)) return 1;
  return std::clamp(std::sqrt(std::sqrt(query_size / key_size)), 1 / kMostFactor, kMostFactor);
}

}  // namespace

void balance_heads(const ModelConfig& config, Layer* layer) {
  if (!layer->q_norm || !layer->k_norm) return;
  const auto dims = static_cast<size_t>(config.head_dim);
  const bool whole = config.qk_norm_rows(2) > 1;  // else all heads have the same weights
  const bool turns = layer->rope != kNoRope && config.qk_norm != QkNorm::rotated_heads;
  const int64_t half = turns ? config.ropes[static_cast<size_t>(layer->rope)].dims / 2 : 0;
  const int64_t group = config.heads / config.kv_heads;
  for (int64_t kv_head = 0; kv_head < config.kv_heads; ++kv_head) {
    std::vector<float> key(dims), query(dims);
    add_squares(layer->k_norm + (whole ? kv_head * config.head_dim : 0), &key);
    for (int64_t head = kv_head * group; head < (whole ? kv_head * group + group : kv_head * group + 1); ++head) {
      add_squares(layer->q_norm + (whole ? head * config.head_dim : 0), &query);
    }
    pair_up(half, &key);
    pair_up(half, &query);
    for (size_t i = 0; i < dims; ++i) {
      layer->key_balance.push_back(factor_of(query[i], key[i]));
      layer->query_balance.push_back(1 / layer->key_balance.back());
    }
  }
}

void balance_heads(const ModelConfig& config, int64_t index, std::vector<Layer>* layers) {
  const auto at = static_cast<size_t>(index);
  Layer* layer = &(*layers)[at];
  if (layer->owns_kv) return balance_heads(config, layer);
  layer->query_balance = (*layers)[static_cast<size_t>(config.kv_layers[at])].query_balance;
}

}  // namespace pinion
