// Loops unrolled at compile time, for the instruction-set files only. GCC 12 unrolls an ordinary loop over an array of
// vectors too late to keep the array in registers: each step would store and reload the sums.
#pragma once

#include <utility>

namespace pinion {
namespace {

// A constant as an argument. The conversion of std::integral_constant would be a weak symbol, compiled with wide flags.
template <int I>
struct Index {
  constexpr operator int() const { return I; }
};

template <class F, int... I>
[[gnu::always_inline]] inline void unrolled(F& f, std::integer_sequence<int, I...>) {
  (f(Index<I>{}), ...);
}

// Calls f(Index<0>), f(Index<1>) ... f(Index<N - 1>).
template <int N, class F>
[[gnu::always_inline]] inline void unrolled(F f) {
  unrolled(f, std::make_integer_sequence<int, N>{});
}

template <int M, class F, int... I>
[[gnu::always_inline]] inline void unrolled(F& f, std::integer_sequence<int, I...>) {
  (f(Index<I / M>{}, Index<I % M>{}), ...);
}

// Calls f(Index<i>, Index<j>) for all i < N and j < M, in the order of the rows of a tile.
template <int N, int M, class F>
[[gnu::always_inline]] inline void unrolled(F f) {
  unrolled<M>(f, std::make_integer_sequence<int, N * M>{});
}

// Calls f(Index<n>) for an n in [Min, N] known at run time, for a tile of n rows. n outside the range becomes Min or N.
template <int N, int Min = 1, class F>
[[gnu::always_inline]] inline void with_rows(int64_t n, F f) {
  if constexpr (N > Min) {
    if (n < N) return with_rows<N - 1, Min>(n, f);
  }
  f(Index<N>{});
}

}  // namespace
}  // namespace pinion
