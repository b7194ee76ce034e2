// The list of a model's tensors: names, shapes, roles. Loading, random weights, reports and scratch memory read it.
#pragma once

#include "loader/config/division.h"
#include "loader/config/model_config.h"
#include "loader/pack/pack.h"

namespace pinion {

// The stages of a pass, in their order. Profiles and traces have one entry per stage. A layer has only the stages of
// its tensors: o if it has attention, state_out if it has a recurrent state. In DeepSeek's attention, q_latent projects
// the queries from their latent, kv_latent each head's query to the latent of keys and values, and v_latent the head's
// output from what it attended to. An `_input` stage merges or norms the input of the next matrix, then quantises or
// packs it. state_x and state_dt project Mamba 1's keys and steps, or Kimi's gates and decays, from narrow vectors. The
// router stage chooses experts and, for several tokens, groups them by expert. altup and laurel belong to Gemma 3n,
// layer_gate and layer_out to Gemma 3n and 4.
enum class Stage : uint8_t {
  embed,
  altup,
  attention_norm,
  qkv,
  q_latent,
  kv_latent,
  laurel,
  state_x,
  state_dt,
  attention,
  v_latent,
  o_input,
  o,
  state_out,
  mlp_norm,
  router,
  gate_up,
  down_input,
  down,
  layer_gate,
  layer_out,
  final_norm,
  head,
};

constexpr size_t kStages = static_cast<size_t>(Stage::head) + 1;

// In reports, by Stage. altup is "streams" in those that are published.
constexpr std::string_view kStageNames[] = {
    "embed",    "streams",    "attention_norm", "qkv",        "q_latent",  "kv_latent",  "laurel",   "state_x",
    "state_dt", "attention",  "v_latent",       "o_input",    "o",         "state_out",  "mlp_norm", "router",
    "gate_up",  "down_input", "down",           "layer_gate", "layer_out", "final_norm", "head"};
static_assert(std::size(kStageNames) == kStages);

// Every worker repeats such a stage for a single token: that costs less than a barrier, and more workers do not help.
constexpr bool is_repeated(Stage stage) {
  using enum Stage;
  return stage == attention_norm || stage == o_input || stage == mlp_norm || stage == down_input || stage == final_norm;
}

// The matrices of a layer, then those of the model from `head` on. Matrices of one stage share their input and are
// consecutive. A layer has the matrices of attention (plain: q, k, v, o; latent: latent_* in place of k and v, and in
// most models of q; latent_k and latent_v once per head), of a recurrent state, or of both. Its mlp has gate, up and
// down; a layer with experts has the router, and gate, up and down once per expert. In such a layer gate, up and down
// without an expert's index belong to the shared expert. Some families have no gate, some layers no mlp. kMatrixRows
// (layer_tensors.cpp) describes each matrix: a new one is an enumerator, a row, and its use in a pass.
enum class MatrixRole : uint8_t {
  q,
  k,
  v,
  attention_gate,
  latent_q_a,
  latent_kv_a,
  latent_k_rope,
  state_qkv,  // or queries alone, before state_k and state_v
  state_k,
  state_v,
  state_z,
  state_b,         // write strength; short_conv: gates of the convolution's inputs
  state_a,         // decay rate; mamba2: step size
  state_a_narrow,  // input of state_dt
  state_z_narrow,  // input of state_z_wide
  laurel_left,
  latent_q,
  latent_k,
  latent_v,
  laurel_right,
  state_narrow,
  state_keys,  // and queries
  state_z_wide,
  state_dt,
  o,
  state_out,
  router,
  shared_weight,  // its sigmoid weighs the shared expert
  gate,
  up,
  down,
  layer_gate,
  layer_out,
  head,
  mtp_fc,
  layer_input,
  altup_in,
  altup_out,
  head_dense  // before the head, with an activation and a norm behind it
};
constexpr auto kMatrixRoles = static_cast<size_t>(MatrixRole::head);  // number of roles in a layer

constexpr int64_t kNoExpert = -1, kNoHead = -1;

// The rule by which boards divide the rows of a matrix (division.h).
enum class DividedBy : uint8_t {
  nothing,   // not divided: all rows on every board
  panels,    // in whole panels
  kv_heads,  // in whole kv heads, with the rows of their queries; with latent attention, in whole heads
  first,     // all rows on board 0, none on the others
};

// W [n, k] of y = alpha W x + bias.
struct MatrixTensor {
  MatrixRole role;
  Stage stage;          // multiplies the matrix
  std::string pattern;  // see module(); consecutive matrices with equal modules are row ranges of one tensor
  int64_t layer;        // 0 for the head; altup_in and altup_out: the index of the AltUp input - 1
  int64_t n;
  int64_t k;
  bool has_bias = false;
  float bias_scale = 1.0f;  // factor of the file's bias, applied by the loader
  float alpha = 1.0f;
  bool is_exact = false;       // bf16 in every mode
  int64_t expert = kNoExpert;  // kNoExpert: no matrix of an expert
  // The panels of this `up` and its gate, which directly precedes it in the list, are interleaved. A sparse gate is
  // computed alone, since its threshold depends on the whole row.
  bool is_read_with_gate = false;
  RowOrder order = {};  // position in the file of each row and bias element
  DividedBy divided_by = DividedBy::nothing;
  int64_t head = kNoHead;   // kNoHead: no matrix of a head
  bool transposed = false;  // the tensor has k rows for it, each of n elements

  int64_t file_rows() const { return transposed ? k : n; }
  // "model.layers.3.mlp.experts.7.up_proj"
  std::string module() const { return module_name(pattern, layer, expert); }
};

// The division of a matrix's rows among boards, and the rows of this board.
Division division_of(const ModelConfig& config, const MatrixTensor& matrix, const Shares& shares);
RowRange own_rows(const ModelConfig& config, const MatrixTensor& matrix, const Shares& shares);

// Modules of a layer that are fp32 in every mode: vectors, and a few small matrices, as rows of kVectorRows.
enum class VectorRole : uint8_t {
  attention_norm,
  q_norm,
  k_norm,
  latent_q_norm,
  latent_kv_norm,
  sinks,
  router_scale,  // weights of the norm of the router's input
  router_correction,
  expert_scale,  // factors of the weights of experts
  expert_norm,   // of the experts' input, beside an mlp
  expert_out_norm,
  shared_out_norm,  // of the mlp's output, beside experts
  state_conv,
  state_rate,
  state_step,
  state_skip,
  state_norm,
  state_gate,  // of the decays, here and below
  state_gate_bias,
  state_in_gate,  // of the values
  state_in_gate_bias,
  state_dt_norm,
  state_k_norm,
  state_q_norm,
  gate_bias,  // of attention's gates, one for each head
  o_norm,
  attention_out_norm,
  mlp_norm,
  xielu_alpha_p,
  xielu_alpha_n,
  xielu_beta,
  xielu_eps,
  down_norm,
  mlp_out_norm,
  laurel_norm,
  altup_norm,
  altup_router,
  altup_prediction,
  altup_correction,
  altup_scale,
  layer_out_norm,
  layer_scalar  // factor of the residual stream behind the layer
};
constexpr auto kVectorRoles = static_cast<size_t>(VectorRole::layer_scalar) + 1;

// The numbers of a vector's weights in the file.
enum class VectorForm : uint8_t {
  plain,
  rms_norm,     // norm_offset is added
  norm,         // the same, with a bias if the family's norms have one
  head_norm,    // of queries or keys: [head_dim], or [heads, head_dim], or a tensor per head
  scalar,       // without dimensions
  softplus,     // of each number x: log(1 + e^x)
  logarithm,    // of the weights
  convolution,  // [channels, 1, taps]; if the name contains "{}", q, k and v have a tensor each
  rates,        // logarithms [channels, key_dim]; the weights have the layout of the states
  matrix,       // [rows, n / rows], rounded to bf16 like all matrices
  blocks,       // the same, stored as squares [rows / width, width, width]
  altup_scale,  // taken as ones unless AltupConfig::scales
};

struct VectorTensor {
  VectorRole role;
  std::string name;  // of the tensor; if it contains "{}", each head has a tensor of its own
  int64_t n;
  VectorForm form = VectorForm::plain;
  float synthetic = 1.0f;  // all numbers in models of random weights
  int64_t rows = 1;        // of a small matrix; heads of a head_norm
  bool is_bias = false;    // else the weights
  RowOrder order = {};     // of the numbers
};

// The part of a model that has a tensor. mixer: attention or recurrence; branch: mlp or experts; experts: the router
// and the shared expert; latent_head: a head of latent attention; altup: once per AltUp input but the first.
enum class Part : uint8_t {
  layer,
  attention,
  recurrence,
  mixer,
  branch,
  mlp,
  experts,
  expert,
  latent_head,
  model,
  altup,
  head,
  mtp
};

using SizeRule = int64_t (*)(const ModelConfig& config, const LayerConfig& layer);
using OrderRule = RowOrder (*)(const ModelConfig& config, const LayerConfig& layer);
using BiasRule = bool (*)(const ModelConfig& config, const LayerConfig& layer);

// A layer lacks a tensor if it lacks the part, if the family names no such module, or if a size is 0.
struct MatrixRow {
  MatrixRole role;
  std::string_view key;  // of the module's name in the family's description
  Part part;
  Stage stage;  // multiplies the matrix
  DividedBy divided_by;
  SizeRule n, k;
  OrderRule order = nullptr;                  // null: the file's order
  BiasRule has_bias = nullptr;                // null: no bias
  float OutputScales::* in_scale = nullptr;   // of W x; null: 1
  float OutputScales::* out_scale = nullptr;  // of W x and the bias; null: 1
};

struct VectorRow {
  VectorRole role;
  std::string_view key;
  std::string_view suffix;  // of the tensor's name after the module's
  Part part;
  SizeRule n;  // of a small matrix: its columns
  VectorForm form;
  float synthetic = 1.0f;
  SizeRule rows = nullptr;  // of a small matrix
};

std::span<const MatrixRow> matrix_rows();
std::span<const VectorRow> vector_rows();

// The roles [first, first + count) of a layer whose matrices a stage multiplies.
struct RoleRange {
  size_t first = 0, count = 0;
};
RoleRange roles_of(Stage stage);

// The matrices of a layer, in the order of packing.
std::vector<MatrixTensor> layer_matrices(const ModelConfig& config, int64_t layer);

// Matrices of the model for per-layer embeddings and AltUp.
std::vector<MatrixTensor> model_matrices(const ModelConfig& config);

// Number of AltUp's matrices before the first layer, and of those after the last: one per AltUp input but the first.
inline size_t altup_projections(const ModelConfig& config) { return std::max<int64_t>(1, config.altup.inputs) - 1; }

// The head. If it is tied, its weights are the embedding's.
MatrixTensor head_matrix(const ModelConfig& config);

// MtpInput::fc (engine/model/model.h). config: of the MTP layer.
MatrixTensor mtp_matrix(const ModelConfig& config);

// All matrices of a model: of the layers, of the model, and the head.
std::vector<MatrixTensor> all_matrices(const ModelConfig& config);

std::vector<VectorTensor> layer_vectors(const ModelConfig& config, int64_t layer);

// Parameters in vectors: of all layers, and norms of the model.
int64_t vector_parameters(const ModelConfig& config);

struct ParameterCounts {
  int64_t all = 0;
  int64_t in_experts = 0;  // included in `all`
};

// Parameters of a whole model; a tied head counts once.
ParameterCounts count_parameters(const ModelConfig& config);

// Parameters that one token uses: all except those of the experts it does not choose and of per-layer embeddings.
int64_t active_parameters(const ModelConfig& config);

}  // namespace pinion
