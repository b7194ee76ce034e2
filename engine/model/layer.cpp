#include "engine/model/layer.h"

#include <algorithm>

namespace pinion {

void place_layer(const ModelConfig& config, int64_t index, Layer* out) {
  const auto i = static_cast<size_t>(index);
  out->attends = config.attends[i];
  out->recurrent = config.recurrent[i];
  out->slot = std::count(config.attends.begin(), config.attends.begin() + index, true);
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
    case MatrixRole::state_qkv:
      return layer.state.qkv;
    case MatrixRole::state_z:
      return layer.state.z;
    case MatrixRole::state_b:
      return layer.state.b;
    case MatrixRole::state_a:
      return layer.state.a;
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
    case MatrixRole::head:
    case MatrixRole::mtp_fc:
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
  }
  __builtin_unreachable();
}

}  // namespace pinion
