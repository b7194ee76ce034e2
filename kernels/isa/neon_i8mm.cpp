// NEON with SMMLA (Cortex-A510, A710 and later): 2 rows by 2 columns by 8 k an instruction. Two packed rows are its
// operand as they lie, two columns are made from two neighbouring k4 rows of the panel by zip1/zip2 on 32-bit lanes. A
// single row has nothing to gain: SDOT does it.
#include <arm_neon.h>

#include "kernels/isa/rows_sdot.h"
#include "kernels/isa/w4_neon.h"
#include "kernels/kernels.h"
#include "kernels/lanes/neon.h"

#include "kernels/lanes/attention_s8.h"  // over the lanes above
#include "kernels/lanes/ordered_load.h"
#include "kernels/lanes/pack_rows.h"
#include "kernels/lanes/row_tiles.h"
#include "kernels/lanes/w4_tiles.h"

namespace pinion {
namespace {

// A zip serves as many SMMLA as there are pairs of rows, so the tile is tall: 6 pairs by 4 pairs of columns.
constexpr int kRows = 12;
constexpr int kVectors = 2;  // of 4 columns

// `rows` of P pairs of rows by 8 columns; `column` is the first of these, c its sum.
template <int P>
[[gnu::always_inline]] inline void gemm_tile(const RowTile& tile, int64_t row_bytes, int64_t column, int rows,
                                             bool accumulate, int32_t* c) {
  int32x4_t sum[P][2 * kVectors];  // of a pair of columns: row 0 column 0, 0 1, 1 0, 1 1
  unrolled<P>([&](auto p) { unrolled<2 * kVectors>([&](auto v) { sum[p][v] = vdupq_n_s32(0); }); });
  for (const GemmTerm* term = tile.terms; term < tile.terms + tile.count; ++term) {
    const int8_t* a = static_cast<const int8_t*>(term->a) + tile.at_bytes;
    const int8_t* b = static_cast<const int8_t*>(term->b) + column * 4;
    for (int64_t i = 0; i < term->k; i += 8, a += tile.block_rows * 8, b += 2 * row_bytes) {
      int8x16_t w[2 * kVectors];
      unrolled<kVectors>([&](auto v) {
        const int32x4_t w0 = vreinterpretq_s32_s8(vld1q_s8(b + v * 16));
        const int32x4_t w1 = vreinterpretq_s32_s8(vld1q_s8(b + row_bytes + v * 16));
        w[2 * v] = vreinterpretq_s8_s32(vzip1q_s32(w0, w1));
        w[2 * v + 1] = vreinterpretq_s8_s32(vzip2q_s32(w0, w1));
      });
      unrolled<P>([&](auto p) {
        const int8x16_t x = ordered_load(a + p * 16);
        unrolled<2 * kVectors>([&](auto v) { sum[p][v] = vmmlaq_s32(sum[p][v], x, w[v]); });
      });
    }
  }
  const auto store = [&](int64_t row, int64_t v, int64x2_t sums) {
    int32_t* to = c + row * kPanelColumns + v * 4;
    const int32x4_t value = vreinterpretq_s32_s64(sums);
    vst1q_s32(to, accumulate ? vaddq_s32(value, vld1q_s32(to)) : value);
  };
  // Copies, since what is called below knows where they are: that would keep the sums in memory in the loop, too.
  int64x2_t pair[P][2 * kVectors];
  unrolled<P>([&](auto p) { unrolled<2 * kVectors>([&](auto v) { pair[p][v] = vreinterpretq_s64_s32(sum[p][v]); }); });
  unrolled<P>([&](auto p) {
    unrolled<kVectors>([&](auto v) {
      const int64x2_t left = pair[p][2 * v], right = pair[p][2 * v + 1];
      store(2 * p, v, vzip1q_s64(left, right));
      if (2 * p + 1 < rows) store(2 * p + 1, v, vzip2q_s64(left, right));
    });
  });
}

void gemm_s8(const GemmTerm* terms, int64_t count, const RowBlocks& blocks, int64_t rows, const int32_t* /*column_sum*/,
             int32_t* acc) {
  each_run(terms, count, blocks, [&](const GemmTerm* run, int64_t length, bool accumulate) {
    each_row_tile<kRows, 8>(run, length, blocks, rows, [&](auto n, const RowTile& tile, int64_t row) {
      for (int64_t c = 0; c < kPanelColumns; c += 4 * kVectors) {
        gemm_tile<(n + 1) / 2>(tile, 4 * kPanelColumns, c, n, accumulate, acc + row * kPanelColumns + c);
      }
    });
  });
}

constexpr int kW4Rows = 6;  // 3 pairs by 4 pairs of columns: 12 sums of a group and 12 of all, 4 vectors of w, one of x

// `rows` of P pairs of rows by 8 columns; `column` is the first. The piece's codes are zipped already; a vector of sums
// holds row 0 column 0, 0 1, 1 0, 1 1.
template <int P>
void w4_tile(int rows, const RowTile& tile, const W4Piece<true>& piece, int64_t column, bool accumulate, float* acc) {
  const auto at = [&](int r, int v) { return acc + r * kPanelColumns + column + v * 2; };
  const auto below = [&](int p) { return 2 * p + 1 < rows ? 2 * p + 1 : 2 * p; };  // where it exists
  float32x4_t total[P][4];
  unrolled<P>([&](auto p) {
    unrolled<4>([&](auto v) {
      total[p][v] = accumulate ? vcombine_f32(vld1_f32(at(2 * p, v)), vld1_f32(at(below(p), v))) : vdupq_n_f32(0.0f);
    });
  });
  const int8_t* a = static_cast<const int8_t*>(tile.terms->a) + tile.at_bytes;
  const int8_t* b = piece.codes + column * 8;
  for (int64_t g = column; g < piece.groups * kPanelColumns; g += kPanelColumns) {
    int32x4_t sum[P][4];
    unrolled<P>([&](auto p) { unrolled<4>([&](auto v) { sum[p][v] = no_sum(); }); });
    for (int64_t i = 0; i < kBlockK; i += 8, a += tile.block_rows * 8, b += 8 * kPanelColumns) {
      int8x16_t w[4];
      unrolled<4>([&](auto v) { w[v] = vld1q_s8(b + v * 16); });
      unrolled<P>([&](auto p) {
        const int8x16_t x = ordered_load(a + p * 16);
        unrolled<4>([&](auto v) { sum[p][v] = vmmlaq_s32(sum[p][v], x, w[v]); });
      });
    }
    unrolled<4>([&](auto v) {
      const float32x2_t two = vld1_f32(piece.scales + g + v * 2);
      const float32x4_t scale = vcombine_f32(two, two);
      unrolled<P>([&](auto p) { total[p][v] = vfmaq_f32(total[p][v], to_float(sum[p][v]), scale); });
    });
  }
  unrolled<P>([&](auto p) {
    unrolled<4>([&](auto v) {
      vst1_f32(at(2 * p, v), vget_low_f32(total[p][v]));
      if (2 * p + 1 < rows) vst1_f32(at(2 * p + 1, v), vget_high_f32(total[p][v]));
    });
  });
}

void gemm_w4(const int8_t* a, const RowBlocks& blocks, int64_t rows, const W4Panel& panel, float* acc) {
  each_w4_tile<W4Piece<true>, kW4Rows, 8, 8>(a, blocks, rows, panel, acc,
                                             [](auto n, const auto&... args) { w4_tile<(n + 1) / 2>(n, args...); });
}

// Rows as pack_s8 packs them, for k a multiple of 16, where that has to be quick. The last of an odd number is there
// twice.
void pack_pairs(const int8_t* a, int64_t lda, int64_t rows, int64_t k, int8_t* packed) {
  const int64_t step = round_up(rows, 2) * 8;
  for (int64_t r = 0; r < rows; r += 2, packed += 16) {
    const int8_t* first = a + r * lda;
    const int8_t* second = r + 1 < rows ? first + lda : first;
    int8_t* to = packed;
    for (int64_t i = 0; i < k; i += 16, to += 2 * step) {
      const int64x2_t x = vreinterpretq_s64_s8(vld1q_s8(first + i)), y = vreinterpretq_s64_s8(vld1q_s8(second + i));
      vst1q_s8(to, vreinterpretq_s8_s64(vzip1q_s64(x, y)));
      vst1q_s8(to + step, vreinterpretq_s8_s64(vzip2q_s64(x, y)));
    }
  }
}

// Rows of attention, packed in pairs. Of one or two SDOT has as much; heads that would not fit are rare.
void multiply_rows(const int8_t* a, int64_t lda, int64_t rows, const int8_t* b, int64_t row_bytes, int64_t k,
                   int32_t* acc) {
  if (rows <= 2 || k > kAttentionChunk) return sdot_rows(a, lda, rows, b, row_bytes, k, acc);
  int8_t packed[kRows * kAttentionChunk];
  for (int64_t first = 0, count; first < rows; first += count) {
    const int64_t tiles = (rows - first + kRows - 1) / kRows;
    count = (rows - first + tiles - 1) / tiles;
    pack_pairs(a + first * lda, lda, count, k, packed);
    const GemmTerm term = {packed, b, k};
    with_rows<kRows>(count, [&](auto n) {
      for (int64_t c = 0; c < kPanelColumns; c += 4 * kVectors) {
        gemm_tile<(n + 1) / 2>({&term, 1, round_up(count, 2), 0}, row_bytes, c, n, false,
                               acc + first * kPanelColumns + c);
      }
    });
  }
}

using Attention = Digits<multiply_rows, multiply_rows>;

}  // namespace

const Kernels& neon_i8mm_kernels() {
  static const Kernels kTable = [] {
    Kernels table = neon_dotprod_kernels();
    table.name = "neon_i8mm";
    table.pack_s8 = pack_s8<8, 0>;
    table.gemm_s8 = gemm_s8;
    table.s8_shape = {.rows = kRows, .row_multiple = 2, .group = 8};
    table.gemm_w4 = gemm_w4;
    table.make_query_s8 = make_query_s8<Attention>;
    table.attend_s8 = attend_s8<Attention>;
    return table;
  }();
  return kTable;
}

}  // namespace pinion
