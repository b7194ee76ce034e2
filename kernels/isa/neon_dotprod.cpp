// NEON with SDOT (Cortex-A55, A76 and later, Apple), whose operand is four columns of four k, as the layout packs them.
#include <arm_neon.h>

#include "kernels/isa/grouped_neon.h"
#include "kernels/isa/rows_sdot.h"
#include "kernels/kernels.h"
#include "kernels/lanes/neon.h"

#include "kernels/lanes/attention_s8.h"  // over the lanes above
#include "kernels/lanes/grouped_tiles.h"
#include "kernels/lanes/rows.h"
#include "kernels/lanes/streams.h"

namespace pinion {
namespace {

// Loads four k of sixteen columns, by one load or four (AccessPattern::load_bytes).
template <class Access>
[[gnu::always_inline]] inline void load_codes(const int8_t* from, int8x16_t (&w)[4]) {
  if constexpr (Access::kPattern.load_bytes == 64) {
    const int8x16x4_t line = vld1q_s8_x4(from);
    unrolled<4>([&](auto v) { w[v] = line.val[v]; });
  } else {
    unrolled<4>([&](auto v) { w[v] = vld1q_s8(from + v * 16); });
  }
}

// Sixteen k at a time: a register holds their codes, and each SDOT selects four of them by lane.
template <class Access>
[[gnu::noinline]] void gemv_s8_by(const int8_t* a, const int8_t* b, int64_t row_bytes, int64_t k, int32_t* acc) {
  constexpr int kVectors = 16;  // vectors of the columns of a panel
  int32x4_t sum[kVectors];
  unrolled<kVectors>([&](auto v) { sum[v] = vdupq_n_s32(0); });
  int64_t i = k / 16 * 16;
  // always_inline, because it is used twice and GCC would call it, with the sums in memory.
  const auto add = [&](auto, const int8_t* codes, const int8_t* rows) __attribute__((always_inline)) {
    const int8x16_t x = vld1q_s8(codes);
    unrolled<4, kVectors / 4>([&](auto lane, auto four) {
      int8x16_t w[4];
      load_codes<Access>(rows + lane * row_bytes + four * 64, w);
      unrolled<4>([&](auto v) { w[v] = ordered(w[v]); });
      unrolled<4>([&](auto v) {
        constexpr int kAt = four * 4 + v, kLane = lane;
        sum[kAt] = vdotq_laneq_s32(sum[kAt], w[v], x, kLane);
      });
    });
  };
  for_each_four_k<Access, 4>(a, b, row_bytes, i, add);
  for (b += i / 4 * row_bytes; i < k; i += 4, b += row_bytes) {
    int32_t four;
    __builtin_memcpy(&four, a + i, sizeof four);
    const int8x16_t x = vreinterpretq_s8_s32(vdupq_n_s32(four));
    unrolled<kVectors>([&](auto v) { sum[v] = vdotq_s32(sum[v], vld1q_s8(b + v * 16), x); });
  }
  unrolled<kVectors>([&](auto v) { vst1q_s32(acc + v * 4, sum[v]); });
}

void gemv_s8(const int8_t* a, const int8_t* b, int64_t row_bytes, int64_t k, int32_t* acc) {
  with_access_pattern([&](auto access) { gemv_s8_by<decltype(access)>(a, b, row_bytes, k, acc); });
}

constexpr int kRows = 6;     // 6 x 4 sums, 4 vectors of w, 3 of x: 31 of the 32 registers
constexpr int kVectors = 4;  // a whole cache line of w

// c [R][64] (+)= R rows by 16 columns of the panel, from `column` on. A register of 8 bytes holds codes of two rows.
template <int R>
void gemm_tile(const RowTile& tile, int64_t column, bool accumulate, int32_t* c) {
  int32x4_t sum[R][kVectors];
  unrolled<R, kVectors>([&](auto r, auto v) { sum[r][v] = vdupq_n_s32(0); });
  for (const GemmTerm* term = tile.terms; term < tile.terms + tile.count; ++term) {
    const int8_t* a = static_cast<const int8_t*>(term->a) + tile.offset_bytes;
    const int8_t* b = static_cast<const int8_t*>(term->b) + column * 4;
    for (int64_t i = 0; i < term->k; i += 4, a += tile.block_rows * 4, b += 4 * kPanelColumns) {
      int8x8_t x[(R + 1) / 2];
      unrolled<(R + 1) / 2>([&](auto p) { x[p] = vld1_s8(a + p * 8); });
      int8x16_t w[kVectors];
      unrolled<kVectors>([&](auto v) { w[v] = vld1q_s8(b + v * 16); });
      unrolled<R, kVectors>([&](auto r, auto v) {
        constexpr int kLane = r % 2;
        sum[r][v] = vdotq_lane_s32(sum[r][v], w[v], x[r / 2], kLane);
      });
    }
  }
  unrolled<R, kVectors>([&](auto r, auto v) {
    int32_t* to = c + r * kPanelColumns + v * 4;
    vst1q_s32(to, accumulate ? vaddq_s32(sum[r][v], vld1q_s32(to)) : sum[r][v]);
  });
}

void gemm_s8(const GemmTerm* terms, int64_t count, const RowBlocks& blocks, int64_t rows, const int32_t* /*column_sum*/,
             int32_t* acc) {
  for_each_run(terms, count, blocks, [&](const GemmTerm* run, int64_t length, bool accumulate) {
    for_each_register_tile<kRows, 4>(run, length, blocks, rows, [&](auto n, const RowTile& tile, int64_t row) {
      for (int64_t c = 0; c < kPanelColumns; c += 4 * kVectors) {
        gemm_tile<n>(tile, c, accumulate, acc + row * kPanelColumns + c);
      }
    });
  });
}

// Codes of sixteen columns, from two rows of a line. The second row takes longer, so it comes first.
template <class Record, int Pair>
[[gnu::always_inline]] inline void two_rows(const int8x16_t (&line)[4], int8x16_t (&low)[4], int8x16_t (&high)[4]) {
  unrolled<4>([&](auto v) { high[v] = ordered(row_of_line<Record, 2 * Pair + 1>(line[v])); });
  unrolled<4>([&](auto v) { low[v] = ordered(row_of_line<Record, 2 * Pair>(line[v])); });
}

// A register holds sixteen codes of x; each SDOT selects four of them by lane.
template <class Access, class Record>
[[gnu::noinline]] void gemv_grouped_by(const int8_t* a, const GroupedPanel& first, int64_t panels, float* acc) {
  constexpr int kPanelVectors = 16, kLines = 4 / Record::kRows;  // lines of sixteen k
  const int8_t* codes = a;                                       // codes of the current group
  int32_t x_sum = 0;
  for_each_record<Access, Record>(
      a, first, panels, acc, [&](const int8_t* group) { codes = group, x_sum = sum_of_codes<Record>(group); },
      [&](const std::byte* record, const std::byte* ahead, bool accumulate, float* to) {
        prefetch_record<Access, Record>(ahead);
        if (!accumulate) unrolled<kPanelVectors>([&](auto v) { vst1q_f32(to + v * 4, vdupq_n_f32(0.0f)); });
        int32x4_t sum[kPanelVectors];
        unrolled<kPanelVectors>([&](auto v) { sum[v] = initial_sums<Record>(x_sum); });
        for (int64_t i = 0; i < Record::kK / 16; ++i) {
          const int8x16_t x = vld1q_s8(codes + i * 16);
          unrolled<kLines>([&](auto l) {
            const auto* from = reinterpret_cast<const int8_t*>(record) + (i * kLines + l) * 256;
            unrolled<kPanelVectors / 4>([&](auto four) {
              int32x4_t* const sums = sum + four * 4;
              int8x16_t line[4];
              load_codes<Access>(from + four * 64, line);
              unrolled<Record::kRows / 2>([&](auto pair) {
                constexpr int kLane = l * Record::kRows + pair * 2;
                int8x16_t low[4], high[4];
                two_rows<Record, pair>(line, low, high);
                unrolled<4>([&](auto v) { sums[v] = vdotq_laneq_s32(sums[v], low[v], x, kLane); });
                unrolled<4>([&](auto v) { sums[v] = vdotq_laneq_s32(sums[v], high[v], x, kLane + 1); });
              });
            });
          });
        }
        unrolled<kPanelVectors / 2>(
            [&](auto v) { scale_group<Record>(sum[2 * v], sum[2 * v + 1], x_sum, record, v * 8, to); });
      });
}

void gemv_grouped(const int8_t* a, const GroupedPanel& first, int64_t panels, float* acc) {
  with_access_pattern([&](auto access) {
    with_record(first.format,
                [&](auto record) { gemv_grouped_by<decltype(access), decltype(record)>(a, first, panels, acc); });
  });
}

// Vectors of 4 columns of a tile. Registers: 6 x 2 sums, 6 x 2 totals, 2 of w, 3 of x; or 6 x 4 sums, 4 of w, 3 of x.
template <class Slice>
constexpr int kTileVectors = kHoldsTotals<Slice> ? 2 : 4;

// acc (+)= R rows by kTileVectors vectors of a slice, from `column` on.
template <int R, class Slice>
void grouped_tile(const RowTile& tile, const Slice& slice, int64_t column, bool accumulate, float* acc) {
  constexpr int V = kTileVectors<Slice>;
  const auto at = [&](int r, int v) { return acc + r * kPanelColumns + column + v * 4; };
  const auto stored = [&](int r, int v) { return accumulate ? vld1q_f32(at(r, v)) : vdupq_n_f32(0.0f); };
  float32x4_t total[R][V];
  if constexpr (kHoldsTotals<Slice>) {
    unrolled<R>([&](auto r) { unrolled<V>([&](auto v) { total[r][v] = stored(r, v); }); });
  }
  const int8_t* a = static_cast<const int8_t*>(tile.terms->a) + tile.offset_bytes;
  const int8_t* b = slice.codes + column * 4;
  for (int64_t g = column; g < slice.groups * kPanelColumns; g += kPanelColumns) {
    int32x4_t sum[R][V];
    unrolled<R>([&](auto r) { unrolled<V>([&](auto v) { sum[r][v] = magic_zero(); }); });
    for (int64_t i = 0; i < Slice::kK; i += 4, a += tile.block_rows * 4, b += 4 * kPanelColumns) {
      int8x8_t x[(R + 1) / 2];
      unrolled<(R + 1) / 2>([&](auto p) { x[p] = vld1_s8(a + p * 8); });
      int8x16_t w[V];
      unrolled<V>([&](auto v) { w[v] = ordered_load(b + v * 16); });
      unrolled<R>([&](auto r) {
        unrolled<V>([&](auto v) {
          constexpr int kLane = r % 2;
          sum[r][v] = vdotq_lane_s32(sum[r][v], w[v], x[r / 2], kLane);
        });
      });
    }
    unrolled<V>([&](auto v) {
      const float32x4_t scale = vld1q_f32(slice.scales + g + v * 4);
      unrolled<R>([&](auto r) {
        const float32x4_t before = kHoldsTotals<Slice> ? total[r][v] : stored(r, v);
        total[r][v] = vfmaq_f32(before, to_float(sum[r][v]), scale);
        if constexpr (!kHoldsTotals<Slice>) vst1q_f32(at(r, v), total[r][v]);
      });
    });
  }
  if constexpr (kHoldsTotals<Slice>) {
    unrolled<R>([&](auto r) { unrolled<V>([&](auto v) { vst1q_f32(at(r, v), total[r][v]); }); });
  }
}

void gemm_grouped(const int8_t* a, const RowBlocks& blocks, int64_t rows, const GroupedPanel& panel, float* acc) {
  with_record(panel.format, [&](auto record) {
    using Slice = ExpandedSlice<decltype(record), false>;
    for_each_grouped_tile<Slice, kRows, 4 * kTileVectors<Slice>, 4>(
        a, blocks, rows, panel, acc, [](auto n, const auto&... args) { grouped_tile<n>(args...); });
  });
}

// acc [R][64] += R unpacked rows by all columns of a slice. Ahead: prefetches the next slice.
template <bool Ahead, int R>
[[gnu::noinline]] void few_rows_tiles(const int8_t* a, int64_t lda, const int8_t* panel, const PanelSlice& slice,
                                      int32_t* acc) {
  constexpr int kV = kSdotVectors<R>;
  for (int64_t c = 0; c < kPanelColumns; c += 4 * kV) {
    const auto at = [&](int r, int v) { return acc + r * kPanelColumns + c + v * 4; };
    int32x4_t sum[R][kV];
    unrolled<R, kV>([&](auto r, auto v) { sum[r][v] = vld1q_s32(at(r, v)); });
    for_each_strip(slice, a, panel, c, [&](const int8_t* x, const int8_t* b, const int8_t* ahead) {
      add_sdot<Ahead>(x, lda, b, 4 * kPanelColumns, slice.strip_k, ahead, sum);
    });
    unrolled<R, kV>([&](auto r, auto v) { vst1q_s32(at(r, v), sum[r][v]); });
  }
}

void rows_s8(const int8_t* a, int64_t lda, int64_t rows, const int8_t* panel, int64_t k, int32_t* acc) {
  if (rows == 1) return gemv_s8(a, panel, 4 * kPanelColumns, k, acc);
  for (int64_t i = 0; i < rows * kPanelColumns; i += 4) vst1q_s32(acc + i, vdupq_n_s32(0));
  const auto multiply = [&](const PanelSlice& slice) {
    for_each_even_tile<2, kSdotRows>(rows, [&](auto n, int64_t r) {
      const auto tiles = r == 0 ? few_rows_tiles<true, n> : few_rows_tiles<false, n>;
      tiles(a + r * lda, lda, panel, slice, acc + r * kPanelColumns);
    });
  };
  with_access_pattern([&](auto access) { for_each_slice<decltype(access), 16>(k, multiply); });
}

constexpr int kFewGroupedRows = 4;  // 4 x 4 sums, 4 of x, a mask, 8 of w: 29 of the 32 registers

// Initial value of a row's sums of a group, in all columns.
struct GroupStart {
  int32x4_t sum;
  float x_sum;  // sum of the row's codes, for formats with zero points
};

template <class Record>
[[gnu::always_inline]] inline GroupStart start_group(const int8_t* x) {
  const int8x16_t weight = vdupq_n_s8(Record::kHasZeros ? 1 : -Record::kZero);
  int32x4_t fours = vdupq_n_s32(0);
  unrolled<Record::kK / 16>([&](auto i) { fours = vdotq_s32(fours, vld1q_s8(x + i * 16), weight); });
  const int32x4_t pairs = vpaddq_s32(fours, fours), all = vpaddq_s32(pairs, pairs);
  return Record::kHasZeros ? GroupStart{magic_zero(), static_cast<float>(vgetq_lane_s32(all, 0))}
                           : GroupStart{vaddq_s32(magic_zero(), all), 0.0f};
}

// acc += (sum - zero * x_sum) * scale for R rows by 8 columns; zero = 0 without zero points.
template <class Record, int R, int V>
[[gnu::always_inline]] inline void scale_rows(const GroupStart* start, int32x4_t (&sum)[R][V], int v,
                                              const std::byte* record, int64_t column, float* acc) {
  float32x4_t scale[2], zero[2];
  load_scales<Record>(record, column, scale);
  if constexpr (Record::kHasZeros) load_zero_points<Record>(record, column, zero);
  unrolled<R>([&](auto r) {
    float32x4_t low = to_float(sum[r][v]), high = to_float(sum[r][v + 1]);
    if constexpr (Record::kHasZeros) {
      low = vfmsq_n_f32(low, zero[0], start[r].x_sum);
      high = vfmsq_n_f32(high, zero[1], start[r].x_sum);
    }
    float* to = acc + r * kPanelColumns + column;
    vst1q_f32(to, vfmaq_f32(vld1q_f32(to), low, scale[0]));
    vst1q_f32(to + 4, vfmaq_f32(vld1q_f32(to + 4), high, scale[1]));
  });
}

// acc [R][64] += R unpacked rows by a record. codes: codes of the group.
template <class Record, int R>
[[gnu::noinline]] void few_rows_record(const int8_t* codes, int64_t lda, const std::byte* record,
                                       const GroupStart* start, float* acc) {
  constexpr int kV = R == 2 ? 8 : 4;  // vectors of columns at a time
  constexpr int kPairs = Record::kRows / 2;
  for (int64_t c = 0; c < kPanelColumns; c += 4 * kV) {
    int32x4_t sum[R][kV];
    unrolled<R, kV>([&](auto r, auto v) { sum[r][v] = start[r].sum; });
#pragma GCC unroll 1  // else GCC interleaves two steps and spills sums
    for (int64_t l = 0; l < Record::kLines; ++l) {
      const auto* from = reinterpret_cast<const int8_t*>(record) + l * 256 + c * 4;
      unrolled<kPairs>([&](auto pair) {
        int8x8_t x[R];
        unrolled<R>([&](auto r) { x[r] = vld1_s8(codes + r * lda + (l * kPairs + pair) * 8); });
        unrolled<kV / 4>([&](auto four) {
          int8x16_t line[4], low[4], high[4];
          load_codes<AccessRow<0>>(from + four * 64, line);
          two_rows<Record, pair>(line, low, high);
          unrolled<R>([&](auto r) {
            int32x4_t* const sums = sum[r] + four * 4;
            unrolled<4>([&](auto v) { sums[v] = vdotq_lane_s32(sums[v], low[v], x[r], 0); });
            unrolled<4>([&](auto v) { sums[v] = vdotq_lane_s32(sums[v], high[v], x[r], 1); });
          });
        });
      });
    }
    unrolled<kV / 2>([&](auto v) { scale_rows<Record>(start, sum, 2 * v, record, c + v * 8, acc); });
  }
}

void rows_grouped(const int8_t* a, int64_t lda, int64_t rows, const GroupedPanel& first, int64_t panels, float* acc) {
  if (rows == 1) return gemv_grouped(a, first, panels, acc);
  with_access_pattern([&](auto access) {
    with_record(first.format, [&](auto type) {
      using Record = decltype(type);
      for_each_record_tile<decltype(access), Record, 2, kFewGroupedRows>(
          a, lda, rows, first, panels, acc, [](const int8_t* x) { return start_group<Record>(x); },
          [=](auto n, const int8_t* x, const GroupStart* start, const std::byte* record, const std::byte* ahead,
              bool accumulate, float* to) {
            if (ahead != record) prefetch_record<decltype(access), Record>(ahead);
            if (!accumulate) clear_rows<n>(to);
            few_rows_record<Record, n>(x, lda, record, start, to);
          });
    });
  });
}

}  // namespace

const Kernels& neon_dotprod_kernels() {
  static const Kernels kTable = [] {
    Kernels table = neon_kernels();
    table.name = "neon_dotprod";
    table.gemv_s8 = gemv_s8;
    table.pack_s8 = pack_s8<4, 0>;
    table.gemm_s8 = gemm_s8;
    table.s8_shape = {.rows = kRows, .row_multiple = 2, .group = 4};
    table.gemv_grouped = gemv_grouped;
    table.make_query_s8 = make_query_s8<Digits<sdot_rows, sdot_rows>>;
    table.attend_s8 = attend_s8<Digits<sdot_rows, sdot_rows>>;
    table.gemm_grouped = gemm_grouped;
    table.rows_s8 = rows_s8;
    table.rows_grouped = rows_grouped;
    return table;
  }();
  return kTable;
}

}  // namespace pinion
