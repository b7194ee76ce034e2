#include "engine/forward/attention.h"

#include <algorithm>

namespace pinion {
namespace {

// Heads of one task of a single token if all share a kv head.
constexpr int64_t kLatentHeads = 8;

int64_t chunk_of(int64_t position) { return position / kAttentionChunk; }

// One past the last position that it attends to. A pass has all tokens of a text whose tokens attend both ways.
int64_t end_seen(const Pass& p, const Layer& layer, const Segment& segment, int64_t position) {
  if (!p.model.config.attends_both_ways) return position + 1;
  const int64_t end = segment.position + segment.size();
  return layer.window > 0 ? std::min(end, position + layer.window) : end;
}

AttentionSpan span_in(const Pass& p, const Layer& layer, int64_t position, int64_t end, int64_t chunk, int64_t head) {
  const int64_t start = chunk * kAttentionChunk;
  const std::vector<float>& slopes = p.model.config.score_slopes;
  return {static_cast<int32_t>(std::max<int64_t>(0, layer.first_seen(position) - start)),
          static_cast<int32_t>(std::min<int64_t>(kAttentionChunk, end - start)), slopes.empty() ? 0.0f : slopes[head],
          static_cast<int32_t>(position - start)};
}

const KvLayerShape& cache_shape(const Pass& p, const Layer& layer) {
  return p.segments.front().cache->layer(layer.slot);
}

// A kv head's index in the model from its index on this board.
int64_t model_kv_head(const Pass& p, const Layer& layer, int64_t index) {
  return cache_shape(p, layer).first_kv_head + index;
}

// The columns of the heads' outputs (the input of o), divided among boards by head.
Division attended_columns(const Layer& layer) { return {layer.attended(), layer.attended() / layer.divided_heads()}; }

// Norms whole rows of q and k in place (QkNorm::all_heads).
void norm_all_heads(Worker& worker, const Pass& p, AttentionScratch& s, const Layer& layer) {
  worker.for_each(2 * p.rows, [&](int64_t task) {
    const bool is_query = task % 2 == 0;
    const int64_t width = (is_query ? layer.heads : layer.kv_heads) * layer.head_dim;
    float* x = (is_query ? s.q : s.k).data() + task / 2 * width;
    const Vector& norm = layer[is_query ? VectorRole::q_norm : VectorRole::k_norm];
    p.kernels.rms_norm(x, norm.weight, width, p.model.config.norm_eps, x);
  });
  worker.barrier();
}

// Clamps q, k and v (OLMo).
void limit_rows(Worker& worker, const Pass& p, AttentionScratch& s, const Layer& layer) {
  const float limit = p.model.config.qkv_limit;
  worker.for_each(p.rows, [&](int64_t row) {
    for (const auto& [values, heads] : {std::pair(&s.q, layer.heads), {&s.k, layer.kv_heads}, {&s.v, layer.kv_heads}}) {
      const int64_t n = heads * layer.head_dim;
      for (float& x : std::span(*values).subspan(row * n, n)) x = std::clamp(x, -limit, limit);
    }
  });
  worker.barrier();
}

// Norm and rope of one head, in the family's order. norms: the layer's q_norm or k_norm; index: of the head in q or k.
void norm_and_rope(const Pass& p, const Layer& layer, const float* head, const Vector& norms, int64_t index,
                   int64_t row, float* out) {
  const ModelConfig& c = p.model.config;
  const float* weight = norms.weight;
  if (c.qk_norm == QkNorm::heads) {
    p.kernels.rms_norm(head, weight, layer.head_dim, c.norm_eps, out);
  } else if (c.qk_norm == QkNorm::layer_norm_heads || c.qk_norm == QkNorm::layer_norm) {
    const int64_t first = c.qk_norm == QkNorm::layer_norm ? 0 : index * layer.head_dim;
    p.kernels.layer_norm(head, weight + first, norms.bias, layer.head_dim, c.norm_eps, out);
  } else if (head != out) {
    std::copy_n(head, layer.head_dim, out);
  }
  if (layer.rope != kNoRope) {
    const RopeAngles& angles = p.activations.angles[layer.rope];
    const int64_t half = c.ropes[layer.rope].dims / 2;
    p.kernels.rope(out, angles.cos.data() + row * half, angles.sin.data() + row * half, half);
  }
  if (c.qk_norm == QkNorm::rotated_heads && weight) p.kernels.rms_norm(out, weight, layer.head_dim, c.norm_eps, out);
}

// The query of a row and head. In models with attention gates, the head's gate follows it.
const float* query_of(const Pass& p, const AttentionScratch& s, const Layer& layer, int64_t row, int64_t head) {
  return s.q.data() + (row * layer.heads + head) * p.model.config.query_stride(layer);
}

// Prepares x [n] for a q8 cache: balanced, padded to [head_dim], rotated.
void rotate_head(const Pass& p, const Layer& layer, const float* balance, int64_t n, float* x) {
  const int64_t d = cache_shape(p, layer).head_dim;
  for (int64_t i = 0; balance && i < n; ++i) x[i] *= balance[i];
  std::fill(x + n, x + d, 0.0f);
  p.kernels.rotate(x, d, rotation_of(d), x);
}

const float* balance_of_head(const std::vector<float>& balance, int64_t kv_head, int64_t head_dim) {
  return balance.empty() ? nullptr : balance.data() + kv_head * head_dim;
}

// Prepares a query for the kernels. With latent attention, the elements behind the rotated ones are in s.queries.
void make_query(const Pass& p, const AttentionScratch& s, const Layer& layer, int64_t row, int64_t head, float* out) {
  const ModelConfig& c = p.model.config;
  const KvType type = cache_shape(p, layer).type;
  const int64_t d = cache_shape(p, layer).head_dim;
  const float* query = query_of(p, s, layer, row, head);
  if (layer.is_latent()) {
    const RowRange own = own_heads(p.model, layer);
    const float* projected = s.queries.data() + (row * own.count + head - own.first) * d;
    if (projected != out) std::copy_n(projected, layer.head_dim, out);
    query = std::copy_n(query, c.latent.rope_dims, out) - c.latent.rope_dims;
  }
  norm_and_rope(p, layer, query, layer[VectorRole::q_norm], head, row, out);
  const float rope_scale = layer.rope == kNoRope ? 1.0f : p.activations.angles[layer.rope].query_scale[row];
  float scale = rope_scale * c.score_scale;
  if (type == KvType::q8) {
    rotate_head(p, layer, balance_of_head(layer.query_balance, head / layer.group(), layer.head_dim), layer.head_dim,
                out);
    scale /= static_cast<float>(rotation_of(d));  // rotating q and k multiplies q.k by this power of two
  } else {
    std::fill(out + layer.head_dim, out + d, 0.0f);
  }
  make_query_row(p.kernels, out, d, scale, type);
}

// A key after norm and rope.
void make_key(const Pass& p, const AttentionScratch& s, const Layer& layer, int64_t row, int64_t kv_head, float* out) {
  const ModelConfig& c = p.model.config;
  if (layer.is_latent()) {
    const int64_t rank = c.latent.rank, turned = c.latent.rope_dims;
    std::copy_n(s.latents.k_rope.data() + row * turned, turned, out);
    const float* norm = layer[VectorRole::latent_kv_norm].weight;
    p.kernels.rms_norm(s.latents.kv.data() + row * rank, norm, rank, c.latent.norm_eps, out + turned);
  } else {
    std::copy_n(s.k.data() + (row * layer.kv_heads + kv_head) * layer.head_dim, layer.head_dim, out);
  }
  norm_and_rope(p, layer, out, layer[VectorRole::k_norm], kv_head, row, out);
}

// Writes the key and value of a token and kv head to its cache.
void cache_head(const Pass& p, const AttentionScratch& s, const Layer& layer, const Segment& segment, int64_t token,
                int64_t kv_head, LocalAttentionScratch* local) {
  const ModelConfig& c = p.model.config;
  KvCache& cache = *segment.cache;
  const int64_t row = segment.row + token, values = layer.value_dim;
  const int64_t position = segment.position + token;
  float *key = local->key.data(), *value = local->value.data();
  make_key(p, s, layer, row, kv_head, key);
  const std::vector<float>& from = layer.values_are_keys ? s.k : s.v;
  std::copy_n(layer.is_latent() ? key + c.latent.rope_dims : from.data() + (row * layer.kv_heads + kv_head) * values,
              values, value);
  if (layer.v_norm) p.kernels.rms_norm(value, layer.v_norm, values, c.norm_eps, value);
  if (cache_shape(p, layer).type != KvType::q8) {
    const bool is_last = token + 1 == segment.size();
    const int64_t width = std::max(layer.head_dim, values);  // pads the narrower of the two
    std::fill(key + layer.head_dim, key + width, 0.0f);
    std::fill(value + values, value + width, 0.0f);
    return cache.write(position, layer.slot, kv_head, key, value, width, is_last);
  }
  rotate_head(p, layer, balance_of_head(layer.key_balance, kv_head, layer.head_dim), layer.head_dim, key);
  rotate_head(p, layer, nullptr, values, value);
  cache.write_codes(p.kernels, position, layer.slot, kv_head, key, value);
}

// Writes the output of a head, acc / sum, after merging its sink; then applies its gate.
void write_head(const Pass& p, const AttentionScratch& s, const Layer& layer, LocalAttentionScratch* local,
                const AttentionState& state, int64_t row, int64_t head, float* out) {
  const ModelConfig& c = p.model.config;
  const int64_t d = cache_shape(p, layer).head_dim;
  // Sinks are merged last, so that the order of sums does not depend on chunks.
  if (const float* sinks = layer[VectorRole::sinks].weight) {
    local->sink.max[0] = sinks[head];
    p.kernels.merge_attention(state, local->sink.from(0, d), 1, d);
  }
  if (cache_shape(p, layer).type == KvType::q8) p.kernels.unrotate(state.acc, d, rotation_of(d), state.acc);
  for (int64_t i = 0; i < layer.value_dim; ++i) out[i] = state.acc[i] / *state.sum;
  const int64_t gates = c.gate_by_head ? 1 : layer.value_dim;
  const float* gate = s.gate.empty() ? nullptr : s.gate.data() + (row * layer.heads + head) * gates;
  if (c.attention_gate) gate = query_of(p, s, layer, row, head) + layer.head_dim;
  if (!gate) return;
  const float* bias = layer[VectorRole::gate_bias].weight;
  if (!c.gate_by_head && !c.gate_softplus && !bias) return p.kernels.sigmoid_mul(gate, out, layer.value_dim, out);
  float weight = 0.0f;
  for (int64_t i = 0; i < layer.value_dim; ++i) {
    if (i < gates) {
      const float x = gate[i] + (bias ? bias[head] : 0.0f);
      weight = c.gate_softplus ? static_cast<float>(softplus(x)) : sigmoid(x);
    }
    out[i] *= weight;
  }
}

// Outputs of a single token's heads [first, first + count) from their states in all chunks. out: of the first head.
void finish_heads(const Pass& p, AttentionScratch& s, const Layer& layer, int64_t chunks, int64_t first, int64_t count,
                  LocalAttentionScratch* local, float* out) {
  const int64_t d = cache_shape(p, layer).head_dim;
  local->state.copy(first, s.partial, first, count, d);
  for (int64_t i = 1; i < chunks; ++i) {
    p.kernels.merge_attention(local->state.from(first, d), s.partial.from(i * layer.heads + first, d), count, d);
  }
  for (int64_t head = first; head < first + count; ++head, out += layer.value_dim) {
    write_head(p, s, layer, local, local->state.from(head, d), 0, head, out);
  }
}

// Projects what the heads attended to, and gathers the heads' outputs of all boards.
void finish_attended(Worker& worker, const Pass& p, AttentionScratch& s, const Layer& layer) {
  float* attended = p.activations.attended.data();
  const int64_t rank = layer.value_dim, values = layer.latent_values, all = layer.heads;
  if (layer.is_latent()) {
    const RowRange own = own_heads(p.model, layer);
    project_heads(worker, p, layer, Stage::v_latent, MatrixRole::latent_v, own,
                  {s.latents.attended.data() + own.first * rank, rank, all * rank},
                  {attended + own.first * values, values, all * values});
  }
  begin_stage(worker, p, Stage::o_input);
  gather(worker, p, attended, p.rows, attended_columns(layer));
}

// The destination of attention [M][heads][value_dim].
float* attended_rows(const Pass& p, AttentionScratch& s, const Layer& layer) {
  return layer.is_latent() ? s.latents.attended.data() : p.activations.attended.data();
}

// Attention of a single token, by chunk and kv head, or with latent attention, which has written the key and value
// before, some heads. Else the last chunk's task writes the token's key and value first.
Input attention_decode(Worker& worker, const Pass& p, AttentionScratch& s, const Layer& layer) {
  const ModelConfig& c = p.model.config;
  LocalAttentionScratch& local = s.workers[worker.index];
  const Segment& segment = p.segments.front();
  const int64_t position = segment.position;
  const int64_t d = segment.cache->layer(layer.slot).head_dim;
  const int64_t first_chunk = chunk_of(layer.first_seen(position));
  const int64_t chunks = chunk_of(position) - first_chunk + 1;

  std::fill(local.has_queries.begin(), local.has_queries.end(), false);
  const RowRange own = own_heads(p.model, layer);
  const int64_t at_once = layer.is_latent() ? kLatentHeads : layer.group();
  const int64_t parts = (own.count + at_once - 1) / at_once;
  worker.for_each(parts * chunks, [&](int64_t task) {
    const int64_t part = task % parts, chunk = first_chunk + task / parts;
    const int64_t begin = own.first + part * at_once, end = std::min(own.first + own.count, begin + at_once);
    const int64_t kv_head = begin / layer.group();
    const bool writes = layer.owns_kv() && !layer.is_latent() && chunk == chunk_of(position);
    if (writes) cache_head(p, s, layer, segment, 0, kv_head, &local);
    if (!local.has_queries[part]) {
      local.has_queries[part] = true;
      for (int64_t head = begin; head < end; ++head) make_query(p, s, layer, 0, head, local.q.data() + head * d);
    }
    const AttentionChunk keys_and_values = segment.cache->chunk(chunk, layer.slot, kv_head, c.score_cap);
    AttentionSpan spans[kAttentionRows];
    for (int64_t head = begin; head < end; head += kAttentionRows) {
      const int64_t count = std::min(kAttentionRows, end - head);
      for (int64_t i = 0; i < count; ++i) spans[i] = span_in(p, layer, position, position + 1, chunk, head + i);
      attend_chunk(p.kernels, keys_and_values, local.q.data() + head * d, count, spans, local.scores.data(),
                   s.partial.from((chunk - first_chunk) * layer.heads + head, d));
    }
  });
  worker.barrier();

  const Division columns = attended_columns(layer);
  float* attended = p.activations.attended.data();
  const Multiplier m = begin_stage(worker, p, Stage::o_input);
  const bool is_shared = p.model.exchange || layer.is_latent();  // else every worker merges the chunks of all heads
  if (is_shared) {
    worker.for_each(own.count, [&](int64_t i) {
      const int64_t head = own.first + i;
      finish_heads(p, s, layer, chunks, head, 1, &local, attended_rows(p, s, layer) + head * layer.value_dim);
    });
    worker.barrier();
    finish_attended(worker, p, s, layer);
  }
  return prepare(m, 1, columns.count, forms_of(layer, {Stage::o}), [&](int64_t, int64_t, float* out) {
    if (is_shared) return normed_rows(p, layer[VectorRole::o_norm], attended, 1, columns.count, out);
    finish_heads(p, s, layer, chunks, 0, layer.heads, &local, out);
    return normed_rows(p, layer[VectorRole::o_norm], out, 1, columns.count, out);
  });
}

// The queries of a kv head from a query row of the pass on.
float* queries_at(const Pass& p, AttentionScratch& s, const Layer& layer, int64_t kv_head, int64_t query_row) {
  const int64_t group = heads_of(p.model, layer, kv_head).count;
  return s.queries.data() + (kv_head * p.rows * group + query_row) * cache_shape(p, layer).head_dim;
}

// Computes the outputs of a range of query rows of a kv head, chunk by chunk.
void attend_rows(const Pass& p, AttentionScratch& s, const Layer& layer, int64_t kv_head, const SegmentRange& range,
                 LocalAttentionScratch* local) {
  const ModelConfig& c = p.model.config;
  const Segment& segment = p.segments[range.segment];
  const RowRange heads = heads_of(p.model, layer, kv_head);
  const int64_t d = segment.cache->layer(layer.slot).head_dim, group = heads.count;
  const int64_t first = range.first, last = range.first + range.count;
  const float* q = queries_at(p, s, layer, kv_head, segment.row * group);
  const auto position = [&](int64_t row) { return segment.position + row / group; };

  const auto end = [&](int64_t row) { return end_seen(p, layer, segment, position(row)); };

  const int64_t last_chunk = chunk_of(end(last - 1) - 1);
  for (int64_t chunk = chunk_of(layer.first_seen(position(first))); chunk <= last_chunk; ++chunk) {
    // Rows [from, to) attend to this chunk: it is behind earlier rows, and later rows' windows begin after it.
    int64_t from = first;
    while (chunk_of(end(from) - 1) < chunk) ++from;
    int64_t to = last;
    while (chunk_of(layer.first_seen(position(to - 1))) > chunk) --to;
    AttentionSpan spans[kAttentionRows];
    for (int64_t row = from; row < to; ++row) {
      spans[row - from] = span_in(p, layer, position(row), end(row), chunk, heads.first + row % group);
    }
    attend_chunk(p.kernels, segment.cache->chunk(chunk, layer.slot, kv_head, c.score_cap), q + from * d, to - from,
                 spans, local->scores.data(), local->next.from(0, d));
    // Rows before first_new have a state from earlier chunks; this chunk is the first one of the others.
    int64_t first_new = from;
    while (first_new < to && chunk_of(layer.first_seen(position(first_new))) < chunk) ++first_new;
    p.kernels.merge_attention(local->state.from(from - first, d), local->next.from(0, d), first_new - from, d);
    local->state.copy(first_new - first, local->next, first_new - from, to - first_new, d);
  }
  for (int64_t row = first; row < last; ++row) {
    const int64_t pass_row = segment.row + row / group, head = heads.first + row % group;
    write_head(p, s, layer, local, local->state.from(row - first, d), pass_row, head,
               attended_rows(p, s, layer) + (pass_row * layer.heads + head) * layer.value_dim);
  }
}

// Writes keys and values of several tokens to the cache and prepares their queries. A task has kKeyLanes positions, so
// that workers share no cache line. In a q8 cache the first kCentred positions of each chunk are written before the
// others: the mean of their keys, the chunk's centre, is subtracted from the other keys.
void cache_tokens(Worker& worker, const Pass& p, AttentionScratch& s, const Layer& layer) {
  LocalAttentionScratch& local = s.workers[worker.index];
  const int64_t kv_heads = cache_shape(p, layer).kv_heads;
  // f(segment, range, token, kv head) for each token of the ranges.
  const auto for_each_token = [&](const std::vector<SegmentRange>& ranges, auto f) {
    worker.for_each(std::ssize(ranges) * kv_heads, [&](int64_t task) {
      const SegmentRange& range = ranges[task / kv_heads];
      const Segment& segment = p.segments[range.segment];
      for (int64_t token = range.first; token < range.first + range.count; ++token) {
        f(segment, range, token, model_kv_head(p, layer, task % kv_heads));
      }
    });
    worker.barrier();
  };
  if (!s.centres.empty() && layer.owns_kv()) {
    for_each_token(s.centres, [&](const Segment& segment, const SegmentRange&, int64_t token, int64_t kv_head) {
      cache_head(p, s, layer, segment, token, kv_head, &local);
    });
  }
  for_each_token(s.key_groups, [&](const Segment& segment, const SegmentRange& range, int64_t token, int64_t kv_head) {
    const bool is_cached = !layer.owns_kv() || (!s.centres.empty() && begins_chunk(segment, range));
    if (!is_cached) cache_head(p, s, layer, segment, token, kv_head, &local);
    const auto [first, group] = heads_of(p.model, layer, kv_head);
    for (int64_t g = 0; g < group; ++g) {
      const int64_t row = segment.row + token;
      make_query(p, s, layer, row, first + g, queries_at(p, s, layer, kv_head, row * group + g));
    }
  });
}

// Attention of several tokens, all written to the cache first. Then a task is a kv head and a range of query rows.
Input attention_prefill(Worker& worker, const Pass& p, AttentionScratch& s, const Layer& layer) {
  LocalAttentionScratch& local = s.workers[worker.index];
  cache_tokens(worker, p, s, layer);

  const std::vector<SegmentRange>& rows = s.query_rows.at(heads_of(p.model, layer, 0).count);
  const int64_t ranges = std::ssize(rows);
  worker.for_each(cache_shape(p, layer).kv_heads * ranges, [&](int64_t task) {
    attend_rows(p, s, layer, model_kv_head(p, layer, task / ranges), rows[task % ranges], &local);
  });
  worker.barrier();
  const Division columns = attended_columns(layer);
  float* attended = p.activations.attended.data();
  finish_attended(worker, p, s, layer);
  const Multiplier m = begin_stage(worker, p, Stage::o_input);
  return prepare(m, p.rows, columns.count, forms_of(layer, {Stage::o}), [&](int64_t first, int64_t count, float* out) {
    return normed_rows(p, layer[VectorRole::o_norm], attended + first * columns.count, count, columns.count, out);
  });
}

}  // namespace

Input attend(Worker& worker, const Pass& p, AttentionScratch& s, const Layer& layer, const Input& x, int64_t index) {
  if (layer.is_latent()) {
    const LatentConfig& c = p.model.config.latent;
    const RowRange own = own_heads(p.model, layer);
    const int64_t d = cache_shape(p, layer).head_dim, width = c.rope_dims + c.nope_dims;
    project_latents(worker, p, s.latents, layer, x, index, s.q.data(), s.gate.data());
    if (p.rows == 1 && worker.index == 0) cache_head(p, s, layer, p.segments.front(), 0, 0, &s.workers[0]);
    project_heads(worker, p, layer, Stage::kv_latent, MatrixRole::latent_k, own,
                  {s.q.data() + own.first * width + c.rope_dims, width, layer.heads * width},
                  {s.queries.data() + c.rope_dims, d, own.count * d});
  } else {
    project(begin_stage(worker, p, Stage::qkv), x,
            {{&layer[MatrixRole::q], s.q.data()},
             {&layer[MatrixRole::k], s.k.data()},
             {&layer[MatrixRole::v], s.v.data()},
             {&layer[MatrixRole::attention_gate], s.gate.data()},
             {&layer[MatrixRole::laurel_left], p.activations.laurel_narrow.data()}});
  }
  if (p.model.config.laurel_rank > 0) finish_laurel(worker, p, layer, index);
  begin_stage(worker, p, Stage::attention);
  if (p.model.config.qk_norm == QkNorm::all_heads) {
    gather(worker, p, s.q.data(), p.rows, layer[MatrixRole::q].rows);
    gather(worker, p, s.k.data(), p.rows, layer[MatrixRole::k].rows);
    norm_all_heads(worker, p, s, layer);
  }
  if (p.model.config.qkv_limit > 0.0f) limit_rows(worker, p, s, layer);
  return p.rows == 1 ? attention_decode(worker, p, s, layer) : attention_prefill(worker, p, s, layer);
}

}  // namespace pinion
