// The records of formats with groups (kernels/layout.h) as types, for loops that are compiled for a format.
#pragma once

#include <cstdint>

#include "kernels/layout.h"

namespace pinion {
namespace {

// A line of a record is 256 bytes: kRows of w8's rows of four k, of each of which a byte holds a code.
template <Format F>
struct RecordOf {
  static constexpr Format kFormat = F;
  static constexpr bool kHasZeros = traits_of(F).has_zero_points;
  static constexpr int kZero = traits_of(F).zero;
  static constexpr int kBits = traits_of(F).bits;
  static constexpr int kMask = (1 << kBits) - 1;
  static constexpr int kRows = 8 / kBits;
  static constexpr int64_t kK = traits_of(F).group_k;
  static constexpr int64_t kLines = kK / (4 * kRows);
  static constexpr int64_t kCodeBytes = code_bytes(F);
  static constexpr int64_t kBytes = record_bytes(F);
};

// f(RecordOf<format>) of a panel's format.
template <class F>
[[gnu::always_inline]] inline auto with_record(Format format, F f) {
  if (format == Format::w2) return f(RecordOf<Format::w2>());
  if (format == Format::w4z) return f(RecordOf<Format::w4z>());
  return f(RecordOf<Format::w4>());
}

// Likewise where zero points are read at run time: w4z counts as w4.
template <class F>
[[gnu::always_inline]] inline auto with_codes_of(Format format, F f) {
  if (format == Format::w2) return f(RecordOf<Format::w2>());
  return f(RecordOf<Format::w4>());
}

}  // namespace
}  // namespace pinion
