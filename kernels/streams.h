// A GEMV's way through k on x86-64.
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "kernels/layout.h"
#include "kernels/unroll.h"

namespace pinion {
namespace {

// Memory gives a core more when asked in many places at once. Ice Lake, panels of k = 3072 read by one core and by two:
// in 2 places 11 / 22 GB/s, in 4 12 / 24, in 8 14 / 26, in 16 15 / 27, and asking two rows (512 bytes) ahead 16 / 29.
constexpr int kStreams = 16;
constexpr int kRowsAhead = 2;

// f(s, a + i, w) for every four k: w is where their 256 bytes of weights begin, s the stream, whose order sums must not
// depend on. Contract of the arguments: Kernels::gemv_s8.
template <class F>
[[gnu::always_inline]] inline void each_four_k(const int8_t* a, const int8_t* b, int64_t row_bytes, int64_t k, F f) {
  const int64_t part = k / (4 * kStreams);  // rows of four k in a stream
  for (int64_t i = 0; i < part; ++i) {
    unrolled<kStreams>([&](auto s) {
      const int64_t row = s * part + i;
      const int8_t* w = b + row * row_bytes;
      for (int64_t line = 0; line < 4 * kPanelColumns; line += 64) {
        _mm_prefetch(reinterpret_cast<const char*>(w + kRowsAhead * row_bytes + line), _MM_HINT_T0);
      }
      f(s, a + 4 * row, w);
    });
  }
  for (int64_t row = kStreams * part; row < k / 4; ++row) f(Index<0>{}, a + 4 * row, b + row * row_bytes);
}

}  // namespace
}  // namespace pinion
