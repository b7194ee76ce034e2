// An attention problem as plain [position][head_dim] arrays, and runs of the kernels with buffers at guard pages.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>

#include "tests/kernels/guarded.h"

namespace pinion {

// The keys and values of one kv head in one chunk, and the query rows that share them.
struct AttentionCase {
  int32_t head_dim = 16;
  float scale = 1;
  float cap = 0;
  KvType type = KvType::bf16;
  std::vector<float> keys = {}, values = {};  // [positions][head_dim]
  std::vector<float> q = {};                  // [rows][head_dim]
  std::vector<AttentionSpan> spans = {};

  int64_t rows() const { return static_cast<int64_t>(spans.size()); }
  int64_t positions() const { return static_cast<int64_t>(values.size()) / head_dim; }
};

inline constexpr KvType kFloatTypes[] = {KvType::bf16, KvType::f32};
inline constexpr KvType kTypes[] = {KvType::bf16, KvType::f32, KvType::q8};

inline AttentionCase random_attention(Random& random, int32_t head_dim, KvType type, std::vector<AttentionSpan> spans) {
  int64_t positions = 0;
  for (const AttentionSpan& span : spans) positions = std::max<int64_t>(positions, span.end);
  AttentionCase c = {.head_dim = head_dim, .scale = 1.0f / std::sqrt(static_cast<float>(head_dim)), .type = type};
  c.keys = random.floats(positions * head_dim, -2, 2);
  c.values = random.floats(positions * head_dim, -1, 1);
  for (std::vector<float>* cache : {&c.keys, &c.values}) {
    for (float& v : *cache) v = type == KvType::bf16 ? to_float(to_bf16(v)) : v;
  }
  c.q = random.floats(static_cast<int64_t>(spans.size()) * head_dim, -2, 2);
  c.spans = std::move(spans);
  return c;
}

inline void put(float* to, float value) { *to = value; }
inline void put(bf16* to, float value) { *to = to_operand(value); }

// The keys in the layout of a cache. Positions that no query attends to hold NaN: a cache has not written them yet.
template <class T>
std::vector<T> cached_keys(const AttentionCase& c) {
  std::vector<T> keys(round_up(c.positions(), kKeyLanes) * c.head_dim);
  for (T& key : keys) put(&key, kNan);
  for (int64_t p = 0; p < c.positions(); ++p) {
    for (int64_t d = 0; d < c.head_dim; ++d) {
      put(&keys[key_at<T>(p, d, c.head_dim)], c.keys[p * c.head_dim + d]);
    }
  }
  return keys;
}

// The values in the layout of a cache; the missing position of a pair is zero.
template <class T>
std::vector<T> cached_values(const AttentionCase& c) {
  std::vector<T> values(round_up(c.positions(), sizeof(T) == sizeof(bf16) ? 2 : 1) * c.head_dim);
  for (int64_t p = 0; p < c.positions(); ++p) {
    for (int64_t d = 0; d < c.head_dim; ++d) {
      put(&values[value_at<T>(p, d, c.head_dim)], c.values[p * c.head_dim + d]);
    }
  }
  return values;
}

inline Result attend_chunk(const Kernels& kernels, Edge edge, const AttentionCase& c, const void* keys,
                           const void* values) {
  const Guarded<float> q(c.q, edge), scores(c.rows() * kScoreFloats, edge);
  const Guarded<AttentionSpan> spans(c.spans, edge);
  const Guarded<float> max(c.rows(), edge), sum(c.rows(), edge), acc(c.rows() * c.head_dim, edge);
  for (int64_t r = 0; r < c.rows(); ++r) {
    make_query_row(kernels, q.data + r * c.head_dim, c.head_dim, c.scale, c.type);
  }
  attend_chunk(kernels, {c.type, keys, values, c.head_dim, c.head_dim, c.cap}, q.data, c.rows(), spans.data,
               scores.data, {max.data, sum.data, acc.data});
  Result result = {.floats = max.copy()};
  append(result.floats, sum.copy());
  append(result.floats, acc.copy());
  return result;
}

template <class T>
Result attend_typed(const Kernels& kernels, Edge edge, const AttentionCase& c) {
  const Guarded<T> keys(cached_keys<T>(c), edge), values(cached_values<T>(c), edge);
  return attend_chunk(kernels, edge, c, keys.data, values.data);
}

// The codes of a head, by quantize; returns their scale.
inline float encode(const float* x, int64_t n, std::vector<int8_t>* codes) {
  codes->resize(padded_k(n));
  float scale;
  scalar_kernels().quantize(x, n, codes->data(), &scale);
  return scale;
}

// A q8 chunk. Positions that no query attends to hold -128, which is no code; their key scales are NaN, their value
// scales finite. The centre may be any vector: it is half of key 0.
inline std::vector<int8_t> cached_codes(const AttentionCase& c) {
  const int64_t d = c.head_dim;
  std::vector<int8_t> chunk(q8_chunk_bytes(d), -128);
  std::vector<float> scales(2 * kAttentionChunk, 3e38f);
  std::fill_n(scales.begin(), kAttentionChunk, kNan);
  std::vector<int8_t> centre, key, value;
  std::vector<float> x(c.keys.begin(), c.keys.begin() + d);
  for (float& v : x) v = std::isfinite(v) ? v / 2 : 0;
  const float centre_scale = encode(x.data(), d, &centre);
  for (int64_t p = 0; p < c.positions(); ++p) {
    for (int64_t i = 0; i < d; ++i) {
      const float taken = p < kCentred ? 0.0f : centre_scale * centre[i];
      x[i] = c.keys[p * d + i] - taken;
    }
    float* scale = &scales[p];
    scale[0] = encode(x.data(), d, &key);
    scale[kAttentionChunk] = encode(&c.values[p * d], d, &value);
    if (std::isnan(scale[kAttentionChunk])) scale[0] = kNan, scale[kAttentionChunk] = 0;
    for (int64_t i = 0; i < d; ++i) {
      chunk[key_code_at(p, i, d)] = key[i];
      chunk[kAttentionChunk * d + value_code_at(p, i, d)] = value[i];
    }
  }
  std::memcpy(&chunk[q8_scales_at(d)], scales.data(), scales.size() * 4);
  std::memcpy(&chunk[q8_centre_at(d)], &centre_scale, 4);
  std::copy_n(centre.begin(), d, chunk.begin() + q8_centre_at(d) + 4);
  return chunk;
}

// Result: max of all rows, then sum, then acc.
inline Result attend(const Kernels& kernels, Edge edge, const AttentionCase& c) {
  if (c.type == KvType::f32) return attend_typed<float>(kernels, edge, c);
  if (c.type == KvType::bf16) return attend_typed<bf16>(kernels, edge, c);
  const Guarded<int8_t> chunk(cached_codes(c), edge);
  return attend_chunk(kernels, edge, c, chunk.data, chunk.data + kAttentionChunk * c.head_dim);
}

// The softmax state of some rows, as vectors.
struct State {
  std::vector<float> max, sum, acc;
};

inline State split(const Result& result, int64_t rows) {
  const auto begin = result.floats.begin();
  return {{begin, begin + rows}, {begin + rows, begin + 2 * rows}, {begin + 2 * rows, result.floats.end()}};
}

inline Result merge(const Kernels& kernels, Edge edge, const State& first, const State& second) {
  const int64_t rows = static_cast<int64_t>(first.max.size());
  const Guarded<float> max(first.max, edge), sum(first.sum, edge), acc(first.acc, edge);
  const Guarded<float> next_max(second.max, edge), next_sum(second.sum, edge), next_acc(second.acc, edge);
  kernels.merge_attention({max.data, sum.data, acc.data}, {next_max.data, next_sum.data, next_acc.data}, rows,
                          static_cast<int64_t>(first.acc.size()) / rows);
  Result result = {.floats = max.copy()};
  append(result.floats, sum.copy());
  append(result.floats, acc.copy());
  return result;
}

}  // namespace pinion
