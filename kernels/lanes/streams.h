// The loops of a GEMV over the weights, by an access pattern (kernels/access_pattern.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>

#include "kernels/access_pattern.h"
#include "kernels/kernels.h"
#include "kernels/lanes/record.h"
#include "kernels/lanes/unroll.h"
#include "kernels/layout.h"

namespace pinion {
namespace {

// A row of the table as a type, for loops that are compiled for it.
template <size_t Row>
struct Access {
  static constexpr const AccessPattern& kPattern = kAccessPatterns[Row];
};

// f(Access) of the row in use.
template <size_t Row = 0, class F>
[[gnu::always_inline]] inline auto with_access_pattern(F f, size_t row = access_pattern()) {
  if constexpr (Row + 1 < std::size(kAccessPatterns)) {
    if (row != Row) return with_access_pattern<Row + 1>(f, row);
  }
  return f(Access<Row>());
}

// The empty statement keeps it: GCC may take a function of nothing but prefetches for one without effect, whose calls
// it drops.
template <int64_t Bytes, int Level>
[[gnu::always_inline]] inline void prefetch(const void* p) {
  asm volatile("");
  for (int64_t at = 0; at < Bytes; at += kAlignmentBytes) {
    __builtin_prefetch(static_cast<const char*>(p) + at, 0, 4 - Level);
  }
}

// f(u, a + i, w) for every Rows times four k: w is where the first 256 bytes of their weights begin, u counts those
// that are unrolled. k is a multiple of Rows times four; sums must not depend on their order. Contract of the
// arguments: Kernels::gemv_s8. Ahead of a panel's last rows lies the next panel, which is most often the next task;
// behind the rows of a flat matrix lies nothing that comes soon.
template <class Way, int Rows = 1, class F>
[[gnu::always_inline]] inline void each_four_k(const int8_t* a, const int8_t* b, int64_t row_bytes, int64_t k, F f) {
  const int64_t steps = k / (4 * Rows);
  const int64_t part = steps / Way::kPattern.streams;  // in a stream
  const bool is_flat = row_bytes != 4 * kPanelColumns;
  const int64_t ahead = is_flat ? Way::kPattern.flat_rows_ahead : Way::kPattern.rows_ahead;
  const int64_t to_next_panel = is_flat ? 0 : (steps - part) * Rows;
  for (int64_t i = 0; i < part; ++i) {
    const int64_t rows_ahead = (i * Rows + ahead < part * Rows ? 0 : to_next_panel) + ahead;
#pragma GCC unroll 1
    for (int64_t s = 0; s < Way::kPattern.streams; s += Way::kPattern.unrolled) {
      unrolled<Way::kPattern.unrolled>([&](auto u) {
        const int64_t row = ((s + u) * part + i) * Rows;
        const int8_t* w = b + row * row_bytes;
        if constexpr (Way::kPattern.rows_ahead > 0) {
          unrolled<Rows>([&](auto r) {
            prefetch<4 * kPanelColumns, Way::kPattern.prefetch_level>(w + (rows_ahead + r) * row_bytes);
          });
        }
        f(u, a + 4 * row, w);
      });
    }
  }
  for (int64_t i = Way::kPattern.streams * part; i < steps; ++i) {
    f(Index<0>{}, a + 4 * Rows * i, b + Rows * i * row_bytes);
  }
}

// How many records of a format come nearest to the pattern's distance, which is given in those of w4.
template <class Way, class Record>
constexpr int64_t kRecordsAhead =
    (Way::kPattern.w4_records_ahead * record_bytes(Format::w4) + Record::kBytes / 2) / Record::kBytes;

template <class Way, class Record>
[[gnu::always_inline]] inline void prefetch_record([[maybe_unused]] const std::byte* ahead) {
  if constexpr (kRecordsAhead<Way, Record> > 0) prefetch<Record::kBytes, Way::kPattern.prefetch_level>(ahead);
}

// A row of codes (the first one, where there are several) by panels of a format with groups: a group of each of so many
// in turn, so that every panel is a stream. begin(a + k) for a group of k, then f(record, ahead, accumulate, acc +
// panel
// * panel_floats) for its record in each of those panels; `ahead` is the record to be prefetched meanwhile, the same
// one where the pattern prefetches none. Contract of the arguments: Kernels::gemv_grouped, rows_grouped.
template <class Way, class Record, class Begin, class F>
[[gnu::always_inline]] inline void each_record(const int8_t* a, const GroupedPanel& first, int64_t panels, float* acc,
                                               Begin begin, F f, int64_t panel_floats = kPanelColumns) {
  constexpr int64_t kAhead = kRecordsAhead<Way, Record>;
  const int64_t panel_bytes = first.k / Record::kK * Record::kBytes;
  for (int64_t from = 0; from < panels; from += Way::kPattern.w4_panels) {
    const int64_t to = from + Way::kPattern.w4_panels < panels ? from + Way::kPattern.w4_panels : panels;
    const std::byte* group = first.records;
    for (int64_t k = 0; k < first.k; k += Record::kK, group += Record::kBytes) {
      const bool in_panel = k + kAhead * Record::kK < first.k;
      const int64_t ahead_bytes = kAhead * Record::kBytes + (in_panel ? 0 : (to - from - 1) * panel_bytes);
      begin(a + k);
      for (int64_t p = from; p < to; ++p) {
        const std::byte* record = group + p * panel_bytes;
        f(record, record + ahead_bytes, k > 0, acc + p * panel_floats);
      }
    }
  }
}

}  // namespace
}  // namespace pinion
