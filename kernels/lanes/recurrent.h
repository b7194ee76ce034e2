// Layers with a recurrent state over sixteen lanes. Included by ops.h.
#pragma once

#include <cstdint>

#include "kernels/kernels.h"
#include "kernels/lanes/math.h"
#include "kernels/lanes/unroll.h"

namespace pinion {
namespace {

void sigmoid_mul(const float* gate, const float* x, int64_t n, float* out) {
  for (int64_t i = 0; i < n; i += kLanes) {
    store_some(times_sigmoid(load_some(x + i, n - i), load_some(gate + i, n - i)), out + i, n - i);
  }
}

void convolve(const float* const* rows, const Convolution& c, int64_t n, float* out) {
  for (int64_t i = 0; i < n; i += kLanes) {
    Lanes sum = c.bias ? load_some(c.bias + i, n - i) : Lanes::broadcast(0.0f);
    for (int64_t t = 0; t < c.taps; ++t) {
      sum = Lanes::fma(load_some(rows[t] + i, n - i), load_some(c.weight + t * c.stride + i, n - i), sum);
    }
    store_some(c.activates ? silu(sum) : sum, out + i, n - i);
  }
}

// Blocks of the state that go together: their sums' chains hide the latency of fma, and for keys of 128 numbers two
// passes over them stay in the L1 cache.
constexpr int kStateBlocks = Lanes::kWide > 1 ? 4 : 2;

// The state of B blocks, from column v on, through all steps.
template <int B>
void advance_blocks(const StateSteps& s, int64_t v, float* state) {
  const int64_t block = s.key_dim * kLanes;
  for (int64_t t = 0; t < s.count; ++t) {
    const float* q = s.q + t * s.key_dim;
    const float* k = s.k + t * s.key_dim;
    const Lanes decay = Lanes::broadcast(s.decay[t]);
    const Lanes beta = Lanes::broadcast(s.beta[t]);
    Lanes sum[B], change[B];
    unrolled<B>([&](auto b) { sum[b] = Lanes::broadcast(0.0f); });
    for (int64_t i = 0; s.corrects && i < s.key_dim; ++i) {
      const Lanes key = Lanes::broadcast(k[i]);
      unrolled<B>([&](auto b) { sum[b] = Lanes::fma(key, Lanes::load(state + b * block + i * kLanes), sum[b]); });
    }
    unrolled<B>([&](auto b) {
      const int64_t column = v + b * kLanes;
      const Lanes value = load_some(s.v + t * s.value_dim + column, s.value_dim - column);
      change[b] = Lanes::mul(s.corrects ? Lanes::sub(value, Lanes::mul(sum[b], decay)) : value, beta);
      sum[b] = Lanes::broadcast(0.0f);
    });
    for (int64_t i = 0; i < s.key_dim; ++i) {
      const Lanes key = Lanes::broadcast(k[i]), query = Lanes::broadcast(q[i]);
      // Loads before stores: blocks may lie a multiple of 4096 bytes apart, where a load waits for a store beside it.
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
      store_some(sum[b], s.out + t * s.value_dim + column, s.value_dim - column);
    });
  }
}

void advance_state(const StateSteps& s, float* state) {
  int64_t v = 0;
  for (; v + kStateBlocks * kLanes <= s.value_dim; v += kStateBlocks * kLanes) {
    advance_blocks<kStateBlocks>(s, v, state + v * s.key_dim);
  }
  for (; v < s.value_dim; v += kLanes) advance_blocks<1>(s, v, state + v * s.key_dim);
}

}  // namespace
}  // namespace pinion
