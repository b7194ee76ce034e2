// Attention over the KV cache: projects x, writes the new keys and values, computes the outputs of the heads.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "engine/forward/low_rank.h"
#include "engine/forward/pass.h"

namespace pinion {

// Query rows of one task: a multiple of the kernels' tiles of 2, 4, 5 or 6 rows.
constexpr int64_t kAttentionRows = 60;

// The query heads of this board, and those of a kv head. Latent attention has one kv head on every board.
inline RowRange own_heads(const Model& model, const Layer& layer) {
  if (!model.exchange) return {0, layer.heads};
  return Division{layer.heads, layer.heads / layer.divided_heads()}.own(model.exchange->shares());
}
inline RowRange heads_of(const Model& model, const Layer& layer, int64_t kv_head) {
  return layer.is_latent() ? own_heads(model, layer) : RowRange{kv_head * layer.group(), layer.group()};
}

// Softmax states of several rows (AttentionState).
struct AttentionBuffer {
  std::vector<float> max;  // [rows]
  std::vector<float> sum;  // [rows]
  std::vector<float> acc;  // [rows][padded head_dim]

  void make(ScratchSizer* sizer, int64_t rows, int64_t head_dim);
  AttentionState from(int64_t row, int64_t head_dim);
  // Copies `rows` rows of another buffer, from other_row on, to `row` and the following rows.
  void copy(int64_t row, const AttentionBuffer& other, int64_t other_row, int64_t rows, int64_t head_dim);
};

// Scratch of one worker.
struct LocalAttentionScratch {
  std::vector<float> q;           // [heads][padded head_dim] queries of a single token, prepared for the kernels
  std::vector<bool> has_queries;  // [heads] by part of a single token's heads: true if the part's queries are in q
  std::vector<float> scores;      // [rows of a task][kScoreFloats]
  std::vector<float> key, value;  // [padded head_dim]
  AttentionBuffer state;          // [rows of a task, or heads] over all chunks so far
  AttentionBuffer next;           // [rows of a task] over one more chunk, to be merged into `state`
  AttentionBuffer sink;           // [1] the state of a sink: one score with value zero
};

// A range of tokens or query rows (token * group + head within the group of a kv head's query heads) of a segment.
struct SegmentRange {
  int32_t segment;
  int64_t first;
  int64_t count;
};

// True for the key group of the first kCentred positions of a chunk.
inline bool begins_chunk(const Segment& segment, const SegmentRange& range) {
  return (segment.position + range.first) % kAttentionChunk < kKeyLanes;
}

struct AttentionScratch {
  std::vector<float> q, k, v, gate;  // [M][rows of the matrix] outputs of the projections
  LatentScratch latents;
  std::vector<float> queries;  // [kv_heads][M][group][padded head_dim] prepared for the kernels
  AttentionBuffer partial;     // [attention chunks][heads] states of a single token, one per chunk and head
  std::vector<LocalAttentionScratch> workers;
  // The tasks of each kv head in a pass of several rows. With a q8 cache, `centres` are the key groups that are cached
  // before all others: the first kCentred positions of a chunk, whose mean key is its centre.
  std::vector<SegmentRange> centres;
  std::vector<SegmentRange> key_groups;  // tokens whose positions form one group of kKeyLanes positions
  std::map<int64_t, std::vector<SegmentRange>> query_rows;  // by group size; at most kAttentionRows each
};

// For passes of at most `tokens` tokens of sequences of at most `positions` positions.
void make_attention_scratch(const Model& model, int64_t tokens, int64_t positions, int32_t workers, ScratchSizer* sizer,
                            AttentionScratch* out);

// Lists the tasks of a pass, which are the same in every layer.
void plan_attention(const Pass& pass, AttentionScratch* scratch);

// Attention of one layer. x: the input of its first matrices; index: of the layer. Returns the input of o.
Input attend(Worker& worker, const Pass& pass, AttentionScratch& scratch, const Layer& layer, const Input& x,
             int64_t index);

}  // namespace pinion
