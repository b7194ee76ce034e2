// The memory that passes work in (engine/forward.h), allocated once for the largest of them.
#include <algorithm>

#include "engine/delta.h"
#include "engine/experts.h"
#include "engine/forward.h"
#include "kernels/tiles.h"

namespace pinion {

void AttentionBuffer::resize(int64_t rows, int64_t head_dim) {
  max.resize(static_cast<size_t>(rows));
  sum.resize(static_cast<size_t>(rows));
  acc.resize(static_cast<size_t>(rows * head_dim));
}

void AttentionBuffer::copy(int64_t row, const AttentionBuffer& other, int64_t other_row, int64_t rows,
                           int64_t head_dim) {
  std::copy_n(other.max.data() + other_row, rows, max.data() + row);
  std::copy_n(other.sum.data() + other_row, rows, sum.data() + row);
  std::copy_n(other.acc.data() + other_row * head_dim, rows * head_dim, acc.data() + row * head_dim);
}

AttentionState AttentionBuffer::from(int64_t row, int64_t head_dim) {
  return {max.data() + row, sum.data() + row, acc.data() + row * head_dim};
}

namespace {

bool any_bf16(const Model& model) {
  const auto is_bf16 = [](const Linear& linear) { return linear.weight.format == Format::bf16; };
  return is_bf16(model.head) || std::ranges::any_of(model.layers, [&](const Layer& l) {
           const DeltaLayer& d = l.delta;
           const Linear* all[] = {&d.qkv, &d.z, &d.b, &d.a, &l.q, &l.k, &l.v, &l.o, &l.gate, &l.up, &l.down, &l.router};
           return std::ranges::any_of(all, [&](const Linear* linear) { return is_bf16(*linear); });
         });
}

bool has_out_norms(const Model& model) {
  return std::ranges::any_of(model.layers, [](const Layer& l) { return l.attention_out_norm || l.mlp_out_norm; });
}

}  // namespace

void allocate_scratch(const Model& model, const Kernels& kernels, int64_t tokens, int64_t positions, int32_t workers,
                      Scratch* out) {
  const ModelConfig& c = model.config;
  Scratch s;
  const auto floats = [](std::vector<float>* v, int64_t n) { v->resize(static_cast<size_t>(n)); };
  const int64_t d = round_up(c.head_dim, kKeyBlock);
  const int64_t heads_width = c.heads * c.head_dim;
  const int64_t attended = std::max(heads_width, c.delta.value_width());
  const int64_t widest = std::max({c.hidden_size, attended, c.intermediate_size});
  floats(&s.x, tokens * c.hidden_size);
  const int64_t block = std::max(kernels.s8.rows, kernels.f32.rows);
  const int64_t padded = std::max(packed_rows(kernels.s8, tokens), packed_rows(kernels.f32, tokens));
  if (any_bf16(model)) floats(&s.packed, padded * widest);
  if (model.quant != Quant::none) s.codes.resize(static_cast<size_t>(padded * padded_k(widest)));
  floats(&s.scales, tokens);
  floats(&s.q, tokens * heads_width * (c.attention_gate ? 2 : 1));
  floats(&s.k, tokens * c.kv_heads * c.head_dim);
  floats(&s.v, tokens * c.kv_heads * c.head_dim);
  floats(&s.rotated, tokens * c.heads * d);
  floats(&s.attention, tokens * attended);
  floats(&s.activation, tokens * c.intermediate_size);
  if (has_out_norms(model)) floats(&s.branch, tokens * c.hidden_size);
  for (const Rope& rope : c.ropes) {
    RopeAngles& angles = s.angles.emplace_back();
    floats(&angles.cos, tokens * rope.dims / 2);
    floats(&angles.sin, tokens * rope.dims / 2);
    floats(&angles.query_scale, tokens);
  }
  s.panel_best.resize(static_cast<size_t>(panel_count(c.vocab_size)));
  s.partial.resize((positions + kAttentionChunk - 1) / kAttentionChunk * c.heads, d);
  s.workers.resize(static_cast<size_t>(workers));
  for (WorkerScratch& own : s.workers) {
    floats(&own.rows, block * widest);
    own.codes.resize(static_cast<size_t>(block * padded_k(widest)));
    floats(&own.q, c.heads * d);
    own.has_queries.resize(static_cast<size_t>(c.kv_heads));
    floats(&own.scores, kAttentionRows * kAttentionChunk);
    floats(&own.key, d);
    own.state.resize(std::max(c.heads, kAttentionRows), d);
    own.next.resize(kAttentionRows, d);
  }
  allocate_delta_scratch(c, tokens, &s);
  allocate_expert_scratch(model, kernels, tokens, &s);
  *out = std::move(s);
}

}  // namespace pinion
