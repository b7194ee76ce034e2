// A layer's weights in memory, packed. Read-only once loaded.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "engine/boards/shares.h"
#include "engine/model/layer_tensors.h"
#include "kernels/layout.h"

namespace pinion {

// y = alpha W x + bias. The bias is null where the family has none. It is already multiplied by alpha, where that is
// part of what the family multiplies it by; that of what ends a branch by branch_scale, unless a norm follows: then the
// normed branch is scaled; that of the head by logit_scale.
struct Linear {
  Matrix weight;                // of these rows that this board has; n is 0 where it has none
  const float* bias = nullptr;  // [n]
  float alpha = 1;
  Division rows = {};  // all of them; the count is 0 where the model has no such matrix
  int64_t first = 0;   // of them that this board has
};

// Of the residual stream or of what a branch adds to it. The weight is null where the family has no such norm, the bias
// where its norms have none.
struct Norm {
  const float* weight = nullptr;  // [hidden]
  const float* bias = nullptr;    // [hidden]
};

// One number each, of Activation::xielu; null where the mlp has another. alpha_n is what is added to beta.
struct XieluLayer {
  const float *alpha_p = nullptr, *alpha_n = nullptr, *beta = nullptr, *eps = nullptr;
};

// What a recurrent layer has, most of them in place of q, k, v and o. What its kind does without is empty or null.
struct RecurrentLayer {
  int64_t slot = 0;             // among the recurrent layers: where its state lies
  Linear qkv;                   // [channels, hidden]
  Linear z;                     // [value_width, hidden] gates of the output
  Linear b;                     // how much a token writes: [value_heads, hidden], or (short_conv) [channels, hidden]
  Linear a;                     // [value_heads, hidden] how fast the state decays (mamba2: and how much is written)
  Linear out;                   // [hidden, value_width]
  const float* conv = nullptr;  // [taps][channels]
  const float* conv_bias = nullptr;  // [channels]
  const float* rate = nullptr;       // [value_heads] of decay
  const float* step = nullptr;       // [value_heads] added to a
  const float* skip = nullptr;       // [value_heads] of a token's values into its output
  const float* norm = nullptr;       // [value_dim], or (mamba2) [value_width]
};

// Where keys and values of all heads are made of one narrow vector (DeepSeek's latent attention). In place of k and v,
// and of q where the queries are made of such a vector, too. Of a head, what a rope turns comes first.
struct LatentLayer {
  Linear q_a;                      // [query_rank, hidden]
  Linear kv_a;                     // [rank, hidden]
  Linear k_rope;                   // [rope_dims, hidden] what a rope turns of every head's keys
  Linear q;                        // [heads * head_dim, query_rank]
  Linear k;                        // [heads * (head_dim - rope_dims), rank] what stays of them
  Linear v;                        // [heads * value_dim, rank]
  const float* q_norm = nullptr;   // [query_rank]
  const float* kv_norm = nullptr;  // [rank]
};

// A product that attention's branch is averaged with: n + norm(right left n), n being what attention reads (Gemma 3n).
struct LaurelLayer {
  Linear left;   // [rank, hidden]
  Linear right;  // [hidden, rank]
  Norm norm;
};

// How a layer's streams follow from the ones before it, and the others from the one that it computes (AltupConfig).
struct AltupLayer {
  Norm norm;                          // of the stream that the router reads
  const float* router = nullptr;      // [streams][hidden]
  const float* prediction = nullptr;  // [streams * streams][streams]
  const float* correction = nullptr;  // [streams][streams]
  const float* scale = nullptr;       // [hidden] of what layer_gate reads
};

struct Expert {
  Linear gate, up;  // [an expert's intermediate, hidden]; no gate where the family's experts have none
  Linear down;      // [hidden, an expert's intermediate]
};

struct Layer {
  Norm attention_norm;
  bool attends = true;     // has q, k, v and o, or latent and o
  bool recurrent = false;  // has a state
  int64_t slot = 0;        // among the layers with a cache of their own: where it lies, or that of the layer it shares
  bool owns_kv = true;     // has k and v; else reads what another layer has cached
  RecurrentLayer state;
  LatentLayer latent;
  Linear q, k, v;                 // [heads * head_dim, hidden] (twice that with gates), [kv_heads * head_dim, hidden]
  const float* q_norm = nullptr;  // [head_dim], or [heads * head_dim] (QkNorm::all_heads and own_heads)
  const float* k_norm = nullptr;  // [head_dim], or [kv_heads * head_dim]
  const float* v_norm = nullptr;  // [head_dim]
  std::vector<float> key_balance, query_balance;  // [kv_heads * head_dim] or empty, see head_balance.h
  const float* sinks = nullptr;                   // [heads] one more score of each head's softmax, whose value is zero
  Linear o;                                       // [hidden, heads * value_dim]
  Norm o_norm;                                    // [heads * head_dim] of what o multiplies
  Norm attention_out_norm;                        // of what the branch adds
  LaurelLayer laurel;
  Norm mlp_norm;  // none where the mlp reads what attention_norm gives
  // [intermediate, hidden]; no gate where the family's mlp has none. A layer with experts has them if one is shared,
  // one without an mlp has none of what follows.
  Linear gate, up;
  XieluLayer xielu;
  std::optional<float> gate_cut;  // of a sparse gate: so many standard deviations above its row's mean is zero
  Linear down;                    // [hidden, intermediate]
  Norm down_norm;                 // [intermediate] of what down multiplies
  Norm mlp_out_norm;              // of what the branch adds
  const float* router_correction = nullptr;  // [experts] added to scores when choosing
  Linear shared_weight;         // [1, hidden], bf16 like the router, whose sigmoid weighs the shared expert's output
  Linear router;                // [experts, hidden], bf16 in every mode: small, and a wrong choice costs much
  std::vector<Expert> experts;  // empty where the layer has none
  AltupLayer altup;
  Linear layer_gate;  // [size of a layer's embedding, hidden]
  Linear layer_out;   // [hidden, that size]
  Norm layer_out_norm;
  int64_t window = 0;      // positions a token sees, itself included; 0 = all
  int32_t rope = kNoRope;  // which of the config's ropes; kNoRope: none
};

// What a layer is by its place alone.
void place_layer(const ModelConfig& config, int64_t index, Layer* out);

// The layer's member for a tensor of the list (engine/model/layer_tensors.h).
const Linear& matrix_of(const Layer& layer, MatrixRole role, int64_t expert = kNoExpert);
Linear& matrix_of(Layer& layer, MatrixRole role, int64_t expert = kNoExpert);
const float*& vector_of(Layer& layer, VectorRole role);

// f(role, linear) for the matrices of which the layer has rows here, in the list's order; but not those of its experts.
template <class F>
void each_matrix(const Layer& layer, F f) {
  for (size_t i = 0; i < kMatrixRoles; ++i) {
    const auto role = static_cast<MatrixRole>(i);
    const Linear& linear = matrix_of(layer, role);
    if (linear.weight.n > 0) f(role, linear);
  }
}

}  // namespace pinion
