// The steps from a tile of sums to results (Epilogue in kernels.h), over sixteen lanes.
#pragma once

#include <cstdint>

#include "kernels/kernels.h"
#include "kernels/lanes/math.h"

namespace pinion {
namespace {

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
    case Activation::gelu:
      return gelu(x);
    case Activation::gelu_tanh:
      return gelu_tanh(x);
    case Activation::relu_squared:
      return relu_squared(x);
    case Activation::xielu:
      return xielu(x, ops.xielu);
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
    if (ops.beta != 0.0f) {
      value = Lanes::add(value, Lanes::mul(Lanes::broadcast(ops.beta), load_partial(out, count)));
    }
    if (clamped) value = Lanes::min(Lanes::broadcast(ops.high), Lanes::max(Lanes::broadcast(ops.low), value));
    store_partial(value, out, count);
  }
}

template <class T>
void run_epilogue(const T* sums, int64_t rows, int64_t columns, const Epilogue& ops, float* out, int64_t ldo) {
  for (int64_t c = 0; c < columns; c += kLanes) apply_columns(sums + c, rows, columns - c, ops, c, out + c, ldo);
}

void epilogue_s32(const int32_t* sums, int64_t rows, int64_t columns, const Epilogue& ops, float* out, int64_t ldo) {
  run_epilogue(sums, rows, columns, ops, out, ldo);
}

void epilogue_f32(const float* sums, int64_t rows, int64_t columns, const Epilogue& ops, float* out, int64_t ldo) {
  run_epilogue(sums, rows, columns, ops, out, ldo);
}

}  // namespace
}  // namespace pinion
