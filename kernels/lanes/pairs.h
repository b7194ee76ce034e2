// Products of pairs of bf16, summed by fma: the first of a pair, then the second. The right side is sixteen pairs, the
// left one pair, made of floats by store_left. A step takes kParts of each. Included by gemm.h.
#pragma once

#include <cstdint>
#include <cstring>

#include "kernels/bf16.h"
#include "kernels/lanes/unroll.h"

namespace pinion {
namespace {

#if defined(PINION_MULTIPLIES_PAIRS)

// VDPBF16PS takes both sides as they lie.
struct Pairs {
  using Left = bf16;  // a pair's second, then its first
  static constexpr int kParts = 1;

  __m512i v;

  static Pairs load(const bf16_pair* p, Index<0>) { return {_mm512_loadu_si512(p)}; }
  static Pairs broadcast(const Left* p, Index<0>) {
    int32_t pair;
    std::memcpy(&pair, p, sizeof pair);
    return {_mm512_set1_epi32(pair)};
  }
  static Lanes fma(Pairs a, Pairs b, Lanes c) {
    return {_mm512_dpbf16_ps(c.v, reinterpret_cast<__m512bh>(a.v), reinterpret_cast<__m512bh>(b.v))};
  }
  static Lanes store_left(Lanes x, Left* p) {
    const __m256i halves = reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(x.v));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm256_rol_epi32(halves, 16));
    return {_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(halves), 16))};
  }
};

#else

// All firsts, then all seconds, each as floats.
struct Pairs {
  using Left = float;
  static constexpr int kParts = 2;

  static Lanes load(const bf16_pair* p, Index<0>) { return Lanes::load_first(p); }
  static Lanes load(const bf16_pair* p, Index<1>) { return Lanes::load_second(p); }
  template <int Part>
  static Lanes broadcast(const Left* p, Index<Part>) {
    return Lanes::broadcast(p[Part]);
  }
  static Lanes fma(Lanes a, Lanes b, Lanes c) { return Lanes::fma(a, b, c); }
  // Sixteen floats, none of them denormal, rounded to bf16: eight pairs of a left side. Gives back what they became.
  static Lanes store_left(Lanes x, Left* p) {
    const Lanes rounded = x.rounded_to_bf16();
    rounded.store(p);
    return rounded;
  }
};

#endif

}  // namespace
}  // namespace pinion
