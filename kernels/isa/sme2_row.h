// SME2: one row. An outer product has nothing to offer, streaming vectors have.
#pragma once

#include "kernels/isa/sme2_grouped.h"

namespace pinion {
namespace {

// Four vectors of weights by four codes of the row, which one instruction takes from any place of a register. A panel's
// columns are `Parts` times four vectors. The sums are in ZA, where each waits for the one before it: kChains in turn.
constexpr int kChains = 4;

// For part P and row Lane of four k.
template <int Parts, int P, int Lane>
constexpr uint32_t kSlice = P + Parts * (Lane % (kChains / Parts));

// Zero, which the compiler must take for any number, each time: a slice is then a register and a constant that stands
// in the instruction. Of constants alone it would load each into a register.
[[gnu::always_inline]] inline uint32_t first_slice() __arm_streaming {
  uint32_t zero = 0;
  asm volatile("" : "+r"(zero));
  return zero;
}

template <int Parts, int Lane>
[[gnu::always_inline]] inline void add_four_k(uint32_t slice, svint8_t x,
                                              const int8_t* w) __arm_streaming __arm_inout("za") {
  const svint8x4_t first = svld1_x4(svwhilelt_c8(int64_t{0}, 4 * kPanelColumns, 4), w);
  svdot_lane_za32_s8_vg1x4(slice + kSlice<Parts, 0, Lane>, first, x, Lane);
  if constexpr (Parts == 2) {
    const svint8x4_t second = svld1_x4(svptrue_c8(), w + 4 * svcntb());
    svdot_lane_za32_s8_vg1x4(slice + kSlice<Parts, 1, Lane>, second, x, Lane);
  }
}

// The sums of a part, all chains together.
template <int Parts, int P>
[[gnu::always_inline]] inline svint32x4_t sums_of() __arm_streaming __arm_inout("za") {
  svadd_za32_s32_vg1x4(P, svread_za32_s32_vg1x4(P + Parts));
  if constexpr (Parts == 1) {
    svadd_za32_s32_vg1x4(2, svread_za32_s32_vg1x4(3));
    svadd_za32_s32_vg1x4(0, svread_za32_s32_vg1x4(2));
  }
  return svread_za32_s32_vg1x4(P);
}

// The arguments of gemv_s8.
template <int Parts>
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
      add_four_k<Parts, 0>(slice, codes, w);
      add_four_k<Parts, 1>(slice, codes, w + step);
      add_four_k<Parts, 2>(slice, codes, w + 2 * step);
      add_four_k<Parts, 3>(slice, codes, w + 3 * step);
    }
    for (; left > 0; left -= 4, x += 4, w += step) {
      add_four_k<Parts, 0>(0, svld1rq(svwhilelt_b8(int64_t{0}, left), x), w);
    }
    svst1(svwhilelt_c32(int64_t{0}, kPanelColumns, 4), acc, sums_of<Parts, 0>());
    if constexpr (Parts == 2) {
      const int64_t at = 4 * static_cast<int64_t>(svcntw());
      svst1(svptrue_c32(), acc + at, sums_of<Parts, 1>());
    }
  }
};

// Formats with groups: behind the sums of a group, which begin at nothing each time, ZA holds the totals.
constexpr uint32_t kTotals = kChains;

template <int Parts, int P>
[[gnu::always_inline]] inline void clear_sums() __arm_streaming __arm_inout("za") {
  const svint32_t none = svdup_s32(0);
  const svint32x4_t zeros = svcreate4(none, none, none, none);
  svwrite_za32_s32_vg1x4(P, zeros);
  if constexpr (Parts == 1) svwrite_za32_s32_vg1x4(1, zeros);
}

template <int Parts, int P, int Lane>
[[gnu::always_inline]] inline void dot_row(svint8x4_t w, svint8_t x) __arm_streaming __arm_inout("za") {
  svdot_lane_za32_s8_vg1x4(Parts == 1 ? Lane % 2 : P, w, x, Lane);
}

// A line of w4: rows `Lane` and the next one of the four of which x has the codes.
template <int Parts, int P, int Lane>
[[gnu::always_inline]] inline void add_two_rows(svint8_t x,
                                                const uint8_t* line) __arm_streaming __arm_inout("za") __arm_in("zt0") {
  const int64_t at = P * 4 * static_cast<int64_t>(svcntb());
  const svuint8x4_t codes = svld1_x4(svwhilelt_c8(at, 4 * kPanelColumns, 4), line + at);
  const svint8x2_t w0 = two_rows(svget4(codes, 0)), w1 = two_rows(svget4(codes, 1));
  const svint8x2_t w2 = two_rows(svget4(codes, 2)), w3 = two_rows(svget4(codes, 3));
  dot_row<Parts, P, Lane>(row_of<0>(w0, w1, w2, w3), x);
  dot_row<Parts, P, Lane + 1>(row_of<1>(w0, w1, w2, w3), x);
}

// A line of w2: all four rows.
template <int Parts, int P>
[[gnu::always_inline]] inline void add_four_rows(svint8_t x, const uint8_t* line) __arm_streaming __arm_inout(
    "za") __arm_in("zt0") {
  const int64_t at = P * 4 * static_cast<int64_t>(svcntb());
  const svuint8x4_t codes = svld1_x4(svwhilelt_c8(at, 4 * kPanelColumns, 4), line + at);
  const svint8x4_t w0 = four_rows(svget4(codes, 0)), w1 = four_rows(svget4(codes, 1));
  const svint8x4_t w2 = four_rows(svget4(codes, 2)), w3 = four_rows(svget4(codes, 3));
  dot_row<Parts, P, 0>(row_of<0>(w0, w1, w2, w3), x);
  dot_row<Parts, P, 1>(row_of<1>(w0, w1, w2, w3), x);
  dot_row<Parts, P, 2>(row_of<2>(w0, w1, w2, w3), x);
  dot_row<Parts, P, 3>(row_of<3>(w0, w1, w2, w3), x);
}

// The columns' zeros by the sum of the row's codes: what their sums have too much.
template <int V>
[[gnu::always_inline]] inline svint32_t without_zeros(svint32_t sums, svint32_t x_sum, int64_t column,
                                                      const uint8_t* zero_points) __arm_streaming {
  const svint32_t zero = svld1ub_vnum_s32(columns_of<V>(column), zero_points + column, V);
  return svmls_x(svptrue_b32(), sums, zero, x_sum);
}

// Part P of a group: totals += float(sums) * scales. codes: the row's; x_sum: their sum, in all lanes.
template <class Record, int Parts, int P>
[[gnu::always_inline]] inline void add_part(const int8_t* codes, svint32_t x_sum,
                                            const uint8_t* record) __arm_streaming __arm_inout("za") __arm_in("zt0") {
  const int64_t column = P * 4 * static_cast<int64_t>(svcntw());
  const uint8_t* line = record;
  clear_sums<Parts, P>();
  for (const int8_t* end = codes + Record::kK; codes < end; codes += 16) {
    const svint8_t x = svld1rq(svptrue_b8(), codes);
    if constexpr (Record::kRows == 4) {
      add_four_rows<Parts, P>(x, line);
      line += 4 * kPanelColumns;
    } else {
      add_two_rows<Parts, P, 0>(x, line);
      add_two_rows<Parts, P, 2>(x, line + 4 * kPanelColumns);
      line += 8 * kPanelColumns;
    }
  }
  if constexpr (Parts == 1) svadd_za32_s32_vg1x4(0, svread_za32_s32_vg1x4(1));
  svint32x4_t sums = svread_za32_s32_vg1x4(P);
  if constexpr (Record::kHasZeros) {
    const uint8_t* zero_points = record + Record::kCodeBytes + kPanelColumns * 2;
    sums = svcreate4(without_zeros<0>(svget4(sums, 0), x_sum, column, zero_points),
                     without_zeros<1>(svget4(sums, 1), x_sum, column, zero_points),
                     without_zeros<2>(svget4(sums, 2), x_sum, column, zero_points),
                     without_zeros<3>(svget4(sums, 3), x_sum, column, zero_points));
  }
  const auto* scales = reinterpret_cast<const uint16_t*>(record + Record::kCodeBytes);
  svmla_za32_f32_vg1x4(kTotals + P, svcvt_f32(sums),
                       svcreate4(scales_of<0>(column, scales), scales_of<1>(column, scales),
                                 scales_of<2>(column, scales), scales_of<3>(column, scales)));
}

// The arguments of gemv_grouped.
template <class Record, int Parts>
struct GroupedRowProduct {
  const int8_t* a;
  GroupedPanel first;
  int64_t panels;
  float* acc;

  void run() const __arm_streaming __arm_inout("za", "zt0") {
    svldr_zt(0, &kCodeTable<Record>);
    const auto* record = reinterpret_cast<const uint8_t*>(first.records);
    for (float* to = acc; to < acc + panels * kPanelColumns; to += kPanelColumns)
      record = panel(a, first.k, record, to);
  }

  // Returns the next panel's.
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
      add_part<Record, Parts, 0>(x, x_sum, record);
      if constexpr (Parts == 2) add_part<Record, Parts, 1>(x, x_sum, record);
    }
    svst1(svwhilelt_c32(int64_t{0}, kPanelColumns, 4), to, svread_za32_f32_vg1x4(kTotals));
    if constexpr (Parts == 2) svst1(svptrue_c32(), to + 4 * svcntw(), svread_za32_f32_vg1x4(kTotals + 1));
    return record;
  }
};

}  // namespace
}  // namespace pinion
