// Sums along a row by sixteen partial sums, folded 8, 4, 2 and 1 apart as the kernels' are: the same bits everywhere.
#pragma once

#include <cstdint>

namespace pinion {

// f(i) for i < n, added up.
template <class F>
float row_sum(int64_t n, F f) {
  constexpr int64_t kPartialSums = 16;
  float sums[kPartialSums] = {};
  const int64_t whole = n - n % kPartialSums;
  for (int64_t i = 0; i < whole; i += kPartialSums) {
    for (int64_t lane = 0; lane < kPartialSums; ++lane) sums[lane] += f(i + lane);
  }
  for (int64_t i = whole; i < n; ++i) sums[i - whole] += f(i);
  for (int64_t apart = kPartialSums / 2; apart > 0; apart /= 2) {
    for (int64_t lane = 0; lane < apart; ++lane) sums[lane] += sums[lane + apart];
  }
  return sums[0];
}

inline float dot(const float* a, const float* b, int64_t n) {
  return row_sum(n, [&](int64_t i) { return a[i] * b[i]; });
}

inline float mean_square(const float* x, int64_t n) { return dot(x, x, n) / static_cast<float>(n); }

}  // namespace pinion
