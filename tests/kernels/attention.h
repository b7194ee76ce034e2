// An attention problem in plain [position][head_dim] form, and the kernels' run over it from buffers at guard pages.
#pragma once

#include <algorithm>

#include "tests/kernels/guarded.h"

namespace pinion {

// One kv head's part of a chunk and the query rows that share it.
struct AttentionCase {
  int32_t head_dim = 16;
  float scale = 1;
  float cap = 0;
  bool is_float = false;
  std::vector<float> keys = {}, values = {};  // [positions][head_dim]
  std::vector<float> q = {};                  // [rows][head_dim]
  std::vector<AttentionSpan> spans = {};

  int64_t rows() const { return static_cast<int64_t>(spans.size()); }
  int64_t positions() const { return static_cast<int64_t>(values.size()) / head_dim; }
};

inline AttentionCase random_attention(Random& random, int32_t head_dim, bool is_float,
                                      std::vector<AttentionSpan> spans) {
  int64_t positions = 0;
  for (const AttentionSpan& span : spans) positions = std::max<int64_t>(positions, span.end);
  AttentionCase c = {
      .head_dim = head_dim, .scale = 1.0f / std::sqrt(static_cast<float>(head_dim)), .is_float = is_float};
  c.keys = random.floats(positions * head_dim, -2, 2);
  c.values = random.floats(positions * head_dim, -1, 1);
  for (std::vector<float>* cache : {&c.keys, &c.values}) {
    for (float& v : *cache) v = is_float ? v : to_float(to_bf16(v));
  }
  c.q = random.floats(static_cast<int64_t>(spans.size()) * head_dim, -2, 2);
  c.spans = std::move(spans);
  return c;
}

inline void put(float* to, float value) { *to = value; }
inline void put(bf16* to, float value) { *to = to_operand(value); }

// The keys as they lie in a cache. Positions that no query sees hold NaN: they are not written yet.
template <class T>
std::vector<T> cached_keys(const AttentionCase& c) {
  std::vector<T> keys(static_cast<size_t>(round_up(c.positions(), kKeyBlock) * c.head_dim));
  for (T& key : keys) put(&key, kNan);
  for (int64_t p = 0; p < c.positions(); ++p) {
    for (int64_t d = 0; d < c.head_dim; ++d) {
      put(&keys[static_cast<size_t>(key_at<T>(p, d, c.head_dim))], c.keys[static_cast<size_t>(p * c.head_dim + d)]);
    }
  }
  return keys;
}

// Likewise the values; a pair that lacks a position holds zeros there.
template <class T>
std::vector<T> cached_values(const AttentionCase& c) {
  std::vector<T> values(static_cast<size_t>(round_up(c.positions(), sizeof(T) == sizeof(bf16) ? 2 : 1) * c.head_dim));
  for (int64_t p = 0; p < c.positions(); ++p) {
    for (int64_t d = 0; d < c.head_dim; ++d) {
      put(&values[static_cast<size_t>(value_at<T>(p, d, c.head_dim))],
          c.values[static_cast<size_t>(p * c.head_dim + d)]);
    }
  }
  return values;
}

// max of all rows, then sum, then acc.
template <class T>
Result attend_typed(const Kernels& kernels, Edge edge, const AttentionCase& c) {
  const Guarded<T> keys(cached_keys<T>(c), edge), values(cached_values<T>(c), edge);
  const Guarded<float> q(c.q, edge), scores(c.rows() * kAttentionChunk, edge);
  const Guarded<AttentionSpan> spans(c.spans, edge);
  const Guarded<float> max(c.rows(), edge), sum(c.rows(), edge), acc(c.rows() * c.head_dim, edge);
  for (int64_t r = 0; r < c.rows(); ++r) kernels.make_query(q.data + r * c.head_dim, c.head_dim, c.scale, c.is_float);
  kernels.attend({keys.data, values.data, c.head_dim, c.is_float, c.head_dim, c.cap}, q.data, c.rows(), spans.data,
                 scores.data, {max.data, sum.data, acc.data});
  Result result = {.floats = max.copy()};
  append(result.floats, sum.copy());
  append(result.floats, acc.copy());
  return result;
}

inline Result attend(const Kernels& kernels, Edge edge, const AttentionCase& c) {
  return c.is_float ? attend_typed<float>(kernels, edge, c) : attend_typed<bf16>(kernels, edge, c);
}

// The softmax state of some rows, in memory of its own.
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
