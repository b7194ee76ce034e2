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
  out->state.slot = std::count(config.recurrent.begin(), config.recurrent.begin() + index, true);
  out->window = config.windows[index];
  out->rope = config.layer_ropes[index];
  if (config.has_experts(index)) out->experts.resize(config.experts.count);
}

const Linear& matrix_of(const Layer& layer, MatrixRole role, int64_t expert) {
  const Expert* in_expert = expert == kNoExpert ? nullptr : &layer.experts[expert];
  switch (role) {
    case MatrixRole::q:
      return layer.q;
    case MatrixRole::k:
      return layer.k;
    case MatrixRole::v:
      return layer.v;
    case MatrixRole::latent_q_a:
      return layer.latent.q_a;
    case MatrixRole::latent_kv_a:
      return layer.latent.kv_a;
    case MatrixRole::latent_k_rope:
      return layer.latent.k_rope;
    case MatrixRole::latent_q:
      return layer.latent.q;
    case MatrixRole::latent_k:
      return layer.latent.k;
    case MatrixRole::latent_v:
      return layer.latent.v;
    case MatrixRole::state_qkv:
      return layer.state.qkv;
    case MatrixRole::state_z:
      return layer.state.z;
    case MatrixRole::state_b:
      return layer.state.b;
    case MatrixRole::state_a:
      return layer.state.a;
    case MatrixRole::laurel_left:
      return layer.laurel.left;
    case MatrixRole::laurel_right:
      return layer.laurel.right;
    case MatrixRole::o:
      return layer.o;
    case MatrixRole::state_out:
      return layer.state.out;
    case MatrixRole::router:
      return layer.router;
    case MatrixRole::shared_weight:
      return layer.shared_weight;
    case MatrixRole::gate:
      return in_expert ? in_expert->gate : layer.gate;
    case MatrixRole::up:
      return in_expert ? in_expert->up : layer.up;
    case MatrixRole::down:
      return in_expert ? in_expert->down : layer.down;
    case MatrixRole::layer_gate:
      return layer.layer_gate;
    case MatrixRole::layer_out:
      return layer.layer_out;
    case MatrixRole::head:
    case MatrixRole::mtp_fc:
    case MatrixRole::layer_input:
    case MatrixRole::altup_in:
    case MatrixRole::altup_out:
      break;  // matrices of the model
  }
  __builtin_unreachable();
}

Linear& matrix_of(Layer& layer, MatrixRole role, int64_t expert) {
  return const_cast<Linear&>(matrix_of(static_cast<const Layer&>(layer), role, expert));
}

const float*& vector_of(Layer& layer, VectorRole role) {
  switch (role) {
    case VectorRole::attention_norm:
      return layer.attention_norm.weight;
    case VectorRole::attention_norm_bias:
      return layer.attention_norm.bias;
    case VectorRole::q_norm:
      return layer.q_norm;
    case VectorRole::k_norm:
      return layer.k_norm;
    case VectorRole::latent_q_norm:
      return layer.latent.q_norm;
    case VectorRole::latent_kv_norm:
      return layer.latent.kv_norm;
    case VectorRole::sinks:
      return layer.sinks;
    case VectorRole::router_correction:
      return layer.router_correction;
    case VectorRole::state_conv:
      return layer.state.conv;
    case VectorRole::state_conv_bias:
      return layer.state.conv_bias;
    case VectorRole::state_rate:
      return layer.state.rate;
    case VectorRole::state_step:
      return layer.state.step;
    case VectorRole::state_skip:
      return layer.state.skip;
    case VectorRole::state_norm:
      return layer.state.norm;
    case VectorRole::o_norm:
      return layer.o_norm.weight;
    case VectorRole::down_norm:
      return layer.down_norm.weight;
    case VectorRole::attention_out_norm:
      return layer.attention_out_norm.weight;
    case VectorRole::attention_out_norm_bias:
      return layer.attention_out_norm.bias;
    case VectorRole::mlp_norm:
      return layer.mlp_norm.weight;
    case VectorRole::mlp_norm_bias:
      return layer.mlp_norm.bias;
    case VectorRole::xielu_alpha_p:
      return layer.xielu.alpha_p;
    case VectorRole::xielu_alpha_n:
      return layer.xielu.alpha_n;
    case VectorRole::xielu_beta:
      return layer.xielu.beta;
    case VectorRole::xielu_eps:
      return layer.xielu.eps;
    case VectorRole::mlp_out_norm:
      return layer.mlp_out_norm.weight;
    case VectorRole::mlp_out_norm_bias:
      return layer.mlp_out_norm.bias;
    case VectorRole::laurel_norm:
      return layer.laurel.norm.weight;
    case VectorRole::altup_norm:
      return layer.altup.norm.weight;
    case VectorRole::altup_router:
      return layer.altup.router;
    case VectorRole::altup_prediction:
      return layer.altup.prediction;
    case VectorRole::altup_correction:
      return layer.altup.correction;
    case VectorRole::altup_scale:
      return layer.altup.scale;
    case VectorRole::layer_out_norm:
      return layer.layer_out_norm.weight;
  }
  __builtin_unreachable();
}

void balance_heads(const ModelConfig& config, Layer* layer) {
  if (!layer->q_norm || !layer->k_norm) return;
  const int64_t dims = config.head_dim;
  const bool is_per_head = config.qk_norm_rows(2) > 1;  // else all heads share the norms' weights
  const bool rotates_after = layer->rope != kNoRope && config.qk_norm != QkNorm::rotated_heads;
  const int64_t half = rotates_after ? config.ropes[layer->rope].dims / 2 : 0;
  const int64_t group = config.heads / config.kv_heads;
  for (int64_t kv_head = 0; kv_head < config.kv_heads; ++kv_head) {
    std::vector<float> key(dims), query(dims);
    add_squares(layer->k_norm + (is_per_head ? kv_head * dims : 0), &key);
    for (int64_t head = kv_head * group; head < kv_head * group + (is_per_head ? group : 1); ++head) {
      add_squares(layer->q_norm + (is_per_head ? head * dims : 0), &query);
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
