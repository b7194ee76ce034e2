// Memory of attention, and the lists of a pass's tasks.
#include <algorithm>
#include <initializer_list>
#include <set>

#include "engine/forward/attention.h"

namespace pinion {

void AttentionBuffer::make(ScratchSizer* sizer, int64_t rows, int64_t head_dim) {
  sizer->make(&max, rows);
  sizer->make(&sum, rows);
  sizer->make(&acc, rows * head_dim);
}

AttentionState AttentionBuffer::from(int64_t row, int64_t head_dim) {
  return {max.data() + row, sum.data() + row, acc.data() + row * head_dim};
}

void AttentionBuffer::copy(int64_t row, const AttentionBuffer& other, int64_t other_row, int64_t rows,
                           int64_t head_dim) {
  std::copy_n(other.max.data() + other_row, rows, max.data() + row);
  std::copy_n(other.sum.data() + other_row, rows, sum.data() + row);
  std::copy_n(other.acc.data() + other_row * head_dim, rows * head_dim, acc.data() + row * head_dim);
}

void plan_attention(const Pass& p, AttentionScratch* s) {
  s->centres.clear(), s->key_groups.clear();
  for (auto& [group, ranges] : s->query_rows) ranges.clear();
  if (p.rows == 1) return;
  for (const Segment& segment : p.segments) {
    const auto index = static_cast<int32_t>(&segment - p.segments.data());
    const int64_t tokens = segment.size();
    for (int64_t first = 0; first < tokens;) {
      const int64_t end = round_up(segment.position + first + 1, kKeyLanes) - segment.position;
      const SegmentRange range = {index, first, std::min(tokens, end) - first};
      s->key_groups.push_back(range);
      if (segment.cache->shape().type() == KvType::q8 && begins_chunk(segment, range)) s->centres.push_back(range);
      first = end;
    }
    for (auto& [group, ranges] : s->query_rows) {
      for (int64_t first = 0, rows = tokens * group; first < rows; first += kAttentionRows) {
        ranges.push_back({index, first, std::min(kAttentionRows, rows - first)});
      }
    }
  }
}

void make_attention_scratch(const Model& model, int64_t tokens, int64_t positions, int32_t workers, ScratchSizer* sizer,
                            AttentionScratch* out) {
  const ModelConfig& c = model.config;
  const int64_t heads = c.largest(&LayerConfig::heads);
  const int64_t d = std::ranges::max(kv_shape_of(c, KvType::f32).layers, {}, &KvLayerShape::head_dim).head_dim;
  const auto make = [&](std::vector<float>* rows, std::initializer_list<MatrixRole> roles) {
    for (const MatrixRole role : roles) sizer->make(rows, tokens * max_rows(model, role));
  };
  make(&out->q, {MatrixRole::q, MatrixRole::latent_q});
  make(&out->k, {MatrixRole::k});
  make(&out->v, {MatrixRole::v});
  make(&out->gate, {MatrixRole::attention_gate});
  make_latent_scratch(model, tokens, sizer, &out->latents);
  sizer->make(&out->queries, tokens * heads * d);
  out->partial.make(sizer, (positions + kAttentionChunk - 1) / kAttentionChunk * heads, d);
  sizer->make(&out->centres, tokens);
  sizer->make(&out->key_groups, tokens);
  std::set<int64_t> groups;
  for (const Layer& layer : model.layers) groups.insert(heads_of(model, layer, 0).count);
  for (const int64_t group : groups) {
    sizer->make(&out->query_rows[group], tokens + (tokens * group + kAttentionRows - 1) / kAttentionRows);
  }
  out->workers.resize(workers);
  for (LocalAttentionScratch& local : out->workers) {
    sizer->make(&local.q, heads * d);
    local.has_queries.resize(heads);
    sizer->make(&local.scores, kAttentionRows * kScoreFloats);
    sizer->make(&local.key, d);
    sizer->make(&local.value, d);
    local.state.make(sizer, std::max(heads, kAttentionRows), d);
    local.next.make(sizer, kAttentionRows, d);
    local.sink.make(sizer, 1, d);
    if (sizer->allocates) local.sink.sum[0] = 1.0f;
  }
}

}  // namespace pinion
