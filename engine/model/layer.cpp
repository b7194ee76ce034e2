#include "engine/model/layer.h"

#include <algorithm>
#include <array>

#include "kernels/base/math.h"

namespace pinion {
namespace {

// The weights of a norm that has none.
constexpr auto kOnes = [] {
  std::array<float, kMaxHeadDim> ones = {};
  ones.fill(1.0f);
  return ones;
}();

}  // namespace

void place_layer(const ModelConfig& config, int64_t index, Layer* out) {
  const auto i = static_cast<size_t>(index);
  out->attends = config.attends[i];
  out->recurrent = config.recurrent[i];
  out->owns_kv = config.owns_kv(index);
  const int64_t owner = out->owns_kv ? index : config.kv_layers[i];
  for (int64_t layer = 0; layer < owner; ++layer) {
    out->slot += config.attends[static_cast<size_t>(layer)] && config.owns_kv(layer);
  }
  if (config.value_norm) out->v_norm = kOnes.data();
  if (config.has_sparse_gate(index)) {
    out->gate_cut = static_cast<float>(normal_quantile(static_cast<double>(config.gate_sparsity[i])));
  }
  out->state.slot = std::count(config.recurrent.begin(), config.recurrent.begin() + index, true);
  out->window = config.windows[i];
  out->rope = config.layer_ropes[i];
  if (config.has_experts(index)) out->experts.resize(static_cast<size_t>(config.experts.count));
}

const Linear& matrix_of(const Layer& layer, MatrixRole role, int64_t expert) {
  const Expert* mine = expert == kNoExpert ? nullptr : &layer.experts[static_cast<size_t>(expert)];
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
      return mine ? mine->gate : layer.gate;
    case MatrixRole::up:
      return mine ? mine->up : layer.up;
    case MatrixRole::down:
      return mine ? mine->down : layer.down;
    case MatrixRole::layer_gate:
      return layer.layer_gate;
    case MatrixRole::layer_out:
      return layer.layer_out;
    case MatrixRole::head:
    case MatrixRole::mtp_fc:
    case MatrixRole::layer_input:
    case MatrixRole::altup_in:
    case MatrixRole::altup_out:
      break;  // the model's
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

}  // namespace pinion
