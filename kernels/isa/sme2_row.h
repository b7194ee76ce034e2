// SME2: columns and records of formats with groups, shared by all its kernels, and the kernels of one row. One row
// gains from wide streaming vectors, not from outer products.
#pragma once

#include <arm_sme.h>

#include "kernels/kernels.h"
#include "kernels/lanes/streams.h"

namespace pinion {
namespace {

// The lanes of vector V of a tile that are columns of the panel. column: first column of the tile.
template <int V>
[[gnu::always_inline]] inline svbool_t columns_of(int64_t column) __arm_streaming {
  return svwhilelt_b32(column + V * static_cast<int64_t>(svcntw()), kPanelColumns);
}

// The lookup table of LUTI4 and LUTI2: weights by code, in the lowest 8 bits of each entry. For w4z it holds kZeroSteps
// times the codes, and scales_of divides by kZeroSteps.
struct CodeTable {
  uint32_t entries[16];
};
constexpr CodeTable code_table(int zero, int steps, const int8_t* levels) {
  CodeTable table = {};
  for (int i = 0; i < 16; ++i) table.entries[i] = static_cast<uint8_t>(((levels ? levels[i] : i) - zero) * steps);
  return table;
}
template <class Record>
constexpr CodeTable kCodeTable = code_table(Record::kZero, Record::kHasZeros ? kZeroSteps : 1, Record::kLevels);

// The weights of a line: two rows of four k of w4, four of w2. The lookup yields the rows of each byte in turn, and UZP
// separates them. Without it the two rows of w4 would take four instructions: masks, a shift and subtractions.
[[gnu::always_inline]] inline svint8x2_t two_rows(svuint8_t line) __arm_streaming __arm_preserves("za") __arm_in(
    "zt0") {
  return svuzp(svluti4_lane_zt_s8_x2(0, line, 0));
}
[[gnu::always_inline]] inline svint8x4_t four_rows(svuint8_t line) __arm_streaming __arm_preserves("za") __arm_in(
    "zt0") {
  return svuzp(svluti2_lane_zt_s8_x4(0, line, 0));
}

// Row `Row` of a line, in four vectors of columns.
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

// The scales of vector V of a tile, as floats.
template <class Record, int V>
[[gnu::always_inline]] inline svfloat32_t scales_of(int64_t column, const uint16_t* scales) __arm_streaming {
  if constexpr (!Record::kHasScales) return svdup_f32(1.0f);
  const svbool_t active = columns_of<V>(column);
  const svfloat32_t scale = svcvt_f32_x(active, svreinterpret_f16(svld1uh_vnum_u32(active, scales + column, V)));
  if constexpr (Record::kHasZeros) return svmul_x(active, scale, 1.0f / kZeroSteps);
  return scale;
}

// One instruction multiplies four vectors of weights, a quad, by four codes of the row, selected by lane. A panel has
// Quads quads. Sums are in ZA, where additions to the same sums wait for each other: kChains sets take turns.
constexpr int kChains = 4;

// The slice of ZA for quad Q and row Lane of four k.
template <int Quads, int Q, int Lane>
constexpr uint32_t kSlice = Q + Quads * (Lane % (kChains / Quads));

// Zero, but opaque to the compiler: a slice number is a register plus an immediate, not a register of its own.
[[gnu::always_inline]] inline uint32_t first_slice() __arm_streaming {
  uint32_t zero = 0;
  asm volatile("" : "+r"(zero));
  return zero;
}

template <int Quads, int Lane>
[[gnu::always_inline]] inline void add_four_k(uint32_t slice, svint8_t x,
                                              const int8_t* w) __arm_streaming __arm_inout("za") {
  const svint8x4_t first = svld1_x4(svwhilelt_c8(int64_t{0}, 4 * kPanelColumns, 4), w);
  svdot_lane_za32_s8_vg1x4(slice + kSlice<Quads, 0, Lane>, first, x, Lane);
  if constexpr (Quads == 2) {
    const svint8x4_t second = svld1_x4(svptrue_c8(), w + 4 * svcntb());
    svdot_lane_za32_s8_vg1x4(slice + kSlice<Quads, 1, Lane>, second, x, Lane);
  }
}

// The sums of quad Q, all chains added.
template <int Quads, int Q>
[[gnu::always_inline]] inline svint32x4_t sums_of() __arm_streaming __arm_inout("za") {
  svadd_za32_s32_vg1x4(Q, svread_za32_s32_vg1x4(Q + Quads));
  if constexpr (Quads == 1) {
    svadd_za32_s32_vg1x4(2, svread_za32_s32_vg1x4(3));
    svadd_za32_s32_vg1x4(0, svread_za32_s32_vg1x4(2));
  }
  return svread_za32_s32_vg1x4(Q);
}

// The arguments of gemv_s8.
template <int Quads>
struct RowProduct {
  const int8_t* a;
  const int8_t* b;
  int64_t row_bytes;
  int64_t k;
  int32_t* acc;

  void run() const __arm_streaming __arm_inout("za", "zt0") {
    const int8_t *x = a, *w = b;
    const int64_t step = row_bytes;
    int64_t left = k;
    svzero_za();
    for (; left >= 16; left -= 16, x += 16, w += 4 * step) {
      const uint32_t slice = first_slice();
      const svint8_t codes = svld1rq(svptrue_b8(), x);
      add_four_k<Quads, 0>(slice, codes, w);
      add_four_k<Quads, 1>(slice, codes, w + step);
      add_four_k<Quads, 2>(slice, codes, w + 2 * step);
      add_four_k<Quads, 3>(slice, codes, w + 3 * step);
    }
    for (; left > 0; left -= 4, x += 4, w += step) {
      add_four_k<Quads, 0>(0, svld1rq(svwhilelt_b8(int64_t{0}, left), x), w);
    }
    svst1(svwhilelt_c32(int64_t{0}, kPanelColumns, 4), acc, sums_of<Quads, 0>());
    if constexpr (Quads == 2) {
      const int64_t at = 4 * static_cast<int64_t>(svcntw());
      svst1(svptrue_c32(), acc + at, sums_of<Quads, 1>());
    }
  }
};

// For formats with groups, the slices of ZA after the sums of a group hold the totals.
constexpr uint32_t kTotals = kChains;

template <int Quads, int Q>
[[gnu::always_inline]] inline void clear_sums() __arm_streaming __arm_inout("za") {
  const svint32_t none = svdup_s32(0);
  const svint32x4_t zeros = svcreate4(none, none, none, none);
  svwrite_za32_s32_vg1x4(Q, zeros);
  if constexpr (Quads == 1) svwrite_za32_s32_vg1x4(1, zeros);
}

template <int Quads, int Q, int Lane>
[[gnu::always_inline]] inline void dot_row(svint8x4_t w, svint8_t x) __arm_streaming __arm_inout("za") {
  svdot_lane_za32_s8_vg1x4(Quads == 1 ? Lane % 2 : Q, w, x, Lane);
}

// Adds a line of w4: rows Lane and Lane + 1 of the four rows of four k whose codes are in x.
template <int Quads, int Q, int Lane>
[[gnu::always_inline]] inline void add_two_rows(svint8_t x,
                                                const uint8_t* line) __arm_streaming __arm_inout("za") __arm_in("zt0") {
  const int64_t at = Q * 4 * static_cast<int64_t>(svcntb());
  const svuint8x4_t codes = svld1_x4(svwhilelt_c8(at, 4 * kPanelColumns, 4), line + at);
  const svint8x2_t w0 = two_rows(svget4(codes, 0)), w1 = two_rows(svget4(codes, 1));
  const svint8x2_t w2 = two_rows(svget4(codes, 2)), w3 = two_rows(svget4(codes, 3));
  dot_row<Quads, Q, Lane>(row_of<0>(w0, w1, w2, w3), x);
  dot_row<Quads, Q, Lane + 1>(row_of<1>(w0, w1, w2, w3), x);
}

// Adds a line of w2: all four rows.
template <int Quads, int Q>
[[gnu::always_inline]] inline void add_four_rows(svint8_t x, const uint8_t* line) __arm_streaming __arm_inout(
    "za") __arm_in("zt0") {
  const int64_t at = Q * 4 * static_cast<int64_t>(svcntb());
  const svuint8x4_t codes = svld1_x4(svwhilelt_c8(at, 4 * kPanelColumns, 4), line + at);
  const svint8x4_t w0 = four_rows(svget4(codes, 0)), w1 = four_rows(svget4(codes, 1));
  const svint8x4_t w2 = four_rows(svget4(codes, 2)), w3 = four_rows(svget4(codes, 3));
  dot_row<Quads, Q, 0>(row_of<0>(w0, w1, w2, w3), x);
  dot_row<Quads, Q, 1>(row_of<1>(w0, w1, w2, w3), x);
  dot_row<Quads, Q, 2>(row_of<2>(w0, w1, w2, w3), x);
  dot_row<Quads, Q, 3>(row_of<3>(w0, w1, w2, w3), x);
}

// sums - zero * x_sum for vector V of a tile. x_sum: sum of the row's codes, in all lanes.
template <int V>
[[gnu::always_inline]] inline svint32_t without_zeros(svint32_t sums, svint32_t x_sum, int64_t column,
                                                      const uint8_t* zero_points) __arm_streaming {
  const svint32_t zero = svld1ub_vnum_s32(columns_of<V>(column), zero_points + column, V);
  return svmls_x(svptrue_b32(), sums, zero, x_sum);
}

// Quad Q of a group: totals += float(sums) * scales. codes: codes of the row; x_sum: their sum, in all lanes.
template <class Record, int Quads, int Q>
[[gnu::always_inline]] inline void add_quad(const int8_t* codes, svint32_t x_sum,
                                            const uint8_t* record) __arm_streaming __arm_inout("za") __arm_in("zt0") {
  const int64_t column = Q * 4 * static_cast<int64_t>(svcntw());
  const uint8_t* line = record;
  clear_sums<Quads, Q>();
  for (const int8_t* end = codes + Record::kK; codes < end; codes += 16) {
    const svint8_t x = svld1rq(svptrue_b8(), codes);
    if constexpr (Record::kRows == 4) {
      add_four_rows<Quads, Q>(x, line);
      line += 4 * kPanelColumns;
    } else {
      add_two_rows<Quads, Q, 0>(x, line);
      add_two_rows<Quads, Q, 2>(x, line + 4 * kPanelColumns);
      line += 8 * kPanelColumns;
    }
  }
  if constexpr (Quads == 1) svadd_za32_s32_vg1x4(0, svread_za32_s32_vg1x4(1));
  svint32x4_t sums = svread_za32_s32_vg1x4(Q);
  if constexpr (Record::kHasZeros) {
    const uint8_t* zero_points = record + Record::kCodeBytes + kPanelColumns * 2;
    sums = svcreate4(without_zeros<0>(svget4(sums, 0), x_sum, column, zero_points),
                     without_zeros<1>(svget4(sums, 1), x_sum, column, zero_points),
                     without_zeros<2>(svget4(sums, 2), x_sum, column, zero_points),
                     without_zeros<3>(svget4(sums, 3), x_sum, column, zero_points));
  }
  const auto* scales = reinterpret_cast<const uint16_t*>(record + Record::kCodeBytes);
  svmla_za32_f32_vg1x4(kTotals + Q, svcvt_f32(sums),
                       svcreate4(scales_of<Record, 0>(column, scales), scales_of<Record, 1>(column, scales),
                                 scales_of<Record, 2>(column, scales), scales_of<Record, 3>(column, scales)));
}

// The arguments of gemv_grouped.
template <class Record, int Quads>
struct GroupedRowProduct {
  const int8_t* a;
  GroupedPanel first;
  int64_t panels;
  float* acc;

  void run() const __arm_streaming __arm_inout("za", "zt0") {
    svldr_zt(0, &kCodeTable<Record>);
    const auto* record = reinterpret_cast<const uint8_t*>(first.records);
    for (float* to = acc; to < acc + panels * kPanelColumns; to += kPanelColumns) {
      record = panel(a, first.k, record, to);
    }
  }

  // Multiplies a panel and returns the first record of the next one.
  static const uint8_t* panel(const int8_t* x, int64_t k, const uint8_t* record,
                              float* to) __arm_streaming __arm_inout("za") __arm_in("zt0") {
    svzero_za();
    for (const int8_t* end = x + k; x < end; x += Record::kK, record += Record::kBytes) {
      svint32_t x_sum = svdup_s32(0);
      if constexpr (Record::kHasZeros) {
        const svint8_t x0 = svld1rq(svptrue_b8(), x), x1 = svld1rq(svptrue_b8(), x + 16);
        const svint32_t fours = svdot(svdot(x_sum, x0, svdup_s8(1)), x1, svdup_s8(1));
        x_sum = svdup_s32(static_cast<int32_t>(svaddv(svwhilelt_b32(0, 4), fours)));
      }
      add_quad<Record, Quads, 0>(x, x_sum, record);
      if constexpr (Quads == 2) add_quad<Record, Quads, 1>(x, x_sum, record);
    }
    svst1(svwhilelt_c32(int64_t{0}, kPanelColumns, 4), to, svread_za32_f32_vg1x4(kTotals));
    if constexpr (Quads == 2) svst1(svptrue_c32(), to + 4 * svcntw(), svread_za32_f32_vg1x4(kTotals + 1));
    return record;
  }
};

}  // namespace
}  // namespace pinion
