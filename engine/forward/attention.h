// A layer's attention over the KV cache: projections of x, the cache's new keys and values, softmax, the heads'
// outputs.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/forward/attention_buffer.h"
#include "engine/forward/latents.h"
#include "engine/forward/pass.h"
#include "engine/forward/scratch_sizer.h"

namespace pinion {

struct OwnAttentionScratch {
  std::vector<float> q;           // [heads][padded head_dim] one token's queries as the kernels take them
  std::vector<bool> has_queries;  // [kv_heads] whether q has its queries yet
  std::vector<float> scores;      // [a task's rows][kScoreFloats]
  std::vector<float> key, value;  // [padded head_dim]
  AttentionBuffer state;          // [a task's rows, or heads]
  AttentionBuffer next;           // [a task's rows]
  AttentionBuffer sink;           // [1] the state of a sink: one score, whose value is zero
};

// Some of a segment's tokens, or query rows of it (token * group + head of the group): [first, first + count).
struct SegmentPart {
  int32_t segment;
  int64_t first;
  int64_t count;
};

// M: the most tokens in one pass.
struct AttentionScratch {
  std::vector<float> q, k, v;  // [M][rows of each matrix]: as projected
  LatentScratch latents;
  std::vector<float> queries;  // [kv_heads][M][group][padded head_dim] as the kernels take them
  AttentionBuffer partial;     // [attention chunks][heads]: one token's attention, chunk by chunk
  std::vector<OwnAttentionScratch> workers;
  // The tasks of a kv head in a pass of several rows.
  std::vector<SegmentPart> centres;      // tokens in the first kKeyBlock positions of a chunk, in a cache of q8
  std::vector<SegmentPart> blocks;       // tokens that share kKeyBlock positions
  std::vector<SegmentPart> query_parts;  // query rows
};

// Finds the tasks of a pass.
void plan_attention(const Pass& pass, AttentionScratch* scratch);

// For passes of at most `tokens`, of sequences of at most `positions`.
void make_attention_scratch(const Model& model, int64_t tokens, int64_t positions, int32_t workers, ScratchSizer* sizer,
                            AttentionScratch* out);

// Attention of the layer of that index over x, the input of q, k and v, or of latents. Returns the input of o.
Input attend(Worker& worker, const Pass& pass, AttentionScratch& scratch, const Layer& layer, const Input& x,
             int64_t index);

}  // namespace pinion
