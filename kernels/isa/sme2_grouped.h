// What the SME2 kernels of formats with groups share: codes, zeros and scales of a record, from whichever of its
// columns on.
#pragma once

#include <arm_sme.h>

#include "kernels/kernels.h"
#include "kernels/lanes/record.h"

namespace pinion {
namespace {

// Those of vector V of a tile's columns that the panel has; `column` is the tile's first.
template <int V>
[[gnu::always_inline]] inline svbool_t columns_of(int64_t column) __arm_streaming {
  return svwhilelt_b32(column + V * static_cast<int64_t>(svcntw()), kPanelColumns);
}

// What LUTI4 and LUTI2 look a code up in: of each entry's 32 bits it is the lowest eight.
struct CodeTable {
  uint32_t entries[16];
};
constexpr CodeTable code_table(int zero) {
  CodeTable table = {};
  for (int i = 0; i < 16; ++i) table.entries[i] = static_cast<uint8_t>(i - zero);
  return table;
}
template <class Record>
constexpr CodeTable kCodeTable = code_table(Record::kZero);

// The codes of a line's rows of four k, two of w4 or four of w2. A lookup takes bits as they come, of each byte the
// first row's, then the second one's: a UZP of bytes takes the rows apart. Masks, a shift and subtractions would be
// four instructions for the two rows of w4.
[[gnu::always_inline]] inline svint8x2_t two_rows(svuint8_t line) __arm_streaming __arm_preserves("za") __arm_in(
    "zt0") {
  return svuzp(svluti4_lane_zt_s8_x2(0, line, 0));
}
[[gnu::always_inline]] inline svint8x4_t four_rows(svuint8_t line) __arm_streaming __arm_preserves("za") __arm_in(
    "zt0") {
  return svuzp(svluti2_lane_zt_s8_x4(0, line, 0));
}

// Row `Row` of the same line of four vectors of columns.
template <int Row>
[[gnu::always_inline]] inline svint8x4_t row_of(svint8x2_t w0, svint8x2_t w1, svint8x2_t w2,
                                                svint8x2_t w3) __arm_streaming __arm_preserves("za") {
  return svcreate4(svget2(w0, Row), svget2(w1, Row), svget2(w2, Row), svget2(w3, Row));
}
template <int Row>
[[gnu::always_inline]] inline svint8x4_t row_of(svint8x4_t w0, svint8x4_t w1, svint8x4_t w2,
                                                svint8x4_t w3) __arm_streaming __arm_preserves("za") {
  return svcreate4(svget4(w0, Row), svget4(w1, Row), svget4(w2, Row), svget4(w3, Row));
}

template <int V>
[[gnu::always_inline]] inline svfloat32_t scales_of(int64_t column, const uint16_t* scales) __arm_streaming {
  const svbool_t some = columns_of<V>(column);
  return svcvt_f32_x(some, svreinterpret_f16(svld1uh_vnum_u32(some, scales + column, V)));
}

}  // namespace
}  // namespace pinion
