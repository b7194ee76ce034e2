// Latent attention's projections: queries, keys and values by way of the narrow vectors that they are made of.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/forward/matmul.h"
#include "engine/forward/pass.h"

namespace pinion {

// M: the most tokens in one pass.
struct LatentScratch {
  std::vector<float> q;       // [M][query_rank] what queries are made of, unless that is the stream
  std::vector<float> kv;      // [M][rank] what keys and values are made of
  std::vector<float> k_rope;  // [M][rope_dims] what all heads' keys have in common, before the rope
};

// For passes of at most `tokens`. Nothing for other models.
void make_latent_scratch(const Model& model, int64_t tokens, ScratchSizer* sizer, LatentScratch* out);

// From x, the input of the layer's first matrices. q: [M][heads * head_dim], k: [M][heads * (head_dim - rope_dims)]
// what a rope does not turn, v: [M][heads * value_dim]. `index`: the layer's, for a trace.
void project_latents(Worker& worker, const Pass& pass, LatentScratch& scratch, const Layer& layer, const Input& x,
                     int64_t index, float* q, float* k, float* v);

}  // namespace pinion
