#include "loader/config/layer_tensors.h"

#include <array>

namespace pinion {
namespace {

using Config = const ModelConfig&;
using LayerOf = const LayerConfig&;

// --- Sizes, for the tables below. 0: the model or the layer has no such tensor.

constexpr SizeRule kHidden = [](Config c, LayerOf) { return c.hidden_size; };
// Recurrent layers may have norms before the branches, and the others behind them (OLMo hybrid).
bool has_own_norms(Config c, LayerOf l) { return l.recurrent && !c.name("recurrent_norm").empty(); }
constexpr SizeRule kOutNorm = [](Config c, LayerOf l) { return has_own_norms(c, l) ? 0 : c.hidden_size; };
constexpr SizeRule kAttentionIn = [](Config c, LayerOf l) { return (l.is_block ? 2 : 1) * c.hidden_size; };
constexpr SizeRule kBlock = [](Config c, LayerOf l) { return l.is_block ? c.hidden_size : 0; };
constexpr SizeRule kFirstNorm = [](Config c, LayerOf l) {
  const bool lacks = has_own_norms(c, l) || (c.lacks_first_norm && &l == c.layer.data());
  return lacks ? 0 : kAttentionIn(c, l);
};
constexpr SizeRule kTwiceHidden = [](Config c, LayerOf) { return 2 * c.hidden_size; };
constexpr SizeRule kVocabulary = [](Config c, LayerOf) { return c.vocab_size; };
constexpr SizeRule kOne = [](Config, LayerOf) { return int64_t{1}; };
constexpr SizeRule kSinks = [](Config, LayerOf l) { return l.has_sinks ? l.heads : 0; };
constexpr SizeRule kHeads = [](Config, LayerOf l) { return l.heads; };
constexpr SizeRule kAllHeads = [](Config c, LayerOf l) { return l.heads * c.query_dim(l); };
constexpr SizeRule kQueries = [](Config c, LayerOf l) {
  return c.latent.query_rank > 0 ? 0 : l.heads * c.query_stride(l);
};
constexpr SizeRule kKeys = [](Config c, LayerOf l) {
  return c.latent.rank > 0 || !l.owns_kv() ? 0 : l.kv_heads * l.head_dim;
};
constexpr SizeRule kValues = [](Config c, LayerOf l) {
  return l.values_are_keys ? 0 : kKeys(c, l) / l.head_dim * l.value_dim;
};
constexpr SizeRule kAttended = [](Config, LayerOf l) { return l.attended(); };
constexpr SizeRule kGates = [](Config c, LayerOf l) { return c.gate_by_head ? l.heads : l.attended(); };
constexpr SizeRule kQueryRank = [](Config c, LayerOf) { return c.latent.query_rank; };
constexpr SizeRule kLatentRank = [](Config c, LayerOf) { return c.latent.rank; };
constexpr SizeRule kLatentRope = [](Config c, LayerOf) { return c.latent.rope_dims; };
constexpr SizeRule kLatentKey = [](Config c, LayerOf) { return c.latent.nope_dims; };
constexpr SizeRule kLatentValue = [](Config, LayerOf l) { return l.latent_values; };
int64_t head_norms(Config c, LayerOf l, int64_t heads) {
  return c.qk_norm == QkNorm::none ? 0 : c.qk_norm_rows(heads) * l.head_dim;
}
constexpr SizeRule kQueryNorm = [](Config c, LayerOf l) { return head_norms(c, l, l.heads); };
constexpr SizeRule kKeyNorm = [](Config c, LayerOf l) { return l.owns_kv() ? head_norms(c, l, l.kv_heads) : 0; };
constexpr SizeRule kLaurelRank = [](Config c, LayerOf) { return c.laurel_rank; };
constexpr SizeRule kChannels = [](Config c, LayerOf) { return c.recurrence.channels(); };
constexpr SizeRule kStateKeys = [](Config c, LayerOf) { return c.recurrence.key_width(); };
constexpr SizeRule kConvolution = [](Config c, LayerOf) { return c.recurrence.channels() * c.recurrence.taps; };
constexpr SizeRule kStates = [](Config c, LayerOf) { return c.recurrence.value_width(); };
constexpr SizeRule kStateHeads = [](Config c, LayerOf) {
  return c.recurrence.has_heads() && !c.recurrence.by_channel() ? c.recurrence.value_heads : 0;
};
constexpr SizeRule kStateSteps = [](Config c, LayerOf l) { return kStateHeads(c, l) * c.recurrence.decays(); };
int64_t gates_of(Config c, RecurrenceKind kind) { return c.recurrence.kind == kind ? c.recurrence.write_gates() : 0; }
constexpr SizeRule kConvGates = [](Config c, LayerOf) { return gates_of(c, RecurrenceKind::short_conv); };
constexpr SizeRule kDeltaHeads = [](Config c, LayerOf) { return gates_of(c, RecurrenceKind::gated_delta); };
constexpr SizeRule kLateZ = [](Config c, LayerOf l) {
  return c.recurrence.kind == RecurrenceKind::gated_delta || c.recurrence.by_channel() ? kStates(c, l) : 0;
};
constexpr SizeRule kEarlyZ = [](Config c, LayerOf l) { return kStates(c, l) - kLateZ(c, l); };
// Mamba 1's tensors, and Mamba 2's of heads.
constexpr SizeRule kKeysQueries = [](Config c, LayerOf) { return gates_of(c, RecurrenceKind::mamba1); };
constexpr SizeRule kStepRank = [](Config c, LayerOf) { return c.recurrence.step_rank; };
constexpr SizeRule kSteps = [](Config c, LayerOf l) { return c.recurrence.by_channel() ? kStates(c, l) : 0; };
bool is_lru(Config c) { return c.recurrence.kind == RecurrenceKind::rg_lru; }
constexpr SizeRule kRates = [](Config c, LayerOf l) { return is_lru(c) ? 0 : kSteps(c, l) * c.recurrence.key_dim; };
constexpr SizeRule kLruRates = [](Config c, LayerOf) { return is_lru(c) ? c.recurrence.value_width() : 0; };
constexpr SizeRule kLruBlock = [](Config c, LayerOf) { return is_lru(c) ? c.recurrence.value_dim : 0; };
constexpr SizeRule kValueHeads = [](Config c, LayerOf) { return c.recurrence.value_heads; };
constexpr SizeRule kStateKey = [](Config c, LayerOf) { return c.recurrence.by_channel() ? c.recurrence.key_dim : 0; };
constexpr SizeRule kSkips = [](Config c, LayerOf l) { return kSteps(c, l) + gates_of(c, RecurrenceKind::mamba2); };
constexpr SizeRule kStateNorm = [](Config c, LayerOf) { return c.recurrence.norm_width(); };
constexpr SizeRule kMlp = [](Config, LayerOf l) { return l.mlp_size; };
constexpr SizeRule kMlpNorm = [](Config c, LayerOf) { return c.shared_norm ? 0 : c.hidden_size; };
constexpr SizeRule kXielu = [](Config c, LayerOf) { return int64_t{c.activation == Activation::xielu}; };
constexpr SizeRule kExperts = [](Config c, LayerOf) { return c.experts.count; };
constexpr SizeRule kExpert = [](Config c, LayerOf) { return c.experts.inner_size; };
constexpr SizeRule kShared = [](Config c, LayerOf) { return c.experts.shared_size; };
constexpr SizeRule kOneIfShared = [](Config c, LayerOf) { return int64_t{c.experts.shared_size > 0}; };
constexpr SizeRule kLayerInput = [](Config c, LayerOf) { return c.layer_input.size; };
constexpr SizeRule kLayerInputs = [](Config c, LayerOf) { return c.layers * c.layer_input.size; };
constexpr SizeRule kLayerOut = [](Config c, LayerOf) { return c.layer_input.size > 0 ? c.hidden_size : 0; };
constexpr SizeRule kAltup = [](Config c, LayerOf) { return c.altup.inputs; };
constexpr SizeRule kAltupPairs = [](Config c, LayerOf) { return c.altup.inputs * c.altup.inputs; };

constexpr BiasRule kQkvBias = [](Config c, LayerOf) { return c.qkv_bias && c.latent.rank == 0; };
constexpr BiasRule kLatentBias = [](Config c, LayerOf) { return c.qkv_bias; };
constexpr BiasRule kHasBias = [](Config, LayerOf) { return true; };
constexpr BiasRule kOBias = [](Config c, LayerOf l) {
  return c.o_bias && (c.name("o_bias").empty() || &l == &c.layer.back());
};
constexpr BiasRule kStateBias = [](Config c, LayerOf) { return c.recurrence.proj_bias; };
constexpr BiasRule kOutBias = [](Config c, LayerOf) { return c.recurrence.out_bias; };
constexpr BiasRule kMlpBias = [](Config c, LayerOf) { return c.mlp_bias; };
constexpr BiasRule kRouterBias = [](Config c, LayerOf) { return c.experts.router_bias; };
constexpr BiasRule kHeadBias = [](Config c, LayerOf) { return c.head_bias; };

// --- Row orders

// Rows [begin, begin + count) of the `all` rows that a fused tensor has for each head.
RowOrder rows_of_heads(int64_t heads, int64_t begin, int64_t count, int64_t all) {
  return {.head_rows = count, .rows = heads * count, .step = all, .first = begin};
}

// Heads that rope rotates. rows: of a head.
RowOrder rotated(Config c, int64_t rows) {
  if (c.rope_reversed) return {.head_rows = rows, .tail_rows = rows / 2};  // with halves swapped, angles change sign
  return c.rope_interleaved ? RowOrder{.head_rows = rows, .pairs = c.ropes[0].dims / 2} : RowOrder{};
}

// A tensor of q, k and v has, for each kv head, its queries, the key and the value. `count` of these from `first` on.
// CodeGen's has, for each block of heads, the queries, the values and the keys.
RowOrder of_kv_head(Config c, LayerOf l, int64_t first, int64_t count) {
  RowOrder order = rows_of_heads(l.kv_heads, first * l.head_dim, count * l.head_dim, (l.group() + 2) * l.head_dim);
  if (c.qkv_blocks == 0) return order;
  order.run = l.heads / c.qkv_blocks, order.step *= order.run;
  order.first = (3 - first) % 3 * order.run * l.head_dim;
  if (first < 2) order.pairs = c.ropes[0].dims / 2;
  return order;
}

// In the files of latent attention, the rotated rows of a head come last; tail_rows moves them to the front.
constexpr OrderRule kQueryOrder = [](Config c, LayerOf l) {
  if (c.qkv_by_head) return of_kv_head(c, l, 0, l.group());
  RowOrder order = rotated(c, c.query_stride(l));
  if (c.latent.rank > 0) order.head_rows = c.query_dim(l), order.tail_rows = c.latent.rope_dims;
  return order;
};
constexpr OrderRule kKeyOrder = [](Config c, LayerOf l) {
  return c.qkv_by_head ? of_kv_head(c, l, l.group(), 1) : rotated(c, l.head_dim);
};
constexpr OrderRule kValueOrder = [](Config c, LayerOf l) {
  return c.qkv_by_head ? of_kv_head(c, l, l.group() + 1, 1) : RowOrder{};
};
constexpr OrderRule kLatentRopeOrder = [](Config c, LayerOf) { return rotated(c, c.latent.rope_dims); };

// Some files have, for each key head, rows of q, k, v and z in one tensor (but GGUF's in two, one by one) and rows of b
// and a in another.
bool shares_qkvz(Config c) { return c.recurrence.by_key_head && c.name("state_qkv") == c.name("state_z"); }
constexpr OrderRule kStateQkvOrder = [](Config c, LayerOf) {
  const Recurrence& r = c.recurrence;
  if (!shares_qkvz(c)) return RowOrder{};
  const int64_t keys = r.key_dim, values = r.value_width() / r.key_heads, all = 2 * (keys + values);
  const auto part = [&](int64_t begin, int64_t count) { return rows_of_heads(r.key_heads, begin, count, all); };
  return RowOrder{.rows = r.channels(), .sections = {part(0, keys), part(keys, keys), part(2 * keys, values)}};
};
constexpr OrderRule kStateZOrder = [](Config c, LayerOf) {
  const Recurrence& r = c.recurrence;
  if (!shares_qkvz(c)) return RowOrder{};
  const int64_t keys = r.key_dim, values = r.value_width() / r.key_heads;
  return rows_of_heads(r.key_heads, 2 * keys + values, values, 2 * (keys + values));
};
RowOrder of_write_and_decay(const Recurrence& r, int64_t index) {
  if (!r.by_key_head) return {};
  const int64_t heads = r.value_heads / r.key_heads;
  return rows_of_heads(r.key_heads, index * heads, heads, 2 * heads);
}
constexpr OrderRule kStateBOrder = [](Config c, LayerOf) { return of_write_and_decay(c.recurrence, 0); };
constexpr OrderRule kStateAOrder = [](Config c, LayerOf) { return of_write_and_decay(c.recurrence, 1); };

// --- The tables

using M = MatrixRole;
using O = OutputScales;
using V = VectorRole;
using P = Part;
using S = Stage;
using F = VectorForm;
using enum DividedBy;

// In the order of packing. Matrices that are fused in one tensor follow one another in the order of their rows in it;
// state_b and state_z have two rows, since their places depend on the kind of recurrence.
constexpr MatrixRow kMatrixRows[] = {
    {M::latent_q_a, "q_a", P::attention, S::qkv, nothing, kQueryRank, kHidden, {}, kLatentBias},
    {M::latent_kv_a, "kv_a", P::attention, S::qkv, nothing, kLatentRank, kHidden, {}, kLatentBias},
    {M::latent_k_rope, "kv_a", P::attention, S::qkv, nothing, kLatentRope, kHidden, kLatentRopeOrder, kLatentBias},
    {M::q, "q", P::attention, S::qkv, kv_heads, kQueries, kAttentionIn, kQueryOrder, kQkvBias, &O::qkv},
    {M::k, "k", P::attention, S::qkv, kv_heads, kKeys, kAttentionIn, kKeyOrder, kQkvBias, &O::qkv, &O::key},
    {M::v, "v", P::attention, S::qkv, kv_heads, kValues, kAttentionIn, kValueOrder, kQkvBias, &O::qkv, &O::value},
    {M::attention_gate, "attention_gate", P::attention, S::qkv, kv_heads, kGates, kHidden},
    {M::latent_q, "q_b", P::attention, S::q_latent, kv_heads, kAllHeads, kQueryRank, kQueryOrder},
    {M::latent_k, "kv_b", P::latent_head, S::kv_latent, kv_heads, kLatentRank, kLatentKey},
    {M::latent_v, "kv_b", P::latent_head, S::v_latent, kv_heads, kLatentValue, kLatentRank},
    {M::latent_k, "k_b", P::latent_head, S::kv_latent, kv_heads, kLatentRank, kLatentKey},
    {M::latent_v, "v_b", P::latent_head, S::v_latent, kv_heads, kLatentValue, kLatentRank},
    {M::laurel_left, "laurel_left", P::attention, S::qkv, nothing, kLaurelRank, kHidden},
    {M::laurel_right, "laurel_right", P::attention, S::laurel, nothing, kHidden, kLaurelRank},
    {M::o, "o", P::attention, S::o, panels, kHidden, kAttended, {}, kOBias, {}, &O::o},
    {M::state_b, "state_b", P::recurrence, S::qkv, first, kConvGates, kHidden, {}, kStateBias},
    {M::state_z, "state_z", P::recurrence, S::qkv, first, kEarlyZ, kHidden, {}, kStateBias, &O::state_in, &O::state_z},
    {M::state_qkv, "state_qkv", P::recurrence, S::qkv, first, kChannels, kHidden, kStateQkvOrder, kStateBias,
     &O::state_in},
    {M::state_qkv, "state_q", P::recurrence, S::qkv, first, kStateKeys, kHidden, {}, kStateBias},
    {M::state_k, "state_k", P::recurrence, S::qkv, first, kStateKeys, kHidden, {}, kStateBias},
    {M::state_v, "state_v", P::recurrence, S::qkv, first, kStates, kHidden, {}, kStateBias},
    {M::state_z, "state_z", P::recurrence, S::qkv, first, kLateZ, kHidden, kStateZOrder, kStateBias},
    {M::state_b, "state_b", P::recurrence, S::qkv, first, kDeltaHeads, kHidden, kStateBOrder, kStateBias},
    {M::state_a, "state_a", P::recurrence, S::qkv, first, kStateSteps, kHidden, kStateAOrder, kStateBias, &O::state_in,
     &O::state_a},
    {M::state_a_narrow, "state_a_narrow", P::recurrence, S::qkv, first, kStepRank, kHidden},
    {M::state_z_narrow, "state_z_narrow", P::recurrence, S::qkv, first, kStepRank, kHidden},
    {M::state_narrow, "state_x", P::recurrence, S::state_x, first, kStepRank, kStates},
    {M::state_keys, "state_x", P::recurrence, S::state_x, first, kKeysQueries, kStates},
    {M::state_z_wide, "state_z_wide", P::recurrence, S::state_x, first, kStates, kStepRank},
    {M::state_dt, "state_a_wide", P::recurrence, S::state_dt, first, kStateSteps, kStepRank},
    {M::state_dt, "state_dt", P::recurrence, S::state_dt, first, kSteps, kStepRank, {}, kHasBias},
    {M::state_out, "state_out", P::recurrence, S::state_out, panels, kHidden, kStates, {}, kOutBias, {}, &O::state_out},
    {M::gate, "gate", P::mlp, S::gate_up, panels, kMlp, kHidden, {}, kMlpBias, {}, &O::gate},
    {M::up, "up", P::mlp, S::gate_up, panels, kMlp, kHidden, {}, kMlpBias},
    {M::down, "down", P::mlp, S::down, panels, kHidden, kMlp, {}, kMlpBias, {}, &O::down},
    {M::router, "router", P::experts, S::router, nothing, kExperts, kHidden, {}, kRouterBias, &O::router},
    {M::shared_weight, "shared_weight", P::experts, S::router, nothing, kOneIfShared, kHidden},
    {M::gate, "shared_gate", P::experts, S::gate_up, panels, kShared, kHidden, {}, kMlpBias},
    {M::up, "shared_up", P::experts, S::gate_up, panels, kShared, kHidden, {}, kMlpBias},
    {M::down, "shared_down", P::experts, S::down, panels, kHidden, kShared, {}, kMlpBias, {}, &O::experts},
    {M::layer_gate, "layer_gate", P::layer, S::layer_gate, nothing, kLayerInput, kHidden},
    {M::layer_out, "layer_out", P::layer, S::layer_out, nothing, kHidden, kLayerInput},
    {M::layer_out, "block_out", P::attention, S::layer_out, panels, kHidden, kBlock},
    {M::gate, "expert_gate", P::expert, S::gate_up, panels, kExpert, kHidden, {}, kMlpBias},
    {M::up, "expert_up", P::expert, S::gate_up, panels, kExpert, kHidden, {}, kMlpBias},
    {M::down, "expert_down", P::expert, S::down, panels, kHidden, kExpert, {}, kMlpBias, {}, &O::experts},
    {M::layer_input, "layer_input", P::model, S::embed, nothing, kLayerInputs, kHidden, {}, {}, &O::layer_input},
    {M::altup_in, "altup_in", P::altup, S::embed, nothing, kHidden, kHidden},
    {M::altup_out, "altup_out", P::altup, S::altup, nothing, kHidden, kHidden},
    {M::head_dense, "head_dense", P::model, S::head, nothing, kHidden, kHidden},
    {M::head, "head", P::head, S::head, panels, kVocabulary, kHidden, {}, kHeadBias},
    {M::mtp_fc, "mtp_fc", P::mtp, S::embed, nothing, kHidden, kTwiceHidden},
};

constexpr VectorRow kVectorRows[] = {
    {V::attention_norm, "attention_norm", ".weight", P::mixer, kFirstNorm, F::norm},
    {V::attention_norm, "recurrent_norm", ".weight", P::recurrence, kHidden, F::norm},
    {V::state_conv, "state_conv", ".weight", P::recurrence, kConvolution, F::convolution, 0.5f},
    {V::state_rate, "state_rate", "", P::recurrence, kStateHeads, F::logarithm, 0.2f},
    {V::state_step, "state_step", "", P::recurrence, kStateSteps, F::plain, 0.1f},
    {V::state_rate, "state_rate", "", P::recurrence, kRates, F::rates, 0.2f},
    {V::state_rate, "state_rate", "", P::recurrence, kLruRates, F::softplus, 0.1f},
    {V::state_gate, "state_gate", "_weight", P::recurrence, kLruBlock, F::blocks, 0.01f, kLruRates},
    {V::state_gate_bias, "state_gate", "_bias", P::recurrence, kLruBlock, F::matrix, 0.1f, kValueHeads},
    {V::state_in_gate, "state_in_gate", "_weight", P::recurrence, kLruBlock, F::blocks, 0.01f, kLruRates},
    {V::state_in_gate_bias, "state_in_gate", "_bias", P::recurrence, kLruBlock, F::matrix, 0.1f, kValueHeads},
    {V::state_dt_norm, "state_dt_norm", ".weight", P::recurrence, kStepRank, F::plain},
    {V::state_k_norm, "state_k_norm", ".weight", P::recurrence, kStateKey, F::plain},
    {V::state_q_norm, "state_q_norm", ".weight", P::recurrence, kStateKey, F::plain},
    {V::state_skip, "state_skip", "", P::recurrence, kSkips, F::plain, 0.5f},
    {V::state_norm, "state_norm", ".weight", P::recurrence, kStateNorm, F::plain},
    {V::q_norm, "q_norm", ".weight", P::attention, kQueryNorm, F::head_norm},
    {V::k_norm, "k_norm", ".weight", P::attention, kKeyNorm, F::head_norm},
    {V::latent_q_norm, "q_a_norm", ".weight", P::attention, kQueryRank, F::plain},
    {V::latent_kv_norm, "kv_a_norm", ".weight", P::attention, kLatentRank, F::plain},
    {V::sinks, "sinks", "", P::attention, kSinks, F::plain},
    {V::gate_bias, "gate_bias", "", P::attention, kHeads, F::plain},
    {V::o_norm, "o_norm", ".weight", P::attention, kAllHeads, F::rms_norm},
    {V::attention_out_norm, "attention_out_norm", ".weight", P::mixer, kOutNorm, F::norm},
    {V::laurel_norm, "laurel_norm", ".weight", P::layer, kHidden, F::rms_norm},
    {V::altup_norm, "altup_norm", ".weight", P::layer, kHidden, F::rms_norm},
    {V::altup_router, "altup_router", ".weight", P::layer, kHidden, F::matrix, 1.0f, kAltup},
    {V::altup_prediction, "altup_prediction", ".weight", P::layer, kAltup, F::matrix, 1.0f, kAltupPairs},
    {V::altup_correction, "altup_correction", ".weight", P::layer, kAltup, F::matrix, 1.0f, kAltup},
    {V::altup_scale, "altup_scale", "", P::layer, kHidden, F::altup_scale},
    {V::layer_out_norm, "layer_out_norm", ".weight", P::layer, kLayerOut, F::rms_norm},
    {V::layer_scalar, "layer_scalar", "", P::layer, kOne, F::plain},
    {V::mlp_norm, "mlp_norm", ".weight", P::branch, kMlpNorm, F::norm},
    {V::mlp_norm, "recurrent_mlp_norm", ".weight", P::recurrence, kHidden, F::norm},
    {V::router_scale, "router_scale", "", P::experts, kHidden, F::plain},
    {V::router_correction, "router_correction", "", P::experts, kExperts, F::plain},
    {V::expert_scale, "expert_scale", "", P::experts, kExperts, F::plain},
    {V::expert_norm, "expert_norm", ".weight", P::experts, kHidden, F::rms_norm},
    {V::expert_out_norm, "expert_out_norm", ".weight", P::experts, kHidden, F::rms_norm},
    {V::shared_out_norm, "shared_out_norm", ".weight", P::experts, kHidden, F::rms_norm},
    {V::xielu_alpha_p, "xielu", ".alpha_p", P::mlp, kXielu, F::softplus},
    {V::xielu_alpha_n, "xielu", ".alpha_n", P::mlp, kXielu, F::softplus},
    {V::xielu_beta, "xielu", ".beta", P::mlp, kXielu, F::scalar},
    {V::xielu_eps, "xielu", ".eps", P::mlp, kXielu, F::scalar},
    {V::down_norm, "down_norm", ".weight", P::mlp, kMlp, F::rms_norm},
    {V::mlp_out_norm, "mlp_out_norm", ".weight", P::branch, kOutNorm, F::norm},
    {V::mlp_out_norm, "experts_out_norm", ".weight", P::experts, kHidden, F::norm},
};

constexpr auto kStageRoles = [] {
  std::array<RoleRange, kStages> ranges = {};
  for (size_t role = 0; role < kMatrixRoles; ++role) {
    const auto* row = std::ranges::find(kMatrixRows, static_cast<MatrixRole>(role), &MatrixRow::role);
    RoleRange& range = ranges[static_cast<size_t>(row->stage)];
    if (range.count++ == 0) range.first = role;
  }
  return ranges;
}();

bool has_part(LayerOf l, Part part) {
  const bool mixer = l.attends || l.recurrent, mlp = l.has_mlp && !l.has_experts, experts = l.has_mlp && l.has_experts;
  const bool parts[] = {true, l.attends, l.recurrent, mixer, l.has_mlp, mlp, experts};  // by Part
  return static_cast<size_t>(part) < std::size(parts) && parts[static_cast<size_t>(part)];
}

// The name with the layer's number in the file, if it differs from the layer's index.
std::string numbered(LayerOf l, const std::string& name) {
  return l.number == kNoNumber ? name : module_name(name, l.number);
}

// Appends a row's matrix if the model or the layer has it. index: of the layer, or of the AltUp input - 1; of_part: of
// the expert or the head.
void add(Config c, LayerOf l, const MatrixRow& row, int64_t index, int64_t of_part, std::vector<MatrixTensor>* list) {
  const int64_t n = row.n(c, l), k = row.k(c, l);
  const std::string pattern = numbered(l, c.name(row.key));
  if (n == 0 || k == 0 || pattern.empty()) return;
  const float in = row.in_scale ? c.output_scales.*row.in_scale : 1.0f;
  float out = row.out_scale ? c.output_scales.*row.out_scale : 1.0f;
  const float alpha = in * out;
  // branch_scale applies to the bias of a branch's last matrix unless a norm follows: then the norm's output is scaled.
  const bool ends_attention = row.stage == Stage::o || row.stage == Stage::state_out;
  const bool ends_branch = ends_attention || row.stage == Stage::down;
  if (ends_branch && c.name(ends_attention ? "attention_out_norm" : "mlp_out_norm").empty()) out *= c.branch_scale;
  if (row.role == MatrixRole::head) out *= c.logit_scale;
  const bool has_bias = row.has_bias && row.has_bias(c, l),
             is_exact = row.stage == S::router || row.stage == S::state_x || row.stage == S::state_dt ||
                        row.role == M::head_dense;
  const bool follows_gate = row.role == MatrixRole::up && !list->empty() && list->back().role == MatrixRole::gate;
  const bool is_head = row.part == P::latent_head;
  list->push_back({row.role, row.stage, pattern, index, n, k, has_bias, out, alpha, is_exact,
                   is_head ? kNoExpert : of_part, follows_gate && l.gate_sparsity == 0.0f,
                   row.order ? row.order(c, l) : RowOrder{}, row.divided_by, is_head ? of_part : kNoHead,
                   is_head && row.key == "kv_b" && row.role == M::latent_k});
}

void add_part(Config c, Part part, int64_t index, int64_t of_part, std::vector<MatrixTensor>* list) {
  for (const MatrixRow& row : kMatrixRows) {
    if (row.part == part) add(c, c.layer[index], row, index, of_part, list);
  }
}

MatrixTensor only_matrix(Config c, Part part) {
  std::vector<MatrixTensor> list;
  add_part(c, part, 0, kNoExpert, &list);
  return list.front();
}

}  // namespace

std::span<const MatrixRow> matrix_rows() { return kMatrixRows; }
std::span<const VectorRow> vector_rows() { return kVectorRows; }
RoleRange roles_of(Stage stage) { return kStageRoles[static_cast<size_t>(stage)]; }

std::vector<MatrixTensor> layer_matrices(const ModelConfig& config, int64_t layer) {
  const LayerConfig& of = config.layer[layer];
  std::vector<MatrixTensor> list;
  for (const MatrixRow& row : kMatrixRows) {
    if (has_part(of, row.part)) add(config, of, row, layer, kNoExpert, &list);
  }
  const int64_t experts = has_part(of, Part::experts) ? config.experts.count : 0;
  for (int64_t i = 0; of.attends && of.is_latent() && i < of.heads; ++i) {
    add_part(config, Part::latent_head, layer, i, &list);
  }
  for (int64_t i = 0; i < experts; ++i) add_part(config, Part::expert, layer, i, &list);
  return list;
}

std::vector<MatrixTensor> model_matrices(const ModelConfig& config) {
  std::vector<MatrixTensor> list;
  for (const MatrixRow& row : kMatrixRows) {
    const int64_t count = row.part == Part::model ? 1 : row.part == Part::altup ? config.altup.inputs - 1 : 0;
    for (int64_t i = 0; i < count; ++i) add(config, config.layer[0], row, i, kNoExpert, &list);
  }
  return list;
}

std::vector<MatrixTensor> all_matrices(const ModelConfig& config) {
  std::vector<MatrixTensor> all = model_matrices(config);
  for (int64_t layer = 0; layer < config.layers; ++layer) {
    std::ranges::move(layer_matrices(config, layer), back_inserter(all));
  }
  all.push_back(head_matrix(config));
  return all;
}

MatrixTensor head_matrix(const ModelConfig& config) { return only_matrix(config, Part::head); }
MatrixTensor mtp_matrix(const ModelConfig& config) { return only_matrix(config, Part::mtp); }

Division division_of(const ModelConfig& config, const MatrixTensor& matrix, const Shares& shares) {
  // The head is divided by whole panels even in tests, since each panel has one most likely id.
  const bool is_head = matrix.role == MatrixRole::head;
  if (matrix.divided_by == panels) return {matrix.n, is_head ? kPanelColumns : shares.unit};
  if (matrix.divided_by != kv_heads || matrix.head != kNoHead) return {matrix.n, matrix.n};
  return {matrix.n, matrix.n / config.layer[matrix.layer].divided_heads()};
}

RowRange own_rows(const ModelConfig& config, const MatrixTensor& matrix, const Shares& shares) {
  if (matrix.divided_by == DividedBy::nothing) return {0, matrix.n};
  if (matrix.head != kNoHead) {
    const RowRange heads = Division{config.layer[matrix.layer].heads, 1}.own(shares);
    return {0, heads.first <= matrix.head && matrix.head < heads.first + heads.count ? matrix.n : 0};
  }
  return division_of(config, matrix, shares).own(shares);
}

std::vector<VectorTensor> layer_vectors(const ModelConfig& config, int64_t layer) {
  const LayerConfig& of = config.layer[layer];
  std::vector<VectorTensor> list;
  for (const VectorRow& row : kVectorRows) {
    const std::string pattern = numbered(of, config.name(row.key));
    const int64_t rows = row.rows ? row.rows(config, of) : 1;
    const int64_t n = has_part(of, row.part) && !pattern.empty() ? row.n(config, of) * rows : 0;
    if (n == 0) continue;
    const std::string module = module_name(pattern, layer);
    const bool is_head_norm = row.form == F::head_norm;
    list.push_back({row.role, module + std::string(row.suffix), n, row.form, row.synthetic,
                    is_head_norm ? n / of.head_dim : rows, false,
                    is_head_norm ? rotated(config, of.head_dim) : RowOrder{}});
    const bool is_conv = row.form == F::convolution;
    const bool is_biased =
        is_head_norm ? config.qk_norm == QkNorm::layer_norm : row.form == F::norm && config.norm_bias;
    if (!(is_conv ? config.recurrence.conv_bias : is_biased)) continue;
    list.push_back({row.role, module + ".bias", is_conv ? config.recurrence.channels() : n, F::plain, 0.1f, 1, true});
  }
  return list;
}

}  // namespace pinion
