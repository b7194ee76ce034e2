// NEON of Armv8.0 (Cortex-A53, A72). int8 products are SMULL, SMLAL and SADALP: the sum of two products is at most
// 32512 in magnitude and fits 16 bits, the sum of three would not.
#include "kernels/lanes/neon.h"
#include "kernels/lanes/unroll.h"

namespace pinion {
namespace {

// See lanes/gemm.h. Widens one register of pairs at a time, which takes two registers and leaves the rest to sums.
#define PINION_PAIRS
struct Pairs {
  using Left = float;
  static constexpr bool kWidens = true;

  // vfmaq_lane_f32, but GCC would keep a copy of each x per lane and fill the registers with them.
  template <int Lane>
  [[gnu::always_inline]] static float32x4_t fma_lane(float32x4_t sum, float32x4_t b, float32x2_t x) {
    asm("fmla %0.4s, %1.4s, %2.s[%3]" : "+w"(sum) : "w"(b), "w"(x), "i"(Lane));
    return sum;
  }
  template <int R, int W, class From>
  [[gnu::always_inline]] static void add(const Left* a, int64_t row, From from, Lanes (&acc)[R][W]) {
    float32x2_t x[R];
    unrolled<R>([&](auto r) { x[r] = vld1_f32(a + r * row); });
    unrolled<W>([&](auto w) {
      const auto* vector = reinterpret_cast<const int8_t*>(from(w));
      unrolled<4>([&](auto i) {
        const auto pairs = vreinterpretq_u32_s8(ordered_load(vector + 16 * i));
        const float32x4_t first = vreinterpretq_f32_u32(vandq_u32(pairs, vdupq_n_u32(0xffff0000u)));
        unrolled<R>([&](auto r) { acc[r][w].v[i] = fma_lane<0>(acc[r][w].v[i], first, x[r]); });
        const float32x4_t second = vreinterpretq_f32_u32(vshlq_n_u32(pairs, 16));
        unrolled<R>([&](auto r) { acc[r][w].v[i] = fma_lane<1>(acc[r][w].v[i], second, x[r]); });
      });
    });
  }
  static Lanes store_left(Lanes x, Left* p) {
    const Lanes rounded = x.rounded_to_bf16();
    rounded.store(p);
    return rounded;
  }
};

}  // namespace
}  // namespace pinion

#include "kernels/isa/grouped_neon.h"
#include "kernels/lanes/grouped_tiles.h"
#include "kernels/lanes/ops.h"  // over the lanes and pairs above
#include "kernels/lanes/rows.h"
#include "kernels/lanes/streams.h"

namespace pinion {
namespace {

int8x16_t four_codes(const int8_t* a) {
  int32_t four;
  __builtin_memcpy(&four, a, sizeof four);
  return vreinterpretq_s8_s32(vdupq_n_s32(four));
}

// c [R][64] (+)= R rows by V vectors of 4 columns. Rows are a_row bytes apart, and a_step bytes lead from four codes to
// the next four. A register of sums holds two sums for each of two columns.
template <int R, int V>
void gemm_tile(const int8_t* a, int64_t a_row, int64_t a_step, const int8_t* b, int64_t b_step, int64_t k,
               bool accumulate, int32_t* c) {
  int32x4_t left[R][V];
  int32x4_t right[R][V];
  unrolled<R, V>([&](auto r, auto v) { left[r][v] = right[r][v] = vdupq_n_s32(0); });
  for (int64_t i = 8; i <= k; i += 8, a += 2 * a_step, b += 2 * b_step) {
    int8x16_t x0[R];
    int8x16_t x1[R];
    unrolled<R>([&](auto r) { x0[r] = four_codes(a + r * a_row), x1[r] = four_codes(a + a_step + r * a_row); });
    unrolled<V>([&](auto v) {
      const int8x16_t w0 = ordered_load(b + v * 16);
      const int8x16_t w1 = ordered_load(b + b_step + v * 16);
      unrolled<R>([&](auto r) {
        const int16x8_t low = vmull_s8(vget_low_s8(w0), vget_low_s8(x0[r]));
        const int16x8_t high = vmull_high_s8(w0, x0[r]);
        left[r][v] = vpadalq_s16(left[r][v], vmlal_s8(low, vget_low_s8(w1), vget_low_s8(x1[r])));
        right[r][v] = vpadalq_s16(right[r][v], vmlal_high_s8(high, w1, x1[r]));
      });
    });
  }
  if (k % 8) {
    unrolled<V>([&](auto v) {
      const int8x16_t w = vld1q_s8(b + v * 16);
      unrolled<R>([&](auto r) {
        const int8x16_t x = four_codes(a + r * a_row);
        left[r][v] = vpadalq_s16(left[r][v], vmull_s8(vget_low_s8(w), vget_low_s8(x)));
        right[r][v] = vpadalq_s16(right[r][v], vmull_high_s8(w, x));
      });
    });
  }
  unrolled<R, V>([&](auto r, auto v) {
    int32_t* to = c + r * kPanelColumns + v * 4;
    const int32x4_t sum = vpaddq_s32(left[r][v], right[r][v]);
    vst1q_s32(to, accumulate ? vaddq_s32(sum, vld1q_s32(to)) : sum);
  });
}

void gemv_s8(const int8_t* a, const int8_t* b, int64_t row_bytes, int64_t k, int32_t* acc) {
  for (int64_t c = 0; c < kPanelColumns; c += 32) gemm_tile<1, 8>(a, 0, 4, b + c * 4, row_bytes, k, false, acc + c);
}

constexpr int kRows = 2;  // 2 x 4 x 2 sums, 4 of x, 2 of w, 2 of products: 24 of the 32 registers

void gemm_s8(const GemmTerm* terms, int64_t count, const RowBlocks& blocks, int64_t rows, const int32_t* /*column_sum*/,
             int32_t* acc) {
  for_each_run(terms, count, blocks, [&](const GemmTerm* run, int64_t length, bool accumulate) {
    for_each_register_tile<kRows, 4>(run, length, blocks, rows, [&](auto n, const RowTile& tile, int64_t row) {
      for (int64_t c = 0; c < kPanelColumns; c += 16) {
        for (int64_t i = 0; i < length; ++i) {
          gemm_tile<n, 4>(static_cast<const int8_t*>(run[i].a) + tile.offset_bytes, 4, tile.block_rows * 4,
                          static_cast<const int8_t*>(run[i].b) + c * 4, 4 * kPanelColumns, run[i].k,
                          accumulate || i > 0, acc + row * kPanelColumns + c);
        }
      }
    });
  });
}

// Adds the four sums of each column to its total, and clears them; left and right hold two columns each.
[[gnu::always_inline]] inline void add_folded(int32x4_t* total, int16x8_t* left, int16x8_t* right) {
  *total = vaddq_s32(*total, vpaddq_s32(vpaddlq_s16(*left), vpaddlq_s16(*right)));
  *left = *right = vdupq_n_s16(0);
}

// Codes of four k whose products are added in 16 bits: all of a group (of w4 eight, at most 15240, of w2 thirty-two, at
// most 12192), but two of levels, at most 32258.
template <class Record>
constexpr int64_t kFoldedFours = Record::kHasLevels ? 2 : Record::kK / 4;

// acc [R][64] += R unpacked rows by a record. x: codes of the group.
template <class Record, int R>
void multiply_record(const int8_t* x, int64_t lda, const std::byte* record, float* acc) {
  constexpr int kVectors = 4;
  int32_t x_sum[R];
  unrolled<R>([&](auto r) { x_sum[r] = sum_of_codes<Record>(x + r * lda); });
  for (int64_t c = 0; c < kPanelColumns; c += 4 * kVectors) {
    int16x8_t left[R][kVectors];
    int16x8_t right[R][kVectors];
    int32x4_t total[R][kVectors];
    unrolled<R, kVectors>([&](auto r, auto v) {
      left[r][v] = right[r][v] = vdupq_n_s16(0);
      total[r][v] = initial_sums<Record>(x_sum[r]);
    });
    for (int64_t line = 0; line < Record::kLines; ++line) {
      constexpr int64_t kFoldedLines = kFoldedFours<Record> / Record::kRows;
      int8x16_t four[Record::kRows][R];
      unrolled<Record::kRows>([&](auto i) {
        const int8_t* codes = x + (line * Record::kRows + i) * 4;
        unrolled<R>([&](auto r) { four[i][r] = four_codes(codes + r * lda); });
      });
      unrolled<kVectors>([&](auto v) {
        const auto* from = reinterpret_cast<const int8_t*>(record) + line * 256 + c * 4 + v * 16;
        const int8x16_t codes = ordered_load(from);
        unrolled<Record::kRows>([&](auto i) {
          const int8x16_t w = row_of_line<Record, i>(codes);
          unrolled<R>([&](auto r) {
            left[r][v] = vmlal_s8(left[r][v], vget_low_s8(w), vget_low_s8(four[i][r]));
            right[r][v] = vmlal_high_s8(right[r][v], w, four[i][r]);
          });
        });
      });
      if ((line + 1) % kFoldedLines == 0) {
        unrolled<R, kVectors>([&](auto r, auto v) { add_folded(&total[r][v], &left[r][v], &right[r][v]); });
      }
    }
    unrolled<R, kVectors / 2>([&](auto r, auto v) {
      scale_group<Record>(total[r][2 * v], total[r][2 * v + 1], x_sum[r], record, c + v * 8, acc + r * kPanelColumns);
    });
  }
}

// Kernels::rows_grouped; for one row Rows is a constant.
template <class Rows>
void rows_grouped(const int8_t* a, int64_t lda, Rows rows, const GroupedPanel& first, int64_t panels, float* acc) {
  with_record(first.format, [&](auto type) {
    using Record = decltype(type);
    for_each_record_tile<AccessRow<0>, Record, 1, kRows>(
        a, lda, rows, first, panels, acc, [](const int8_t*) { return 0; },
        [=](auto n, const int8_t* x, const int*, const std::byte* record, const std::byte*, bool accumulate,
            float* to) {
          if (!accumulate) clear_rows<n>(to);
          multiply_record<Record, n>(x, lda, record, to);
        });
  });
}

void gemv_grouped(const int8_t* a, const GroupedPanel& first, int64_t panels, float* acc) {
  rows_grouped(a, 0, Index<1>{}, first, panels, acc);
}

void rows_grouped(const int8_t* a, int64_t lda, int64_t rows, const GroupedPanel& first, int64_t panels, float* acc) {
  if (rows == 1) return gemv_grouped(a, first, panels, acc);
  rows_grouped<int64_t>(a, lda, rows, first, panels, acc);
}

// acc (+)= R rows by V vectors of 4 columns of a slice, from `column` on. row_sums [groups][R]: sums of the rows'
// codes.
template <int R, int V, class Slice>
void grouped_tile(const RowTile& tile, const Slice& slice, const float (*row_sums)[R], int64_t column, bool accumulate,
                  float* acc) {
  const int8_t* a = static_cast<const int8_t*>(tile.terms->a) + tile.offset_bytes;
  const int8_t* b = slice.codes + column * 4;
  for (int64_t g = 0; g < slice.groups; ++g) {
    int16x8_t left[R][V];
    int16x8_t right[R][V];
    int32x4_t total[R][V];
    unrolled<R, V>([&](auto r, auto v) {
      left[r][v] = right[r][v] = vdupq_n_s16(0);
      total[r][v] = vdupq_n_s32(0);
    });
    for (int64_t four = 0; four < Slice::kK / 4; ++four, a += tile.block_rows * 4, b += 4 * kPanelColumns) {
      int8x16_t x[R];
      unrolled<R>([&](auto r) { x[r] = four_codes(a + r * 4); });
      unrolled<V>([&](auto v) {
        const int8x16_t w = ordered_load(b + v * 16);
        unrolled<R>([&](auto r) {
          left[r][v] = vmlal_s8(left[r][v], vget_low_s8(w), vget_low_s8(x[r]));
          right[r][v] = vmlal_high_s8(right[r][v], w, x[r]);
        });
      });
      if ((four + 1) % kFoldedFours<Slice> == 0) {
        unrolled<R, V>([&](auto r, auto v) { add_folded(&total[r][v], &left[r][v], &right[r][v]); });
      }
    }
    unrolled<V>([&](auto v) {
      const float32x4_t scale = vld1q_f32(slice.scales + g * kPanelColumns + column + v * 4);
      unrolled<R>([&](auto r) {
        float32x4_t exact = vcvtq_f32_s32(total[r][v]);
        if constexpr (Slice::kHasZeros) {
          const float32x4_t zero = vld1q_f32(slice.zero_points + g * kPanelColumns + column + v * 4);
          exact = vfmsq_n_f32(exact, zero, row_sums[g][r]);
        }
        add_scaled(exact, scale, accumulate || g > 0, acc + r * kPanelColumns + column + v * 4);
      });
    });
  }
}

// The sums of R rows' codes in each group of a slice.
template <int R, class Slice>
void sum_rows(const RowTile& tile, const Slice& slice, float (*sums)[R]) {
  const int8_t* a = static_cast<const int8_t*>(tile.terms->a) + tile.offset_bytes;
  for (int64_t g = 0; g < slice.groups; ++g) {
    int16x8_t sum = vdupq_n_s16(0);  // four of each row
    for (int64_t i = 0; i < Slice::kK; i += 4, a += tile.block_rows * 4) {
      int64_t codes = 0;
      __builtin_memcpy(&codes, a, R * 4);
      sum = vaddw_s8(sum, vcreate_s8(static_cast<uint64_t>(codes)));
    }
    sums[g][0] = static_cast<float>(vaddlv_s16(vget_low_s16(sum)));
    if constexpr (R == 2) sums[g][1] = static_cast<float>(vaddlv_s16(vget_high_s16(sum)));
  }
}

template <class Record>
void gemm_grouped_by(const int8_t* a, const RowBlocks& blocks, int64_t rows, const GroupedPanel& panel, float* acc) {
  using Slice = std::conditional_t<Record::kHasZeros, UnsignedSlice<Record>, ExpandedSlice<Record, false>>;
  const auto tiles = [](auto n, const RowTile& tile, const Slice& slice, int64_t, bool accumulate, float* to) {
    float row_sums[Slice::kMaxGroups][n];
    if constexpr (Slice::kHasZeros) sum_rows<n>(tile, slice, row_sums);
    for (int64_t c = 0; c < kPanelColumns; c += 16) grouped_tile<n, 4>(tile, slice, row_sums, c, accumulate, to);
  };
  for_each_grouped_tile<Slice, kRows, kPanelColumns, 4>(a, blocks, rows, panel, acc, tiles);
}

void gemm_grouped(const int8_t* a, const RowBlocks& blocks, int64_t rows, const GroupedPanel& panel, float* acc) {
  with_record(panel.format, [&](auto record) { gemm_grouped_by<decltype(record)>(a, blocks, rows, panel, acc); });
}

// Reads panels as one stream, whatever the access pattern.
void rows_s8(const int8_t* a, int64_t lda, int64_t rows, const int8_t* panel, int64_t k, int32_t* acc) {
  if (rows == 1) return gemv_s8(a, panel, 4 * kPanelColumns, k, acc);
  for_each_slice<AccessRow<0>, 16>(k, [&](const PanelSlice& slice) {
    for (int64_t c = 0; c < kPanelColumns; c += 16) {
      for_each_strip(slice, a, panel, c, [&](const int8_t* x, const int8_t* b, const int8_t* ahead) {
        prefetch<kSliceK * 16, 1>(ahead);
        for_each_even_tile<1, kRows>(rows, [&](auto n, int64_t r) {
          gemm_tile<n, 4>(x + r * lda, lda, 4, b, 4 * kPanelColumns, slice.strip_k, slice.first > 0,
                          acc + r * kPanelColumns + c);
        });
      });
    }
  });
}

// acc [rows][64] = unpacked rows by 64 columns, for attention.
void multiply_rows(const int8_t* a, int64_t lda, int64_t rows, const int8_t* b, int64_t row_bytes, int64_t k,
                   int32_t* acc) {
  for (int64_t r = 0; r < rows; r += kRows) {
    with_rows<kRows>(rows - r, [&](auto n) {
      for (int64_t c = 0; c < kPanelColumns; c += 16) {
        gemm_tile<n, 4>(a + r * lda, lda, 4, b + c * 4, row_bytes, k, false, acc + r * kPanelColumns + c);
      }
    });
  }
}

constexpr Kernels kTable = lanes_table({.name = "neon",
                                        .gemv_s8 = gemv_s8,
                                        .pack_s8 = pack_s8<4, 0>,
                                        .gemm_s8 = gemm_s8,
                                        .s8_shape = {.rows = kRows, .row_multiple = 1, .group = 4},
                                        .gemv_grouped = gemv_grouped,
                                        .gemm_grouped = gemm_grouped,
                                        .few_rows = 12,
                                        .rows_s8 = rows_s8,
                                        .rows_grouped = rows_grouped,
                                        .make_query_s8 = make_query_s8<Digits<multiply_rows, multiply_rows>>,
                                        .attend_s8 = attend_s8<Digits<multiply_rows, multiply_rows>>});

}  // namespace

const Kernels& neon_kernels() { return kTable; }

}  // namespace pinion
