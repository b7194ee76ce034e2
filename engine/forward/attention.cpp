#include "engine/forward/attention.h"

#include <algorithm>

namespace pinion {
namespace {

// Query rows that one task takes at a time: whole tiles of 2, 4, 5 or 6.
constexpr int64_t kAttentionRows = 60;

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
void norm_all_heads(Worker& worker, const Pass& p, AttentionScratch& s, const Layer& layer) {
  const ModelConfig& c = p.model.config;
  const int64_t q_width = c.heads * c.head_dim;
  const int64_t k_width = c.kv_heads * c.head_dim;
  worker.for_each(2 * std::ssize(p.tokens), [&](int64_t task) {
    float* q = s.q.data() + task / 2 * q_width;
    float* k = s.k.data() + task / 2 * k_width;
    if (task % 2 == 0) {
      p.kernels.rms_norm(q, layer.q_norm, q_width, c.rms_norm_eps, q);
    } else {
      p.kernels.rms_norm(k, layer.k_norm, k_width, c.rms_norm_eps, k);
    }
  });
  worker.barrier();
}

// A head's norm and rope, in the family's order.
void norm_and_rope(const Pass& p, const Layer& layer, const float* head, const float* norm, int64_t row, float* out) {
  const ModelConfig& c = p.model.config;
  if (c.qk_norm == QkNorm::heads) {
    p.kernels.rms_norm(head, norm, c.head_dim, c.rms_norm_eps, out);
  } else {
    std::copy_n(head, c.head_dim, out);
  }
  if (layer.rope != kNoRope) {
    const RopeAngles& angles = p.activations.angles[static_cast<size_t>(layer.rope)];
    const int64_t half = c.ropes[static_cast<size_t>(layer.rope)].dims / 2;
    p.kernels.rope(out, angles.cos.data() + row * half, angles.sin.data() + row * half, half);
  }
  if (c.qk_norm == QkNorm::rotated_heads) p.kernels.rms_norm(out, norm, c.head_dim, c.rms_norm_eps, out);
}

// A head of a row of q; its gate follows it.
const float* query_of(const Pass& p, const AttentionScratch& s, int64_t row, int64_t head) {
  const ModelConfig& c = p.model.config;
  return s.q.data() + (row * c.heads + head) * c.query_stride();
}

// x, of head_dim, as a cache of codes wants it: balanced, padded and rotated.
void rotate_head(const Pass& p, const float* balance, float* x) {
  const int64_t n = p.model.config.head_dim, d = p.cache.head_dim;
  for (int64_t i = 0; balance && i < n; ++i) x[i] *= balance[i];
  std::fill(x + n, x + d, 0.0f);
  p.kernels.rotate(x, d, rotation_of(d), x);
}

const float* of_head(const std::vector<float>& balance, int64_t kv_head, int64_t head_dim) {
  return balance.empty() ? nullptr : balance.data() + kv_head * head_dim;
}

// A query as attention takes it.
void make_query(const Pass& p, const AttentionScratch& s, const Layer& layer, int64_t row, int64_t head, float* out) {
  const ModelConfig& c = p.model.config;
  const int64_t d = p.cache.head_dim;
  norm_and_rope(p, layer, query_of(p, s, row, head), layer.q_norm, row, out);
  const float rope_scale =
      layer.rope == kNoRope
          ? 1.0f
          : p.activations.angles[static_cast<size_t>(layer.rope)].query_scale[static_cast<size_t>(row)];
  float scale = rope_scale * c.score_scale;
  if (p.cache.type == KvType::q8) {
    rotate_head(p, of_head(layer.query_balance, head / (c.heads / c.kv_heads), c.head_dim), out);
    scale /= static_cast<float>(rotation_of(d));  // a power of two, by which both sides' rotation makes sums larger
  } else {
    std::fill(out + c.head_dim, out + d, 0.0f);
  }
  make_query_row(p.kernels, out, d, scale, p.cache.type);
}

// A head's key and value of a row into the cache.
void cache_head(const Pass& p, const AttentionScratch& s, const Layer& layer, int64_t row, int64_t kv_head,
                OwnAttentionScratch* own) {
  const ModelConfig& c = p.model.config;
  const int64_t at = (row * c.kv_heads + kv_head) * c.head_dim;
  const int64_t position = p.position + row;
  float *key = own->key.data(), *value = own->value.data();
  norm_and_rope(p, layer, s.k.data() + at, layer.k_norm, row, key);
  if (p.cache.type != KvType::q8) {
    const bool is_last = row + 1 == std::ssize(p.tokens);
    return p.cache.write(position, layer.slot, kv_head, key, s.v.data() + at, c.head_dim, is_last);
  }
  rotate_head(p, of_head(layer.key_balance, kv_head, c.head_dim), key);
  std::copy_n(s.v.data() + at, c.head_dim, value);
  rotate_head(p, nullptr, value);
  p.cache.write_codes(p.kernels, position, layer.slot, kv_head, key, value);
}

// out = acc / sum for a head, with its sink and through its gate.
void write_head(const Pass& p, const AttentionScratch& s, const Layer& layer, OwnAttentionScratch* own,
                const AttentionState& state, int64_t row, int64_t head, float* out) {
  const ModelConfig& c = p.model.config;
  if (layer.sinks) {  // last of all: a place that no chunking moves
    own->sink.max[0] = layer.sinks[head];
    p.kernels.merge_attention(state, own->sink.from(0, p.cache.head_dim), 1, p.cache.head_dim);
  }
  if (p.cache.type == KvType::q8) {
    p.kernels.unrotate(state.acc, p.cache.head_dim, rotation_of(p.cache.head_dim), state.acc);
  }
  for (int64_t i = 0; i < c.head_dim; ++i) out[i] = state.acc[i] / *state.sum;
  if (c.attention_gate) p.kernels.sigmoid_mul(query_of(p, s, row, head) + c.head_dim, out, c.head_dim, out);
}

// One token: every (kv head, chunk) is a task. Whoever has the last chunk adds the token to the cache first.
Input attention_decode(Worker& worker, const Pass& p, AttentionScratch& s, const Layer& layer) {
  const ModelConfig& c = p.model.config;
  OwnAttentionScratch& own = s.workers[static_cast<size_t>(worker.index)];
  const int64_t d = p.cache.head_dim;
  const int64_t group = c.heads / c.kv_heads;
  const int64_t first_chunk = chunk_of(first_seen(layer, p.position));
  const int64_t chunks = chunk_of(p.position) - first_chunk + 1;

  std::fill(own.has_queries.begin(), own.has_queries.end(), false);
  worker.for_each(c.kv_heads * chunks, [&](int64_t task) {
    const int64_t kv_head = task % c.kv_heads;
    const int64_t chunk = first_chunk + task / c.kv_heads;
    if (chunk == chunk_of(p.position)) cache_head(p, s, layer, 0, kv_head, &own);
    const int64_t begin = kv_head * group;
    const int64_t end = begin + group;
    if (!own.has_queries[static_cast<size_t>(kv_head)]) {
      own.has_queries[static_cast<size_t>(kv_head)] = true;
      for (int64_t head = begin; head < end; ++head) make_query(p, s, layer, 0, head, own.q.data() + head * d);
    }
    const AttentionChunk part = p.cache.chunk(chunk, layer.slot, kv_head, c.score_cap);
    AttentionSpan spans[kAttentionRows];
    std::ranges::fill(spans, span_in(layer, p.position, chunk));
    for (int64_t head = begin; head < end; head += kAttentionRows) {
      attend_chunk(p.kernels, part, own.q.data() + head * d, std::min(kAttentionRows, end - head), spans,
                   own.scores.data(), s.partial.from((chunk - first_chunk) * c.heads + head, d));
    }
  });
  worker.barrier();

  return prepare(begin_stage(worker, p, Stage::o_input), 1, c.heads * c.head_dim, {&layer.o},
                 [&](int64_t, int64_t, float* out) {
                   own.state.copy(0, s.partial, 0, c.heads, d);
                   for (int64_t i = 1; i < chunks; ++i) {
                     p.kernels.merge_attention(own.state.from(0, d), s.partial.from(i * c.heads, d), c.heads, d);
                   }
                   for (int64_t head = 0; head < c.heads; ++head) {
                     write_head(p, s, layer, &own, own.state.from(head, d), 0, head, out + head * c.head_dim);
                   }
                   return out;
                 });
}

// Query rows [first, last) of a kv head, row = token * group + head of the group, over all that they see.
void attend_rows(const Pass& p, const AttentionScratch& s, const Layer& layer, int64_t kv_head, int64_t first,
                 int64_t last, OwnAttentionScratch* own) {
  const ModelConfig& c = p.model.config;
  const int64_t d = p.cache.head_dim;
  const int64_t group = c.heads / c.kv_heads;
  const float* q = s.queries.data() + kv_head * std::ssize(p.tokens) * group * d;
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
    attend_chunk(p.kernels, p.cache.chunk(chunk, layer.slot, kv_head, c.score_cap), q + from * d, to - from, spans,
                 own->scores.data(), own->next.from(0, d));
    // Earlier rows have seen chunks before this one; for later ones it is the first.
    int64_t begun = from;
    while (begun < to && chunk_of(first_seen(layer, position(begun))) < chunk) ++begun;
    p.kernels.merge_attention(own->state.from(from - first, d), own->next.from(0, d), begun - from, d);
    own->state.copy(begun - first, own->next, begun - from, to - begun, d);
  }
  for (int64_t row = first; row < last; ++row) {
    const int64_t token = row / group, head = kv_head * group + row % group;
    write_head(p, s, layer, own, own->state.from(row - first, d), token, head,
               p.activations.attended.data() + (token * c.heads + head) * c.head_dim);
  }
}

// Keys, values and queries of several tokens, in blocks of kKeyBlock positions: workers write to no line of the cache
// together. A chunk's first block, whose mean the others' keys are told from, comes before those.
void cache_tokens(Worker& worker, const Pass& p, AttentionScratch& s, const Layer& layer) {
  const ModelConfig& c = p.model.config;
  OwnAttentionScratch& own = s.workers[static_cast<size_t>(worker.index)];
  const int64_t tokens = std::ssize(p.tokens), d = p.cache.head_dim;
  const int64_t group = c.heads / c.kv_heads;
  const auto each_row = [&](int64_t block, auto f) {
    const int64_t start = block * kKeyBlock - p.position;
    for (int64_t row = std::max<int64_t>(0, start); row < std::min(tokens, start + kKeyBlock); ++row) f(row);
  };
  static_assert(kCentred == kKeyBlock);
  constexpr int64_t kBlocks = kAttentionChunk / kKeyBlock;
  const int64_t first = p.position / kKeyBlock, last = (p.position + tokens - 1) / kKeyBlock;
  const int64_t first_centre = p.cache.type == KvType::q8 ? (first + kBlocks - 1) / kBlocks : 0;
  const int64_t centres = p.cache.type == KvType::q8 ? std::max<int64_t>(0, last / kBlocks + 1 - first_centre) : 0;
  if (centres > 0) {
    worker.for_each(centres * c.kv_heads, [&](int64_t task) {
      each_row((first_centre + task / c.kv_heads) * kBlocks,
               [&](int64_t row) { cache_head(p, s, layer, row, task % c.kv_heads, &own); });
    });
    worker.barrier();
  }
  worker.for_each((last - first + 1) * c.kv_heads, [&](int64_t task) {
    const int64_t block = first + task / c.kv_heads, kv_head = task % c.kv_heads;
    const bool is_cached = centres > 0 && block % kBlocks == 0;
    each_row(block, [&](int64_t row) {
      if (!is_cached) cache_head(p, s, layer, row, kv_head, &own);
      for (int64_t g = 0; g < group; ++g) {
        float* query = s.queries.data() + ((kv_head * tokens + row) * group + g) * d;
        make_query(p, s, layer, row, kv_head * group + g, query);
      }
    });
  });
  worker.barrier();
}

// Several tokens: first all of them into the cache, then every (kv head, block of query rows) is a task.
Input attention_prefill(Worker& worker, const Pass& p, AttentionScratch& s, const Layer& layer) {
  const ModelConfig& c = p.model.config;
  OwnAttentionScratch& own = s.workers[static_cast<size_t>(worker.index)];
  const int64_t group = c.heads / c.kv_heads;
  const int64_t tokens = std::ssize(p.tokens);
  cache_tokens(worker, p, s, layer);

  const int64_t rows = tokens * group;
  const int64_t blocks = (rows + kAttentionRows - 1) / kAttentionRows;
  worker.for_each(c.kv_heads * blocks, [&](int64_t task) {
    const int64_t first = task % blocks * kAttentionRows;
    attend_rows(p, s, layer, task / blocks, first, std::min(rows, first + kAttentionRows), &own);
  });
  worker.barrier();
  const int64_t width = c.heads * c.head_dim;
  return prepare(begin_stage(worker, p, Stage::o_input), tokens, width, {&layer.o},
                 [&](int64_t first, int64_t, float*) { return p.activations.attended.data() + first * width; });
}

}  // namespace

Input attend(Worker& worker, const Pass& p, AttentionScratch& s, const Layer& layer, const Input& x) {
  project(begin_stage(worker, p, Stage::qkv), x,
          {{&layer.q, s.q.data()}, {&layer.k, s.k.data()}, {&layer.v, s.v.data()}});
  begin_stage(worker, p, Stage::attention);
  if (p.model.config.qk_norm == QkNorm::all_heads) norm_all_heads(worker, p, s, layer);
  return p.tokens.size() == 1 ? attention_decode(worker, p, s, layer) : attention_prefill(worker, p, s, layer);
}

void AttentionBuffer::make(ScratchSizer* sizer, int64_t rows, int64_t head_dim) {
  sizer->make(&max, rows);
  sizer->make(&sum, rows);
  sizer->make(&acc, rows * head_dim);
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

void make_attention_scratch(const Model& model, int64_t tokens, int64_t positions, int32_t workers, ScratchSizer* sizer,
                            AttentionScratch* out) {
  const ModelConfig& c = model.config;
  const int64_t d = round_up(c.head_dim, kKeyBlock);
  sizer->make(&out->q, tokens * most_rows(model, MatrixRole::q));
  sizer->make(&out->k, tokens * most_rows(model, MatrixRole::k));
  sizer->make(&out->v, tokens * most_rows(model, MatrixRole::v));
  sizer->make(&out->queries, tokens * c.heads * d);
  out->partial.make(sizer, (positions + kAttentionChunk - 1) / kAttentionChunk * c.heads, d);
  out->workers.resize(static_cast<size_t>(workers));
  for (OwnAttentionScratch& own : out->workers) {
    sizer->make(&own.q, c.heads * d);
    own.has_queries.resize(static_cast<size_t>(c.kv_heads));
    sizer->make(&own.scores, kAttentionRows * kScoreFloats);
    sizer->make(&own.key, d);
    sizer->make(&own.value, d);
    own.state.make(sizer, std::max(c.heads, kAttentionRows), d);
    own.next.make(sizer, kAttentionRows, d);
    own.sink.make(sizer, 1, d);
    if (sizer->takes) own.sink.sum[0] = 1.0f;
  }
}

}  // namespace pinion
