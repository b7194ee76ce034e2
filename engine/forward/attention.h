// Attention over the KV cache: projections of x, new keys and values, softmax, the outputs of heads.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/forward/low_rank.h"
#include "engine/forward/pass.h"

namespace pinion {

// Softmax states of several rows (AttentionState).
struct AttentionBuffer {
  std::vector<float> max;  // [rows]
  std::vector<float> sum;  // [rows]
  std::vector<float> acc;  // [rows][padded head_dim]

  void make(ScratchSizer* sizer, int64_t rows, int64_t head_dim);
  AttentionState from(int64_t row, int64_t head_dim);
  // Copies `rows` rows of another buffer to `row` and the following ones.
  void copy(int64_t row, const AttentionBuffer& other, int64_t other_row, int64_t rows, int64_t head_dim);
};

// Scratch of one worker.
struct LocalAttentionScratch {
  std::vector<float> q;           // [heads][padded head_dim] queries of a single token, prepared for the kernels
  std::vector<bool> has_queries;  // [kv_heads] true if the kv head's queries are in q
  std::vector<float> scores;      // [rows of a task][kScoreFloats]
  std::vector<float> key, value;  // [padded head_dim]
  AttentionBuffer state;          // [rows of a task, or heads]
  AttentionBuffer next;           // [rows of a task]
  AttentionBuffer sink;           // [1] the state of a sink: one score with value zero
};

// A range of a segment's tokens or query rows (token * group + head within the group).
struct SegmentRange {
  int32_t segment;
  int64_t first;
  int64_t count;
};

struct AttentionScratch {
  std::vector<float> q, k, v;  // [M][rows of each matrix] as projected
  LatentScratch latents;
  std::vector<float> queries;  // [kv_heads][M][group][padded head_dim] prepared for the kernels
  AttentionBuffer partial;     // [attention chunks][heads] a single token's states, by chunk
  std::vector<LocalAttentionScratch> workers;
  // The tasks of each kv head in a pass of several rows:
  std::vector<SegmentRange> centres;     // tokens in the first kKeyLanes positions of a chunk of a q8 cache
  std::vector<SegmentRange> key_groups;  // tokens that share kKeyLanes positions
  std::vector<SegmentRange> query_rows;
};

// For passes of at most `tokens`, of sequences of at most `positions`.
void make_attention_scratch(const Model& model, int64_t tokens, int64_t positions, int32_t workers, ScratchSizer* sizer,
                            AttentionScratch* out);

// Finds the tasks of a pass, which are the same in every layer.
void plan_attention(const Pass& pass, AttentionScratch* scratch);

// Attention over x, the input of the layer's first matrices. Returns the input of o. `index`: of the layer.
Input attend(Worker& worker, const Pass& pass, AttentionScratch& scratch, const Layer& layer, const Input& x,
             int64_t index);

}  // namespace pinion
