// Attention's products of low rank: latent attention (DeepSeek-V2), which projects queries, keys and values through
// narrow vectors, and Laurel (Gemma 3n), which adds a low-rank product to attention's output.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/forward/pass.h"

namespace pinion {

struct LatentScratch {
  std::vector<float> q;       // [M][query_rank] latents of queries, in models that have them
  std::vector<float> kv;      // [M][rank] latents of keys and values
  std::vector<float> k_rope;  // [M][rope_dims] the elements of keys that all heads share, before rope
};

// For passes of at most `tokens`. Stays empty for models without latent attention.
void make_latent_scratch(const Model& model, int64_t tokens, ScratchSizer* sizer, LatentScratch* out);

// Projects x, the input of the layer's first matrices, to q [M][heads * head_dim], k [M][heads * (head_dim -
// rope_dims)], the unrotated elements, and v [M][heads * value_dim]. `index`: of the layer, here and below.
void project_latents(Worker& worker, const Pass& pass, LatentScratch& scratch, const Layer& layer, const Input& x,
                     int64_t index, float* q, float* k, float* v);

// Computes Activations::laurel from laurel_narrow and x. Call it before attention's branch is added to x.
void finish_laurel(Worker& worker, const Pass& pass, const Layer& layer, int64_t index);

// x = (x + Laurel's output) / sqrt(2). Call it after attention's branch was added to x.
void add_laurel(Worker& worker, const Pass& pass);

}  // namespace pinion
