// A GEMV's way through the weights on x86-64. How many places to read in at once, and whether to ask for what comes
// next, differs from one maker's memory to another's, not with the instruction set.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cpu.h"
#include "kernels/kernels.h"
#include "kernels/layout.h"
#include "kernels/unroll.h"

namespace pinion {
namespace {

// Ice Lake, panels of k = 1024 and 3072, of what reading in 2 places gives: in 4 places 1.03 to 1.05 times as much, in
// 8 1.08 to 1.14, in 16 1.13 to 1.16; in 16, four rows ahead 1.27 to 1.33.
struct ManyPlaces {
  static constexpr int kStreams = 16;
  static constexpr int kUnrolled = 16;  // of the streams
  static constexpr int64_t kRowsAhead = 4;
  static constexpr int64_t kFlatRowsAhead = 4;  // of the flat layout
  static constexpr bool kHalves = false;        // 64 bytes as two loads
  static constexpr int64_t kPanels = 4;         // of w4, at once
  static constexpr int64_t kRecordsAhead = 2;   // of each; not measured
  static constexpr int kCache = 1;              // that what is asked for comes into
};

// AMD up to Zen 3 (kCpuFewPlaces). One core, GB/s where plain reading has 27, panels of k = 1024: in 2 places 22, in 4
// 25.3, in 8 20, in 16 14; in 4, two rows ahead 26.2, in 16, four rows ahead 17. w4 in 1 place 17.7, in 4 24.2; at
// k = 3072 25.8, with a record ahead 26.5. Asking for a part of a record only gives far less than for none or all.
struct FewPlaces {
  static constexpr int kStreams = 4;
  static constexpr int kUnrolled = 1;  // of four in a row GCC would ask for all that lies ahead at once: a tenth slower
  static constexpr int64_t kRowsAhead = 2;
  static constexpr int64_t kFlatRowsAhead = 2;
  static constexpr bool kHalves = false;
  static constexpr int64_t kPanels = 4;
  static constexpr int64_t kRecordsAhead = 1;
  static constexpr int kCache = 1;
};

// AMD since Zen 4 (kCpuOnePlace). One core, GB/s where plain reading has 31, AVX-512, panels of k = 1024, asking for
// nothing: in 1 place 30, in 2 27, in 4 23, in 8 23. w4 in 1 place 30.3, in 2 23, in 4 22; halves, or asking for what
// comes, give it nothing. AVX2, whose loads are halves: 26 of 26.
struct OnePlace {
  static constexpr int kStreams = 1;
  static constexpr int kUnrolled = 1;
  // A whole model's time by one core, or by two of different complexes, where whole lines and 16 rows ahead take 1:
  // with halves 0.94, 2 rows ahead 0.97, 8 rows 0.96, nothing 0.99; with whole lines 4 rows ahead 1.0.
  static constexpr int64_t kRowsAhead = 4;
  static constexpr bool kHalves = true;
  static constexpr int64_t kFlatRowsAhead = 16;  // one core, 17 GB/s; 8 rows 12.5
  static constexpr int64_t kPanels = 1;
  static constexpr int64_t kRecordsAhead = 0;
  static constexpr int kCache = 2;  // into the first the model takes 1.1
};

// f of the way that this CPU's memory likes best.
template <class F>
auto with_best_places(F f) {
  if (cpu_features() & kCpuOnePlace) return f(OnePlace());
  if (cpu_features() & kCpuFewPlaces) return f(FewPlaces());
  return f(ManyPlaces());
}

template <int64_t Bytes, int Cache>
[[gnu::always_inline]] inline void prefetch(const void* p) {
  for (int64_t at = 0; at < Bytes; at += kAlignmentBytes) {
    __builtin_prefetch(static_cast<const char*>(p) + at, 0, 4 - Cache);
  }
}

// f(u, a + i, w) for every four k: w is where their 256 bytes of weights begin, u counts those that are unrolled. Sums
// must not depend on their order. Contract of the arguments: Kernels::gemv_s8. Ahead of a panel's last rows lies the
// next panel, which is most often the next task; behind the rows of a flat matrix lies nothing that comes soon.
template <class Places, class F>
[[gnu::always_inline]] inline void each_four_k(const int8_t* a, const int8_t* b, int64_t row_bytes, int64_t k, F f) {
  const int64_t part = k / (4 * Places::kStreams);  // rows of four k in a stream
  const bool is_flat = row_bytes != 4 * kPanelColumns;
  const int64_t ahead = is_flat ? Places::kFlatRowsAhead : Places::kRowsAhead;
  const int64_t to_next_panel = is_flat ? 0 : k / 4 - part;
  for (int64_t i = 0; i < part; ++i) {
    const int64_t rows_ahead = (i + ahead < part ? 0 : to_next_panel) + ahead;
#pragma GCC unroll 1
    for (int64_t s = 0; s < Places::kStreams; s += Places::kUnrolled) {
      unrolled<Places::kUnrolled>([&](auto u) {
        const int64_t row = (s + u) * part + i;
        const int8_t* w = b + row * row_bytes;
        prefetch<4 * kPanelColumns, Places::kCache>(w + rows_ahead * row_bytes);
        f(u, a + 4 * row, w);
      });
    }
  }
  for (int64_t row = Places::kStreams * part; row < k / 4; ++row) f(Index<0>{}, a + 4 * row, b + row * row_bytes);
}

// One row by panels of w4: a group of each of so many in turn, so that every panel is a place. begin(a + k) for a group
// of k, then f(record, accumulate, acc + panel * kPanelColumns) for its record in each of those panels. Contract of the
// arguments: Kernels::gemv_w4.
template <class Places, bool HasZeros, class Begin, class F>
[[gnu::always_inline]] inline void each_record(const int8_t* a, const W4Panel& first, int64_t panels, float* acc,
                                               Begin begin, F f) {
  constexpr int64_t kRecordBytes = w4_record_bytes(HasZeros);
  const int64_t panel_bytes = first.k / kBlockK * kRecordBytes;
  for (int64_t from = 0; from < panels; from += Places::kPanels) {
    const int64_t to = from + Places::kPanels < panels ? from + Places::kPanels : panels;
    const std::byte* group = first.records;
    for (int64_t k = 0; k < first.k; k += kBlockK, group += kRecordBytes) {
      const bool in_panel = k + Places::kRecordsAhead * kBlockK < first.k;
      const int64_t ahead_bytes = Places::kRecordsAhead * kRecordBytes + (in_panel ? 0 : (to - from - 1) * panel_bytes);
      begin(a + k);
      for (int64_t p = from; p < to; ++p) {
        const std::byte* record = group + p * panel_bytes;
        if constexpr (Places::kRecordsAhead > 0) prefetch<kRecordBytes, Places::kCache>(record + ahead_bytes);
        f(record, k > 0, acc + p * kPanelColumns);
      }
    }
  }
}

}  // namespace
}  // namespace pinion
