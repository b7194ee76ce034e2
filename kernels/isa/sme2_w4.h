// What the SME2 kernels of w4 share: codes, zeros and scales of a record, from whichever of its columns on.
#pragma once

#include <arm_sme.h>

#include "kernels/kernels.h"

namespace pinion {
namespace {

// Those of vector V of a tile's columns that the panel has; `column` is the tile's first.
template <int V>
[[gnu::always_inline]] inline svbool_t columns_of(int64_t column) __arm_streaming {
  return svwhilelt_b32(column + V * static_cast<int64_t>(svcntw()), kPanelColumns);
}

// What LUTI4 looks a nibble up in: of each entry's 32 bits a code is the lowest eight.
struct CodeTable {
  uint32_t entries[16];
};
constexpr CodeTable code_table(int zero) {
  CodeTable table = {};
  for (int i = 0; i < 16; ++i) table.entries[i] = static_cast<uint8_t>(i - zero);
  return table;
}
constexpr CodeTable kSigned = code_table(8), kUnsigned = code_table(0);

// The codes of a pair of rows of four k. LUTI4 takes nibbles as they come, of each byte the low one, which is the first
// row's, then the high one, which is the second's: a UZP of bytes takes the rows apart. Masks, a shift and subtractions
// would be four instructions for these two.
[[gnu::always_inline]] inline svint8x2_t two_rows(svuint8_t both) __arm_streaming __arm_preserves("za") __arm_in(
    "zt0") {
  return svuzp(svluti4_lane_zt_s8_x2(0, both, 0));
}

template <int V>
[[gnu::always_inline]] inline svfloat32_t scales_of(int64_t column, const uint16_t* scales) __arm_streaming {
  const svbool_t some = columns_of<V>(column);
  return svcvt_f32_x(some, svreinterpret_f16(svld1uh_vnum_u32(some, scales + column, V)));
}

}  // namespace
}  // namespace pinion
