#include "engine/forward.h"

#include <algorithm>
#include <cmath>
#include <initializer_list>

#include "loader/convert.h"

namespace pinion {
namespace {

// What a matmul multiplies: rows as they are and, where the model is quantised, their codes.
struct Input {
  int64_t rows;
  const float* values;  // [rows][k]
  int64_t k;
  const int8_t* codes;  // [rows][padded_k(k)]
  const float* scales;  // [rows]
};

// --- matmul
// -----------------------------------------------------------------------------------------------------------

constexpr int64_t kTileRows = 48;  // a multiple of every variant's row block; the two tiles of it fit the first cache

struct Tile {
  alignas(64) int32_t sums[kTileRows * kPanelColumns];
  alignas(64) float values[kTileRows * kPanelColumns];
};

// values = rows [first, first + rows) of the input times one panel.
void multiply(const Kernels& kernels, const Matrix& w, int64_t panel, const Input& in, int64_t first, int64_t rows,
              Tile* tile) {
  const auto* base = static_cast<const std::byte*>(w.panels) + panel * panel_bytes(w.format, w.k);
  if (w.format == Format::bf16) {
    kernels.gemm_bf16(in.values + first * in.k, in.k, rows, reinterpret_cast<const bf16*>(base), in.k, tile->values);
    return;
  }
  const int64_t k = padded_k(in.k);
  const int64_t column = panel * kPanelColumns;
  kernels.gemm_w8(in.codes + first * k, k, rows, reinterpret_cast<const int8_t*>(base), w.column_sum + column, k,
                  tile->sums);
  kernels.dequantize(tile->sums, rows, in.scales + first, w.scale + column, tile->values);
}

// f(first, rows) over the input's rows, a tile at a time.
template <class F>
void each_tile(int64_t rows, F f) {
  for (int64_t first = 0; first < rows; first += kTileRows) f(first, std::min(kTileRows, rows - first));
}

struct Projection {
  const Linear* linear;
  float* out;  // [rows][n]
};

// out = W x + b for matrices that share an input, or out += where `add`. Their panels are claimed one by one.
void project(Worker& worker, const Pass& p, const Input& in, std::initializer_list<Projection> projections,
             bool add = false) {
  int64_t panels = 0;
  for (const Projection& one : projections) panels += panel_count(one.linear->weight.n);
  worker.for_each(panels, [&](int64_t panel) {
    const Projection* to = projections.begin();
    for (; panel >= panel_count(to->linear->weight.n); ++to) panel -= panel_count(to->linear->weight.n);
    const Matrix& w = to->linear->weight;
    const int64_t column = panel * kPanelColumns;
    const float* bias = to->linear->bias ? to->linear->bias + column : nullptr;
    Tile tile;
    each_tile(in.rows, [&](int64_t first, int64_t rows) {
      multiply(p.kernels, w, panel, in, first, rows, &tile);
      p.kernels.store_tile(tile.values, rows, bias, add, to->out + first * w.n + column, w.n,
                           std::min(kPanelColumns, w.n - column));
    });
  });
  worker.barrier();
}

// out = silu(gate x) * (up x). The same panel of both matrices is one task.
void project_gated(Worker& worker, const Pass& p, const Input& in, const Linear& gate, const Linear& up, float* out) {
  const int64_t n = gate.weight.n;
  worker.for_each(panel_count(n), [&](int64_t panel) {
    const int64_t column = panel * kPanelColumns;
    const int64_t columns = std::min(kPanelColumns, n - column);
    Tile gates, ups;
    each_tile(in.rows, [&](int64_t first, int64_t rows) {
      for (const auto& [linear, tile] : {std::pair{&gate, &gates}, std::pair{&up, &ups}}) {
        multiply(p.kernels, linear->weight, panel, in, first, rows, tile);
        const float* bias = linear->bias ? linear->bias + column : nullptr;
        if (bias) p.kernels.store_tile(tile->values, rows, bias, false, tile->values, kPanelColumns, columns);
      }
      for (int64_t r = 0; r < rows; ++r) {
        p.kernels.silu_mul(gates.values + r * kPanelColumns, ups.values + r * kPanelColumns, columns,
                           out + (first + r) * n + column);
      }
    });
  });
  worker.barrier();
}

// --- rows to be multiplied
// ---------------------------------------------------------------------------------------------

void quantize_row(const Pass& p, const float* row, int64_t k, int8_t* codes, float* scale) {
  if (p.model.quant != Quant::none) p.kernels.quantize(row, k, codes, scale);
}

// An input of `rows` rows of width k. make(r, out) gives row r: `out` filled, or a row that exists already. A single
// row is made by every worker for itself, which costs less than a barrier; several are shared out.
template <class Make>
Input prepare(Worker& worker, const Pass& p, int64_t rows, int64_t k, const float* shared, Make make) {
  Scratch& s = p.scratch;
  WorkerScratch& own = s.workers[static_cast<size_t>(worker.index)];
  if (rows == 1) {
    const float* row = make(0, own.row.data());
    quantize_row(p, row, k, own.codes.data(), &own.scale);
    return {1, row, k, own.codes.data(), &own.scale};
  }
  const int64_t codes_k = padded_k(k);
  worker.for_each(rows, [&](int64_t r) {
    const float* row = make(r, s.input.data() + r * k);
    quantize_row(p, row, k, s.codes.data() + r * codes_k, s.scales.data() + r);
  });
  worker.barrier();
  return {rows, shared, k, s.codes.data(), s.scales.data()};
}

// RMSNorm of the last `rows` rows of the residual stream.
Input normalized(Worker& worker, const Pass& p, const float* weight, int64_t rows) {
  const ModelConfig& c = p.model.config;
  const int64_t k = c.hidden_size;
  const float* x = p.scratch.x.data() + (std::ssize(p.tokens) - rows) * k;
  return prepare(worker, p, rows, k, p.scratch.input.data(), [&](int64_t r, float* out) {
    p.kernels.rms_norm(x + r * k, weight, k, c.rms_norm_eps, out);
    return out;
  });
}

Input as_it_is(Worker& worker, const Pass& p, const std::vector<float>& rows, int64_t k) {
  return prepare(worker, p, std::ssize(p.tokens), k, rows.data(),
                 [&](int64_t r, float*) { return rows.data() + r * k; });
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

float score_scale(const ModelConfig& c) { return 1.0f / std::sqrt(static_cast<float>(c.head_dim)); }

// One head after its norm (where the family has one) and its rotation.
void rotate_head(const Pass& p, const float* head, const float* norm, int64_t row, float* out) {
  const int64_t d = p.model.config.head_dim;
  if (norm) {
    p.kernels.rms_norm(head, norm, d, p.model.config.rms_norm_eps, out);
  } else {
    std::copy_n(head, d, out);
  }
  p.kernels.rope(out, p.scratch.cos.data() + row * (d / 2), p.scratch.sin.data() + row * (d / 2), d / 2);
}

void cache_head(const Pass& p, const Layer& layer, int64_t layer_index, int64_t row, int64_t kv_head, float* key) {
  const ModelConfig& c = p.model.config;
  const int64_t at = (row * c.kv_heads + kv_head) * c.head_dim;
  rotate_head(p, p.scratch.k.data() + at, layer.k_norm, row, key);
  p.cache.write(p.position + row, layer_index, kv_head, key, p.scratch.v.data() + at, c.head_dim);
}

// out = acc / sum for a head.
void finish_head(const AttentionState& state, int64_t head_dim, float* out) {
  for (int64_t i = 0; i < head_dim; ++i) out[i] = state.acc[i] / *state.sum;
}

// One token: every (kv head, chunk) is a task. Whoever has the last chunk adds the token to the cache first.
Input attend_one(Worker& worker, const Pass& p, const Layer& layer, int64_t layer_index) {
  const ModelConfig& c = p.model.config;
  Scratch& s = p.scratch;
  WorkerScratch& own = s.workers[static_cast<size_t>(worker.index)];
  const int64_t d = p.cache.head_dim;
  const int64_t group = c.heads / c.kv_heads;
  const int64_t first_chunk = chunk_of(first_seen(layer, p.position));
  const int64_t chunks = chunk_of(p.position) - first_chunk + 1;

  worker.for_each(c.kv_heads * chunks, [&](int64_t task) {
    const int64_t kv_head = task % c.kv_heads;
    const int64_t chunk = first_chunk + task / c.kv_heads;
    if (chunk == chunk_of(p.position)) cache_head(p, layer, layer_index, 0, kv_head, own.key.data());
    const AttentionChunk part = p.cache.chunk(chunk, layer_index, kv_head, score_scale(c));
    for (int64_t done = 0; done < group; done += kAttentionRows) {
      const int64_t rows = std::min(kAttentionRows, group - done);
      const int64_t head = kv_head * group + done;
      AttentionSpan spans[kAttentionRows];
      for (int64_t r = 0; r < rows; ++r) {
        spans[r] = span_in(layer, p.position, chunk);
        rotate_head(p, s.q.data() + (head + r) * c.head_dim, layer.q_norm, 0, own.q.data() + r * d);
      }
      p.kernels.attend(part, own.q.data(), rows, spans, own.scores.data(),
                       s.partial.from((chunk - first_chunk) * c.heads + head, d));
    }
  });
  worker.barrier();

  return prepare(worker, p, 1, c.heads * c.head_dim, nullptr, [&](int64_t, float* out) {
    const AttentionState state = own.state.from(0, d);
    const AttentionState first = s.partial.from(0, d);
    std::copy_n(first.max, c.heads, state.max);
    std::copy_n(first.sum, c.heads, state.sum);
    std::copy_n(first.acc, c.heads * d, state.acc);
    for (int64_t i = 1; i < chunks; ++i) p.kernels.merge_attention(state, s.partial.from(i * c.heads, d), c.heads, d);
    for (int64_t head = 0; head < c.heads; ++head) {
      finish_head(own.state.from(head, d), c.head_dim, out + head * c.head_dim);
    }
    return out;
  });
}

// Query rows [first, last) of a kv head, row = token * group + head of the group, over all that they see.
void attend_rows(const Pass& p, const Layer& layer, int64_t layer_index, int64_t kv_head, int64_t first, int64_t last,
                 WorkerScratch* own) {
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
    p.kernels.attend(p.cache.chunk(chunk, layer_index, kv_head, score_scale(c)), q + from * d, to - from, spans,
                     own->scores.data(), own->next.from(0, d));
    for (int64_t row = from; row < to; ++row) {
      const AttentionState state = own->state.from(row - first, d);
      const AttentionState next = own->next.from(row - from, d);
      if (chunk_of(first_seen(layer, position(row))) < chunk) {
        p.kernels.merge_attention(state, next, 1, d);
      } else {
        *state.max = *next.max;
        *state.sum = *next.sum;
        std::copy_n(next.acc, d, state.acc);
      }
    }
  }
  for (int64_t row = first; row < last; ++row) {
    const int64_t head = row / group * c.heads + kv_head * group + row % group;
    finish_head(own->state.from(row - first, d), c.head_dim, s.attention.data() + head * c.head_dim);
  }
}

// Several tokens: first all of them into the cache, then every (kv head, block of query rows) is a task.
Input attend_many(Worker& worker, const Pass& p, const Layer& layer, int64_t layer_index) {
  const ModelConfig& c = p.model.config;
  Scratch& s = p.scratch;
  WorkerScratch& own = s.workers[static_cast<size_t>(worker.index)];
  const int64_t d = p.cache.head_dim;
  const int64_t group = c.heads / c.kv_heads;
  const int64_t tokens = std::ssize(p.tokens);

  worker.for_each(tokens * c.kv_heads, [&](int64_t task) {
    const int64_t row = task / c.kv_heads;
    const int64_t kv_head = task % c.kv_heads;
    cache_head(p, layer, layer_index, row, kv_head, own.key.data());
    for (int64_t g = 0; g < group; ++g) {
      rotate_head(p, s.q.data() + (row * c.heads + kv_head * group + g) * c.head_dim, layer.q_norm, row,
                  s.rotated.data() + ((kv_head * tokens + row) * group + g) * d);
    }
  });
  worker.barrier();

  const int64_t rows = tokens * group;
  const int64_t blocks = (rows + kAttentionRows - 1) / kAttentionRows;
  worker.for_each(c.kv_heads * blocks, [&](int64_t task) {
    const int64_t first = task % blocks * kAttentionRows;
    attend_rows(p, layer, layer_index, task / blocks, first, std::min(rows, first + kAttentionRows), &own);
  });
  worker.barrier();
  return as_it_is(worker, p, s.attention, c.heads * c.head_dim);
}

Input attend(Worker& worker, const Pass& p, const Layer& layer, int64_t layer_index) {
  return p.tokens.size() == 1 ? attend_one(worker, p, layer, layer_index) : attend_many(worker, p, layer, layer_index);
}

// --- the ends
// ----------------------------------------------------------------------------------------------------------

// Row `id` of the embedding, rounded to bf16 where the file is finer: weights are bf16 throughout.
void embed_row(const TensorView& embedding, int64_t id, int64_t n, float* out) {
  read_row(embedding, id, out);
  for (int64_t i = 0; i < n; ++i) out[i] = to_float(to_bf16(out[i]));
}

// The tokens' embeddings into the residual stream, and the angles of their positions.
void embed(Worker& worker, const Pass& p) {
  const ModelConfig& c = p.model.config;
  Scratch& s = p.scratch;
  const int64_t half = c.head_dim / 2;
  worker.for_each(2 * std::ssize(p.tokens), [&](int64_t task) {
    const int64_t row = task / 2;
    if (task % 2 == 0) {
      embed_row(p.model.embedding, p.tokens[static_cast<size_t>(row)], c.hidden_size, s.x.data() + row * c.hidden_size);
    } else {
      rope_angles(p.rope, p.position + row, s.cos.data() + row * half, s.sin.data() + row * half);
    }
  });
  worker.barrier();
}

}  // namespace

void forward(Worker& worker, const Pass& p) {
  const ModelConfig& c = p.model.config;
  const int64_t tokens = std::ssize(p.tokens);
  Scratch& s = p.scratch;

  embed(worker, p);
  for (int64_t i = 0; i < c.layers; ++i) {
    const Layer& layer = p.model.layers[static_cast<size_t>(i)];

    const Input x = normalized(worker, p, layer.attention_norm, tokens);
    project(worker, p, x, {{&layer.q, s.q.data()}, {&layer.k, s.k.data()}, {&layer.v, s.v.data()}});
    const Input attended = attend(worker, p, layer, i);
    project(worker, p, attended, {{&layer.o, s.x.data()}}, true);

    const Input y = normalized(worker, p, layer.mlp_norm, tokens);
    project_gated(worker, p, y, layer.gate, layer.up, s.activation.data());
    const Input activated = as_it_is(worker, p, s.activation, c.intermediate_size);
    project(worker, p, activated, {{&layer.down, s.x.data()}}, true);
  }
  if (p.logit_rows == 0) return;
  const Input last = normalized(worker, p, p.model.final_norm, p.logit_rows);
  project(worker, p, last, {{&p.model.head, p.logits}});
}

void AttentionBuffer::resize(int64_t rows, int64_t head_dim) {
  max.resize(static_cast<size_t>(rows));
  sum.resize(static_cast<size_t>(rows));
  acc.resize(static_cast<size_t>(rows * head_dim));
}

AttentionState AttentionBuffer::from(int64_t row, int64_t head_dim) {
  return {max.data() + row, sum.data() + row, acc.data() + row * head_dim};
}

void allocate_scratch(const ModelConfig& c, int64_t tokens, int64_t positions, int32_t workers, Scratch* out) {
  Scratch s;
  const auto floats = [](std::vector<float>* v, int64_t n) { v->resize(static_cast<size_t>(n)); };
  const int64_t d = round_up(c.head_dim, kKeyBlock);
  const int64_t heads_width = c.heads * c.head_dim;
  const int64_t widest = std::max({c.hidden_size, heads_width, c.intermediate_size});
  floats(&s.x, tokens * c.hidden_size);
  floats(&s.input, tokens * c.hidden_size);
  s.codes.resize(static_cast<size_t>(tokens * padded_k(widest)));
  floats(&s.scales, tokens);
  floats(&s.q, tokens * heads_width);
  floats(&s.k, tokens * c.kv_heads * c.head_dim);
  floats(&s.v, tokens * c.kv_heads * c.head_dim);
  floats(&s.rotated, tokens * c.heads * d);
  floats(&s.attention, tokens * heads_width);
  floats(&s.activation, tokens * c.intermediate_size);
  floats(&s.cos, tokens * (c.head_dim / 2));
  floats(&s.sin, tokens * (c.head_dim / 2));
  s.partial.resize((positions + kAttentionChunk - 1) / kAttentionChunk * c.heads, d);
  s.workers.resize(static_cast<size_t>(workers));
  for (WorkerScratch& own : s.workers) {
    floats(&own.row, widest);
    own.codes.resize(static_cast<size_t>(padded_k(widest)));
    floats(&own.q, kAttentionRows * d);
    floats(&own.scores, kAttentionRows * kAttentionChunk);
    floats(&own.key, d);
    own.state.resize(std::max(c.heads, kAttentionRows), d);
    own.next.resize(kAttentionRows, d);
  }
  *out = std::move(s);
}

}  // namespace pinion
