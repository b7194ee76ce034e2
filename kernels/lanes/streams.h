// The loops of a GEMV over the weights, by an access pattern, and the records of formats with groups as types.
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

// A format with groups as a type, for loops that are compiled for it. A line is 256 bytes of a record: kRows of the
// rows of four k of w8. Each byte of a line holds one code of each of these rows.
template <Format F>
struct RecordOf {
  static constexpr Format kFormat = F;
  static constexpr bool kHasZeros = traits_of(F).has_zero_points;
  static constexpr int kZero = traits_of(F).zero;
  static constexpr const int8_t* kLevels = traits_of(F).levels;
  static constexpr bool kHasLevels = kLevels != nullptr;
  static constexpr int kBits = code_bits(F);
  static constexpr int kMask = (1 << kBits) - 1;
  static constexpr int kRows = 8 / kBits;
  static constexpr int64_t kK = traits_of(F).group_k;
  static constexpr int64_t kLines = kK / (4 * kRows);
  static constexpr int64_t kCodeBytes = code_bytes(F);
  static constexpr int64_t kBytes = record_bytes(F);
  static constexpr bool kHasScales = !traits_of(F).is_halved;  // of groups; else all of them are 1
};

// Calls f(RecordOf<format>).
template <class F>
[[gnu::always_inline]] inline auto with_record(Format format, F f) {
  if (format == Format::w2) return f(RecordOf<Format::w2>());
  if (format == Format::mxfp4) return f(RecordOf<Format::mxfp4>());
  if (format == Format::w4n) return f(RecordOf<Format::w4n>());
  if (format == Format::w8h) return f(RecordOf<Format::w8h>());
  if (format == Format::w4z) return f(RecordOf<Format::w4z>());
  return f(RecordOf<Format::w4>());
}

// A row of kAccessPatterns as a type, for loops that are compiled for it.
template <size_t Row>
struct AccessRow {
  static constexpr const AccessPattern& kPattern = kAccessPatterns[Row];
};

// Calls f(AccessRow) with the row in use.
template <size_t Row = 0, class F>
[[gnu::always_inline]] inline auto with_access_pattern(F f, size_t row = access_pattern()) {
  if constexpr (Row + 1 < std::size(kAccessPatterns)) {
    if (row != Row) return with_access_pattern<Row + 1>(f, row);
  }
  return f(AccessRow<Row>());
}

// The empty statement keeps the prefetches: GCC may drop calls of a function that has no other effect.
template <int64_t Bytes, int Level>
[[gnu::always_inline]] inline void prefetch(const void* p) {
  asm volatile("");
  for (int64_t at = 0; at < Bytes; at += kAlignmentBytes) {
    __builtin_prefetch(static_cast<const char*>(p) + at, 0, 4 - Level);
  }
}

// Calls f(u, a + i, w) for every step of 4 * Rows k, in the order of the access pattern: w points to the weights of the
// step, and u counts the unrolled calls. k is a multiple of 4 * Rows; sums must not depend on the order. Arguments as
// for Kernels::gemv_s8. The last steps of a panel prefetch the next panel, which is usually the next task; after a
// strip of a flat matrix no data follows soon.
template <class Access, int Rows = 1, class F>
[[gnu::always_inline]] inline void for_each_four_k(const int8_t* a, const int8_t* b, int64_t row_bytes, int64_t k,
                                                   F f) {
  const int64_t steps = k / (4 * Rows);
  const int64_t stream_steps = steps / Access::kPattern.streams;
  const bool is_flat = row_bytes != 4 * kPanelColumns;
  const int64_t ahead = is_flat ? Access::kPattern.flat_rows_ahead : Access::kPattern.rows_ahead;
  const int64_t to_next_panel = is_flat ? 0 : (steps - stream_steps) * Rows;
  for (int64_t i = 0; i < stream_steps; ++i) {
    const int64_t rows_ahead = (i * Rows + ahead < stream_steps * Rows ? 0 : to_next_panel) + ahead;
#pragma GCC unroll 1
    for (int64_t s = 0; s < Access::kPattern.streams; s += Access::kPattern.unrolled) {
      unrolled<Access::kPattern.unrolled>([&](auto u) {
        const int64_t row = ((s + u) * stream_steps + i) * Rows;
        const int8_t* w = b + row * row_bytes;
        if constexpr (Access::kPattern.rows_ahead > 0) {
          unrolled<Rows>([&](auto r) {
            prefetch<4 * kPanelColumns, Access::kPattern.prefetch_level>(w + (rows_ahead + r) * row_bytes);
          });
        }
        f(u, a + 4 * row, w);
      });
    }
  }
  for (int64_t i = Access::kPattern.streams * stream_steps; i < steps; ++i) {
    f(Index<0>{}, a + 4 * Rows * i, b + Rows * i * row_bytes);
  }
}

// The prefetch distance in records of this format. The pattern gives it in records of w4.
template <class Access, class Record>
constexpr int64_t kRecordsAhead =
    (Access::kPattern.w4_records_ahead * record_bytes(Format::w4) + Record::kBytes / 2) / Record::kBytes;

template <class Access, class Record>
[[gnu::always_inline]] inline void prefetch_record([[maybe_unused]] const std::byte* ahead) {
  if constexpr (kRecordsAhead<Access, Record> > 0) prefetch<Record::kBytes, Access::kPattern.prefetch_level>(ahead);
}

// One or several rows of codes by panels of a format with groups. The access pattern's number of panels take turns,
// group by group, so that each panel is a stream. For each group of k calls begin(a + k), then for the group's record
// in each panel p f(record, ahead, accumulate, acc + p * panel_floats). ahead: the record to prefetch, `record` itself
// if the pattern prefetches none. Arguments as for Kernels::gemv_grouped and rows_grouped.
template <class Access, class Record, class Begin, class F>
[[gnu::always_inline]] inline void for_each_record(const int8_t* a, const GroupedPanel& first, int64_t panels,
                                                   float* acc, Begin begin, F f, int64_t panel_floats = kPanelColumns) {
  constexpr int64_t kAhead = kRecordsAhead<Access, Record>;
  const int64_t panel_bytes = first.k / Record::kK * Record::kBytes;
  for (int64_t from = 0; from < panels; from += Access::kPattern.w4_panels) {
    const int64_t to = from + Access::kPattern.w4_panels < panels ? from + Access::kPattern.w4_panels : panels;
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
