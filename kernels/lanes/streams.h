// The loops of a GEMV over the weights, by an access pattern (kernels/access_pattern.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>

#include "kernels/access_pattern.h"
#include "kernels/kernels.h"
#include "kernels/lanes/unroll.h"
#include "kernels/layout.h"

namespace pinion {
namespace {

// A row of the table as a type, for loops that are compiled for it.
template <size_t Row>
struct Access {
  static constexpr const AccessPattern& kPattern = kAccessPatterns[Row];
};

// f(Access) of this CPU's row.
template <class F, size_t Row = 0>
auto with_access_pattern(F f) {
  if constexpr (Row + 1 < std::size(kAccessPatterns)) {
    if (access_pattern() != Row) return with_access_pattern<F, Row + 1>(f);
  }
  return f(Access<Row>());
}

template <int64_t Bytes, int Level>
[[gnu::always_inline]] inline void prefetch(const void* p) {
  for (int64_t at = 0; at < Bytes; at += kAlignmentBytes) {
    __builtin_prefetch(static_cast<const char*>(p) + at, 0, 4 - Level);
  }
}

// f(u, a + i, w) for every four k: w is where their 256 bytes of weights begin, u counts those that are unrolled. Sums
// must not depend on their order. Contract of the arguments: Kernels::gemv_s8. Ahead of a panel's last rows lies the
// next panel, which is most often the next task; behind the rows of a flat matrix lies nothing that comes soon.
template <class Way, class F>
[[gnu::always_inline]] inline void each_four_k(const int8_t* a, const int8_t* b, int64_t row_bytes, int64_t k, F f) {
  const int64_t part = k / (4 * Way::kPattern.streams);  // rows of four k in a stream
  const bool is_flat = row_bytes != 4 * kPanelColumns;
  const int64_t ahead = is_flat ? Way::kPattern.flat_rows_ahead : Way::kPattern.rows_ahead;
  const int64_t to_next_panel = is_flat ? 0 : k / 4 - part;
  for (int64_t i = 0; i < part; ++i) {
    const int64_t rows_ahead = (i + ahead < part ? 0 : to_next_panel) + ahead;
#pragma GCC unroll 1
    for (int64_t s = 0; s < Way::kPattern.streams; s += Way::kPattern.unrolled) {
      unrolled<Way::kPattern.unrolled>([&](auto u) {
        const int64_t row = (s + u) * part + i;
        const int8_t* w = b + row * row_bytes;
        prefetch<4 * kPanelColumns, Way::kPattern.prefetch_level>(w + rows_ahead * row_bytes);
        f(u, a + 4 * row, w);
      });
    }
  }
  for (int64_t row = Way::kPattern.streams * part; row < k / 4; ++row) f(Index<0>{}, a + 4 * row, b + row * row_bytes);
}

// One row by panels of w4: a group of each of so many in turn, so that every panel is a stream. begin(a + k) for a
// group of k, then f(record, accumulate, acc + panel * kPanelColumns) for its record in each of those panels. Contract
// of the arguments: Kernels::gemv_w4.
template <class Way, bool HasZeros, class Begin, class F>
[[gnu::always_inline]] inline void each_record(const int8_t* a, const W4Panel& first, int64_t panels, float* acc,
                                               Begin begin, F f) {
  constexpr int64_t kRecordBytes = w4_record_bytes(HasZeros);
  const int64_t panel_bytes = first.k / kBlockK * kRecordBytes;
  for (int64_t from = 0; from < panels; from += Way::kPattern.w4_panels) {
    const int64_t to = from + Way::kPattern.w4_panels < panels ? from + Way::kPattern.w4_panels : panels;
    const std::byte* group = first.records;
    for (int64_t k = 0; k < first.k; k += kBlockK, group += kRecordBytes) {
      const bool in_panel = k + Way::kPattern.w4_records_ahead * kBlockK < first.k;
      const int64_t ahead_bytes =
          Way::kPattern.w4_records_ahead * kRecordBytes + (in_panel ? 0 : (to - from - 1) * panel_bytes);
      begin(a + k);
      for (int64_t p = from; p < to; ++p) {
        const std::byte* record = group + p * panel_bytes;
        if constexpr (Way::kPattern.w4_records_ahead > 0)
          prefetch<kRecordBytes, Way::kPattern.prefetch_level>(record + ahead_bytes);
        f(record, k > 0, acc + p * kPanelColumns);
      }
    }
  }
}

}  // namespace
}  // namespace pinion
