// What the AVX2 and AVX-VNNI kernels of w4 share: the way from sums of a group to the totals, and a few rows. Totals
// wait in memory, for the sums alone take half of the registers.
#pragma once

#include "kernels/kernels.h"
#include "kernels/lanes/avx2.h"

namespace pinion {
namespace {

// acc[8] (+)= float(sum) * scale.
[[gnu::always_inline]] inline void add_scaled(__m256i sum, __m256 scale, bool accumulate, float* acc) {
  const __m256 total = accumulate ? _mm256_loadu_ps(acc) : _mm256_setzero_ps();
  _mm256_storeu_ps(acc, _mm256_fmadd_ps(_mm256_cvtepi32_ps(sum), scale, total));
}

// The zero points of eight columns.
[[gnu::always_inline]] inline __m256i eight_zeros(const std::byte* record, int64_t column) {
  const std::byte* zero_points = record + kW4CodeBytes + kPanelColumns * 2 + column;
  return _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(zero_points)));
}

// For eight columns: sums of code * x, less zero times x_sum, the sum of x. That and a zero fit 16 bits: of each 32 the
// lower half holds them, and the zero's upper half is 0.
template <bool HasZeros>
[[gnu::always_inline]] inline void scale_group(__m256i sum, __m256i x_sum, const std::byte* record, int64_t column,
                                               bool accumulate, float* acc) {
  const std::byte* scales = record + kW4CodeBytes;
  __m256i excess;
  if constexpr (HasZeros) {
    excess = _mm256_madd_epi16(x_sum, eight_zeros(record, column));
  } else {
    excess = _mm256_slli_epi32(x_sum, 3);
  }
  add_scaled(_mm256_sub_epi32(sum, excess), Lanes::widen(reinterpret_cast<const f16*>(scales) + column), accumulate,
             acc + column);
}

}  // namespace
}  // namespace pinion
