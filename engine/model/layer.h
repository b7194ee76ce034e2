// The weights of a layer in memory, packed. Read-only once loaded.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "engine/boards/exchange.h"
#include "engine/model/layer_tensors.h"
#include "kernels/layout.h"

namespace pinion {

// y = alpha W x + bias. The loaded bias includes the model's scalar factors: alpha's own, branch_scale in the last
// matrix of a branch (unless a norm follows, whose output is scaled instead), logit_scale in the head.
struct Linear {
  Matrix weight;                // the rows of this board; n is 0 without any
  const float* bias = nullptr;  // [n] or null
  float alpha = 1;
  Division rows = {};  // of the whole matrix; count is 0 if the model has no such matrix
  int64_t first = 0;   // row of the whole matrix that `weight` begins with
};

// A norm over the residual width. Null weight: the model has no such norm. Null bias: RMSNorm, or a LayerNorm without.
struct Norm {
  const float* weight = nullptr;  // [hidden]
  const float* bias = nullptr;    // [hidden]
};

// Parameters of Activation::xielu, one number each; null with other activations. beta is added to alpha_n.
struct XieluLayer {
  const float *alpha_p = nullptr, *alpha_n = nullptr, *beta = nullptr, *eps = nullptr;
};

// The weights of a recurrent state, mostly in place of q, k, v and o. Members that its kind lacks are empty or null.
struct RecurrentLayer {
  int64_t slot = 0;                  // index of its state among the recurrent layers
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

// Multi-head latent attention (DeepSeek-V2): keys and values are projected from one narrow latent vector, in some
// models queries from another. These matrices replace k and v, and q. A head's rotated elements come first.
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

// Laurel, a learned augmented residual layer of low rank (Gemma 3n): n + norm(right left n), averaged with attention's
// output. n: the input of attention.
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
  Linear gate, up;  // [intermediate of an expert, hidden]; gate is empty in models without
  Linear down;      // [hidden, intermediate of an expert]
};

struct Layer {
  Norm attention_norm;
  bool attends = true;     // has q, k, v and o, or latent and o
  bool recurrent = false;  // has a state
  int64_t slot = 0;        // index in the KV cache
  bool owns_kv = true;     // has k and v; else it reads the slot of an earlier layer
  RecurrentLayer state;
  LatentLayer latent;
  Linear q, k, v;                 // [heads * query_stride, hidden], [kv_heads * head_dim, hidden] twice
  const float* q_norm = nullptr;  // [head_dim], or [heads * head_dim] (QkNorm::all_heads and layer_norm_heads)
  const float* k_norm = nullptr;  // [head_dim], or [kv_heads * head_dim]
  const float* v_norm = nullptr;  // [head_dim]
  std::vector<float> key_balance, query_balance;  // [kv_heads * head_dim] or empty, see balance_heads()
  const float* sinks = nullptr;                   // [heads] attention sinks: a score of each head with value zero
  Linear o;                                       // [hidden, heads * value_dim]
  Norm o_norm;                                    // [heads * head_dim] of the input of o
  Norm attention_out_norm;                        // of the output of o or of the state
  LaurelLayer laurel;
  Norm mlp_norm;    // none if the mlp reads the output of attention_norm
  Linear gate, up;  // [intermediate, hidden] of the mlp, or of the shared expert
  XieluLayer xielu;
  std::optional<float> gate_cut;  // sparse gate: its outputs below mean + gate_cut * deviation of the row become zero
  Linear down;                    // [hidden, intermediate]
  Norm down_norm;                 // [intermediate] of the input of down
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

// Fills in the fields that follow from the config and the layer's index alone.
void place_layer(const ModelConfig& config, int64_t index, Layer* out);

// The member of the layer for a tensor of the list (engine/model/layer_tensors.h).
const Linear& matrix_of(const Layer& layer, MatrixRole role, int64_t expert = kNoExpert);
Linear& matrix_of(Layer& layer, MatrixRole role, int64_t expert = kNoExpert);
const float*& vector_of(Layer& layer, VectorRole role);

// f(role, linear) for the matrices that have rows on this board, in the list's order, without those of experts.
template <class F>
void each_matrix(const Layer& layer, F f) {
  for (size_t i = 0; i < kMatrixRoles; ++i) {
    const auto role = static_cast<MatrixRole>(i);
    const Linear& linear = matrix_of(layer, role);
    if (linear.weight.n > 0) f(role, linear);
  }
}

// Balances keys and queries for a q8 cache. In some models the q and k norms make a few channels of keys hundreds of
// times larger than the others, but not of queries, or the reverse; one scale for a head's codes then wastes bits.
// Keys times s and queries over s have the same products. s = sqrt(query size / key size), with the sizes taken from
// the norms' weights, minimises the error of the products (Cauchy-Schwarz). Channels that rope pairs share a factor.
// Does nothing without norms. The effect on two trained models is in tools/MEASURED.md.
void balance_heads(const ModelConfig& config, Layer* layer);

// Balances layer `index`, after the layers before it: a layer that reads another layer's keys takes its factors.
void balance_heads(const ModelConfig& config, int64_t index, std::vector<Layer>* layers);

}  // namespace pinion
