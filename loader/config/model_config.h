// What a model is, in plain numbers: config.json read with the help of its family's description (configs/models).
// Fields of the file that nothing here reads are refused where transformers reads them
// (loader/config/other_fields.cpp).
#pragma once

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/base/error.h"
#include "kernels/kernels.h"
#include "loader/checkpoint/checkpoint.h"
#include "loader/quant/quantization.h"

namespace pinion {

enum class RopeKind : uint8_t { none, linear, dynamic, yarn, llama3, longrope };  // none: plain rotation, no scaling

// Names as in transformers' modeling_rope_utils.py; a field belongs to the kinds in brackets.
struct Rope {
  RopeKind kind = RopeKind::none;
  double theta = 10000.0;
  int64_t dims = 0;                        // leading elements of a head that are rotated; even
  double factor = 1.0;                     // [linear, dynamic, yarn, llama3, longrope]
  int64_t original_max_positions = 0;      // [yarn, llama3, longrope] the context of the first training
  double low_freq_factor = 0.0;            // [llama3]
  double high_freq_factor = 0.0;           // [llama3]
  std::optional<double> attention_factor;  // [yarn, longrope] absent: from factor, mscale and mscale_all_dim
  double mscale = 0.0;                     // [yarn] 0: not given
  double mscale_all_dim = 0.0;             // [yarn] 0: not given
  double beta_fast = 32.0;                 // [yarn]
  double beta_slow = 1.0;                  // [yarn]
  bool truncate = true;                    // [yarn] whole numbers as borders of the ramp
  double query_beta = 0.0;                 // queries times 1 + beta * log(1 + floor(position / original_max_positions))
  std::vector<double> short_factor;        // [longrope] [dims / 2] for sequences within original_max_positions
  std::vector<double> long_factor;         // [longrope] [dims / 2] for longer ones
};

// What a norm does to queries and keys: RMSNorm but where it says LayerNorm.
enum class QkNorm : uint8_t {
  none,
  heads,          // over head_dim of every head, before the rotation
  rotated_heads,  // over head_dim of every head, after the rotation
  all_heads,      // over all heads of q together, and all of k, before the rotation
  own_heads,      // LayerNorm over head_dim of every head with weights of its own, before the rotation
};

// Attention whose keys and values are made of one narrow vector (DeepSeek's latent attention). A head's key is what a
// rope turned of a vector that all heads share, and what it does not turn.
struct LatentConfig {
  int64_t rank = 0;        // of that vector; 0: attention is plain
  int64_t query_rank = 0;  // likewise of what queries are made of; 0: of the stream itself
  int64_t rope_dims = 0;   // of a head; here they come first, in the file last
  int64_t value_dim = 0;   // of a head's values
  float norm_eps = 1e-6f;  // of both vectors' norms, whatever the others' is
};

// Alternating updates (Baykal et al. 2023): several residual streams, of which a layer computes one. The others follow
// by small matrices of each layer's.
struct AltupConfig {
  int64_t streams = 0;  // 0: there is one stream, without any of this
  int64_t active = 0;   // the one that layers compute
  bool scales = true;   // by altup_scale, what a layer's gate reads
};

// Each layer has embeddings of its own, which a gate lets into the streams behind it.
struct LayerInputConfig {
  int64_t size = 0;        // of one; 0: there are none
  int64_t vocab_size = 0;  // tokens beyond it have token 0's
};

// A mixture of experts: instead of its mlp a layer has several, of which a router chooses some for every token.
struct ExpertsConfig {
  int64_t count = 0;        // 0: the model has none
  int64_t per_token = 0;    // how many a token goes to, at most count
  int64_t inner_size = 0;   // what intermediate_size is to a layer's own mlp
  bool normalised = true;   // the chosen experts' weights add up to 1; else those of all do
  int64_t shared_size = 0;  // likewise of the expert that every token goes to besides; 0: there is none
  bool sigmoid = false;     // scores are sigmoids of the router's logits, else exponentials
  float scale = 1.0f;       // of the weights
  // Experts lie in as many groups, and those of so many groups can be chosen: of the ones with the largest sums of
  // their best so many scores.
  int64_t groups = 1, groups_kept = 1, group_best = 1;
  bool router_bias = false;
  bool fused = false;        // a layer's experts share their tensors, see loader/checkpoint/fused_experts.h
  bool stacked = false;      // likewise, but gate, up and down are rows of [experts, rows, inputs]
  bool mxfp4 = false;        // fused ones are in the file as 4-bit codes
  std::vector<bool> layers;  // [layers] which have experts; empty where the model has none

  // The most bytes (or parameters) of `all` experts together that a pass of `tokens` reads.
  int64_t part_read(int64_t all, int64_t tokens) const {
    return count > 0 ? all / count * std::min(count, tokens * per_token) : 0;
  }
};

// Modules by name; "{}" stands for the layer, a second one for the expert. A module's tensors are NAME.weight and,
// where it has one, NAME.bias. What the family does not have is empty. Those of q, k and v, or of gate and up, that
// share a name share its tensors: their rows follow one another, or (qkv_by_head) those of each head do. A second "{}"
// in those of q_norm and k_norm stands for the head.
struct ModuleNames {
  std::string embedding, final_norm, head;
  std::string attention_norm, q, k, v, o, q_norm, k_norm, o_norm, attention_out_norm;
  std::string q_a, q_a_norm, q_b, kv_a, kv_a_norm, kv_b;  // of latent attention
  std::string sinks;                                      // a tensor, not a module
  std::string mlp_norm, gate, up, down, down_norm,
      mlp_out_norm;   // no gate: activation(up x) instead of activation(gate x) * (up x)
  std::string xielu;  // its module has numbers of its own
  std::string laurel_left, laurel_right, laurel_norm;
  std::string layer_embedding, layer_input, layer_input_norm;  // the model's
  std::string layer_gate, layer_out, layer_out_norm;           // each layer's
  std::string altup_in, altup_out;                             // "{}" stands for the stream, less one
  std::string altup_norm, altup_router, altup_prediction, altup_correction;
  std::string altup_scale;  // a tensor, not a module
  std::string router, expert_gate, expert_up, expert_down;
  std::string stacked_gate_up, stacked_down;  // tensors of all experts, which take the place of the others where found
  std::string router_correction;              // a tensor, not a module: added to scores when choosing
  std::string shared_gate, shared_up, shared_down;  // of the expert that every token goes to
  std::string shared_weight;                        // of one row, whose sigmoid weighs that expert's output
  // Of recurrent layers; rate, step and skip are tensors, not modules.
  std::string state_qkv, state_z, state_b, state_a, state_conv, state_rate, state_step, state_skip, state_norm;
  std::string state_out;
  std::string mtp_fc, mtp_embedding_norm, mtp_hidden_norm, mtp_norm;
  std::string mtp_layer;  // what the MTP layer's modules have in the place of "model.layers.{}"
};

// What a recurrent layer does with its tokens. It keeps a state of fixed size in place of keys and values.
enum class RecurrenceKind : uint8_t {
  gated_delta,  // gated DeltaNet: a convolution over time, then the delta rule in each head
  short_conv,   // that convolution between two gates, and no more: no heads, no keys (LFM2)
  mamba2,       // that convolution, then a state per head that decays and is added to (Dao and Gu 2024)
};

// Each key head serves value_heads / key_heads neighbouring value heads. A short_conv has one value head, of all
// channels, and no keys.
struct Recurrence {
  RecurrenceKind kind = RecurrenceKind::gated_delta;
  int64_t key_heads = 0;
  int64_t value_heads = 0;
  int64_t key_dim = 0;       // of a head, queries' too
  int64_t value_dim = 0;     // of a head
  int64_t taps = 0;          // of the convolution over time
  bool by_key_head = false;  // in the file each key head has its rows of all matrices but the last
  bool conv_bias = false;    // the convolution has one
  bool proj_bias = false;    // so have the matrices before it
  bool out_bias = false;     // and the one behind it
  int64_t norm_groups =
      0;  // [mamba2] parts of the output's width that are normed, each for itself; 0: there is no norm
  float value_scale = 1.0f, key_scale = 1.0f, query_scale = 1.0f;  // of the convolution's inputs

  int64_t key_width() const { return key_heads * key_dim; }
  int64_t value_width() const { return value_heads * value_dim; }
  bool has_heads() const { return key_dim > 0; }
  // Of the convolution: q, k, v of all heads; mamba2: v, k, q.
  int64_t channels() const { return 2 * key_width() + value_width(); }
  float input_scale(int64_t channel) const {
    if (kind != RecurrenceKind::mamba2 || channel < value_width()) return value_scale;
    return channel < value_width() + key_width() ? key_scale : query_scale;
  }
  // Of the norm of the output.
  int64_t norm_width() const {
    return kind == RecurrenceKind::gated_delta ? value_dim : norm_groups > 0 ? value_width() : 0;
  }
  // Of b: how much a token writes to each head, or to each channel.
  int64_t writes() const { return kind == RecurrenceKind::short_conv ? channels() : value_heads; }
};

// What some matrices' outputs are multiplied by (Falcon-H1).
struct OutputScales {
  float qkv = 1.0f;
  float key = 1.0f;  // besides
  float o = 1.0f;
  float gate = 1.0f, down = 1.0f;
  float state_z = 1.0f, state_a = 1.0f, state_out = 1.0f;
};

// "model.layers.{}.mlp.up_proj", 3 -> "model.layers.3.mlp.up_proj"
std::string module_name(std::string_view pattern, int64_t layer);

// "model.layers.{}.mlp.experts.{}.up_proj", 3, 7 -> "model.layers.3.mlp.experts.7.up_proj"
std::string module_name(std::string_view pattern, int64_t layer, int64_t expert);

inline constexpr std::string_view kMtpPrefix = "mtp.";  // of its tensors

// A layer beside the model that predicts one token more (multi-token prediction).
struct MtpConfig {
  int64_t layers = 0;          // that the config speaks of; 0: none
  bool own_embedding = false;  // instead of the model's embedding and head
};

struct ModelConfig {
  std::string family;        // "llama", the name of the file in configs/models
  std::string architecture;  // "LlamaForCausalLM", as the file has it
  int64_t layers = 0;
  int64_t hidden_size = 0;
  int64_t intermediate_size = 0;            // the largest
  std::vector<int64_t> intermediate_sizes;  // [layers] where they differ; else empty
  int64_t heads = 0;
  int64_t kv_heads = 0;  // divides heads
  int64_t head_dim = 0;  // even; of queries and keys, and of values but in latent attention
  int64_t vocab_size = 0;
  int64_t max_positions = 0;
  float norm_eps = 0.0f;
  bool layer_norm = false;  // instead of RMSNorm, but for q and k
  bool norm_bias = false;
  bool tied_head = false;  // the head is the embedding
  bool head_bias = false;
  bool qkv_by_head = false;  // q, k and v are one tensor, in which each head has its rows of all three
  bool qkv_bias = false;
  bool o_bias = false;
  bool mlp_bias = false;  // gate, up and down
  QkNorm qk_norm = QkNorm::none;
  bool value_norm = false;      // RMSNorm without weights over every head's value
  float norm_offset = 0.0f;     // added to every norm's weights, but for that of a recurrent layer's output
  bool attention_gate = false;  // q's rows are, per head, queries and gates: attention's output times sigmoid(gate)
  Activation activation = Activation::silu;
  float activation_limit = 0.0f;   // clamped_swiglu's
  bool parallel_branches = false;  // attention and mlp read the stream as the layer gets it
  bool one_norm = false;           // and both what attention_norm makes of it
  float embedding_scale = 1.0f;    // embeddings times this
  float score_scale = 1.0f;        // attention scores times this, usually 1 / sqrt(head_dim)
  float score_cap = 0.0f;          // then cap * tanh(score / cap); 0: no cap
  float branch_scale = 1.0f;       // what attention and mlp add to the residual stream, times this
  float logit_scale = 1.0f;        // logits times this
  float logit_cap = 0.0f;          // then cap * tanh(logit / cap); 0: no cap
  OutputScales output_scales;
  std::vector<bool> attends;         // [layers] those that attend to keys and values
  std::vector<bool> recurrent;       // [layers] those that keep a state, most in place of attention
  std::vector<bool> mlps;            // [layers] those with an mlp or experts; empty: all
  Recurrence recurrence;             // what they are, where there are any
  std::vector<int64_t> windows;      // [layers] positions that a token sees, itself included; 0: all
  std::vector<int64_t> kv_layers;    // [layers] whose keys and values each reads; empty: its own
  std::vector<float> gate_sparsity;  // [layers] the part of a gate's outputs that is to be zero; empty: none
  std::vector<Rope> ropes;           // one, or one for layers without a window and one for those with it
  std::vector<int32_t> layer_ropes;  // [layers] which of them; kNoRope: the layer does not know positions
  bool rope_of_neighbours = false;   // the file has the two numbers that a rope turns side by side
  LatentConfig latent;
  AltupConfig altup;
  int64_t laurel_rank = 0;  // of a product that attention's branch is averaged with; 0: there is none
  LayerInputConfig layer_input;
  ExpertsConfig experts;
  MtpConfig mtp;
  std::optional<int64_t> bos_id;
  std::vector<int64_t> eos_ids;
  ModuleNames names;
  TensorSelection tensors;
  std::vector<std::string> ignored_fields;   // by name: unknown, and transformers does not read them either
  std::vector<std::string> assumed_sizes;    // "head_dim (128 taken)": the family's, where the file does not say them
  std::optional<Quantization> quantization;  // which modules the files hold as codes, and how; absent: none

  // Of this many heads: how many have weights of their own in the norms of q or k.
  int64_t qk_norm_rows(int64_t of_heads) const {
    return qk_norm == QkNorm::all_heads || qk_norm == QkNorm::own_heads ? of_heads : 1;
  }
  int64_t value_dim() const { return latent.rank > 0 ? latent.value_dim : head_dim; }
  int64_t query_stride() const { return (attention_gate ? 2 : 1) * head_dim; }  // of q's rows: a query and its gate
  bool has_mlp(int64_t layer) const { return mlps.empty() || mlps[static_cast<size_t>(layer)]; }
  bool owns_kv(int64_t layer) const { return kv_layers.empty() || kv_layers[static_cast<size_t>(layer)] == layer; }
  int64_t mlp_size(int64_t layer) const {
    return intermediate_sizes.empty() ? intermediate_size : intermediate_sizes[static_cast<size_t>(layer)];
  }
  bool has_sparse_gate(int64_t layer) const {
    return !gate_sparsity.empty() && gate_sparsity[static_cast<size_t>(layer)] > 0.0f;
  }
  bool has_experts(int64_t layer) const { return experts.count > 0 && experts.layers[static_cast<size_t>(layer)]; }
};

constexpr int32_t kNoRope = -1;
constexpr int64_t kMaxLayers = 1024;
constexpr int64_t kMaxExperts = 4096;
constexpr int64_t kMostGroups = 64;  // of experts; and of a group's best
constexpr int64_t kMaxHeadDim = 1024;
constexpr int64_t kMostStreams = 8;
constexpr int64_t kMaxConvTaps = 16;
constexpr int64_t kMaxVocabulary = int64_t{1} << 24;
constexpr int64_t kMaxPositions = int64_t{1} << 30;

int64_t attention_layers(const ModelConfig& config);
int64_t cached_layers(const ModelConfig& config);  // of these, those whose keys and values are their own
int64_t recurrent_layers(const ModelConfig& config);

// An error of sizes or tensors, with the sizes that config.json does not say: one of them may be the reason.
Error with_assumed_sizes(const ModelConfig& config, Error e);

// `where` names the text in errors.
Error parse_model_config(std::string_view text, const std::string& where, ModelConfig* out);

Error read_model_config(const std::filesystem::path& folder, ModelConfig* out);

// --- mtp_config.cpp

// The model's MTP layer as a model of one layer that attends, with names and tensors of its own. An error where it has
// none, or one of another kind.
Error mtp_config(const ModelConfig& model, ModelConfig* out);

}  // namespace pinion
