// The architecture of a model in numbers: config.json, read with the description of its family (configs/models).
// Fields of config.json that nothing here reads are errors if transformers reads them for the family, else ignored.
#pragma once

#include "kernels/base/error.h"
#include "kernels/kernels.h"
#include "loader/checkpoint/checkpoint.h"
#include "loader/quant/quantization.h"

namespace pinion {

// none: no context extension; proportional: only some pairs of a whole head turn (Gemma 4)
enum class RopeKind : uint8_t { none, linear, dynamic, yarn, llama3, longrope, proportional };

// Rotary embedding. Names as in transformers' modeling_rope_utils.py; the kinds in brackets use the field.
struct Rope {
  RopeKind kind = RopeKind::none;
  double theta = 10000.0;
  int64_t dims = 0;                    // rotated elements of a head, its first ones; even; 0: only scales queries
  int64_t turning = 0;                 // [proportional] of `dims`: the frequencies of the others are 0
  double factor = 1.0;                 // [all but none] context extension
  int64_t original_max_positions = 0;  // [yarn, llama3, longrope] context length of pretraining
  double low_freq_factor = 0.0, high_freq_factor = 0.0;  // [llama3]
  std::optional<double> attention_factor;     // [yarn, longrope] absent: from factor, mscale and mscale_all_dim
  double mscale = 0.0, mscale_all_dim = 0.0;  // [yarn] 0: absent
  double beta_fast = 32.0, beta_slow = 1.0;   // [yarn]
  bool truncate = true;                       // [yarn] rounds the ends of the ramp to integers
  // Queries times 1 + beta * log(1 + floor((position + query_offset) / original_max_positions))
  double query_beta = 0.0;
  double query_power = 0.0;  // not 0: instead, times (1 + (position + query_offset) / original_max_positions)^power
  int64_t query_offset = 0;
  std::vector<double> short_factor;  // [longrope] [dims / 2] for sequences within original_max_positions
  std::vector<double> long_factor;   // [longrope] [dims / 2] for longer sequences
};

// Normalisation of queries and keys.
enum class QkNorm : uint8_t {
  none,
  heads,             // RMSNorm over head_dim of each head, before the rotation
  rotated_heads,     // RMSNorm over head_dim of each head, after the rotation
  all_heads,         // RMSNorm over all heads of q together, and of k, before the rotation
  layer_norm_heads,  // LayerNorm over head_dim, with separate weights for each head, before the rotation
  layer_norm,        // LayerNorm over head_dim, with the same weights and biases for all heads, before the rotation
};

// Multi-head latent attention (DeepSeek-V2): keys and values of all heads are projections of one narrow vector, the
// latent. The cache has one kv head: the key is a rotated part, followed by the normed latent, which is also the value.
// A head projects its query to the latent before attention and its value from the attended latent (LayerConfig).
struct LatentConfig {
  int64_t rank = 0;        // width of the latent; 0: plain attention
  int64_t query_rank = 0;  // width of the latent of queries; 0: queries are projected from the layer's input
  int64_t rope_dims = 0;   // rotated elements of a query; packed first, stored last in the file
  int64_t nope_dims = 0;   // its other elements, which a head projects to the latent
  float norm_eps = 1e-6f;  // of the norms of both latents; config.json's rms_norm_eps does not apply to them
};

// AltUp, alternating updates (Baykal et al. 2023): several residual vectors a token. A layer computes one of them and
// predicts the others with small matrices of its own.
struct AltupConfig {
  int64_t inputs = 0;  // residual vectors a token; 0: no AltUp
  int64_t active = 0;  // index of the one that layers compute
  bool scales = true;  // altup_scale multiplies the input of the layer's gate (layer_gate)
};

// Per-layer embeddings (Gemma 3n): each layer has its own embedding of the token and adds it, gated, to the residual.
struct LayerInputConfig {
  int64_t size = 0;        // width of one layer's embedding; 0: none
  int64_t vocab_size = 0;  // tokens from here on use the embeddings of token 0
};

// Mixture of experts: instead of one mlp a layer has several, of which a router chooses some for every token.
struct ExpertsConfig {
  int64_t count = 0;             // 0: the model has no experts
  int64_t per_token = 0;         // experts that a token activates, at most count
  int64_t inner_size = 0;        // intermediate size of one expert
  bool normalised = true;        // the weights of the chosen experts sum to 1; false: the weights of all experts do
  int64_t shared_size = 0;       // intermediate size of the expert that every token activates; 0: none
  bool corrects_logits = false;  // corrections for the choice are added to logits; false: to scores
  bool sigmoid = false;          // scores are sigmoids of the router's logits; false: their softmax
  float scale = 1.0f;            // factor of the weights
  // Group-limited routing (DeepSeek): experts of the groups_kept best of `groups` equal groups may be chosen. The score
  // of a group is the sum of its group_best highest scores.
  int64_t groups = 1, groups_kept = 1, group_best = 1;
  bool router_bias = false;
  float near = 0.0f;           // SparseMixer: largest relative distance of logits that share a softmax; 0: other rules
  bool fused = false;          // the experts of a layer share tensors, transposed (loader/quant/stored_weights.h)
  bool halves = false;         // fused without biases, and gate's columns precede up's
  bool stacked = false;        // the experts of a layer share tensors [experts, rows, inputs]
  bool flat = false;           // gate, up and down, transposed, are NAME [experts * inner_size, hidden]
  bool scales_inputs = false;  // weights are factors of the experts' inputs; false: of their outputs
  bool mxfp4 = false;          // fused experts are MXFP4 codes

  // Bytes (or parameters) of the experts that `tokens` tokens can activate, out of `all` bytes of all experts.
  int64_t max_active(int64_t all, int64_t tokens) const {
    return count > 0 ? all / count * std::min(count, tokens * per_token) : 0;
  }
};

// Recurrent layers keep a state of fixed size instead of keys and values.
enum class RecurrenceKind : uint8_t {
  gated_delta,  // gated DeltaNet: a convolution over time, then the delta rule in each head
  short_conv,   // a convolution over time between two gates, without heads and keys (LFM2)
  mamba2,       // a convolution over time, then a decaying state for each head (Dao and Gu 2024)
  mamba1,       // the same with a decay for each element of the state (Gu and Dao 2023); heads are runs of channels
  rg_lru,       // a convolution over time, then a sum that decays in each channel (De et al. 2024, "Griffin")
};

// Shape of the recurrent layers. Each key head serves value_heads / key_heads value heads. A short_conv has one value
// head, which spans all channels, and no keys.
struct Recurrence {
  RecurrenceKind kind = RecurrenceKind::gated_delta;
  int64_t key_heads = 0, value_heads = 0;
  int64_t key_dim = 0;            // of a head's keys and queries
  int64_t value_dim = 0;          // of a head's values
  int64_t taps = 0;               // length of the convolution
  bool by_key_head = false;       // the file groups the rows of the input matrices by key head
  bool tiled_heads = false;       // value heads h, h + key_heads, ... belong to key head h; false: consecutive ones do
  bool negative_rates = false;    // state_rate holds the negative rates; false: their logarithms
  bool conv_bias = false;         // of the convolution
  bool proj_bias = false;         // of the matrices before it
  bool out_bias = false;          // of the matrix after it
  bool key_decays = false;        // [gated_delta] keys decay by channel, and output gates are sigmoids (Kimi Linear)
  float decay_bound = 0.0f;       // [key_decays] see Kernels::decay
  int64_t step_rank = 0;          // [mamba1] width from which the steps are projected; [key_decays] also gates
  float write_scale = 1.0f;       // [gated_delta] factor of the write gates
  float norm_eps = 0.0f;          // of the output norm; [mamba1] of the norms of steps, keys and queries
  bool unit_norms = false;        // [mamba1] these norms have no weights
  bool norm_before_gate = false;  // [mamba2] the norm precedes the gate
  int64_t norm_groups = 0;        // [mamba2] slices of the output that are normalised separately; 0: no norm
  float value_scale = 1.0f, key_scale = 1.0f, query_scale = 1.0f;  // factors of the convolution's inputs

  int64_t key_head(int64_t head) const { return tiled_heads ? head % key_heads : head / (value_heads / key_heads); }
  int64_t key_width() const { return key_heads * key_dim; }
  int64_t value_width() const { return value_heads * value_dim; }
  bool has_heads() const { return key_dim > 0; }
  bool is_mamba() const { return kind == RecurrenceKind::mamba1 || kind == RecurrenceKind::mamba2; }
  bool by_channel() const { return kind == RecurrenceKind::mamba1 || kind == RecurrenceKind::rg_lru; }
  bool is_linear_conv() const { return kind == RecurrenceKind::short_conv || kind == RecurrenceKind::rg_lru; }
  // Channels of the convolution: q, k, v of all heads; mamba2: v, k, q; by_channel: v; mamba1 computes k and q of it.
  int64_t channels() const { return (by_channel() ? 0 : 2 * key_width()) + value_width(); }
  // Decays or steps of a head for one token, and floats of its state: [value_dim / 16, rounded up][key_dim][16].
  int64_t decays() const { return by_channel() ? value_dim : key_decays ? key_dim : 1; }
  int64_t head_floats() const { return (value_dim + 15) / 16 * 16 * key_dim; }
  float input_scale(int64_t channel) const {
    if (kind != RecurrenceKind::mamba2 || channel < value_width()) return value_scale;
    return channel < value_width() + key_width() ? key_scale : query_scale;
  }
  // Weights of the output norm.
  int64_t norm_width() const {
    return kind == RecurrenceKind::gated_delta ? value_dim : norm_groups > 0 ? value_width() : 0;
  }
  // Rows of state_b: write gates, one for each head; in a short_conv one for each channel; mamba1: keys and queries.
  int64_t write_gates() const {
    return by_channel() ? 2 * key_dim : kind == RecurrenceKind::short_conv ? channels() : value_heads;
  }
};

// Factors of the outputs of some matrices (Falcon-H1).
struct OutputScales {
  float qkv = 1.0f, key = 1.0f, value = 1.0f;  // k, v, state_z and state_a are multiplied by both of theirs
  float o = 1.0f, gate = 1.0f, down = 1.0f;
  float state_in = 1.0f, state_z = 1.0f, state_a = 1.0f, state_out = 1.0f;
  float experts = 1.0f;      // of down of experts and the shared expert
  float layer_input = 1.0f;  // Gemma 3n: 1 / sqrt(hidden_size)
  float router = 1.0f;       // Gemma 4: the same
};

// "model.layers.{}.mlp.up_proj", 3 -> "model.layers.3.mlp.up_proj"
std::string module_name(std::string_view pattern, int64_t layer);
// "model.layers.{}.mlp.experts.{}.up_proj", 3, 7 -> "model.layers.3.mlp.experts.7.up_proj"
std::string module_name(std::string_view pattern, int64_t layer, int64_t expert);

// Multi-token prediction: a layer beside the model that predicts the token after the next.
inline constexpr std::string_view kMtpPrefix = "mtp.";  // of its tensors
struct MtpConfig {
  int64_t layers = 0;                // according to config.json; 0: none
  bool dedicated_embedding = false;  // the layer has its own embedding and head
};

constexpr int32_t kNoRope = -1;
constexpr int64_t kOwnKv = -1;
constexpr int64_t kNoNumber = -1;  // the file has the same layers

// One layer. Everything that may differ from layer to layer is resolved when the config is read.
struct LayerConfig {
  bool attends = true;              // has attention
  bool recurrent = false;           // has a recurrent state, usually instead of attention
  bool has_mlp = true;              // or experts
  bool has_experts = false;         // instead of an mlp, except for the shared expert
  int64_t heads = 0, kv_heads = 0;  // kv_heads divides heads
  int64_t head_dim = 0;             // of queries and keys, even
  int64_t value_dim = 0;            // of values; may differ from head_dim
  int64_t latent_values = 0;        // width to which a head projects what it attends to; 0: no latent attention
  bool has_sinks = true;            // if the family has sinks
  bool values_are_keys = false;     // values are the keys before norm and rope; there is no v
  int64_t mlp_size = 0;             // intermediate size
  int64_t window = 0;               // positions that a token attends to, including its own; 0: all
  bool chunked = false;             // instead, its chunk: the window begins at a multiple of its size
  int32_t rope = 0;                 // index in ModelConfig::ropes; kNoRope: no positional encoding
  int64_t kv_layer = kOwnKv;        // the earlier layer whose keys and values it reads
  float gate_sparsity = 0.0f;       // fraction of the gate's outputs to set to zero
  bool is_block = false;            // reads the embedding, too; only the recurrence behind it reads its output (Zamba)
  bool follows_block = false;       // is that recurrence
  int64_t number = kNoNumber;       // of the layer in the file, where blocks are no layers

  // The first position that the token at `position` attends to.
  int64_t first_seen(int64_t position) const {
    if (chunked && window > 0) return position - position % window;
    return window > 0 ? std::max<int64_t>(0, position + 1 - window) : 0;
  }
  bool owns_kv() const { return kv_layer == kOwnKv; }
  int64_t group() const { return heads / kv_heads; }  // query heads of a kv head
  bool is_latent() const { return latent_values > 0; }
  int64_t divided_heads() const { return is_latent() ? heads : kv_heads; }  // among boards, with what belongs to them
  int64_t attended() const { return heads * (is_latent() ? latent_values : value_dim); }  // width of the heads' outputs
};

struct ModelConfig {
  std::string family;        // "llama": the name of the file in configs/models
  std::string architecture;  // "LlamaForCausalLM": as in config.json
  int64_t layers = 0;
  std::vector<LayerConfig> layer;  // [layers]
  int64_t hidden_size = 0, vocab_size = 0, max_positions = 0;
  int64_t extra_rows = 0;     // of the embedding behind those of vocab_size: ids of images or sounds
  int64_t position_rows = 0;  // of the embedding of positions, of which the last max_positions count; 0: none

  float norm_eps = 0.0f;
  bool layer_norm = false;  // LayerNorm; false: RMSNorm. qk_norm is independent of it
  bool norm_bias = false;
  bool norm_weights = true;       // false: norms have none
  bool lacks_first_norm = false;  // the first layer has no attention_norm, since embeddings are normed
  bool embedding_norm = false;    // the final norm is applied to embeddings, too
  float norm_offset = 0.0f;       // added to the weights of every norm, except of a recurrent layer's output
  bool transposed = false;        // the file stores the layers' matrices transposed
  bool tied_head = false;         // the head is the embedding
  bool has_head = true;           // false: a base model or a classifier, which embeds or scores texts only
  bool qkv_by_head = false;       // q, k and v share a tensor that holds them head by head
  int64_t qkv_blocks = 0;         // that tensor holds them by so many blocks of heads; 0: by head
  float qkv_limit = 0.0f;         // q, k and v are clamped to +-limit behind the norms of whole rows; 0: no limit
  bool head_bias = false, qkv_bias = false, o_bias = false, mlp_bias = false;  // mlp: of gate, up and down

  bool attends_both_ways = false;  // tokens attend to the whole text; with a window, to positions closer than it
  bool counts_both_sides = false;  // then: the file's window is that of both sides together (Gemma)
  QkNorm qk_norm = QkNorm::none;
  bool value_norm = false;      // RMSNorm without weights over each head's value
  bool attention_gate = false;  // q's rows are, for each head, queries and gates: attention's output * sigmoid(gate)
  bool gate_by_head = false;    // attention_gate has one gate per head
  bool gate_softplus = false;   // gates are softplus(x); false: sigmoid(x)
  Activation activation = Activation::silu;
  float activation_limit = 0.0f;    // of clamped_swiglu
  bool parallel_branches = false;   // attention and mlp have the same input: x + attention(x) + mlp(x)
  bool shared_norm = false;         // parallel branches also share attention_norm
  float embedding_scale = 1.0f;     // factor of embeddings
  float score_scale = 1.0f;         // factor of attention scores, usually 1 / sqrt(head_dim)
  float score_cap = 0.0f;           // then cap * tanh(score / cap); 0: no cap
  std::vector<float> score_slopes;  // [heads] of ALiBi: slope * (key - query position) is added; empty: none
  float branch_scale = 1.0f;        // factor of the outputs of attention and mlp before they are added to x
  float logit_scale = 1.0f;         // factor of logits
  float logit_cap = 0.0f;           // then cap * tanh(logit / cap); 0: no cap
  OutputScales output_scales;
  int64_t laurel_rank = 0;  // LAuReL (Gemma 3n): a low-rank branch beside attention; 0: none

  std::vector<Rope> ropes;        // one, or one for layers without a window and one for layers with a window
  bool rope_reversed = false;     // heads are rotated by the negative angle
  bool rope_interleaved = false;  // the file stores the two elements of a rotated pair next to each other (GPT-J)

  Recurrence recurrence;  // of all recurrent layers
  LatentConfig latent;
  AltupConfig altup;
  LayerInputConfig layer_input;
  ExpertsConfig experts;
  MtpConfig mtp;
  // Names of modules by their keys in the family's description (configs/families.h). A module's tensors are NAME.weight
  // and, if it has one, NAME.bias. The first "{}" stands for the layer, the second for the expert (in q_norm and
  // k_norm: for the head; in state_conv: for q, k and v). If q, k and v, or gate and up, have the same name, they share
  // a tensor: their rows follow one another, or alternate head by head with qkv_by_head.
  std::map<std::string, std::string, std::less<>> names;
  TensorSelection tensors;
  std::optional<Quantization> quantization;  // modules stored as codes; absent: none
  std::optional<int64_t> bos_id;
  std::vector<int64_t> eos_ids;
  std::vector<std::string> ignored_fields;  // of config.json: unknown here and to transformers
  std::vector<std::string> assumed_sizes;   // "head_dim (128 assumed)": family defaults for sizes config.json lacks

  // Empty: the family has no such module.
  const std::string& name(std::string_view key) const {
    static const std::string kNone;
    const auto found = names.find(key);
    return found == names.end() ? kNone : found->second;
  }
  // Rows of the weights of q_norm (of_heads: heads) or k_norm (kv_heads).
  int64_t qk_norm_rows(int64_t of_heads) const {
    return qk_norm == QkNorm::all_heads || qk_norm == QkNorm::layer_norm_heads ? of_heads : 1;
  }
  // Rows of q for a head of a layer, without and with its gates.
  int64_t query_dim(const LayerConfig& of) const {
    return of.is_latent() ? latent.rope_dims + latent.nope_dims : of.head_dim;
  }
  int64_t query_stride(const LayerConfig& of) const { return (attention_gate ? 2 : 1) * query_dim(of); }
  // The largest value of a size in any layer.
  template <class Size>  // a field or a method of LayerConfig
  int64_t largest(Size size) const {
    return std::invoke(size, std::ranges::max(layer, {}, size));
  }
};

constexpr int64_t kMaxLayers = 1024;
constexpr int64_t kMaxExperts = 4096;
constexpr int64_t kMaxExpertGroups = 64;  // also the limit of group_best
constexpr int64_t kMaxHeadDim = 1024;
constexpr int64_t kMaxAltupInputs = 8;
constexpr int64_t kMaxConvTaps = 16;
constexpr int64_t kMaxVocabulary = int64_t{1} << 24;
constexpr int64_t kMaxPositions = int64_t{1} << 30;

int64_t attention_layers(const ModelConfig& config);
int64_t recurrent_layers(const ModelConfig& config);
// Appends the assumed sizes to an error about sizes or tensors: a wrong assumption may be the cause.
Error with_assumed_sizes(const ModelConfig& config, Error e);

// `where` names the text in errors. has_row: the text may have kGgufRow (loader/gguf/gguf_folder.h).
Error parse_model_config(std::string_view text, const std::string& where, ModelConfig* out, bool has_row = false);
Error read_model_config(const std::filesystem::path& folder, ModelConfig* out);

// Renames the tensors of a checkpoint that has the language model under another prefix than the family, such as
// "language_model.model.layers.0" or, saved from the base model, "layers.0". An error if several prefixes fit.
Error align_names(ModelConfig* config, Checkpoint* checkpoint);

// True for tensors of modules that a multimodal, reward or draft model has beside the language model, which does not
// need them. False for all others that the model does not read: they may be part of its computation.
bool is_beside_model(const ModelConfig& config, std::string_view tensor);

// The model's MTP layer as a model of one attention layer, with its own names and tensors. An error if the model has
// none, or one of an unsupported kind.
Error mtp_config(const ModelConfig& model, ModelConfig* out);

}  // namespace pinion
