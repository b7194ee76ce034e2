// The floating-point kernels, written once over sixteen lanes. An instruction-set file includes its lanes_*.h first,
// then this. Everything here is static: each file compiles its own copy with its own flags.
#pragma once

#include <cstdint>

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

void store_some(Lanes value, float* p, int64_t count) {
  if (count >= kLanes) return value.store(p);
  float all[kLanes];
  value.store(all);
  for (int64_t i = 0; i < count; ++i) p[i] = all[i];
}

// Folds lanes 8, 4, 2, 1 apart.
float fold_sum(Lanes value) {
  float lane[kLanes];
  value.store(lane);
  for (int width = kLanes / 2; width > 0; width /= 2) {
    for (int i = 0; i < width; ++i) lane[i] = lane[i] + lane[i + width];
  }
  return lane[0];
}

float fold_max(Lanes value) {
  float lane[kLanes];
  value.store(lane);
  for (int width = kLanes / 2; width > 0; width /= 2) {
    for (int i = 0; i < width; ++i) lane[i] = lane[i] > lane[i + width] ? lane[i] : lane[i + width];
  }
  return lane[0];
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

float exp_scalar(float x) {
  float lane[kLanes];
  exp_lanes(Lanes::broadcast(x)).store(lane);
  return lane[0];
}

void quantize(const float* x, int64_t n, int8_t* codes, float* scale) {
  Lanes largest = Lanes::broadcast(0.0f);
  for (int64_t i = 0; i < n; i += kLanes) largest = Lanes::max_magnitude(largest, load_some(x + i, n - i));
  float lane[kLanes];
  largest.store(lane);
  uint32_t bits = 0;
  for (float f : lane) {
    uint32_t b;
    __builtin_memcpy(&b, &f, sizeof b);
    bits = b > bits ? b : bits;
  }
  float amax;
  __builtin_memcpy(&amax, &bits, sizeof amax);

  constexpr uint32_t kInfinityBits = 0x7f800000u;
  const bool finite = bits < kInfinityBits;
  const bool usable = finite && amax >= 0x1p-119f;  // else amax / 127 would not be a normal number
  *scale = usable ? amax / 127.0f : finite ? 0.0f : __builtin_nanf("");
  const int64_t padded = padded_k(n);
  if (!usable) {
    __builtin_memset(codes, 0, static_cast<size_t>(padded));
    return;
  }
  const Lanes divisor = Lanes::broadcast(*scale);
  const Lanes low = Lanes::broadcast(-127.0f);
  const Lanes high = Lanes::broadcast(127.0f);
  int64_t i = 0;
  for (; i < n; i += kLanes) {
    const Lanes q = round_half_even(Lanes::div(load_some(x + i, n - i), divisor));
    Lanes::min(high, Lanes::max(low, q)).store_codes(codes + i);
  }
  for (; i < padded; ++i) codes[i] = 0;
}

// A tile of R rows by W vectors of columns, c = a * b, each element by fma in the order of k. Row k of b starts at
// b + k * ldb; its W vectors lie lane_step apart.
template <int R, int W, class T>
void gemm_block(const float* a, int64_t lda, const T* b, int64_t ldb, int64_t lane_step, int64_t k, float* c,
                int64_t ldc) {
  Lanes acc[R][W];
  for (int r = 0; r < R; ++r) {
    for (int w = 0; w < W; ++w) acc[r][w] = Lanes::broadcast(0.0f);
  }
  for (int64_t i = 0; i < k; ++i) {
    Lanes row[W];
    for (int w = 0; w < W; ++w) row[w] = Lanes::load(b + i * ldb + w * lane_step);
    for (int r = 0; r < R; ++r) {
      const Lanes x = Lanes::broadcast(a[r * lda + i]);
      for (int w = 0; w < W; ++w) acc[r][w] = Lanes::fma(x, row[w], acc[r][w]);
    }
  }
  for (int r = 0; r < R; ++r) {
    for (int w = 0; w < W; ++w) acc[r][w].store(c + r * ldc + w * kLanes);
  }
}

template <int W, class T>
void gemm_columns(const float* a, int64_t lda, int64_t rows, const T* b, int64_t ldb, int64_t lane_step, int64_t k,
                  float* c, int64_t ldc) {
  int64_t r = 0;
  for (; r + Lanes::kRows <= rows; r += Lanes::kRows) {
    gemm_block<Lanes::kRows, W>(a + r * lda, lda, b, ldb, lane_step, k, c + r * ldc, ldc);
  }
  for (; r < rows; ++r) gemm_block<1, W>(a + r * lda, lda, b, ldb, lane_step, k, c + r * ldc, ldc);
}

// c[rows][vectors * 16] = a[rows][k] * b.
template <class T>
void gemm_float(const float* a, int64_t lda, int64_t rows, const T* b, int64_t ldb, int64_t lane_step, int64_t vectors,
                int64_t k, float* c, int64_t ldc) {
  int64_t v = 0;
  for (; v + 4 <= vectors; v += 4) {
    // One row needs four chains to hide the latency of fma; a block of rows has them already.
    if (rows < Lanes::kRows || Lanes::kWide == 4) {
      gemm_columns<4>(a, lda, rows, b + v * lane_step, ldb, lane_step, k, c + v * kLanes, ldc);
    } else {
      for (int64_t w = v; w < v + 4; ++w) {
        gemm_columns<1>(a, lda, rows, b + w * lane_step, ldb, lane_step, k, c + w * kLanes, ldc);
      }
    }
  }
  for (; v < vectors; ++v) {
    gemm_columns<1>(a, lda, rows, b + v * lane_step, ldb, lane_step, k, c + v * kLanes, ldc);
  }
}

void gemm_bf16(const float* a, int64_t lda, int64_t rows, const bf16* panel, int64_t k, float* acc) {
  gemm_float(a, lda, rows, panel, kPanelColumns, kLanes, kPanelColumns / kLanes, k, acc, kPanelColumns);
}

void dequantize(const int32_t* acc, int64_t rows, const float* row_scale, const float* column_scale, float* tile) {
  for (int64_t r = 0; r < rows; ++r) {
    const Lanes scale = Lanes::broadcast(row_scale[r]);
    for (int64_t c = 0; c < kPanelColumns; c += kLanes) {
      const int64_t at = r * kPanelColumns + c;
      Lanes::mul(Lanes::mul(Lanes::load(acc + at), scale), Lanes::load(column_scale + c)).store(tile + at);
    }
  }
}

void store_tile(const float* tile, int64_t rows, const float* bias, bool add, float* out, int64_t ldo,
                int64_t columns) {
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < columns; c += kLanes) {
      Lanes value = Lanes::load(tile + r * kPanelColumns + c);
      float* to = out + r * ldo + c;
      if (bias) value = Lanes::add(value, load_some(bias + c, columns - c));
      if (add) value = Lanes::add(value, load_some(to, columns - c));
      store_some(value, to, columns - c);
    }
  }
}

void silu_mul(const float* gate, const float* up, int64_t n, float* out) {
  const Lanes one = Lanes::broadcast(1.0f);
  for (int64_t i = 0; i < n; i += kLanes) {
    const Lanes g = load_some(gate + i, n - i);
    const Lanes denominator = Lanes::add(one, exp_lanes(Lanes::sub(Lanes::broadcast(0.0f), g)));
    store_some(Lanes::mul(Lanes::div(g, denominator), load_some(up + i, n - i)), out + i, n - i);
  }
}

void rms_norm(const float* x, const float* weight, int64_t n, float eps, float* out) {
  Lanes squares = Lanes::broadcast(0.0f);
  for (int64_t i = 0; i < n; i += kLanes) {
    const Lanes v = load_some(x + i, n - i);
    squares = Lanes::fma(v, v, squares);
  }
  const Lanes inverse = Lanes::broadcast(1.0f / __builtin_sqrtf(fold_sum(squares) / static_cast<float>(n) + eps));
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

// Scores become probabilities relative to their maximum. [from, to): whole blocks around the span; zeros outside it.
void softmax_row(float* scores, AttentionSpan span, int64_t from, int64_t to, float scale, float* row_max,
                 float* row_sum) {
  for (int64_t i = from; i < span.begin; ++i) scores[i] = -__builtin_inff();
  for (int64_t i = span.end; i < to; ++i) scores[i] = -__builtin_inff();
  const Lanes factor = Lanes::broadcast(scale);
  Lanes largest = Lanes::broadcast(-__builtin_inff());
  for (int64_t i = from; i < to; i += kLanes) {
    const Lanes s = Lanes::mul(Lanes::load(scores + i), factor);
    s.store(scores + i);
    largest = Lanes::max(s, largest);
  }
  *row_max = fold_max(largest);
  const Lanes max = Lanes::broadcast(*row_max);
  Lanes sum = Lanes::broadcast(0.0f);
  for (int64_t i = from; i < to; i += kLanes) {
    const Lanes p = exp_lanes(Lanes::sub(Lanes::load(scores + i), max));
    p.store(scores + i);
    sum = Lanes::add(sum, p);
  }
  *row_sum = fold_sum(sum);
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
  const T* keys = static_cast<const T*>(chunk.keys) + from * d;
  gemm_float(q, d, rows, keys, kKeyBlock, d * kKeyBlock, (to - from) / kKeyBlock, d, scores + from, kAttentionChunk);
  for (int64_t r = 0; r < rows; ++r) {
    softmax_row(scores + r * kAttentionChunk, spans[r], from, to, chunk.scale, &state.max[r], &state.sum[r]);
  }
  const T* values = static_cast<const T*>(chunk.values) + from * d;
  gemm_float(scores + from, kAttentionChunk, rows, values, d, kLanes, d / kLanes, end - from, state.acc, d);
}

void attend(const AttentionChunk& chunk, const float* q, int64_t rows, const AttentionSpan* spans, float* scores,
            const AttentionState& state) {
  if (chunk.is_float) {
    attend_typed<float>(chunk, q, rows, spans, scores, state);
  } else {
    attend_typed<bf16>(chunk, q, rows, spans, scores, state);
  }
}

void merge_attention(const AttentionState& state, const AttentionState& next, int64_t rows, int64_t head_dim) {
  for (int64_t r = 0; r < rows; ++r) {
    const float max = state.max[r] > next.max[r] ? state.max[r] : next.max[r];
    const float keep = exp_scalar(state.max[r] - max);
    const float take = exp_scalar(next.max[r] - max);
    state.max[r] = max;
    state.sum[r] = state.sum[r] * keep + next.sum[r] * take;
    const Lanes a = Lanes::broadcast(keep);
    const Lanes b = Lanes::broadcast(take);
    for (int64_t i = r * head_dim; i < (r + 1) * head_dim; i += kLanes) {
      Lanes::add(Lanes::mul(Lanes::load(state.acc + i), a), Lanes::mul(Lanes::load(next.acc + i), b))
          .store(state.acc + i);
    }
  }
}

int64_t argmax(const float* x, int64_t n) {
  Lanes largest = Lanes::broadcast(-__builtin_inff());
  int64_t whole = n / kLanes * kLanes;
  for (int64_t i = 0; i < whole; i += kLanes) largest = Lanes::max(Lanes::load(x + i), largest);
  float best = fold_max(largest);
  for (int64_t i = whole; i < n; ++i) best = x[i] > best ? x[i] : best;
  for (int64_t i = 0; i < n; ++i) {
    if (x[i] == best) return i;
  }
  return 0;
}

// A table of these kernels and the instruction set's own integer matmul.
constexpr Kernels lanes_table(const char* name, decltype(Kernels::gemm_w8) gemm_w8) {
  return {name,     quantize, gemm_w8, gemm_bf16, dequantize,      store_tile,
          silu_mul, rms_norm, rope,    attend,    merge_attention, argmax};
}

}  // namespace
}  // namespace pinion
