#include "engine/forward.h"

#include <algorithm>
#include <initializer_list>

#include "engine/delta.h"
#include "engine/experts.h"
#include "engine/matmul.h"
#include "engine/trace.h"
#include "kernels/tiles.h"
#include "loader/convert.h"

namespace pinion {
namespace {

// RMSNorm of the last `rows` rows of the residual stream, or these as they are where the family has no such norm.
Input normalized(Worker& worker, const Pass& p, const float* weight, int64_t rows,
                 std::initializer_list<const Linear*> matrices) {
  const ModelConfig& c = p.model.config;
  const int64_t k = c.hidden_size;
  const float* x = p.scratch.x.data() + (std::ssize(p.tokens) - rows) * k;
  return prepare(worker, p, rows, k, matrices, [&](int64_t first, int64_t count, float* out) -> const float* {
    if (!weight) return x + first * k;
    for (int64_t r = 0; r < count; ++r) {
      p.kernels.rms_norm(x + (first + r) * k, weight, k, c.rms_norm_eps, out + r * k);
    }
    return out;
  });
}

Input as_it_is(Worker& worker, const Pass& p, const std::vector<float>& rows, int64_t k, const Linear& matrix) {
  return prepare(worker, p, std::ssize(p.tokens), k, {&matrix},
                 [&](int64_t first, int64_t, float*) { return rows.data() + first * k; });
}

// --- attention
// ---------------------------------------------------------------------------------------------------------

int64_t chunk_of(int64_t position) { return position / kAttentionChunk; }

// The first position that the token at `position` sees.
int64_t first_seen(const Layer& layer, int64_t position) {
  return layer.window > 0 ? std::max<int64_t>(0, position + 1 - layer.window) : 0;
}

AttentionSpan span_in(const Layer& layer, int64_t position, int64_t chunk) {
  const int64_t start = chunk * kAttentionChunk;
  return {static_cast<int32_t>(std::max<int64_t>(0, first_seen(layer, position) - start)),
          static_cast<int32_t>(std::min<int64_t>(kAttentionChunk, position + 1 - start))};
}

// Rows of q and of k that are normed as a whole, in place.
void norm_all_heads(Worker& worker, const Pass& p, const Layer& layer) {
  const ModelConfig& c = p.model.config;
  const int64_t q_width = c.heads * c.head_dim;
  const int64_t k_width = c.kv_heads * c.head_dim;
  worker.for_each(2 * std::ssize(p.tokens), [&](int64_t task) {
    float* q = p.scratch.q.data() + task / 2 * q_width;
    float* k = p.scratch.k.data() + task / 2 * k_width;
    if (task % 2 == 0) {
      p.kernels.rms_norm(q, layer.q_norm, q_width, c.rms_norm_eps, q);
    } else {
      p.kernels.rms_norm(k, layer.k_norm, k_width, c.rms_norm_eps, k);
    }
  });
  worker.barrier();
}

// One head after its norm and its rotation, in the family's order.
void rotate_head(const Pass& p, const Layer& layer, const float* head, const float* norm, int64_t row, float* out) {
  const ModelConfig& c = p.model.config;
  if (c.qk_norm == QkNorm::heads) {
    p.kernels.rms_norm(head, norm, c.head_dim, c.rms_norm_eps, out);
  } else {
    std::copy_n(head, c.head_dim, out);
  }
  if (layer.rope != kNoRope) {
    const RopeAngles& angles = p.scratch.angles[static_cast<size_t>(layer.rope)];
    const int64_t half = c.ropes[static_cast<size_t>(layer.rope)].dims / 2;
    p.kernels.rope(out, angles.cos.data() + row * half, angles.sin.data() + row * half, half);
  }
  if (c.qk_norm == QkNorm::rotated_heads) p.kernels.rms_norm(out, norm, c.head_dim, c.rms_norm_eps, out);
}

// A head of a row of q; its gate follows it.
const float* query_of(const Pass& p, int64_t row, int64_t head) {
  const ModelConfig& c = p.model.config;
  return p.scratch.q.data() + (row * c.heads + head) * c.query_stride();
}

// A query as attention takes it.
void make_query(const Pass& p, const Layer& layer, int64_t row, int64_t head, float* out) {
  const ModelConfig& c = p.model.config;
  rotate_head(p, layer, query_of(p, row, head), layer.q_norm, row, out);
  const float scale = layer.rope == kNoRope
                          ? 1.0f
                          : p.scratch.angles[static_cast<size_t>(layer.rope)].query_scale[static_cast<size_t>(row)];
  std::fill(out + c.head_dim, out + p.cache.head_dim, 0.0f);
  p.kernels.make_query(out, p.cache.head_dim, scale * c.score_scale, p.cache.is_float);
}

void cache_head(const Pass& p, const Layer& layer, int64_t row, int64_t kv_head, float* key) {
  const ModelConfig& c = p.model.config;
  const int64_t at = (row * c.kv_heads + kv_head) * c.head_dim;
  rotate_head(p, layer, p.scratch.k.data() + at, layer.k_norm, row, key);
  p.cache.write(p.position + row, layer.slot, kv_head, key, p.scratch.v.data() + at, c.head_dim,
                row + 1 == std::ssize(p.tokens));
}

// out = acc / sum for a head, with its sink and through its gate.
void finish_head(const Pass& p, const Layer& layer, WorkerScratch* own, const AttentionState& state, int64_t row,
                 int64_t head, float* out) {
  const ModelConfig& c = p.model.config;
  if (layer.sinks) {  // last of all: a place that no chunking moves
    own->sink.max[0] = layer.sinks[head];
    p.kernels.merge_attention(state, own->sink.from(0, p.cache.head_dim), 1, p.cache.head_dim);
  }
  for (int64_t i = 0; i < c.head_dim; ++i) out[i] = state.acc[i] / *state.sum;
  if (c.attention_gate) p.kernels.sigmoid_mul(query_of(p, row, head) + c.head_dim, out, c.head_dim, out);
}

// One token: every (kv head, chunk) is a task. Whoever has the last chunk adds the token to the cache first.
Input attend_one(Worker& worker, const Pass& p, const Layer& layer) {
  const ModelConfig& c = p.model.config;
  Scratch& s = p.scratch;
  WorkerScratch& own = s.workers[static_cast<size_t>(worker.index)];
  const int64_t d = p.cache.head_dim;
  const int64_t group = c.heads / c.kv_heads;
  const int64_t first_chunk = chunk_of(first_seen(layer, p.position));
  const int64_t chunks = chunk_of(p.position) - first_chunk + 1;

  std::fill(own.has_queries.begin(), own.has_queries.end(), false);
  worker.for_each(c.kv_heads * chunks, [&](int64_t task) {
    const int64_t kv_head = task % c.kv_heads;
    const int64_t chunk = first_chunk + task / c.kv_heads;
    if (chunk == chunk_of(p.position)) cache_head(p, layer, 0, kv_head, own.key.data());
    const int64_t begin = kv_head * group;
    const int64_t end = begin + group;
    if (!own.has_queries[static_cast<size_t>(kv_head)]) {
      own.has_queries[static_cast<size_t>(kv_head)] = true;
      for (int64_t head = begin; head < end; ++head) make_query(p, layer, 0, head, own.q.data() + head * d);
    }
    const AttentionChunk part = p.cache.chunk(chunk, layer.slot, kv_head, c.score_cap);
    AttentionSpan spans[kAttentionRows];
    std::ranges::fill(spans, span_in(layer, p.position, chunk));
    for (int64_t head = begin; head < end; head += kAttentionRows) {
      p.kernels.attend(part, own.q.data() + head * d, std::min(kAttentionRows, end - head), spans, own.scores.data(),
                       s.partial.from((chunk - first_chunk) * c.heads + head, d));
    }
  });
  worker.barrier();

  return prepare(at(worker, Stage::o_input), p, 1, c.heads * c.head_dim, {&layer.o}, [&](int64_t, int64_t, float* out) {
    own.state.copy(0, s.partial, 0, c.heads, d);
    for (int64_t i = 1; i < chunks; ++i) {
      p.kernels.merge_attention(own.state.from(0, d), s.partial.from(i * c.heads, d), c.heads, d);
    }
    for (int64_t head = 0; head < c.heads; ++head) {
      finish_head(p, layer, &own, own.state.from(head, d), 0, head, out + head * c.head_dim);
    }
    return out;
  });
}

// Query rows [first, last) of a kv head, row = token * group + head of the group, over all that they see.
void attend_rows(const Pass& p, const Layer& layer, int64_t kv_head, int64_t first, int64_t last, WorkerScratch* own) {
  const ModelConfig& c = p.model.config;
  Scratch& s = p.scratch;
  const int64_t d = p.cache.head_dim;
  const int64_t group = c.heads / c.kv_heads;
  const float* q = s.rotated.data() + kv_head * std::ssize(p.tokens) * group * d;
  const auto position = [&](int64_t row) { return p.position + row / group; };

  const int64_t last_chunk = chunk_of(position(last - 1));
  for (int64_t chunk = chunk_of(first_seen(layer, position(first))); chunk <= last_chunk; ++chunk) {
    // Rows that see something of this chunk: later ones may see only what comes after it, earlier ones end before it.
    int64_t from = first;
    while (chunk_of(position(from)) < chunk) ++from;
    int64_t to = last;
    while (chunk_of(first_seen(layer, position(to - 1))) > chunk) --to;
    AttentionSpan spans[kAttentionRows];
    for (int64_t row = from; row < to; ++row) spans[row - from] = span_in(layer, position(row), chunk);
    p.kernels.attend(p.cache.chunk(chunk, layer.slot, kv_head, c.score_cap), q + from * d, to - from, spans,
                     own->scores.data(), own->next.from(0, d));
    // Earlier rows have seen chunks before this one; for later ones it is the first.
    int64_t begun = from;
    while (begun < to && chunk_of(first_seen(layer, position(begun))) < chunk) ++begun;
    p.kernels.merge_attention(own->state.from(from - first, d), own->next.from(0, d), begun - from, d);
    own->state.copy(begun - first, own->next, begun - from, to - begun, d);
  }
  for (int64_t row = first; row < last; ++row) {
    const int64_t token = row / group, head = kv_head * group + row % group;
    finish_head(p, layer, own, own->state.from(row - first, d), token, head,
                s.attention.data() + (token * c.heads + head) * c.head_dim);
  }
}

// Several tokens: first all of them into the cache, then every (kv head, block of query rows) is a task.
Input attend_many(Worker& worker, const Pass& p, const Layer& layer) {
  const ModelConfig& c = p.model.config;
  Scratch& s = p.scratch;
  WorkerScratch& own = s.workers[static_cast<size_t>(worker.index)];
  const int64_t d = p.cache.head_dim;
  const int64_t group = c.heads / c.kv_heads;
  const int64_t tokens = std::ssize(p.tokens);

  worker.for_each(tokens * c.kv_heads, [&](int64_t task) {
    const int64_t row = task / c.kv_heads;
    const int64_t kv_head = task % c.kv_heads;
    cache_head(p, layer, row, kv_head, own.key.data());
    for (int64_t g = 0; g < group; ++g) {
      make_query(p, layer, row, kv_head * group + g, s.rotated.data() + ((kv_head * tokens + row) * group + g) * d);
    }
  });
  worker.barrier();

  const int64_t rows = tokens * group;
  const int64_t blocks = (rows + kAttentionRows - 1) / kAttentionRows;
  worker.for_each(c.kv_heads * blocks, [&](int64_t task) {
    const int64_t first = task % blocks * kAttentionRows;
    attend_rows(p, layer, task / blocks, first, std::min(rows, first + kAttentionRows), &own);
  });
  worker.barrier();
  return as_it_is(at(worker, Stage::o_input), p, s.attention, c.heads * c.head_dim, layer.o);
}

// What a layer's attention makes of x, the input that q, k and v share; what o multiplies.
Input attend(Worker& worker, const Pass& p, const Layer& layer, const Input& x) {
  Scratch& s = p.scratch;
  project(at(worker, Stage::qkv), p, x, {{&layer.q, s.q.data()}, {&layer.k, s.k.data()}, {&layer.v, s.v.data()}});
  at(worker, Stage::attention);
  if (p.model.config.qk_norm == QkNorm::all_heads) norm_all_heads(worker, p, layer);
  return p.tokens.size() == 1 ? attend_one(worker, p, layer) : attend_many(worker, p, layer);
}

// The matrices that read what a layer's first norm gives.
Input attention_input(Worker& worker, const Pass& p, const Layer& layer) {
  const int64_t tokens = std::ssize(p.tokens);
  const DeltaLayer& d = layer.delta;
  return layer.recurrent ? normalized(worker, p, layer.attention_norm, tokens, {&d.qkv, &d.z, &d.b, &d.a})
                         : normalized(worker, p, layer.attention_norm, tokens, {&layer.q, &layer.k, &layer.v});
}

// What a branch computes, into the residual stream: x += scale W in, or x += scale RMSNorm(W in) where the family norms
// branches once more.
void add_branch(Worker& worker, const Pass& p, const Input& in, const Linear& linear, const float* norm) {
  const ModelConfig& c = p.model.config;
  Scratch& s = p.scratch;
  if (!norm) return project(worker, p, in, {{&linear, s.x.data()}}, {.alpha = c.branch_scale, .beta = 1});
  project(worker, p, in, {{&linear, s.branch.data()}});
  worker.for_each(std::ssize(p.tokens), [&](int64_t row) {
    float* x = s.x.data() + row * c.hidden_size;
    float* branch = s.branch.data() + row * c.hidden_size;
    p.kernels.rms_norm(branch, norm, c.hidden_size, c.rms_norm_eps, branch);
    for (int64_t i = 0; i < c.hidden_size; ++i) x[i] += c.branch_scale * branch[i];
  });
  worker.barrier();
}

// --- the ends
// ----------------------------------------------------------------------------------------------------------

// Row `id` of the embedding, rounded to bf16 where the file is finer: weights are bf16 throughout.
void embed_row(const Model& model, int64_t id, float* out) {
  const ModelConfig& c = model.config;
  read_row(model.embedding, id, out);
  for (int64_t i = 0; i < c.hidden_size; ++i) out[i] = to_float(to_bf16(out[i])) * c.embedding_scale;
}

// The tokens' embeddings into the residual stream, and the angles of their positions.
void embed(Worker& worker, const Pass& p) {
  const ModelConfig& c = p.model.config;
  Scratch& s = p.scratch;
  worker.for_each(2 * std::ssize(p.tokens), [&](int64_t task) {
    const int64_t row = task / 2;
    if (task % 2 == 0) {
      embed_row(p.model, p.tokens[static_cast<size_t>(row)], s.x.data() + row * c.hidden_size);
    } else {
      for (size_t i = 0; i < c.ropes.size(); ++i) {
        const int64_t at = row * c.ropes[i].dims / 2;
        s.angles[i].query_scale[static_cast<size_t>(row)] = query_scale(c.ropes[i], p.position + row);
        rope_angles(p.ropes[i], p.position + row, s.angles[i].cos.data() + at, s.angles[i].sin.data() + at);
      }
    }
  });
  worker.barrier();
}

void add_mlp(Worker& worker, const Pass& p, const Layer& layer, int64_t layer_index) {
  const int64_t tokens = std::ssize(p.tokens);
  if (!layer.experts.empty()) {
    const Input y = normalized(at(worker, Stage::mlp_norm), p, layer.mlp_norm, tokens, {&layer.router});
    return add_experts(worker, p, layer, y);
  }
  const Input y = normalized(at(worker, Stage::mlp_norm), p, layer.mlp_norm, tokens, {&layer.gate, &layer.up});
  trace_input(worker, p, layer_index, Stage::gate_up, y);
  project_gated(at(worker, Stage::gate_up), p, y, layer.gate, layer.up, p.scratch.activation.data());
  const Input activated =
      as_it_is(at(worker, Stage::down_input), p, p.scratch.activation, p.model.config.intermediate_size, layer.down);
  trace_input(worker, p, layer_index, Stage::down, activated);
  add_branch(at(worker, Stage::down), p, activated, layer.down, layer.mlp_out_norm);
}

}  // namespace

void forward(Worker& worker, const Pass& p) {
  const ModelConfig& c = p.model.config;
  Scratch& s = p.scratch;

  if (p.profile) {
    worker.profile = &p.profile->workers[static_cast<size_t>(worker.index)];
    worker.profile->start();
  }
  embed(worker, p);
  for (int64_t i = 0; i < c.layers; ++i) {
    const Layer& layer = p.model.layers[static_cast<size_t>(i)];

    const Input x = attention_input(at(worker, Stage::attention_norm), p, layer);
    trace_input(worker, p, i, Stage::qkv, x);
    const Input attended = layer.recurrent ? delta_net(worker, p, layer, x) : attend(worker, p, layer, x);
    trace_input(worker, p, i, Stage::o, attended);
    add_branch(at(worker, Stage::o), p, attended, layer.o, layer.attention_out_norm);

    add_mlp(worker, p, layer, i);
    trace_residual(worker, p, i);
  }
  if (p.logit_rows == 0) return;
  const Input last = normalized(at(worker, Stage::final_norm), p, p.model.final_norm, p.logit_rows, {&p.model.head});
  project(at(worker, Stage::head), p, last, {{&p.model.head, p.logits, s.panel_best.data()}},
          {.alpha = c.logit_scale, .cap = c.logit_cap});
}

}  // namespace pinion
