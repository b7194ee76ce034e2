// Flash attention over one chunk of a cache of codes (KvType::q8). Both products are exact integer sums. A Product
// computes them for an instruction set:
//
//   Code                         type of a query's codes in memory
//   store_query(codes, row, i)   stores codes i to i + 15 of a query, in [-127, 127]
//   store_weight(codes, row, i)  rounds and stores codes i to i + 15 of a row of weights, in [0, kLargestWeight]
//   scores(q, d, rows, panel, sums)
//                                sums = queries [rows][d] by one panel of keys
//   values(weights, from, rows, values, row_bytes, k, sums)
//                                sums = weights [rows], codes from to from + k - 1, by 64 columns of values
//
// Rows of weights are kWeightBytes apart; sums: int32 [rows][64].
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/kernels.h"
#include "kernels/lanes/math.h"

namespace pinion {
namespace {

// The positions that any of the rows attends to, rounded to multiples of kKeyLanes.
inline AttentionSpan visible_range(const AttentionSpan* spans, int64_t rows) {
  AttentionSpan all = spans[0];
  for (int64_t r = 1; r < rows; ++r) {
    all.begin = spans[r].begin < all.begin ? spans[r].begin : all.begin;
    all.end = spans[r].end > all.end ? spans[r].end : all.end;
  }
  return {all.begin / kKeyLanes * kKeyLanes, static_cast<int32_t>(round_up(all.end, kKeyLanes))};
}

// Caps a row's scores, adds the bias of their distances, sets others to minus infinity, returns the largest. [from, to)
// of the kKeyLanes.
inline float mask_row(float* scores, AttentionSpan span, int64_t from, int64_t to, float cap) {
  if (cap != 0.0f) {
    for (int64_t i = from; i < to; i += kLanes) soft_cap(Lanes::load(scores + i), cap).store(scores + i);
  }
  for (int64_t i = from; span.slope != 0.0f && i < to; ++i) {
    scores[i] += span.slope * static_cast<float>(i - span.origin);
  }
  for (int64_t i = from; i < span.begin; ++i) scores[i] = -__builtin_inff();
  for (int64_t i = span.end; i < to; ++i) scores[i] = -__builtin_inff();
  Lanes largest = Lanes::broadcast(-__builtin_inff());
  for (int64_t i = from; i < to; i += kLanes) largest = Lanes::max(Lanes::load(scores + i), largest);
  return fold(largest, Lanes::max);
}

// Two digits of base 128. One would be cheaper and change the output four times as much (tools/MEASURED.md).
constexpr float kLargestWeight = 127.0f * 128;
constexpr int64_t kWeightBytes = 2 * kAttentionChunk;

// Rows of one product: whole register tiles, whose sums stay in the L1 cache.
constexpr int64_t kRowsAtOnce = 12;

// Tiles of up to kFewRows rows are bound by memory, so they prefetch. Other distances were slower (tools/MEASURED.md).
constexpr int kFewRows = 4;
constexpr int64_t kCodesAheadBytes = 4096;

// A row of smaller weights becomes zero, because the factor for their codes could be infinite.
constexpr float kMinWeight = 0x1p-100f;

// A Product of int8 codes: the two digits of the weights are two rows. The arguments of both functions are (a, lda,
// rows, b, row_bytes, k, sums); digits are not negative.
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
    int32_t digit_sums[2 * kRowsAtOnce * kPanelColumns];
    MultiplyDigits(reinterpret_cast<const int8_t*>(weights) + from, kAttentionChunk, 2 * rows, values, row_bytes, k,
                   digit_sums);
    for (int64_t r = 0; r < rows; ++r) {
      const int32_t* high = digit_sums + 2 * r * kPanelColumns;
      for (int64_t c = 0; c < kPanelColumns; ++c) sums[r * kPanelColumns + c] = high[c] * 128 + high[kPanelColumns + c];
    }
  }
};

using Codes = Q8Chunk<const int8_t, const float>;

// The score of a query against the centre, see Kernels::attend_s8.
template <class Code>
float centre_score(const float* q, const Codes& codes, int64_t d) {
  const auto* x = reinterpret_cast<const Code*>(q);
  int32_t sum = 0;
  for (int64_t i = 0; i < d; ++i) sum += x[i] * codes.centre[i];
  return (static_cast<float>(sum) * q[query_scale_at(d)]) * *codes.centre_scale;
}

// Computes scores[r][position] for every panel of keys that overlaps [from, to).
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

// Replaces a row's scores by weights e^(score - max) * scale and returns the sum of e^(score - max).
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

// Encodes a row of weights and returns the scale of the codes: NaN if the row holds infinity or NaN (then sum is NaN).
template <class Product>
float encode_weights(const float* weights, int64_t from, int64_t to, float largest, float sum, std::byte* out) {
  const bool is_whole = sum == sum && largest < __builtin_inff();
  if (!is_whole || largest < kMinWeight) {
    __builtin_memset(out, 0, kWeightBytes);
    return is_whole ? 0.0f : __builtin_nanf("");
  }
  const Lanes factor = Lanes::broadcast(kLargestWeight / largest);
  for (int64_t i = from; i < to; i += kLanes) {
    Product::store_weight(Lanes::mul(Lanes::load(weights + i), factor), out, i);
  }
  return largest / kLargestWeight;
}

// acc[r][column] = sum over [from, to) of weights times values, times the row's scale.
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

// Replaces scores by codes of weights, and the first score of each row by the scale of its codes. Each step takes
// several rows, so that the fold of one row overlaps the work on the next.
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
  const AttentionSpan range = visible_range(spans, rows);
  auto* weights = reinterpret_cast<std::byte*>(scores + rows * kAttentionChunk);
  const int64_t d = chunk.head_dim;
  const Codes codes = q8_chunk(chunk.keys, d);
  score_rows<Product>(codes, d, q, rows, range.begin, range.end, scores);
  softmax_rows<Product>(codes.value_scales, chunk.cap, rows, spans, range.begin, range.end, scores, weights, state);
  add_values<Product>(codes, d, weights, scores, rows, range.begin, range.end, state.acc);
}

template <class Product>
void make_query_s8(float* q, int64_t n, float scale) {
  Lanes largest = Lanes::broadcast(0.0f);
  for (int64_t i = 0; i < n; i += kLanes) largest = Lanes::max_magnitude(largest, Lanes::load(q + i));
  const float code = code_scale(fold(largest, Lanes::max_magnitude));
  const Lanes divisor = Lanes::broadcast(code);
  const bool has_codes = code > 0;  // false for NaN, too
  if (!has_codes) __builtin_memset(q, 0, n * sizeof(float));
  for (int64_t i = 0; has_codes && i < n; i += kLanes) {
    const Lanes x = round_half_even(Lanes::div(Lanes::load(q + i), divisor));
    Product::store_query(Lanes::min(Lanes::broadcast(127.0f), Lanes::max(Lanes::broadcast(-127.0f), x)), q, i);
  }
  q[query_scale_at(n)] = code * scale;
}

}  // namespace
}  // namespace pinion
