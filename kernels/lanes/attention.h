// A chunk of flash attention over sixteen lanes: q K, softmax, p V, and the merging of chunks.
#pragma once

#include <cstdint>
#include <type_traits>

#include "kernels/access_pattern.h"
#include "kernels/kernels.h"
#include "kernels/lanes/gemm.h"
#include "kernels/lanes/math.h"
#include "kernels/lanes/softmax.h"
#include "kernels/lanes/unroll.h"

namespace pinion {
namespace {

// Left sides as a cache of Ts takes them; what they became.
template <class T>
Lanes store_left(Lanes x, Left<T>* p) {
  if constexpr (std::is_same_v<T, float>) {
    x.store(p);
    return x;
  } else {
    const Lanes zero = Lanes::broadcast(0.0f);
    const Lanes magnitude = Lanes::max(x, Lanes::sub(zero, x));
    return Pairs::store_left(Lanes::if_less(magnitude, Lanes::broadcast(kLeastOperand), zero, x), p);
  }
}

// Likewise e^x for x <= 0.
template <class T>
Lanes store_exp(Lanes x, Left<T>* p) {
  if constexpr (std::is_same_v<T, float>) {
    return store_left<T>(exp_lanes(x), p);
  } else {
    return Pairs::store_left(exp_to_operand(x), p);
  }
}

// Scores become probabilities relative to their maximum, as left sides in the place of what they come from. Their sum.
template <class T>
float exponentials(float* scores, int64_t from, int64_t to, float largest) {
  const Lanes max = Lanes::broadcast(largest);
  Lanes sum = Lanes::broadcast(0.0f);
  const auto some = [&](auto count, int64_t i) {
    Lanes x[count];
    unrolled<count>([&](auto j) { x[j] = Lanes::sub(Lanes::load(scores + i + j * kLanes), max); });
    unrolled<count>([&](auto j) {
      auto* left = reinterpret_cast<Left<T>*>(scores) + i + j * kLanes;
      x[j] = store_exp<T>(x[j], left);
    });
    unrolled<count>([&](auto j) { sum = Lanes::add(sum, x[j]); });
  };
  // Where they fit the registers, several chains of operations side by side.
  constexpr int kTogether = Lanes::kWide > 1 ? 4 : 1;
  int64_t i = from;
  for (; i + kTogether * kLanes <= to; i += kTogether * kLanes) some(Index<kTogether>{}, i);
  for (; i < to; i += kLanes) some(Index<1>{}, i);
  return fold(sum, Lanes::add);
}

// A few rows' maxima before their exponentials: one row's folding is then done beside the next one's work.
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
  const int64_t from = seen_by_any(spans, rows).begin, to = round_up(end, kKeyBlock);
  const int64_t d = chunk.head_dim;
  constexpr bool kPrefetches = Lanes::kAheadBytes > 0;
  const bool is_whole = to - from == kAttentionChunk;
  // Where not all of a chunk is seen keys ask for their values, a plane later in a cache like the engine's, and values,
  // where they ask at all, for the next head's keys. Nearer by lie positions that nobody reads.
  constexpr int64_t kOf = std::is_same_v<T, bf16_pair> ? 2 : 1;  // numbers in a T
  const int64_t plane = kAttentionChunk * d / kOf;
  const bool prefetches_values = !is_whole && chunk.values == static_cast<const T*>(chunk.keys) + plane;
  const int64_t plane_bytes = plane * static_cast<int64_t>(sizeof(T));
  // In order: key block by key block. With part of a chunk seen, or more rows, whose tiles take half of the values at
  // once, it is slower on every CPU.
  const bool in_order =
      kPrefetches && is_whole && rows <= kWidestRows && kAccessPatterns[access_pattern()].plain_chunks;
  const int64_t some_bytes = kPrefetches && prefetches_values ? plane_bytes : Lanes::kAheadBytes;
  const int64_t ahead_bytes = in_order ? 0 : some_bytes;

  constexpr int64_t kLeft = sizeof(float) / sizeof(Left<T>);  // left sides that take a float's place
  const T* keys = static_cast<const T*>(chunk.keys) + from * d / kOf;
  FloatTile<T> by_keys = {
      reinterpret_cast<const Left<T>*>(q), d * kLeft, kOf, keys, kKeyBlock, d / kOf * kKeyBlock, d / kOf, ahead_bytes};
  const int64_t at_once = in_order ? kKeyBlock : to - from;
  for (int64_t at = from; at < to; at += at_once, by_keys.b += at_once * d / kOf) {
    gemm_many(by_keys, rows, at_once / kKeyBlock, scores + at, kAttentionChunk);
  }
  softmax<T>(scores, rows, spans, from, to, chunk.cap, state);
  const T* values = static_cast<const T*>(chunk.values) + from / kOf * chunk.value_stride;
  gemm_many(FloatTile<T>{reinterpret_cast<const Left<T>*>(scores) + from, kAttentionChunk * kLeft, kOf, values,
                         chunk.value_stride, kLanes, (end - from + kOf - 1) / kOf, ahead_bytes},
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

// Of up to sixteen rows at once.
void merge_rows(const AttentionState& state, const AttentionState& next, int64_t rows, int64_t head_dim) {
  const Lanes first = load_some(state.max, rows);
  const Lanes second = load_some(next.max, rows);
  const Lanes max = Lanes::max(first, second);
  const Lanes keep = exp_lanes(Lanes::sub(first, max));
  const Lanes take = exp_lanes(Lanes::sub(second, max));
  const Lanes sum =
      Lanes::add(Lanes::mul(load_some(state.sum, rows), keep), Lanes::mul(load_some(next.sum, rows), take));
  store_some(max, state.max, rows);
  store_some(sum, state.sum, rows);
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
