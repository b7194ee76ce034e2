// Flash attention over a chunk of a float or bf16 cache, over sixteen lanes: q K, softmax, p V; and merging of chunks.
#pragma once

#include <cstdint>
#include <type_traits>

#include "kernels/access_pattern.h"
#include "kernels/kernels.h"
#include "kernels/lanes/attention_s8.h"  // visible_range, mask_row
#include "kernels/lanes/gemm.h"
#include "kernels/lanes/math.h"
#include "kernels/lanes/unroll.h"

namespace pinion {
namespace {

// Stores x as left operands for a cache of T and returns their values: for pairs rounded, with small magnitudes zero.
template <class T>
Lanes store_left(Lanes x, Left<T>* p) {
  if constexpr (std::is_same_v<T, float>) {
    x.store(p);
    return x;
  } else {
    const Lanes zero = Lanes::broadcast(0.0f);
    const Lanes magnitude = Lanes::max(x, Lanes::sub(zero, x));
    return Pairs::store_left(Lanes::if_less(magnitude, Lanes::broadcast(kMinOperand), zero, x), p);
  }
}

// The same for e^x, x <= 0.
template <class T>
Lanes store_exp(Lanes x, Left<T>* p) {
  if constexpr (std::is_same_v<T, float>) {
    return store_left<T>(exp_lanes(x), p);
  } else {
    return Pairs::store_left(exp_to_operand(x), p);
  }
}

// Replaces scores by probabilities relative to their maximum, stored as left operands, and returns the sum of these.
template <class T>
float exponentials(float* scores, int64_t from, int64_t to, float largest) {
  const Lanes max = Lanes::broadcast(largest);
  Lanes sum = Lanes::broadcast(0.0f);
  const auto run = [&](auto count, int64_t i) {
    Lanes x[count];
    unrolled<count>([&](auto j) { x[j] = Lanes::sub(Lanes::load(scores + i + j * kLanes), max); });
    unrolled<count>([&](auto j) {
      auto* left = reinterpret_cast<Left<T>*>(scores) + i + j * kLanes;
      x[j] = store_exp<T>(x[j], left);
    });
    unrolled<count>([&](auto j) { sum = Lanes::add(sum, x[j]); });
  };
  // Several chains of operations side by side, if they fit the registers.
  constexpr int kTogether = Lanes::kWide > 1 ? 4 : 1;
  int64_t i = from;
  for (; i + kTogether * kLanes <= to; i += kTogether * kLanes) run(Index<kTogether>{}, i);
  for (; i < to; i += kLanes) run(Index<1>{}, i);
  return fold(sum, Lanes::add);
}

// Eight rows at a time, first all maxima and then all exponentials: the fold of one row overlaps the work on the next.
template <class T>
void softmax(float* scores, int64_t rows, const AttentionSpan* spans, int64_t from, int64_t to, float cap,
             const AttentionState& state) {
  constexpr int64_t kAtOnce = 8;
  for (int64_t first = 0; first < rows; first += kAtOnce) {
    const int64_t end = first + kAtOnce < rows ? first + kAtOnce : rows;
    for (int64_t r = first; r < end; ++r) {
      state.max[r] = mask_row(scores + r * kAttentionChunk, spans[r], from, to, cap);
    }
    for (int64_t r = first; r < end; ++r) {
      state.sum[r] = exponentials<T>(scores + r * kAttentionChunk, from, to, state.max[r]);
    }
  }
}

template <class T>
void make_query(float* q, int64_t n, float scale) {
  for (int64_t i = 0; i < n; i += kLanes) {
    store_left<T>(Lanes::mul(Lanes::load(q + i), Lanes::broadcast(scale)), reinterpret_cast<Left<T>*>(q) + i);
  }
}

template <class T>
void attend_typed(const AttentionChunk& chunk, const float* q, int64_t rows, const AttentionSpan* spans, float* scores,
                  const AttentionState& state) {
  int64_t end = 0;
  for (int64_t r = 0; r < rows; ++r) end = spans[r].end > end ? spans[r].end : end;
  const int64_t from = visible_range(spans, rows).begin, to = round_up(end, kKeyLanes);
  const int64_t d = chunk.head_dim;
  constexpr bool kPrefetches = Lanes::kAheadBytes > 0;
  const bool is_whole = to - from == kAttentionChunk;
  // For a partial chunk, reading keys prefetches the values, one plane ahead in a cache like the engine's, and reading
  // values prefetches the keys of the next head. A smaller distance would fetch positions that are never read.
  constexpr int64_t kNumbers = std::is_same_v<T, bf16_pair> ? 2 : 1;  // numbers per T
  const int64_t plane = kAttentionChunk * d / kNumbers;
  const bool prefetches_values = !is_whole && chunk.values == static_cast<const T*>(chunk.keys) + plane;
  const int64_t plane_bytes = plane * static_cast<int64_t>(sizeof(T));
  // In order: one group of kKeyLanes positions after the other. This order is slower on every CPU for partial chunks,
  // and for more rows, whose tiles read half of the values at a time.
  const bool serial = kPrefetches && is_whole && rows <= kWidestRows && kAccessPatterns[access_pattern()].plain_chunks;
  const int64_t distance_bytes = kPrefetches && prefetches_values ? plane_bytes : Lanes::kAheadBytes;
  const int64_t ahead_bytes = serial ? 0 : distance_bytes;

  constexpr int64_t kLeft = sizeof(float) / sizeof(Left<T>);  // left operands in the memory of one float
  const T* keys = static_cast<const T*>(chunk.keys) + from * d / kNumbers;
  FloatTile<T> by_keys = {reinterpret_cast<const Left<T>*>(q),
                          d * kLeft,
                          kNumbers,
                          keys,
                          kKeyLanes,
                          d / kNumbers * kKeyLanes,
                          d / kNumbers,
                          ahead_bytes};
  const int64_t at_once = serial ? kKeyLanes : to - from;
  for (int64_t at = from; at < to; at += at_once, by_keys.b += at_once * d / kNumbers) {
    gemm_many(by_keys, rows, at_once / kKeyLanes, scores + at, kAttentionChunk);
  }
  softmax<T>(scores, rows, spans, from, to, chunk.cap, state);
  const T* values = static_cast<const T*>(chunk.values) + from / kNumbers * chunk.value_stride;
  gemm_many(FloatTile<T>{reinterpret_cast<const Left<T>*>(scores) + from, kAttentionChunk * kLeft, kNumbers, values,
                         chunk.value_stride, kLanes, (end - from + kNumbers - 1) / kNumbers, ahead_bytes},
            rows, d / kLanes, state.acc, d);
}

void attend(const AttentionChunk& chunk, const float* q, int64_t rows, const AttentionSpan* spans, float* scores,
            const AttentionState& state) {
  if (chunk.type == KvType::f32) {
    attend_typed<float>(chunk, q, rows, spans, scores, state);
  } else {
    attend_typed<bf16_pair>(chunk, q, rows, spans, scores, state);
  }
}

// Merges the states of up to sixteen rows.
void merge_rows(const AttentionState& state, const AttentionState& next, int64_t rows, int64_t head_dim) {
  const Lanes first = load_partial(state.max, rows);
  const Lanes second = load_partial(next.max, rows);
  const Lanes max = Lanes::max(first, second);
  const Lanes keep = exp_lanes(Lanes::sub(first, max));
  const Lanes take = exp_lanes(Lanes::sub(second, max));
  const Lanes sum =
      Lanes::add(Lanes::mul(load_partial(state.sum, rows), keep), Lanes::mul(load_partial(next.sum, rows), take));
  store_partial(max, state.max, rows);
  store_partial(sum, state.sum, rows);
  float factors[2][kLanes];
  keep.store(factors[0]);
  take.store(factors[1]);
  for (int64_t r = 0; r < rows; ++r) {
    const Lanes a = Lanes::broadcast(factors[0][r]);
    const Lanes b = Lanes::broadcast(factors[1][r]);
    for (int64_t i = r * head_dim; i < (r + 1) * head_dim; i += kLanes) {
      Lanes::add(Lanes::mul(Lanes::load(state.acc + i), a), Lanes::mul(Lanes::load(next.acc + i), b))
          .store(state.acc + i);
    }
  }
}

void merge_attention(const AttentionState& state, const AttentionState& next, int64_t rows, int64_t head_dim) {
  for (int64_t r = 0; r < rows; r += kLanes) {
    const int64_t at = r * head_dim;
    merge_rows({state.max + r, state.sum + r, state.acc + at}, {next.max + r, next.sum + r, next.acc + at},
               rows - r < kLanes ? rows - r : kLanes, head_dim);
  }
}

}  // namespace
}  // namespace pinion
