// The weights of a layer in memory, packed. Read-only once loaded.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "engine/boards/exchange.h"
#include "engine/model/layer_tensors.h"
#include "kernels/layout.h"

namespace pinion {

// y = alpha W x + bias. `bias` is the file's bias times MatrixTensor::bias_scale, which covers the model's factors of
// the whole sum W x + bias: a multiplier of the output, branch_scale in the last matrix of a branch (unless a norm
// follows, whose output is scaled instead), logit_scale in the head.
struct Linear {
  Matrix weight;                // the rows of this board; n is 0 if it has none
  const float* bias = nullptr;  // [n] or null
  float alpha = 1;
  Division rows = {};  // of the whole matrix; count is 0 if the model has no such matrix
  int64_t first = 0;   // index in the whole matrix of the first row of `weight`
};

// A norm over the residual width. Null weight: the model has no such norm. Null bias: RMSNorm, or LayerNorm without
// bias.
struct Norm {
  const float* weight = nullptr;  // [hidden]
  const float* bias = nullptr;    // [hidden]
};

// Parameters of Activation::xielu, one number each; null with other activations. The kernels' n is alpha_n + beta.
struct XieluLayer {
  const float *alpha_p = nullptr, *alpha_n = nullptr, *beta = nullptr, *eps = nullptr;
};

// The weights of a recurrent state. Most layers with a state have no q, k, v and o. Members that the kind of state
// lacks are empty or null.
struct RecurrentLayer {
  int64_t slot = 0;                  // index of the layer's state in RecurrentState
  Linear qkv;                        // [channels, hidden]
  Linear z;                          // [value_width, hidden] gates of the output
  Linear b;                          // write strength: [value_heads, hidden], or (short_conv) [channels, hidden]
  Linear a;                          // [value_heads, hidden] decay rate (mamba2: step size)
  Linear out;                        // [hidden, value_width]
  const float* conv = nullptr;       // [taps][channels]
  const float* conv_bias = nullptr;  // [channels]
  const float* rate = nullptr;       // [value_heads] factor of the decay
  const float* step = nullptr;       // [value_heads] bias of a
  const float* skip = nullptr;       // [value_heads] factor of the token's values in its output
  const float* norm = nullptr;       // [value_dim], or (mamba2) [value_width]
};

// Multi-head latent attention (DeepSeek-V2): keys and values are projected from one narrow latent vector. They replace
// Layer::k and v. Some models project queries from a second latent, with q_a and q in place of Layer::q. A head's
// rotated elements come first.
struct LatentLayer {
  Linear q_a;                      // [query_rank, hidden]
  Linear kv_a;                     // [rank, hidden]
  Linear k_rope;                   // [rope_dims, hidden] the rotated elements of all heads' keys
  Linear q;                        // [heads * head_dim, query_rank]
  Linear k;                        // [heads * (head_dim - rope_dims), rank] the unrotated elements of keys
  Linear v;                        // [heads * value_dim, rank]
  const float* q_norm = nullptr;   // [query_rank]
  const float* kv_norm = nullptr;  // [rank]
};

// Laurel, a learned augmented residual layer of low rank (Gemma 3n): n + norm(right left n), where n is the input of
// attention. The sum of it and the residual stream after attention is divided by sqrt(2).
struct LaurelLayer {
  Linear left;   // [rank, hidden]
  Linear right;  // [hidden, rank]
  Norm norm;
};

// AltUp's matrices around a layer (AltupConfig).
struct AltupLayer {
  Norm norm;                          // of the router's input
  const float* router = nullptr;      // [inputs][hidden]
  const float* prediction = nullptr;  // [inputs * inputs][inputs]
  const float* correction = nullptr;  // [inputs][inputs]
  const float* scale = nullptr;       // [hidden] factor of the input of layer_gate
};

struct Expert {
  Linear gate, up;  // [intermediate of an expert, hidden]; gate is empty in models without gates
  Linear down;      // [hidden, intermediate of an expert]
};

struct Layer {
  Norm attention_norm;
  bool attends = true;     // has q, k, v and o, or latent and o
  bool recurrent = false;  // has a state
  int64_t slot = 0;        // index of its keys and values in the KV cache
  bool owns_kv = true;     // has k and v; else `slot` is that of an earlier layer
  RecurrentLayer state;
  LatentLayer latent;
  Linear q, k, v;                 // [heads * query_stride, hidden], [kv_heads * head_dim, hidden] twice
  const float* q_norm = nullptr;  // [head_dim], or [heads * head_dim] (QkNorm::all_heads and layer_norm_heads)
  const float* k_norm = nullptr;  // [head_dim], or [kv_heads * head_dim]
  const float* v_norm = nullptr;  // [head_dim]
  std::vector<float> key_balance, query_balance;  // [kv_heads * head_dim] or empty, see balance_heads()
  const float* sinks = nullptr;                   // [heads] attention sinks: scores of a virtual key with value zero
  Linear o;                                       // [hidden, heads * value_dim]
  Norm o_norm;                                    // over [heads * head_dim], the input of o
  Norm attention_out_norm;                        // of the output of o or of the state
  LaurelLayer laurel;
  Norm mlp_norm;    // none if the mlp reads the output of attention_norm
  Linear gate, up;  // [intermediate, hidden] of the mlp, or of the shared expert
  XieluLayer xielu;
  std::optional<float> gate_cut;  // sparse gate: its outputs below mean + gate_cut * deviation of the row become zero
  Linear down;                    // [hidden, intermediate]
  Norm down_norm;                 // over [intermediate], the input of down
  Norm mlp_out_norm;              // of the output of down
  const float* router_correction = nullptr;  // [experts] added to the scores that choose experts
  Linear shared_weight;                      // [1, hidden] bf16; its sigmoid weighs the shared expert
  Linear router;                             // [experts, hidden] bf16 in every mode: small, and errors cost much
  std::vector<Expert> experts;               // empty without experts
  AltupLayer altup;
  Linear layer_gate;  // [size of a per-layer embedding, hidden]
  Linear layer_out;   // [hidden, size of a per-layer embedding]
  Norm layer_out_norm;
  int64_t window = 0;      // positions that a token attends to, including itself; 0: all
  int32_t rope = kNoRope;  // index into the config's ropes
};

// Sets the fields that follow from the config and the layer's index alone.
void init_layer(const ModelConfig& config, int64_t index, Layer* out);

// The member of `layer` that holds the tensor with this role (engine/model/layer_tensors.h).
const Linear& matrix_of(const Layer& layer, MatrixRole role, int64_t expert = kNoExpert);
Linear& matrix_of(Layer& layer, MatrixRole role, int64_t expert = kNoExpert);
const float*& vector_of(Layer& layer, VectorRole role);

// Calls f(role, linear) for the layer's matrices that have rows on this board, in the order of MatrixRole. Skips the
// matrices of experts.
template <class F>
void each_matrix(const Layer& layer, F f) {
  for (size_t i = 0; i < kMatrixRoles; ++i) {
    const auto role = static_cast<MatrixRole>(i);
    const Linear& linear = matrix_of(layer, role);
    if (linear.weight.n > 0) f(role, linear);
  }
}

// Balances keys and queries for a q8 cache. In some models the weights of the k norm, or those of the q norm, make a
// few channels hundreds of times larger than the others. One scale for all codes of a head then wastes bits. Keys times
// s and queries divided by s, per channel, have the same products. s = sqrt(query size / key size), with the sizes
// taken from the norms' weights, minimises the error of the products (Cauchy-Schwarz). The two channels of a rope pair
// share a factor. Does nothing without norms. tools/MEASURED.md has the effect on two trained models.
void balance_heads(const ModelConfig& config, Layer* layer);

// Balances layer `index`. Earlier layers must be balanced: a layer that reads another layer's keys copies its factors.
void balance_heads(const ModelConfig& config, int64_t index, std::vector<Layer>* layers);

}  // namespace pinion
