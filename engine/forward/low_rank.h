// Products of low rank: latent attention (DeepSeek-V2), which projects queries, keys and values through narrow vectors,
// Laurel (Gemma 3n), which adds a low-rank product to attention's output, and narrow vectors of recurrent layers.
#pragma once

#include "engine/forward/pass.h"

namespace pinion {

// Narrow rows [M][width], normed if norm is not null, as the input of the layer's matrices of a stage, which it begins.
// `index`: of the layer, here and below.
Input narrow_input(Worker& worker, const Pass& pass, Stage stage, const std::vector<float>& narrow, int64_t width,
                   const float* norm, float eps, const Layer& layer, int64_t index);

struct LatentScratch {
  std::vector<float> q;         // [M][query_rank] latents of queries, in models that have them
  std::vector<float> kv;        // [M][rank] latents of keys and values, before their norm
  std::vector<float> k_rope;    // [M][rope_dims] the other elements of keys, before rope
  std::vector<float> attended;  // [M][heads][rank] what the heads attend to
};

// For passes of at most `tokens`. Stays empty for models without latent attention.
void make_latent_scratch(const Model& model, int64_t tokens, ScratchSizer* sizer, LatentScratch* out);

// Projects x, the input of the layer's first matrices, to the latents, to q [M][heads][rope_dims + nope_dims] and, in
// layers that have them, gates.
void project_latents(Worker& worker, const Pass& pass, LatentScratch& scratch, const Layer& layer, const Input& x,
                     int64_t index, float* q, float* gates);

// Rows of several heads.
struct HeadRows {
  float* data;        // the first row of the first head
  int64_t head, row;  // floats from one head to the next, and from one row to the next

  float* at(int64_t of_head, int64_t of_row) const { return data + of_head * head + of_row * row; }
};

// The products of the layer's matrices with this role, one for each of the heads, and the heads' own inputs. Begins the
// stage; ends with a barrier.
void project_heads(Worker& worker, const Pass& pass, const Layer& layer, Stage stage, MatrixRole role,
                   const RowRange& heads, const HeadRows& in, const HeadRows& out);

// Computes Activations::laurel from laurel_narrow and x. Call it before attention's branch is added to x.
void finish_laurel(Worker& worker, const Pass& pass, const Layer& layer, int64_t index);

// x = (x + Laurel's output) / sqrt(2). Call it after attention's branch was added to x.
void add_laurel(Worker& worker, const Pass& pass);

}  // namespace pinion
