// The floating-point kernels, written once over sixteen lanes: quantisation, norms, activations, recurrent layers, the
// epilogue of matmuls, and the table of all of them. A file in isa/ includes its Lanes (lanes/avx2.h, avx512.h, neon.h
// or scalar.h), then this header. All is static: each file compiles its own copy with its own flags.
#pragma once

#include <cstdint>

#include "kernels/kernels.h"
#include "kernels/lanes/attention.h"
#include "kernels/lanes/attention_s8.h"
#include "kernels/lanes/gemm.h"
#include "kernels/lanes/math.h"
#include "kernels/lanes/rotate.h"
#include "kernels/lanes/rows.h"
#include "kernels/lanes/unroll.h"

namespace pinion {
namespace {

float max_magnitude(const float* x, int64_t n) {
  Lanes largest = Lanes::broadcast(0.0f);
  for (int64_t i = 0; i < n; i += kLanes) largest = Lanes::max_magnitude(largest, load_partial(x + i, n - i));
  return fold(largest, Lanes::max_magnitude);
}

void encode(const float* x, int64_t n, float scale, int8_t* codes) {
  if (!(scale > 0)) {  // NaN too
    __builtin_memset(codes, 0, n);
    return;
  }
  const Lanes divisor = Lanes::broadcast(scale);
  const Lanes low = Lanes::broadcast(-127.0f);
  const Lanes high = Lanes::broadcast(127.0f);
  for (int64_t i = 0; i < n; i += kLanes) {
    const Lanes q = Lanes::min(high, Lanes::max(low, round_half_even(Lanes::div(load_partial(x + i, n - i), divisor))));
    if (n - i >= kLanes) {
      q.store_codes(codes + i);
    } else {
      int8_t all[kLanes];
      q.store_codes(all);
      __builtin_memcpy(codes + i, all, n - i);
    }
  }
}

void quantize(const float* x, int64_t n, int8_t* codes, float* scale) {
  *scale = code_scale(max_magnitude(x, n));
  encode(x, n, *scale, codes);
  for (int64_t i = n; i < padded_k(n); ++i) codes[i] = 0;
}

float bounds(const float* high, const bf16_pair* spread, const float* scale, float mean, float margin, float* out) {
  const Lanes sixteen = Lanes::broadcast(16.0f), add = Lanes::broadcast(mean), times = Lanes::broadcast(margin);
  Lanes largest = Lanes::broadcast(-__builtin_inff());
  for (int64_t c = 0; c < kPanelColumns; c += kLanes) {
    const Lanes sum = Lanes::add(Lanes::mul(sixteen, Lanes::load(high + c)), add);
    const Lanes low =
        Lanes::add(Lanes::mul(Lanes::load_first(spread + c), sum), Lanes::mul(Lanes::load_second(spread + c), times));
    const Lanes bound = Lanes::mul(Lanes::add(sum, low), Lanes::load(scale + c));
    bound.store(out + c);
    largest = Lanes::max(bound, largest);
  }
  return fold(largest, Lanes::max);
}

// Compilers vectorise this loop with the products of 8 bits that the instruction set has, if each sum has one of them.
int32_t dot_low(const int8_t* a, const uint8_t* low, int64_t k) {
  const int8_t* second = a + k / 2;
  int32_t sums[2] = {};
  for (int64_t i = 0; i < k / 2; ++i) {
    sums[0] += a[i] * (low[i] & 15);
    sums[1] += second[i] * (low[i] >> 4);
  }
  return sums[0] + sums[1];
}

template <class T>
void silu_mul(const T* gate, const T* up, int64_t n, T* out) {
  for (int64_t i = 0; i < n; i += kLanes) {
    store_partial(Lanes::mul(silu(load_partial(gate + i, n - i)), load_partial(up + i, n - i)), out + i, n - i);
  }
}

template <class T>
void rms_norm(const T* x, const T* weight, int64_t n, float eps, T* out) {
  Lanes squares = Lanes::broadcast(0.0f);
  for (int64_t i = 0; i < n; i += kLanes) {
    const Lanes v = load_partial(x + i, n - i);
    squares = Lanes::fma(v, v, squares);
  }
  const Lanes scale = Lanes::broadcast(1.0f / __builtin_sqrtf(fold(squares, Lanes::add) / static_cast<float>(n) + eps));
  for (int64_t i = 0; i < n; i += kLanes) {
    const Lanes v = Lanes::mul(load_partial(x + i, n - i), scale);
    store_partial(Lanes::mul(v, load_partial(weight + i, n - i)), out + i, n - i);
  }
}

void layer_norm(const float* x, const float* weight, const float* bias, int64_t n, float eps, float* out) {
  Lanes sum = Lanes::broadcast(0.0f);
  for (int64_t i = 0; i < n; i += kLanes) sum = Lanes::add(sum, load_partial(x + i, n - i));
  const float mean = fold(sum, Lanes::add) / static_cast<float>(n);
  const Lanes centre = Lanes::broadcast(mean);
  Lanes squares = Lanes::broadcast(0.0f);
  for (int64_t i = 0; i < n; i += kLanes) {
    const Lanes v = Lanes::sub(load_partial(x + i, n - i, mean), centre);
    squares = Lanes::fma(v, v, squares);
  }
  const Lanes scale = Lanes::broadcast(1.0f / __builtin_sqrtf(fold(squares, Lanes::add) / static_cast<float>(n) + eps));
  for (int64_t i = 0; i < n; i += kLanes) {
    Lanes v = Lanes::mul(Lanes::sub(load_partial(x + i, n - i), centre), scale);
    v = Lanes::mul(v, load_partial(weight + i, n - i));
    if (bias) v = Lanes::add(v, load_partial(bias + i, n - i));
    store_partial(v, out + i, n - i);
  }
}

void rope(float* x, const float* cos, const float* sin, int64_t half) {
  for (int64_t i = 0; i < half; i += kLanes) {
    const int64_t count = half - i;
    const Lanes a = load_partial(x + i, count);
    const Lanes b = load_partial(x + half + i, count);
    const Lanes c = load_partial(cos + i, count);
    const Lanes s = load_partial(sin + i, count);
    store_partial(Lanes::sub(Lanes::mul(a, c), Lanes::mul(b, s)), x + i, count);
    store_partial(Lanes::add(Lanes::mul(b, c), Lanes::mul(a, s)), x + half + i, count);
  }
}

void sigmoid_mul(const float* gate, const float* x, int64_t n, float* out) {
  for (int64_t i = 0; i < n; i += kLanes) {
    store_partial(times_sigmoid(load_partial(x + i, n - i), load_partial(gate + i, n - i)), out + i, n - i);
  }
}

void convolve(const float* const* rows, const Convolution& c, int64_t n, float* out) {
  for (int64_t i = 0; i < n; i += kLanes) {
    Lanes sum = c.bias ? load_partial(c.bias + i, n - i) : Lanes::broadcast(0.0f);
    for (int64_t t = 0; t < c.taps; ++t) {
      sum = Lanes::fma(load_partial(rows[t] + i, n - i), load_partial(c.weight + t * c.stride + i, n - i), sum);
    }
    store_partial(c.activates ? silu(sum) : sum, out + i, n - i);
  }
}

// Sixteen columns of the state are one block. Several blocks advance together: their chains of sums hide the latency of
// fma, and with 128 keys the second pass over them hits the L1 cache.
constexpr int kStateBlocks = Lanes::kWide > 1 ? 4 : 2;

// Advances B blocks, from column v on, through all steps. ByKey: StateSteps::key_decays.
template <int B, bool ByKey>
void advance_blocks(const StateSteps& s, int64_t v, float* state) {
  const int64_t block = s.key_dim * kLanes;
  for (int64_t t = 0; t < s.count; ++t) {
    const float* q = s.q + t * s.key_dim;
    const float* k = s.k + t * s.key_dim;
    const float* decays = s.decay + t * (ByKey ? s.key_dim : 1);
    Lanes decay = Lanes::broadcast(ByKey ? 1.0f : *decays);
    const Lanes beta = Lanes::broadcast(s.beta[t]);
    Lanes sum[B], change[B];
    unrolled<B>([&](auto b) { sum[b] = Lanes::broadcast(0.0f); });
    for (int64_t i = 0; s.delta_rule && i < s.key_dim; ++i) {
      const Lanes key = Lanes::broadcast(ByKey ? k[i] * decays[i] : k[i]);
      unrolled<B>([&](auto b) { sum[b] = Lanes::fma(key, Lanes::load(state + b * block + i * kLanes), sum[b]); });
    }
    unrolled<B>([&](auto b) {
      const int64_t column = v + b * kLanes;
      const Lanes value = load_partial(s.v + t * s.value_dim + column, s.value_dim - column);
      const Lanes known = ByKey ? sum[b] : Lanes::mul(sum[b], decay);
      change[b] = Lanes::mul(s.delta_rule ? Lanes::sub(value, known) : value, beta);
      sum[b] = Lanes::broadcast(0.0f);
    });
    for (int64_t i = 0; i < s.key_dim; ++i) {
      const Lanes key = Lanes::broadcast(k[i]), query = Lanes::broadcast(q[i]);
      if constexpr (ByKey) decay = Lanes::broadcast(decays[i]);
      // All loads before all stores: if blocks are a multiple of 4096 bytes apart, a load waits for an earlier store.
      Lanes next[B];
      unrolled<B>([&](auto b) {
        next[b] = Lanes::fma(key, change[b], Lanes::mul(Lanes::load(state + b * block + i * kLanes), decay));
      });
      unrolled<B>([&](auto b) {
        next[b].store(state + b * block + i * kLanes);
        sum[b] = Lanes::fma(query, next[b], sum[b]);
      });
    }
    unrolled<B>([&](auto b) {
      const int64_t column = v + b * kLanes;
      store_partial(sum[b], s.out + t * s.value_dim + column, s.value_dim - column);
    });
  }
}

// Advances a block, from column v on, whose elements decay by rates of their own.
void advance_by_rates(const StateSteps& s, int64_t v, float* state) {
  const float* rates = s.rates + v * s.key_dim;
  for (int64_t t = 0; t < s.count; ++t) {
    const int64_t at = t * s.value_dim + v;
    const Lanes step = softplus(Lanes::load(s.decay + at)), change = Lanes::mul(Lanes::load(s.v + at), step);
    const Lanes power = Lanes::sub(Lanes::broadcast(0.0f), step);
    Lanes sum = Lanes::broadcast(0.0f);
    for (int64_t i = 0; i < s.key_dim; ++i) {
      const Lanes decay = exp_lanes(Lanes::mul(Lanes::load(rates + i * kLanes), power));
      const Lanes decayed = Lanes::mul(Lanes::load(state + i * kLanes), decay);
      const Lanes next = Lanes::fma(Lanes::broadcast(s.k[t * s.key_dim + i]), change, decayed);
      next.store(state + i * kLanes);
      sum = Lanes::fma(Lanes::broadcast(s.q[t * s.key_dim + i]), next, sum);
    }
    sum.store(s.out + at);
  }
}

template <bool ByKey>
void advance_columns(const StateSteps& s, float* state) {
  int64_t v = 0;
  for (; v + kStateBlocks * kLanes <= s.value_dim; v += kStateBlocks * kLanes) {
    advance_blocks<kStateBlocks, ByKey>(s, v, state + v * s.key_dim);
  }
  for (; v < s.value_dim; v += kLanes) advance_blocks<1, ByKey>(s, v, state + v * s.key_dim);
}

void advance_state(const StateSteps& s, float* state) {
  if (!s.rates) return s.key_decays ? advance_columns<true>(s, state) : advance_columns<false>(s, state);
  for (int64_t v = 0; v < s.value_dim; v += kLanes) advance_by_rates(s, v, state + v * s.key_dim);
}

void decay(const float* x, int64_t n, float rate, float bound, float* out) {
  for (int64_t i = 0; i < n; i += kLanes) {
    const Lanes in = load_partial(x + i, n - i);
    const Lanes power = bound < 0.0f ? times_sigmoid(Lanes::broadcast(bound), Lanes::mul(in, Lanes::broadcast(rate)))
                                     : Lanes::mul(softplus(in), Lanes::broadcast(-rate));
    store_partial(exp_lanes(power), out + i, n - i);
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

template <class From, class To>
void convert(const From* x, int64_t n, To* out) {
  for (int64_t i = 0; i < n; i += kLanes) store_partial(load_partial(x + i, n - i), out + i, n - i);
}

void make_query(float* q, int64_t n, float scale, bool is_float) {
  is_float ? make_query<float>(q, n, scale) : make_query<bf16_pair>(q, n, scale);
}

// The steps from a tile of sums to results (Epilogue in kernels.h).

Lanes clamped_swiglu(Lanes gate, Lanes value, float limit) {
  const Lanes high = Lanes::broadcast(limit);
  const Lanes x = Lanes::min(high, gate);
  const Lanes v = Lanes::min(high, Lanes::max(Lanes::broadcast(-limit), value));
  const Lanes weight = times_sigmoid(x, Lanes::mul(x, Lanes::broadcast(1.702f)));
  return Lanes::mul(weight, Lanes::add(v, Lanes::broadcast(1.0f)));
}

Lanes relu_squared(Lanes x) {
  const Lanes positive = Lanes::max(Lanes::broadcast(0.0f), x);
  return Lanes::mul(positive, positive);
}

Lanes xielu(Lanes x, const Xielu& curve) {
  const Lanes linear = Lanes::broadcast(curve.b);
  const Lanes above = Lanes::mul(Lanes::fma(Lanes::broadcast(curve.p), x, linear), x);
  const Lanes bent = Lanes::sub(expm1_lanes(Lanes::min(Lanes::broadcast(curve.e), x)), x);
  const Lanes below = Lanes::fma(bent, Lanes::broadcast(curve.n), Lanes::mul(linear, x));
  return Lanes::if_less(Lanes::broadcast(0.0f), x, above, below);
}

Lanes activated(Lanes x, const Epilogue& ops) {
  switch (ops.activation) {
    case Activation::gelu: return gelu(x);
    case Activation::gelu_tanh: return gelu_tanh(x);
    case Activation::relu: return Lanes::max(Lanes::broadcast(0.0f), x);
    case Activation::relu_squared: return relu_squared(x);
    case Activation::xielu: return xielu(x, ops.xielu);
    case Activation::silu:
    case Activation::clamped_swiglu:  // never without a gate, see gated()
      break;
  }
  return silu(x);
}

Lanes gated(Lanes gate, Lanes value, const Epilogue& ops) {
  if (ops.activation == Activation::clamped_swiglu) return clamped_swiglu(gate, value, ops.limit);
  return Lanes::mul(activated(gate, ops), value);
}

// Applies the epilogue to `count` columns, at most sixteen, row by row.
template <class T>
void apply_columns(const T* sums, int64_t rows, int64_t count, const Epilogue& ops, int64_t column, float* out,
                   int64_t ldo) {
  const bool clamped = ops.low > -__builtin_inff() || ops.high < __builtin_inff();
  const Lanes column_scale = ops.row_scale ? load_partial(ops.column_scale + column, count) : Lanes::broadcast(1.0f);
  const Lanes bias = ops.bias ? load_partial(ops.bias + column, count) : Lanes::broadcast(0.0f);
  for (int64_t r = 0; r < rows; ++r, out += ldo) {
    Lanes value = Lanes::load(sums + r * kPanelColumns);
    if (ops.row_scale) value = Lanes::mul(Lanes::mul(value, Lanes::broadcast(ops.row_scale[r])), column_scale);
    if (ops.alpha != 1.0f) value = Lanes::mul(Lanes::broadcast(ops.alpha), value);
    if (ops.bias) value = Lanes::add(value, bias);
    if (ops.cap != 0.0f) value = soft_cap(value, ops.cap);
    if (ops.gate) value = gated(load_partial(ops.gate + r * ops.gate_stride + column, count), value, ops);
    if (ops.activates) value = activated(value, ops);
    if (ops.beta != 0.0f) value = Lanes::add(value, Lanes::mul(Lanes::broadcast(ops.beta), load_partial(out, count)));
    if (clamped) value = Lanes::min(Lanes::broadcast(ops.high), Lanes::max(Lanes::broadcast(ops.low), value));
    store_partial(value, out, count);
  }
}

template <class T>
void run_epilogue(const T* sums, int64_t rows, int64_t columns, const Epilogue& ops, float* out, int64_t ldo) {
  for (int64_t c = 0; c < columns; c += kLanes) apply_columns(sums + c, rows, columns - c, ops, c, out + c, ldo);
}

// The table with the kernels above. table: its name and integer kernels, which each instruction set implements itself.
constexpr Kernels lanes_table(Kernels table, const char* name = nullptr) {
  if (name) table.name = name;
  table.quantize = quantize;
  table.max_magnitude = max_magnitude;
  table.encode = encode;
  table.rotate = rotate;
  table.unrotate = unrotate;
  table.pack_f32 = pack_f32;
  table.gemm_bf16 = gemm_float<bf16>;
  table.gemm_f32 = gemm_float<float>;
  table.f32_shape = {Lanes::kRows, 1, 1};
  table.epilogue_s32 = run_epilogue<int32_t>;
  table.epilogue_f32 = run_epilogue<float>;
  table.to_bf16 = convert<float, bf16>;
  table.to_float = convert<bf16, float>;
  table.silu_mul = silu_mul<float>;
  table.silu_mul_bf16 = silu_mul<bf16>;
  table.rms_norm = rms_norm<float>;
  table.rms_norm_bf16 = rms_norm<bf16>;
  table.layer_norm = layer_norm;
  table.rope = rope;
  table.sigmoid_mul = sigmoid_mul;
  table.convolve = convolve;
  table.advance_state = advance_state;
  table.decay = decay;
  table.make_query = make_query;
  table.attend = attend;
  table.merge_attention = merge_attention;
  table.argmax = argmax;
  table.bounds = bounds;
  table.dot_low = dot_low;
  return table;
}

}  // namespace
}  // namespace pinion
