// A chunk of flash attention over a cache of codes (KvType::q8): both products are exact sums of integers. A Product is
// how an instruction set makes them:
//
//   Code                          what a query's codes are in that form
//   store_query(codes, row, i)    sixteen codes in [-127, 127] into a row's place, in the form that it multiplies
//   store_weight(codes, row, i)   sixteen codes in [0, kLargestWeight], which are still to be rounded, likewise
//   scores(q, d, rows, panel, sums)
//                                 rows of queries by a panel of keys
//   values(weights, from, rows, values, row_bytes, k, sums)
//                                 rows of weights, k of each from `from` on, by 64 columns of values
//
// Rows of weights are kWeightBytes apart, sums are [rows][64].
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/attention_chunk.h"
#include "kernels/kernels.h"
#include "kernels/lanes/math.h"
#include "kernels/lanes/softmax.h"

namespace pinion {
namespace {

// Two digits of base 128. With one the products cost less, and the model's output changes four times as much
// (tools/MEASURED.md).
constexpr float kLargestWeight = 127.0f * 128;
constexpr int64_t kWeightBytes = 2 * kAttentionChunk;

// Rows that a product takes at a time: whole tiles, whose sums stay in the L1 cache.
constexpr int64_t kRowsAtOnce = 12;

// Tiles of few rows are bound by memory, so they prefetch. Other distances were slower (tools/MEASURED.md).
constexpr int kFewRows = 4;
constexpr int64_t kCodesAheadBytes = 4096;

// A row whose weights are all below this has none: a factor for them would not be finite.
constexpr float kLeastWeight = 0x1p-100f;

// Products of int8 codes alone: a weight is two rows, its digits. Both functions are called with (a, lda, rows, b,
// row_bytes, k, sums); digits are not negative.
template <auto MultiplyCodes, auto MultiplyDigits>
struct Digits {
  using Code = int8_t;

  static void store_query(Lanes codes, float* row, int64_t i) { codes.store_codes(reinterpret_cast<int8_t*>(row) + i); }

  static void store_weight(Lanes codes, std::byte* row, int64_t i) {
    auto* digits = reinterpret_cast<int8_t*>(row) + i;
    codes.store_digits(digits, digits + kAttentionChunk);
  }

  static void scores(const float* q, int64_t d, int64_t rows, const int8_t* panel, int32_t* sums) {
    MultiplyCodes(reinterpret_cast<const int8_t*>(q), 4 * d, rows, panel, 4 * kPanelColumns, d, sums);
  }

  static void values(const std::byte* weights, int64_t from, int64_t rows, const int8_t* values, int64_t row_bytes,
                     int64_t k, int32_t* sums) {
    int32_t parts[2 * kRowsAtOnce * kPanelColumns];
    MultiplyDigits(reinterpret_cast<const int8_t*>(weights) + from, kAttentionChunk, 2 * rows, values, row_bytes, k,
                   parts);
    for (int64_t r = 0; r < rows; ++r) {
      const int32_t* part = parts + 2 * r * kPanelColumns;
      for (int64_t c = 0; c < kPanelColumns; ++c) {
        sums[r * kPanelColumns + c] = part[c] * 128 + part[kPanelColumns + c];
      }
    }
  }
};

using Codes = Q8Chunk<const int8_t, const float>;

template <class Code>
float centre_score(const float* q, const Codes& codes, int64_t d) {
  const auto* x = reinterpret_cast<const Code*>(q);
  int32_t sum = 0;
  for (int64_t i = 0; i < d; ++i) sum += x[i] * codes.centre[i];
  return (static_cast<float>(sum) * q[query_scale_at(d)]) * *codes.centre_scale;
}

// scores[r][position], for every panel of keys that [from, to) touches.
template <class Product>
void score_rows(const Codes& codes, int64_t d, const float* q, int64_t rows, int64_t from, int64_t to, float* scores) {
  int32_t sums[kRowsAtOnce * kPanelColumns];
  for (int64_t first = 0; first < rows; first += kRowsAtOnce) {
    const int64_t count = rows - first < kRowsAtOnce ? rows - first : kRowsAtOnce;
    float centre[kRowsAtOnce];
    for (int64_t r = 0; r < count; ++r) {
      centre[r] = to > kCentred ? centre_score<typename Product::Code>(q + (first + r) * d, codes, d) : 0.0f;
    }
    for (int64_t p = from / kPanelColumns * kPanelColumns; p < to; p += kPanelColumns) {
      Product::scores(q + first * d, d, count, codes.keys + p * d, sums);
      for (int64_t r = 0; r < count; ++r) {
        float* row = scores + (first + r) * kAttentionChunk;
        const Lanes scale = Lanes::broadcast(q[(first + r) * d + query_scale_at(d)]);
        const Lanes offset = Lanes::broadcast(centre[r]);
        for (int64_t c = 0; c < kPanelColumns; c += kLanes) {
          const Lanes sum = Lanes::load(sums + r * kPanelColumns + c);
          const Lanes score = Lanes::mul(Lanes::mul(sum, scale), Lanes::load(codes.key_scales + p + c));
          (p + c < kCentred ? score : Lanes::add(score, offset)).store(row + p + c);
        }
      }
    }
  }
}

// A row's scores become e^x times the value's scale. Returns the sum of e^x.
inline float weigh_row(float* scores, const float* scales, int64_t from, int64_t to, float max, float* largest) {
  Lanes sum = Lanes::broadcast(0.0f), top = sum;
  for (int64_t i = from; i < to; i += kLanes) {
    const Lanes e = exp_to_operand(Lanes::sub(Lanes::load(scores + i), Lanes::broadcast(max)));
    sum = Lanes::add(sum, e);
    const Lanes w = Lanes::mul(e, Lanes::load(scales + i));
    top = Lanes::max(w, top);
    w.store(scores + i);
  }
  *largest = fold(top, Lanes::max);
  return fold(sum, Lanes::add);
}

// Weights become codes; their scale. Of a row with NaN, which its sum shows, or infinity it is NaN.
template <class Product>
float encode_weights(const float* weights, int64_t from, int64_t to, float largest, float sum, std::byte* out) {
  const bool is_whole = sum == sum && largest < __builtin_inff();
  if (!is_whole || largest < kLeastWeight) {
    __builtin_memset(out, 0, kWeightBytes);
    return is_whole ? 0.0f : __builtin_nanf("");
  }
  const Lanes factor = Lanes::broadcast(kLargestWeight / largest);
  for (int64_t i = from; i < to; i += kLanes) {
    Product::store_weight(Lanes::mul(Lanes::load(weights + i), factor), out, i);
  }
  return largest / kLargestWeight;
}

// acc[r][column] = weights by values, scaled.
template <class Product>
void add_values(const Codes& codes, int64_t d, const std::byte* weights, const float* scales, int64_t rows,
                int64_t from, int64_t to, float* acc) {
  int32_t sums[kRowsAtOnce * kPanelColumns];
  for (int64_t column = 0; column < d; column += kPanelColumns) {
    const int64_t width = d - column < kPanelColumns ? d - column : kPanelColumns;
    const int8_t* values = codes.values + column * kAttentionChunk + from * width;
    for (int64_t first = 0; first < rows; first += kRowsAtOnce) {
      const int64_t count = rows - first < kRowsAtOnce ? rows - first : kRowsAtOnce;
      Product::values(weights + first * kWeightBytes, from, count, values, 4 * width, to - from, sums);
      for (int64_t r = 0; r < count; ++r) {
        const Lanes scale = Lanes::broadcast(scales[(first + r) * kAttentionChunk]);
        for (int64_t c = 0; c < width; c += kLanes) {
          Lanes::mul(Lanes::load(sums + r * kPanelColumns + c), scale).store(acc + (first + r) * d + column + c);
        }
      }
    }
  }
}

// Scores become codes of weights, and each row's first score the scale of its codes. Step by step for a few rows: one
// row's folding is then done beside the next one's work.
template <class Product>
void softmax_rows(const float* value_scales, float cap, int64_t rows, const AttentionSpan* spans, int64_t from,
                  int64_t to, float* scores, std::byte* weights, const AttentionState& state) {
  float largest[kRowsAtOnce];
  for (int64_t first = 0; first < rows; first += kRowsAtOnce) {
    const int64_t end = first + kRowsAtOnce < rows ? first + kRowsAtOnce : rows;
    const auto row = [&](int64_t r) { return scores + r * kAttentionChunk; };
    for (int64_t r = first; r < end; ++r) state.max[r] = mask_row(row(r), spans[r], from, to, cap);
    for (int64_t r = first; r < end; ++r) {
      state.sum[r] = weigh_row(row(r), value_scales, from, to, state.max[r], &largest[r - first]);
    }
    for (int64_t r = first; r < end; ++r) {
      *row(r) = encode_weights<Product>(row(r), from, to, largest[r - first], state.sum[r], weights + r * kWeightBytes);
    }
  }
}

template <class Product>
void attend_s8(const AttentionChunk& chunk, const float* q, int64_t rows, const AttentionSpan* spans, float* scores,
               const AttentionState& state) {
  const AttentionSpan seen = seen_by_any(spans, rows);
  auto* weights = reinterpret_cast<std::byte*>(scores + rows * kAttentionChunk);
  const int64_t d = chunk.head_dim;
  const Codes codes = q8_chunk(chunk.keys, d);
  score_rows<Product>(codes, d, q, rows, seen.begin, seen.end, scores);
  softmax_rows<Product>(codes.value_scales, chunk.cap, rows, spans, seen.begin, seen.end, scores, weights, state);
  add_values<Product>(codes, d, weights, scores, rows, seen.begin, seen.end, state.acc);
}

template <class Product>
void make_query_s8(float* q, int64_t n, float scale) {
  Lanes largest = Lanes::broadcast(0.0f);
  for (int64_t i = 0; i < n; i += kLanes) largest = Lanes::max_magnitude(largest, Lanes::load(q + i));
  const float code = code_scale(fold(largest, Lanes::max_magnitude));
  if (!(code > 0)) {  // NaN too
    __builtin_memset(q, 0, static_cast<size_t>(n) * sizeof(float));
    q[query_scale_at(n)] = code * scale;
    return;
  }
  const Lanes divisor = Lanes::broadcast(code);
  for (int64_t i = 0; i < n; i += kLanes) {
    const Lanes x = round_half_even(Lanes::div(Lanes::load(q + i), divisor));
    Product::store_query(Lanes::min(Lanes::broadcast(127.0f), Lanes::max(Lanes::broadcast(-127.0f), x)), q, i);
  }
  q[query_scale_at(n)] = code * scale;
}

}  // namespace
}  // namespace pinion
