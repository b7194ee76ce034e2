// Products of pairs of bf16, summed by fma: the first of a pair, then the second. The right side is sixteen pairs, the
// left one pair, made of floats by store_left. A source that has Pairs of its own defines PINION_PAIRS, and them before
// it includes gemm.h.
#pragma once

#include <cstdint>

#include "kernels/bf16.h"
#include "kernels/lanes/unroll.h"

namespace pinion {
namespace {

// Both sides as floats.
struct FloatPairs {
  using Left = float;
  static constexpr bool kWidens = false;  // makes floats of them before the tiles, see gemm_many

  // See Right in gemm.h.
  template <int R, int W, class From>
  [[gnu::always_inline]] static void add(const Left* a, int64_t row, From from, Lanes (&acc)[R][W]) {
    const bf16_pair* p[W];
    unrolled<2>([&](auto part) {
      Lanes vector[W];
      unrolled<W>([&](auto w) {
        if (part == 0) p[w] = from(w);
        vector[w] = part == 0 ? Lanes::load_first(p[w]) : Lanes::load_second(p[w]);
      });
      unrolled<R>([&](auto r) {
        const Lanes x = Lanes::broadcast(a[r * row + part]);
        unrolled<W>([&](auto w) { acc[r][w] = Lanes::fma(x, vector[w], acc[r][w]); });
      });
    });
  }
  // Sixteen floats, none of them denormal, rounded to bf16: eight pairs of a left side. Gives back what they became.
  static Lanes store_left(Lanes x, Left* p) {
    const Lanes rounded = x.rounded_to_bf16();
    rounded.store(p);
    return rounded;
  }
};

#if !defined(PINION_PAIRS)
using Pairs = FloatPairs;
#endif

}  // namespace
}  // namespace pinion
