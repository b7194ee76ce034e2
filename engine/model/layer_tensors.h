// What a layer is made of: its tensors with their names in the file, their shapes and their parts in the computation.
// The one list of them: loading, random weights, reports, scratch memory and parameter counts all go through it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "engine/boards/shares.h"
#include "engine/model/stages.h"
#include "loader/config/model_config.h"
#include "loader/pack/row_order.h"

namespace pinion {

// A layer's matrices. A layer has some of them: q, k, v and o (of latent attention, those of latents in place of k and
// v, and mostly of q), or those of a recurrent state, or both, and either gate (or not), up and down once or the router
// and these three for every expert; of these layers some have the first three, too: a shared expert's. Layers without
// an mlp have none of the latter. Layers with embeddings of their own end with layer_gate and layer_out. The head is
// the model's, and so are what an MTP layer begins with and what several streams begin and end with.
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
constexpr auto kMatrixRoles = static_cast<size_t>(MatrixRole::head);  // of a layer: all before the head

// The stage that multiplies it. Matrices of one stage read the same input.
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
      return Stage::streams;
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

// What several boards that share a model divide a matrix by (engine/boards/shares.h).
enum class DividedBy : uint8_t {
  nothing,   // all of them have it
  panels,    // by whole panels of its rows
  kv_heads,  // by kv heads: a head's rows, or those of its queries
  first,     // by nothing, and the first has it alone
};

// W [n, k] of y = alpha W x + bias.
struct MatrixTensor {
  MatrixRole role;
  std::string pattern;  // of its module's name; neighbours with one name are rows of one tensor
  int64_t layer;        // 0 for the head; of altup_in and altup_out the stream, less one
  int64_t n;
  int64_t k;
  bool has_bias = false;
  float bias_scale = 1.0f;  // what the file's bias is multiplied by
  float alpha = 1.0f;
  bool is_exact = false;       // bf16 in every mode
  int64_t expert = kNoExpert;  // whose it is; kNoExpert: every token's
  RowOrder order = {};         // of its rows, and of the bias
  DividedBy divided_by = DividedBy::nothing;

  // "model.layers.3.mlp.experts.7.up_proj"
  std::string module() const { return module_name(pattern, layer, expert); }
};

// How its rows are divided, if they are, and which of them this board has.
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

// Numbers that are fp32 in every mode.
struct VectorTensor {
  VectorRole role;
  std::string name;  // the tensor's, whole; a "{}" in it: each head has a tensor of its own
  int64_t n;
  float offset = 0.0f;         // added to the file's numbers
  RowOrder order = {};         // of its numbers
  bool has_head_rows = false;  // [heads, head_dim] where it is one tensor
  int64_t rows = 0;            // of a small matrix; 0: it is none
};

// Whether an up follows its gate in the list.
inline bool has_gate(const ModelConfig& config, const MatrixTensor& up) {
  if (up.expert != kNoExpert) return !config.names.expert_gate.empty();
  return !(config.has_experts(up.layer) ? config.names.shared_gate : config.names.gate).empty();
}

// Whether both may be interleaved. A sparse gate is known when its whole row is.
inline bool is_read_with_gate(const ModelConfig& config, const MatrixTensor& up) {
  return has_gate(config, up) && !config.has_sparse_gate(up.layer);
}

// In the order of packing.
std::vector<MatrixTensor> layer_matrices(const ModelConfig& config, int64_t layer);

// Of the model, besides the embedding and the head: what several streams and the layers' own embeddings need.
std::vector<MatrixTensor> stream_matrices(const ModelConfig& config);
inline size_t other_streams(const ModelConfig& config) {
  return static_cast<size_t>(std::max<int64_t>(1, config.altup.streams) - 1);
}

// The embedding, where that is the head, too.
MatrixTensor head_matrix(const ModelConfig& config);

// Of an MTP layer's config.
MatrixTensor mtp_matrix(const ModelConfig& config);

std::vector<VectorTensor> layer_vectors(const ModelConfig& config, int64_t layer);

struct ParameterCounts {
  int64_t all = 0;
  int64_t in_experts = 0;  // of these
};

// Of a whole model; a head that is the embedding counts once.
ParameterCounts count_parameters(const ModelConfig& config);

// Those that one token is multiplied by, and the embedding, which most models' head is; not the layers' own embeddings.
int64_t active_parameters(const ModelConfig& config);

}  // namespace pinion
