// The list of a model's tensors: names in the file, shapes, roles in the computation. Loading, random weights, reports,
// scratch memory and parameter counts all read it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include "engine/boards/exchange.h"
#include "loader/config/model_config.h"
#include "loader/pack/pack.h"

namespace pinion {

// The stages of a pass, in their order. Profiles and traces have one entry per stage. A layer has only the stages of
// its tensors: o if it has attention, state_out if it has a recurrent state. q_latent and kv_latent project the latents
// of DeepSeek's attention. An `_input` stage merges or norms the input of the next matrix, then quantises or packs it.
// The router stage chooses experts and, for several tokens, groups them by expert. altup, laurel, layer_gate and
// layer_out belong to Gemma 3n.
enum class Stage : uint8_t {
  embed,
  altup,
  attention_norm,
  qkv,
  q_latent,
  kv_latent,
  laurel,
  attention,
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

struct StageTraits {
  Stage stage;
  std::string_view name;  // in reports
  // For a single token every worker repeats the stage, which costs less than a barrier. More workers do not shorten it.
  bool is_repeated = false;
};
constexpr StageTraits kStageTraits[] = {
    {Stage::embed, "embed"},
    {Stage::altup, "streams"},  // differs from the enumerator: published reports have this name
    {Stage::attention_norm, "attention_norm", true},
    {Stage::qkv, "qkv"},
    {Stage::q_latent, "q_latent"},
    {Stage::kv_latent, "kv_latent"},
    {Stage::laurel, "laurel"},
    {Stage::attention, "attention"},
    {Stage::o_input, "o_input", true},
    {Stage::o, "o"},
    {Stage::state_out, "state_out"},
    {Stage::mlp_norm, "mlp_norm", true},
    {Stage::router, "router"},
    {Stage::gate_up, "gate_up"},
    {Stage::down_input, "down_input", true},
    {Stage::down, "down"},
    {Stage::layer_gate, "layer_gate"},
    {Stage::layer_out, "layer_out"},
    {Stage::final_norm, "final_norm", true},
    {Stage::head, "head"},
};
constexpr size_t kStages = std::size(kStageTraits);
static_assert(
    [] {
      size_t i = 0;
      for (const StageTraits& traits : kStageTraits) {
        if (static_cast<size_t>(traits.stage) != i++) return false;
      }
      return i == static_cast<size_t>(Stage::head) + 1;
    }(),
    "kStageTraits is indexed by Stage");

// The matrices of a layer, then those of the model from `head` on. A layer has the matrices of attention (plain: q, k,
// v, o; latent: latent_* in place of k and v, and in most models of q), of a recurrent state, or of both. Its mlp has
// gate, up and down; a layer with experts has the router, and gate, up and down once per expert. In such a layer gate,
// up and down without an expert's index belong to the shared expert. Some families have no gate, some layers no mlp.
enum class MatrixRole : uint8_t {
  q,
  k,
  v,
  latent_q_a,
  latent_kv_a,
  latent_k_rope,
  latent_q,
  latent_k,
  latent_v,
  state_qkv,
  state_z,
  state_b,
  state_a,
  laurel_left,
  laurel_right,
  o,
  state_out,
  router,
  shared_weight,
  gate,
  up,
  down,
  layer_gate,
  layer_out,
  head,
  mtp_fc,
  layer_input,
  altup_in,
  altup_out
};
constexpr auto kMatrixRoles = static_cast<size_t>(MatrixRole::head);  // number of roles in a layer

// The stage that multiplies a matrix. Matrices of one stage share their input.
constexpr Stage stage_of(MatrixRole role) {
  switch (role) {
    case MatrixRole::o:
      return Stage::o;
    case MatrixRole::state_out:
      return Stage::state_out;
    case MatrixRole::router:
    case MatrixRole::shared_weight:
      return Stage::router;
    case MatrixRole::gate:
    case MatrixRole::up:
      return Stage::gate_up;
    case MatrixRole::down:
      return Stage::down;
    case MatrixRole::head:
      return Stage::head;
    case MatrixRole::mtp_fc:
    case MatrixRole::layer_input:
    case MatrixRole::altup_in:
      return Stage::embed;
    case MatrixRole::altup_out:
      return Stage::altup;
    case MatrixRole::laurel_right:
      return Stage::laurel;
    case MatrixRole::layer_gate:
      return Stage::layer_gate;
    case MatrixRole::layer_out:
      return Stage::layer_out;
    case MatrixRole::latent_q:
      return Stage::q_latent;
    case MatrixRole::latent_k:
    case MatrixRole::latent_v:
      return Stage::kv_latent;
    case MatrixRole::q:
    case MatrixRole::k:
    case MatrixRole::v:
    case MatrixRole::latent_q_a:
    case MatrixRole::latent_kv_a:
    case MatrixRole::latent_k_rope:
    case MatrixRole::state_qkv:
    case MatrixRole::state_z:
    case MatrixRole::state_b:
    case MatrixRole::state_a:
    case MatrixRole::laurel_left:
      break;
  }
  return Stage::qkv;
}

constexpr int64_t kNoExpert = -1;

// The rule by which boards divide the rows of a matrix (engine/boards/exchange.h).
enum class DividedBy : uint8_t {
  nothing,   // not divided: all rows on every board
  panels,    // in whole panels
  kv_heads,  // in whole kv heads, with the rows of their queries
  first,     // all rows on board 0, none on the others
};

// W [n, k] of y = alpha W x + bias.
struct MatrixTensor {
  MatrixRole role;
  std::string pattern;  // see module(); consecutive matrices with equal modules are row ranges of one tensor
  int64_t layer;        // 0 for the head; altup_in and altup_out: the index of the AltUp input - 1
  int64_t n;
  int64_t k;
  bool has_bias = false;
  float bias_scale = 1.0f;  // factor of the file's bias, applied by the loader
  float alpha = 1.0f;
  bool is_exact = false;       // bf16 in every mode
  int64_t expert = kNoExpert;  // kNoExpert: no matrix of an expert
  RowOrder order = {};         // position in the file of each row and bias element
  DividedBy divided_by = DividedBy::nothing;

  // "model.layers.3.mlp.experts.7.up_proj"
  std::string module() const { return module_name(pattern, layer, expert); }
};

// The division of a matrix's rows among boards, and the rows of this board.
Division division_of(const ModelConfig& config, const MatrixTensor& matrix, const Shares& shares);
RowRange own_rows(const ModelConfig& config, const MatrixTensor& matrix, const Shares& shares);

enum class VectorRole : uint8_t {
  attention_norm,
  attention_norm_bias,
  q_norm,
  k_norm,
  latent_q_norm,
  latent_kv_norm,
  sinks,
  router_correction,
  state_conv,
  state_conv_bias,
  state_rate,
  state_step,
  state_skip,
  state_norm,
  o_norm,
  attention_out_norm,
  attention_out_norm_bias,
  mlp_norm,
  mlp_norm_bias,
  xielu_alpha_p,
  xielu_alpha_n,
  xielu_beta,
  xielu_eps,
  down_norm,
  mlp_out_norm,
  mlp_out_norm_bias,
  laurel_norm,
  altup_norm,
  altup_router,
  altup_prediction,
  altup_correction,
  altup_scale,
  layer_out_norm,
};

// Weights that are fp32 in every mode: vectors, and a few small matrices.
struct VectorTensor {
  VectorRole role;
  std::string name;  // of the tensor; if it contains "{}", each head has a tensor of its own
  int64_t n;
  float offset = 0.0f;         // added to the file's numbers
  RowOrder order = {};         // of the numbers
  bool has_head_rows = false;  // head_dim numbers per head: the file has [heads, head_dim], or a tensor per head
  int64_t rows = 0;            // rows of a small matrix; 0: a vector
};

// True if the mlp or expert of `up` has a gate, which directly precedes `up` in the list.
inline bool has_gate(const ModelConfig& config, const MatrixTensor& up) {
  if (up.expert != kNoExpert) return !config.names.expert_gate.empty();
  return !(config.has_experts(up.layer) ? config.names.shared_gate : config.names.gate).empty();
}

// True if the panels of `up` and its gate are interleaved. A sparse gate is computed alone, since its threshold depends
// on the whole row.
inline bool is_read_with_gate(const ModelConfig& config, const MatrixTensor& up) {
  return has_gate(config, up) && !config.has_sparse_gate(up.layer);
}

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

std::vector<VectorTensor> layer_vectors(const ModelConfig& config, int64_t layer);

struct ParameterCounts {
  int64_t all = 0;
  int64_t in_experts = 0;  // included in `all`
};

// Parameters of a whole model; a tied head counts once.
ParameterCounts count_parameters(const ModelConfig& config);

// Parameters that one token uses: all except those of the experts it does not choose and of per-layer embeddings.
int64_t active_parameters(const ModelConfig& config);

}  // namespace pinion
