// Loops written out at compile time, in the sources of the instruction sets only. GCC 12 unrolls an ordinary loop over
// an array of vectors too late to keep the array in registers: sums then go to memory and back at every step.
#pragma once

#include <utility>

namespace pinion {
namespace {

// A constant as an argument. Not std::integral_constant: its conversion would be a weak symbol compiled with wide
// flags.
template <int I>
struct Index {
  constexpr operator int() const { return I; }
};

template <class F, int... I>
[[gnu::always_inline]] inline void unrolled(F& f, std::integer_sequence<int, I...>) {
  (f(Index<I>{}), ...);
}

// f(0), f(1) ... f(N - 1).
template <int N, class F>
[[gnu::always_inline]] inline void unrolled(F f) {
  unrolled(f, std::make_integer_sequence<int, N>{});
}

// f(Index<n>) for n in Least .. N, chosen at run time: a tile of n rows.
template <int N, int Least = 1, class F>
[[gnu::always_inline]] inline void with_rows(int64_t n, F f) {
  if constexpr (N > Least) {
    if (n < N) return with_rows<N - 1, Least>(n, f);
  }
  f(Index<N>{});
}

}  // namespace
}  // namespace pinion
