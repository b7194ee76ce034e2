// The memory that passes work in (engine/forward.h), allocated once for the largest of them.
#include <algorithm>
#include <array>

#include "engine/delta.h"
#include "engine/experts.h"
#include "engine/forward.h"
#include "kernels/tiles.h"

namespace pinion {

void CodeBuffer::make(Room* room, int64_t rows, int64_t k) {
  room->make(&codes, rows * padded_k(k));
  room->make(&scales, rows);
}

void WorkerScratch::make_codes(Room* room, InputForms forms, int64_t own_rows, int64_t k) {
  if (forms.plain) plain_codes.make(room, own_rows, k);
  if (!forms.rotated) return;
  rotated_codes.make(room, own_rows, k);
  room->make(&rotated, k);
}

void AttentionBuffer::make(Room* room, int64_t rows, int64_t head_dim) {
  room->make(&max, rows);
  room->make(&sum, rows);
  room->make(&acc, rows * head_dim);
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

// What the layers' own matrices need of a pass, those of experts aside.
struct Needs {
  InputForms forms = {};
  std::array<int64_t, kMatrixRoles> n = {};  // the most rows of each
  int64_t widest = 0;                        // the most inputs of any

  int64_t of(MatrixRole role) const { return n[static_cast<size_t>(role)]; }
};

Needs needs_of(const Model& model) {
  Needs needs = {.widest = model.config.hidden_size};
  needs.forms.add(model.head.weight);
  for (const Layer& layer : model.layers) {
    each_matrix(layer, [&](MatrixRole role, const Linear& linear) {
      int64_t& n = needs.n[static_cast<size_t>(role)];
      n = std::max(n, linear.weight.n);
      needs.widest = std::max(needs.widest, linear.weight.k);
      needs.forms.add(linear.weight);
    });
  }
  return needs;
}

bool has_out_norms(const Model& model) {
  return std::ranges::any_of(model.layers, [](const Layer& l) { return l.attention_out_norm || l.mlp_out_norm; });
}

}  // namespace

void make_scratch(const Model& model, const Kernels& kernels, int64_t tokens, int64_t positions, int32_t workers,
                  Room* room, Scratch* out) {
  const ModelConfig& c = model.config;
  Scratch& s = *out;
  const int64_t d = round_up(c.head_dim, kKeyBlock);
  const Needs needs = needs_of(model);
  const int64_t widest = needs.widest;
  room->make(&s.x, tokens * c.hidden_size);
  const int64_t block = std::max(kernels.s8.rows, kernels.f32.rows);
  const int64_t padded = std::max(packed_rows(kernels.s8, tokens), packed_rows(kernels.f32, tokens));
  const InputForms forms = needs.forms;
  if (forms.values) room->make(&s.packed, padded * widest);
  if (forms.plain) s.plain_codes.make(room, padded, widest);
  if (forms.rotated) s.rotated_codes.make(room, padded, widest);
  room->make(&s.q, tokens * needs.of(MatrixRole::q));
  room->make(&s.k, tokens * needs.of(MatrixRole::k));
  room->make(&s.v, tokens * needs.of(MatrixRole::v));
  room->make(&s.rotated, tokens * c.heads * d);
  room->make(&s.attention, tokens * std::max(c.heads * c.head_dim, c.delta.value_width()));
  room->make(&s.activation, tokens * needs.of(MatrixRole::gate));
  if (has_out_norms(model)) room->make(&s.branch, tokens * c.hidden_size);
  for (const Rope& rope : c.ropes) {
    RopeAngles& angles = s.angles.emplace_back();
    room->make(&angles.cos, tokens * rope.dims / 2);
    room->make(&angles.sin, tokens * rope.dims / 2);
    room->make(&angles.query_scale, tokens);
  }
  room->make(&s.panel_best, panel_count(c.vocab_size));
  s.partial.make(room, (positions + kAttentionChunk - 1) / kAttentionChunk * c.heads, d);
  s.workers.resize(static_cast<size_t>(workers));
  for (WorkerScratch& own : s.workers) {
    room->make(&own.rows, block * widest);
    own.make_codes(room, forms, block, widest);
    room->make(&own.q, c.heads * d);
    own.has_queries.resize(static_cast<size_t>(c.kv_heads));
    room->make(&own.scores, kAttentionRows * kAttentionChunk);
    room->make(&own.key, d);
    own.state.make(room, std::max(c.heads, kAttentionRows), d);
    own.next.make(room, kAttentionRows, d);
    own.sink.make(room, 1, d);
    if (room->takes) own.sink.sum[0] = 1.0f;
  }
  make_delta_scratch(c, tokens, room, &s);
  make_expert_scratch(model, kernels, tokens, room, &s);
}

}  // namespace pinion
