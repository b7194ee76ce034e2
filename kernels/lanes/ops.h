// The floating-point kernels, written once over sixteen lanes. An instruction-set file includes its lanes_*.h first,
// then this. Everything here is static: each file compiles its own copy with its own flags.
#pragma once

#include <cstdint>

#include "kernels/access_pattern.h"
#include "kernels/kernels.h"

namespace pinion {
namespace {

constexpr int kLanes = 16;

// The first count elements of p, zero in the other lanes.
template <class T>
Lanes load_some(const T* p, int64_t count) {
  if (count >= kLanes) return Lanes::load(p);
  T padded[kLanes] = {};
  for (int64_t i = 0; i < count; ++i) padded[i] = p[i];
  return Lanes::load(padded);
}

void store_some(Lanes value, bf16* p, int64_t count) {
  float all[kLanes];
  value.store(all);
  for (int i = 0; i < kLanes && i < count; ++i) p[i] = to_bf16(all[i]);
}

void store_some(Lanes value, float* p, int64_t count) {
  if (count >= kLanes) return value.store(p);
  float all[kLanes];
  value.store(all);
  for (int64_t i = 0; i < count; ++i) p[i] = all[i];
}

// Folds lanes 8, 4, 2, 1 apart.
template <class F>
float fold(Lanes value, F f) {
  value = f(value, Lanes::exchange<8>(value));
  value = f(value, Lanes::exchange<4>(value));
  value = f(value, Lanes::exchange<2>(value));
  return f(value, Lanes::exchange<1>(value)).first();
}

// To the nearest integer, ties to even, for |x| < 2^22: adding 1.5 * 2^23 leaves no bits for a fraction.
constexpr float kRoundingMagic = 12582912.0f;

Lanes round_half_even(Lanes x) {
  const Lanes magic = Lanes::broadcast(kRoundingMagic);
  return Lanes::sub(Lanes::add(x, magic), magic);
}

// 2^n for integral n in [-126, 127]: the sum's lowest mantissa bits are n + 127, moved into the exponent field.
Lanes exp2_integer(Lanes n) {
  return Lanes::shift_to_exponent(Lanes::add(n, Lanes::broadcast(kRoundingMagic + 127.0f)));
}

// e^x: x = n ln2 + r, |r| <= ln2 / 2, polynomial of degree 7 (Cephes expf), then two exact scalings so that results
// down to the smallest denormal are rounded once. Below -104: 0; above 88.73: infinity; NaN: NaN.
Lanes exp_lanes(Lanes x) {
  x = Lanes::min(Lanes::broadcast(89.0f), Lanes::max(Lanes::broadcast(-104.0f), x));
  const Lanes n = round_half_even(Lanes::mul(x, Lanes::broadcast(1.44269504088896341f)));
  Lanes r = Lanes::fma(n, Lanes::broadcast(-0.693359375f), x);
  r = Lanes::fma(n, Lanes::broadcast(2.12194440e-4f), r);
  constexpr float kCoefficients[] = {1.3981999507e-3f, 8.3334519073e-3f, 4.1665795894e-2f, 1.6666665459e-1f,
                                     5.0000001201e-1f};
  Lanes p = Lanes::broadcast(1.9875691500e-4f);
  for (float c : kCoefficients) p = Lanes::fma(p, r, Lanes::broadcast(c));
  p = Lanes::add(Lanes::fma(p, Lanes::mul(r, r), r), Lanes::broadcast(1.0f));
  const Lanes half = round_half_even(Lanes::mul(n, Lanes::broadcast(0.5f)));
  return Lanes::mul(Lanes::mul(p, exp2_integer(half)), exp2_integer(Lanes::sub(n, half)));
}

// e^x for x <= 0 to within 2^-18, of which rounding to bf16 leaves one in some thousands to see, and zero where that is
// less than an operand may be. A polynomial of degree 4 for 2^r, minimax for |r| <= 1/2.
Lanes exp_to_operand(Lanes x) {
  const Lanes log2_e = Lanes::broadcast(1.44269504088896341f), magic = Lanes::broadcast(kRoundingMagic + 127.0f);
  const Lanes shifted = Lanes::fma(x, log2_e, magic);  // the exponent field of 2^round(x log2 e), in the lowest bits
  const Lanes r = Lanes::fma(x, log2_e, Lanes::sub(magic, shifted));
  Lanes p = Lanes::broadcast(0.009582852f);
  constexpr float kCoefficients[] = {0.055906426f, 0.24024099f, 0.69312418f, 1.0f};
  for (float c : kCoefficients) p = Lanes::fma(p, r, Lanes::broadcast(c));
  p = Lanes::mul(p, Lanes::shift_to_exponent(shifted));
  return Lanes::if_less(x, Lanes::broadcast(kLeastExponent), Lanes::broadcast(0.0f), p);
}

// tanh x: an odd polynomial below 0.625 (Cephes tanhf), where the quotient would lose digits, else by e^(-2|x|).
Lanes tanh_lanes(Lanes x) {
  const Lanes zero = Lanes::broadcast(0.0f);
  const Lanes magnitude = Lanes::max(x, Lanes::sub(zero, x));
  const Lanes square = Lanes::mul(x, x);
  constexpr float kCoefficients[] = {2.06390887954e-2f, -5.37397155531e-2f, 1.33314422036e-1f, -3.33332819422e-1f};
  Lanes p = Lanes::broadcast(-5.70498872745e-3f);
  for (float c : kCoefficients) p = Lanes::fma(p, square, Lanes::broadcast(c));
  const Lanes small = Lanes::fma(Lanes::mul(p, square), x, x);
  const Lanes one = Lanes::broadcast(1.0f);
  const Lanes e = exp_lanes(Lanes::mul(magnitude, Lanes::broadcast(-2.0f)));
  const Lanes large = Lanes::div(Lanes::sub(one, e), Lanes::add(one, e));
  const Lanes with_sign = Lanes::if_less(x, zero, Lanes::sub(zero, large), large);
  return Lanes::if_less(magnitude, Lanes::broadcast(0.625f), small, with_sign);
}

Lanes soft_cap(Lanes x, float cap) {
  const Lanes limit = Lanes::broadcast(cap);
  return Lanes::mul(tanh_lanes(Lanes::div(x, limit)), limit);
}

float max_magnitude(const float* x, int64_t n) {
  Lanes largest = Lanes::broadcast(0.0f);
  for (int64_t i = 0; i < n; i += kLanes) largest = Lanes::max_magnitude(largest, load_some(x + i, n - i));
  return fold(largest, Lanes::max_magnitude);
}

void encode(const float* x, int64_t n, float scale, int8_t* codes) {
  if (!(scale > 0)) {  // NaN too
    __builtin_memset(codes, 0, static_cast<size_t>(n));
    return;
  }
  const Lanes divisor = Lanes::broadcast(scale);
  const Lanes low = Lanes::broadcast(-127.0f);
  const Lanes high = Lanes::broadcast(127.0f);
  for (int64_t i = 0; i < n; i += kLanes) {
    const Lanes q = Lanes::min(high, Lanes::max(low, round_half_even(Lanes::div(load_some(x + i, n - i), divisor))));
    if (n - i >= kLanes) {
      q.store_codes(codes + i);
    } else {
      int8_t some[kLanes];
      q.store_codes(some);
      __builtin_memcpy(codes + i, some, static_cast<size_t>(n - i));
    }
  }
}

void quantize(const float* x, int64_t n, int8_t* codes, float* scale) {
  *scale = code_scale(max_magnitude(x, n));
  encode(x, n, *scale, codes);
  for (int64_t i = n; i < padded_k(n); ++i) codes[i] = 0;
}

}  // namespace
}  // namespace pinion

#include "kernels/lanes/delta.h"  // over the above
#include "kernels/lanes/gemm.h"
#include "kernels/lanes/rotate.h"

namespace pinion {
namespace {

template <class T>
void silu_mul(const T* gate, const T* up, int64_t n, T* out) {
  for (int64_t i = 0; i < n; i += kLanes) {
    store_some(Lanes::mul(silu(load_some(gate + i, n - i)), load_some(up + i, n - i)), out + i, n - i);
  }
}

template <class T>
void rms_norm(const T* x, const T* weight, int64_t n, float eps, T* out) {
  Lanes squares = Lanes::broadcast(0.0f);
  for (int64_t i = 0; i < n; i += kLanes) {
    const Lanes v = load_some(x + i, n - i);
    squares = Lanes::fma(v, v, squares);
  }
  const Lanes inverse =
      Lanes::broadcast(1.0f / __builtin_sqrtf(fold(squares, Lanes::add) / static_cast<float>(n) + eps));
  for (int64_t i = 0; i < n; i += kLanes) {
    const Lanes v = Lanes::mul(load_some(x + i, n - i), inverse);
    store_some(Lanes::mul(v, load_some(weight + i, n - i)), out + i, n - i);
  }
}

void rope(float* x, const float* cos, const float* sin, int64_t half) {
  for (int64_t i = 0; i < half; i += kLanes) {
    const int64_t count = half - i;
    const Lanes a = load_some(x + i, count);
    const Lanes b = load_some(x + half + i, count);
    const Lanes c = load_some(cos + i, count);
    const Lanes s = load_some(sin + i, count);
    store_some(Lanes::sub(Lanes::mul(a, c), Lanes::mul(b, s)), x + i, count);
    store_some(Lanes::add(Lanes::mul(b, c), Lanes::mul(a, s)), x + half + i, count);
  }
}

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

// The largest of a row's scores, which are capped and, outside the span, minus infinity from now on. [from, to) are
// whole blocks around the span.
float mask_row(float* scores, AttentionSpan span, int64_t from, int64_t to, float cap) {
  if (cap != 0.0f) {
    for (int64_t i = from; i < to; i += kLanes) soft_cap(Lanes::load(scores + i), cap).store(scores + i);
  }
  for (int64_t i = from; i < span.begin; ++i) scores[i] = -__builtin_inff();
  for (int64_t i = span.end; i < to; ++i) scores[i] = -__builtin_inff();
  Lanes largest = Lanes::broadcast(-__builtin_inff());
  for (int64_t i = from; i < to; i += kLanes) largest = Lanes::max(Lanes::load(scores + i), largest);
  return fold(largest, Lanes::max);
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
  int64_t i = from;
  for (; i + 4 * kLanes <= to; i += 4 * kLanes) some(Index<4>{}, i);
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

void make_query(float* q, int64_t n, float scale, bool is_float) {
  is_float ? make_query<float>(q, n, scale) : make_query<bf16_pair>(q, n, scale);
}

template <class T>
void attend_typed(const AttentionChunk& chunk, const float* q, int64_t rows, const AttentionSpan* spans, float* scores,
                  const AttentionState& state) {
  int64_t from = kAttentionChunk;
  int64_t end = 0;
  for (int64_t r = 0; r < rows; ++r) {
    from = spans[r].begin < from ? spans[r].begin : from;
    end = spans[r].end > end ? spans[r].end : end;
  }
  from = from / kKeyBlock * kKeyBlock;
  const int64_t to = round_up(end, kKeyBlock);
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
  if (chunk.is_float) {
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

int64_t argmax(const float* x, int64_t n) {
  Lanes largest = Lanes::broadcast(-__builtin_inff());
  int64_t whole = n / kLanes * kLanes;
  for (int64_t i = 0; i < whole; i += kLanes) largest = Lanes::max(Lanes::load(x + i), largest);
  float best = fold(largest, Lanes::max);
  for (int64_t i = whole; i < n; ++i) best = x[i] > best ? x[i] : best;
  for (int64_t i = 0; i < n; ++i) {
    if (x[i] == best) return i;
  }
  return 0;
}

void convert_to_bf16(const float* x, int64_t n, bf16* out) {
  for (int64_t i = 0; i < n; i += kLanes) store_some(load_some(x + i, n - i), out + i, n - i);
}

void convert_to_float(const bf16* x, int64_t n, float* out) {
  for (int64_t i = 0; i < n; i += kLanes) store_some(load_some(x + i, n - i), out + i, n - i);
}

// The instruction set's own integer matmuls.
struct Int8Kernels {
  decltype(Kernels::gemv_s8) gemv;
  decltype(Kernels::pack_s8) pack;
  decltype(Kernels::gemm_s8) gemm;
  PackShape shape;
  decltype(Kernels::gemv_w4) gemv_w4;
  decltype(Kernels::gemm_w4) gemm_w4;
};

// A table of it and of the kernels above.
constexpr Kernels lanes_table(const char* name, const Int8Kernels& s8) {
  return {.name = name,
          .follower = nullptr,
          .quantize = quantize,
          .max_magnitude = max_magnitude,
          .encode = encode,
          .rotate = rotate,
          .gemv_s8 = s8.gemv,
          .pack_s8 = s8.pack,
          .gemm_s8 = s8.gemm,
          .s8 = s8.shape,
          .gemv_w4 = s8.gemv_w4,
          .gemm_w4 = s8.gemm_w4,
          .pack_f32 = pack_f32,
          .gemm_bf16 = gemm_float<bf16>,
          .gemm_f32 = gemm_float<float>,
          .f32 = {Lanes::kRows, 1, 1},
          .epilogue_s32 = epilogue_s32,
          .epilogue_f32 = epilogue_f32,
          .to_bf16 = convert_to_bf16,
          .to_float = convert_to_float,
          .silu_mul = silu_mul<float>,
          .silu_mul_bf16 = silu_mul<bf16>,
          .rms_norm = rms_norm<float>,
          .rms_norm_bf16 = rms_norm<bf16>,
          .rope = rope,
          .sigmoid_mul = sigmoid_mul,
          .conv_silu = conv_silu,
          .delta_rule = delta_rule,
          .make_query = make_query,
          .attend = attend,
          .merge_attention = merge_attention,
          .argmax = argmax};
}

}  // namespace
}  // namespace pinion
