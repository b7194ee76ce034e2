// The Hadamard rotation of a row over sixteen lanes (Kernels::rotate). Each step adds and subtracts elements a fixed
// distance apart, and the order of the steps is fixed, so the bits do not depend on the number of vectors in registers.
#pragma once

#include "kernels/lanes/math.h"
#include "kernels/lanes/unroll.h"

namespace pinion {
namespace {

// Signs of elements i to i + kLanes - 1 of a block: -1 to the number of pairs of bits set (0 and 1, 2 and 3 ...).
Lanes signs_at(int64_t i) {
  alignas(kAlignmentBytes) static constexpr float kSigns[2][kLanes] = {
      {1, 1, 1, -1, 1, 1, 1, -1, 1, 1, 1, -1, -1, -1, -1, 1},
      {-1, -1, -1, 1, -1, -1, -1, 1, -1, -1, -1, 1, 1, 1, 1, -1}};
  const auto bits = static_cast<uint64_t>(i & ~int64_t{kLanes - 1});
  return Lanes::load(kSigns[__builtin_parityll(bits & bits >> 1 & 0x5555555555555555u)]);
}

// Signs for blocks of 4 and 8 elements, whose indices have one such pair.
Lanes signs_of_small_blocks() {
  alignas(kAlignmentBytes) static constexpr float kSigns[kLanes] = {1, 1, 1, -1, 1, 1, 1, -1, 1, 1, 1, -1, 1, 1, 1, -1};
  return Lanes::load(kSigns);
}

// One step within a vector: lanes i and i + Distance become their sum and difference.
template <int Distance>
Lanes add_within(Lanes x) {
  alignas(kAlignmentBytes) static constexpr auto kSigns = [] {
    struct {
      float v[kLanes];
    } signs = {};
    for (int i = 0; i < kLanes; ++i) signs.v[i] = i & Distance ? -1.0f : 1.0f;
    return signs;
  }();
  return Lanes::fma(x, Lanes::load(kSigns.v), Lanes::exchange<Distance>(x));  // exact product: fma rounds as add
}

// The whole rotation of blocks smaller than kLanes.
Lanes rotate_within(Lanes x, int64_t block) {
  if (block > 2) x = Lanes::mul(x, signs_of_small_blocks());
  if (block > 1) x = add_within<1>(x);
  if (block > 2) x = add_within<2>(x);
  if (block > 4) x = add_within<4>(x);
  return x;
}

// One step between vectors: v[r] and v[r + Distance] become their sum and difference.
template <int Distance, int R>
[[gnu::always_inline]] inline void add_across(Lanes (&v)[R]) {
  unrolled<R>([&](auto r) {
    if constexpr ((r & Distance) == 0 && Distance < R) {
      const Lanes second = v[r + Distance];
      v[r + Distance] = Lanes::sub(v[r], second);
      v[r] = Lanes::add(v[r], second);
    }
  });
}

// Steps of a pass. The first pass, over neighbouring vectors, includes the steps within vectors and may apply signs.
enum class Steps : uint8_t { first_of_signed, first, later };

// The steps of distances stride, 2 stride ... R stride / 2, over R vectors `stride` apart. at: index of x in its block.
template <int R, Steps S>
[[gnu::always_inline]] inline void rotate_vectors(const float* x, int64_t at, int64_t stride, float* out) {
  Lanes v[R];
  unrolled<R>([&](auto r) {
    v[r] = Lanes::load(x + r * stride);
    if constexpr (S == Steps::first_of_signed) v[r] = Lanes::mul(v[r], signs_at(at + r * kLanes));
    if constexpr (S != Steps::later) v[r] = add_within<8>(add_within<4>(add_within<2>(add_within<1>(v[r]))));
  });
  add_across<1>(v);
  add_across<2>(v);
  add_across<4>(v);
  add_across<8>(v);
  unrolled<R>([&](auto r) { v[r].store(out + r * stride); });
}

template <int R, Steps S>
void rotate_all(const float* x, int64_t n, int64_t block, int64_t stride, float* out) {
  for (int64_t at = 0; at < n; at += R * stride) {
    for (int64_t i = at; i < at + stride; i += kLanes) rotate_vectors<R, S>(x + i, i & (block - 1), stride, out + i);
  }
}

// One pass with R vectors in registers, or fewer if the block ends before; returns their number.
template <int R, Steps S>
int64_t rotate_pass(const float* x, int64_t n, int64_t block, int64_t stride, float* out) {
  if constexpr (R > 1) {
    if (block / stride < R) return rotate_pass<R / 2, S>(x, n, block, stride, out);
  }
  rotate_all<R, S>(x, n, block, stride, out);
  return R;
}

template <Steps First>
void rotate_blocks(const float* x, int64_t n, int64_t block, float* out) {
  int64_t stride = kLanes * rotate_pass<Lanes::kRotated, First>(x, n, block, kLanes, out);
  while (stride < block) stride *= rotate_pass<Lanes::kRotated, Steps::later>(out, n, block, stride, out);
}

void rotate(const float* x, int64_t n, int64_t block, float* out) {
  if (block >= kLanes) return rotate_blocks<Steps::first_of_signed>(x, n, block, out);
  for (int64_t i = 0; i < n; i += kLanes) {
    store_partial(rotate_within(load_partial(x + i, n - i), block), out + i, n - i);
  }
}

void unrotate(const float* x, int64_t n, int64_t block, float* out) {
  rotate_blocks<Steps::first>(x, n, block, out);
  const Lanes factor = Lanes::broadcast(1.0f / static_cast<float>(block));
  for (int64_t i = 0; i < n; i += kLanes) {
    Lanes::mul(Lanes::load(out + i), Lanes::mul(signs_at(i & (block - 1)), factor)).store(out + i);
  }
}

}  // namespace
}  // namespace pinion
