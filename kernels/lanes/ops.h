// The floating-point kernels, written once over sixteen lanes. A file in isa/ first includes its own Lanes
// (lanes/avx2.h, avx512.h, neon.h or scalar.h), then this. Everything here is static: each file compiles its own copy
// with its own flags.
#pragma once

#include <cstdint>

#include "kernels/kernels.h"
#include "kernels/lanes/attention.h"
#include "kernels/lanes/attention_s8.h"
#include "kernels/lanes/epilogue.h"
#include "kernels/lanes/gemm.h"
#include "kernels/lanes/math.h"
#include "kernels/lanes/recurrent.h"
#include "kernels/lanes/rotate.h"

namespace pinion {
namespace {

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

void layer_norm(const float* x, const float* weight, const float* bias, int64_t n, float eps, float* out) {
  Lanes sum = Lanes::broadcast(0.0f);
  for (int64_t i = 0; i < n; i += kLanes) sum = Lanes::add(sum, load_some(x + i, n - i));
  const float mean = fold(sum, Lanes::add) / static_cast<float>(n);
  const Lanes centre = Lanes::broadcast(mean);
  Lanes squares = Lanes::broadcast(0.0f);
  for (int64_t i = 0; i < n; i += kLanes) {
    const Lanes v = Lanes::sub(load_some(x + i, n - i, mean), centre);
    squares = Lanes::fma(v, v, squares);
  }
  const Lanes inverse =
      Lanes::broadcast(1.0f / __builtin_sqrtf(fold(squares, Lanes::add) / static_cast<float>(n) + eps));
  for (int64_t i = 0; i < n; i += kLanes) {
    Lanes v = Lanes::mul(Lanes::sub(load_some(x + i, n - i), centre), inverse);
    v = Lanes::mul(v, load_some(weight + i, n - i));
    if (bias) v = Lanes::add(v, load_some(bias + i, n - i));
    store_some(v, out + i, n - i);
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

void make_query(float* q, int64_t n, float scale, bool is_float) {
  is_float ? make_query<float>(q, n, scale) : make_query<bf16_pair>(q, n, scale);
}

// The instruction set's own integer matmuls.
struct Int8Kernels {
  decltype(Kernels::gemv_s8) gemv;
  decltype(Kernels::pack_s8) pack;
  decltype(Kernels::gemm_s8) gemm;
  PackShape shape;
  decltype(Kernels::gemv_grouped) gemv_grouped;
  decltype(Kernels::gemm_grouped) gemm_grouped;
  decltype(Kernels::make_query_s8) make_query_s8;
  decltype(Kernels::attend) attend_s8;
  int32_t few_rows = 1;
  decltype(Kernels::rows_s8) rows_s8 = nullptr;
  decltype(Kernels::rows_grouped) rows_grouped = nullptr;
};

// A table of it and of the kernels above.
constexpr Kernels lanes_table(const char* name, const Int8Kernels& s8) {
  return {.name = name,
          .follower = nullptr,
          .quantize = quantize,
          .max_magnitude = max_magnitude,
          .encode = encode,
          .rotate = rotate,
          .unrotate = unrotate,
          .gemv_s8 = s8.gemv,
          .pack_s8 = s8.pack,
          .gemm_s8 = s8.gemm,
          .s8_shape = s8.shape,
          .gemv_grouped = s8.gemv_grouped,
          .gemm_grouped = s8.gemm_grouped,
          .few_rows = s8.few_rows,
          .rows_s8 = s8.rows_s8,
          .rows_grouped = s8.rows_grouped,
          .pack_f32 = pack_f32,
          .gemm_bf16 = gemm_float<bf16>,
          .gemm_f32 = gemm_float<float>,
          .f32_shape = {Lanes::kRows, 1, 1},
          .epilogue_s32 = epilogue_s32,
          .epilogue_f32 = epilogue_f32,
          .to_bf16 = convert_to_bf16,
          .to_float = convert_to_float,
          .silu_mul = silu_mul<float>,
          .silu_mul_bf16 = silu_mul<bf16>,
          .rms_norm = rms_norm<float>,
          .rms_norm_bf16 = rms_norm<bf16>,
          .layer_norm = layer_norm,
          .rope = rope,
          .sigmoid_mul = sigmoid_mul,
          .convolve = convolve,
          .advance_state = advance_state,
          .make_query = make_query,
          .make_query_s8 = s8.make_query_s8,
          .attend = attend,
          .attend_s8 = s8.attend_s8,
          .merge_attention = merge_attention,
          .argmax = argmax};
}

}  // namespace
}  // namespace pinion
