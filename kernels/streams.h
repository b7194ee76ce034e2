// A GEMV's way through k on x86-64.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#include "kernels/layout.h"
#include "kernels/unroll.h"

namespace pinion {
namespace {

// Memory gives a core more when asked in many places at once, and early. Ice Lake, panels of k = 1024 and 3072, of what
// reading in 2 places gives: in 4 places 1.03 to 1.05 times as much, in 8 1.08 to 1.14, in 16 1.13 to 1.16; in 16, four
// rows ahead 1.27 to 1.33. Ahead of a panel's last rows lies the next panel, which is most often the next task; behind
// the rows of a flat matrix lies nothing that comes soon.
constexpr int kStreams = 16;
constexpr int64_t kRowsAhead = 4;

// f(s, a + i, w) for every four k: w is where their 256 bytes of weights begin, s the stream, whose order sums must not
// depend on. Contract of the arguments: Kernels::gemv_s8.
template <class F>
[[gnu::always_inline]] inline void each_four_k(const int8_t* a, const int8_t* b, int64_t row_bytes, int64_t k, F f) {
  const int64_t part = k / (4 * kStreams);  // rows of four k in a stream
  const int64_t to_next_panel = row_bytes == 4 * kPanelColumns ? k / 4 - part : 0;
  for (int64_t i = 0; i < part; ++i) {
    const int64_t rows_ahead = i + kRowsAhead < part ? kRowsAhead : to_next_panel + kRowsAhead;
    unrolled<kStreams>([&](auto s) {
      const int64_t row = s * part + i;
      const int8_t* w = b + row * row_bytes;
      for (int64_t line = 0; line < 4 * kPanelColumns; line += 64) {
        _mm_prefetch(reinterpret_cast<const char*>(w + rows_ahead * row_bytes + line), _MM_HINT_T0);
      }
      f(s, a + 4 * row, w);
    });
  }
  for (int64_t row = kStreams * part; row < k / 4; ++row) f(Index<0>{}, a + 4 * row, b + row * row_bytes);
}

// Asks for the record of w4 that comes kRecordsAhead later: beyond a panel's end lies the next one.
constexpr int64_t kRecordsAhead = 8;

template <int64_t Bytes>
[[gnu::always_inline]] inline void prefetch_record(const std::byte* record) {
  const char* ahead = reinterpret_cast<const char*>(record) + kRecordsAhead * Bytes;
  for (int64_t line = 0; line < Bytes; line += kAlignmentBytes) _mm_prefetch(ahead + line, _MM_HINT_T0);
}

}  // namespace
}  // namespace pinion
