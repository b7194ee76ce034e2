// NEON with SMMLA (Cortex-A510, A710 and later): 2 rows by 2 columns by 8 k an instruction. Two packed rows are its
// operand as they lie, two columns are made from two neighbouring k4 rows of the panel by zip1/zip2 on 32-bit lanes. A
// single row has nothing to gain: SDOT does it.
#include <arm_neon.h>

#include "kernels/isa/grouped_neon.h"
#include "kernels/isa/rows_sdot.h"
#include "kernels/kernels.h"
#include "kernels/lanes/neon.h"

#include "kernels/lanes/attention_s8.h"  // over the lanes above
#include "kernels/lanes/few_rows.h"
#include "kernels/lanes/grouped_tiles.h"
#include "kernels/lanes/ordered_load.h"
#include "kernels/lanes/pack_rows.h"
#include "kernels/lanes/row_tiles.h"
#include "kernels/lanes/streams.h"

namespace pinion {
namespace {

// A zip serves as many SMMLA as there are pairs of rows, so the tile is tall: 6 pairs by 4 pairs of columns.
constexpr int kRows = 12;
constexpr int kVectors = 2;  // of 4 columns

// Eight columns of two rows of four k, as SMMLA takes them: in each register two columns' eight k.
[[gnu::always_inline]] inline void zip_rows(const int8x16_t (&first)[2], const int8x16_t (&second)[2],
                                            int8x16_t (&w)[4]) {
  unrolled<2>([&](auto v) {
    const int32x4_t w0 = vreinterpretq_s32_s8(first[v]), w1 = vreinterpretq_s32_s8(second[v]);
    w[2 * v] = vreinterpretq_s8_s32(vzip1q_s32(w0, w1));
    w[2 * v + 1] = vreinterpretq_s8_s32(vzip2q_s32(w0, w1));
  });
}

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
      const int8x16_t first[2] = {vld1q_s8(b), vld1q_s8(b + 16)};
      const int8x16_t second[2] = {vld1q_s8(b + row_bytes), vld1q_s8(b + row_bytes + 16)};
      int8x16_t w[2 * kVectors];
      zip_rows(first, second, w);
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

// A row tile by all columns. By itself: inlined for every number of rows, GCC keeps the sums of six in memory.
template <int P>
[[gnu::noinline]] void gemm_tiles(const RowTile& tile, int rows, bool accumulate, int32_t* acc) {
  for (int64_t c = 0; c < kPanelColumns; c += 4 * kVectors) {
    gemm_tile<P>(tile, 4 * kPanelColumns, c, rows, accumulate, acc + c);
  }
}

void gemm_s8(const GemmTerm* terms, int64_t count, const RowBlocks& blocks, int64_t rows, const int32_t* /*column_sum*/,
             int32_t* acc) {
  each_run(terms, count, blocks, [&](const GemmTerm* run, int64_t length, bool accumulate) {
    each_row_tile<kRows, 8>(run, length, blocks, rows, [&](auto n, const RowTile& tile, int64_t row) {
      gemm_tiles<(n + 1) / 2>(tile, n, accumulate, acc + row * kPanelColumns);
    });
  });
}

// By 4 pairs of columns: 3 pairs, 12 sums of a group and 12 of all, 4 vectors of w, one of x; or 6 pairs and 24 sums.
template <class Piece>
constexpr int kGroupedRows = kHoldsTotals<Piece> ? 6 : 12;

// `rows` of P pairs of rows by 8 columns; `column` is the first. The piece's codes are zipped already; a vector of sums
// holds row 0 column 0, 0 1, 1 0, 1 1.
template <int P, class Piece>
void grouped_tile(int rows, const RowTile& tile, const Piece& piece, int64_t column, bool accumulate, float* acc) {
  const auto at = [&](int r, int v) { return acc + r * kPanelColumns + column + v * 2; };
  const auto below = [&](int p) { return 2 * p + 1 < rows ? 2 * p + 1 : 2 * p; };  // where it exists
  const auto stored = [&](int p, int v) {
    return accumulate ? vcombine_f32(vld1_f32(at(2 * p, v)), vld1_f32(at(below(p), v))) : vdupq_n_f32(0.0f);
  };
  const auto store = [&](int p, int v, float32x4_t value) {
    vst1_f32(at(2 * p, v), vget_low_f32(value));
    if (2 * p + 1 < rows) vst1_f32(at(2 * p + 1, v), vget_high_f32(value));
  };
  float32x4_t total[P][4];
  if constexpr (kHoldsTotals<Piece>) {
    unrolled<P>([&](auto p) { unrolled<4>([&](auto v) { total[p][v] = stored(p, v); }); });
  }
  const int8_t* a = static_cast<const int8_t*>(tile.terms->a) + tile.at_bytes;
  const int8_t* b = piece.codes + column * 8;
  for (int64_t g = column; g < piece.groups * kPanelColumns; g += kPanelColumns) {
    int32x4_t sum[P][4];
    unrolled<P>([&](auto p) { unrolled<4>([&](auto v) { sum[p][v] = no_sum(); }); });
    for (int64_t i = 0; i < Piece::kK; i += 8, a += tile.block_rows * 8, b += 8 * kPanelColumns) {
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
      unrolled<P>([&](auto p) {
        const float32x4_t before = kHoldsTotals<Piece> ? total[p][v] : stored(p, v);
        total[p][v] = vfmaq_f32(before, to_float(sum[p][v]), scale);
        if constexpr (!kHoldsTotals<Piece>) store(p, v, total[p][v]);
      });
    });
  }
  if constexpr (kHoldsTotals<Piece>) {
    unrolled<P>([&](auto p) { unrolled<4>([&](auto v) { store(p, v, total[p][v]); }); });
  }
}

void gemm_grouped(const int8_t* a, const RowBlocks& blocks, int64_t rows, const GroupedPanel& panel, float* acc) {
  with_codes_of(panel.format, [&](auto record) {
    using Piece = ExpandedPiece<decltype(record), true>;
    each_grouped_tile<Piece, kGroupedRows<Piece>, 8, 8>(
        a, blocks, rows, panel, acc, [](auto n, const auto&... args) { grouped_tile<(n + 1) / 2>(n, args...); });
  });
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
  each_even_tile<2, kRows>(rows, [&](auto n, int64_t first) {
    constexpr int kPairs = (n + 1) / 2;
    pack_pairs(a + first * lda, lda, n, k, packed);
    const GemmTerm term = {packed, b, k};
    for (int64_t c = 0; c < kPanelColumns; c += 4 * kVectors) {
      gemm_tile<kPairs>({&term, 1, 2 * kPairs, 0}, row_bytes, c, n, false, acc + first * kPanelColumns + c);
    }
  });
}

using Attention = Digits<multiply_rows, multiply_rows>;

constexpr int64_t kLeastPaired = 4;  // rows; of two or three SDOT has as much

// Sums of P pairs of rows as SMMLA leaves them, until all k are added: [P][32][4], of a pair of columns row 0 column 0,
// 0 1, 1 0, 1 1.
constexpr int64_t kPairSums = 2 * kPanelColumns;

// acc[rows][64] = such sums, of 32 bits each.
void store_pairs(const void* sums, int64_t rows, void* acc) {
  constexpr int64_t kRowBytes = 4 * kPanelColumns;
  const auto* from = static_cast<const std::byte*>(sums);
  auto* to = static_cast<std::byte*>(acc);
  for (int64_t r = 0; r < rows; r += 2, to += 2 * kRowBytes) {
    for (int64_t c = 0; c < kRowBytes; c += 16, from += 32) {
      int64x2_t pairs[2];
      __builtin_memcpy(pairs, from, sizeof pairs);
      const int64x2_t first = vzip1q_s64(pairs[0], pairs[1]), second = vzip2q_s64(pairs[0], pairs[1]);
      __builtin_memcpy(to + c, &first, sizeof first);
      if (r + 1 < rows) __builtin_memcpy(to + kRowBytes + c, &second, sizeof second);
    }
  }
}

// Eight columns by eight k of w8, loaded in order (ordered_load.h).
[[gnu::always_inline]] inline void load_rows(const int8_t* b, int64_t row_bytes, int8x16_t (&w)[4]) {
  int8x16_t first[2], second[2];
  unrolled<2>([&](auto v) { first[v] = ordered_load(b + v * 16); });
  unrolled<2>([&](auto v) { second[v] = ordered_load(b + row_bytes + v * 16); });
  zip_rows(first, second, w);
}

// sums += P pairs of packed rows by 8 columns of a piece, `column` the first.
template <int P>
[[gnu::always_inline]] inline void few_rows_tile(const int8_t* packed, const int8_t* panel, const PanelPiece& piece,
                                                 int64_t column, int32_t* sums) {
  const auto at = [&](int p, int v) { return sums + p * kPairSums + column * 2 + v * 4; };
  int32x4_t sum[P][4];
  unrolled<P>([&](auto p) { unrolled<4>([&](auto v) { sum[p][v] = vld1q_s32(at(p, v)); }); });
  each_strip(piece, packed, panel, column, [&](const int8_t*, const int8_t* b, const int8_t* ahead) {
    for (const int8_t* end = packed + piece.strip_k * 2 * P; packed < end; packed += P * 16) {
      prefetch<kAlignmentBytes, 1>(ahead);
      int8x16_t w[4];
      load_rows(b, 4 * kPanelColumns, w);
      unrolled<P>([&](auto p) {
        const int8x16_t two = ordered_load(packed + p * 16);
        unrolled<4>([&](auto v) { sum[p][v] = vmmlaq_s32(sum[p][v], two, w[v]); });
      });
      b += 8 * kPanelColumns, ahead += kAlignmentBytes;
    }
  });
  unrolled<P>([&](auto p) { unrolled<4>([&](auto v) { vst1q_s32(at(p, v), sum[p][v]); }); });
}

template <int P>
[[gnu::noinline]] void few_rows_piece(const int8_t* a, int64_t lda, int64_t rows, const int8_t* panel,
                                      const PanelPiece& piece, int32_t* sums) {
  int8_t packed[2 * P * kPieceK];
  int8_t* to = packed;
  each_strip(piece, a, panel, 0, [&](const int8_t* x, const int8_t*, const int8_t*) {
    pack_pairs(x, lda, rows, piece.strip_k, to);
    to += piece.strip_k * 2 * P;
  });
  for (int64_t c = 0; c < kPanelColumns; c += 8) few_rows_tile<P>(packed, panel, piece, c, sums);
}

void rows_s8(const int8_t* a, int64_t lda, int64_t rows, const int8_t* panel, int64_t k, int32_t* acc) {
  if (rows < kLeastPaired) return neon_dotprod_kernels().rows_s8(a, lda, rows, panel, k, acc);
  int32_t sums[kRows / 2 * kPairSums] = {};
  const auto multiply = [&](const PanelPiece& piece) {
    with_rows<kRows / 2, kLeastPaired / 2>((rows + 1) / 2,
                                           [&](auto p) { few_rows_piece<p>(a, lda, rows, panel, piece, sums); });
  };
  with_access_pattern([&](auto way) {
    using Way = decltype(way);
    static_assert(kMostPieceK<Way> <= kPieceK, "or packed rows do not fit");
    each_piece<Way, 16>(k, multiply);
  });
  store_pairs(sums, rows, acc);
}

// Eight columns by eight k of a line: its rows 2 * Pair and the next one.
template <class Record, int Pair>
[[gnu::always_inline]] inline void expand_rows(const std::byte* from, int8x16_t (&w)[4]) {
  int8x16_t low[2], high[2];
  unrolled<2>([&](auto v) {
    const int8x16_t line = ordered_load(reinterpret_cast<const int8_t*>(from) + v * 16);
    low[v] = row_of_line<Record, 2 * Pair>(line);
    high[v] = row_of_line<Record, 2 * Pair + 1>(line);
  });
  zip_rows(low, high, w);
}

// What two columns share: of a vector of four columns the left two, or the right two, for both rows of a pair.
[[gnu::always_inline]] inline float32x4_t twice(float32x4_t x, bool right) {
  const auto pairs = vreinterpretq_f64_f32(x);
  return vreinterpretq_f32_f64(right ? vzip2q_f64(pairs, pairs) : vzip1q_f64(pairs, pairs));
}

// As gemv_grouped, for P pairs of rows as they lie; the last of them may be one row. acc: [panels][rows][64]. Until all
// groups are added, totals lie as SMMLA leaves sums, those of the panels of a run one behind the other.
template <class Record, int P>
struct FewGroupedRows {
  static constexpr int64_t kMostPanels = 4;  // of a run

  int8x16_t x[Record::kK / 8][P];  // a group's codes
  int32x4_t excess[P];             // their sums, times the zero where columns have none of their own; each row's twice
  alignas(kAlignmentBytes) float totals[kMostPanels * P * kPairSums];

  [[gnu::noinline]] void begin(const int8_t* codes, int64_t lda, int64_t rows) {
    pack_pairs(codes, lda, rows, Record::kK, reinterpret_cast<int8_t*>(x));
    const int8x16_t zero = vdupq_n_s8(Record::kHasZeros ? 1 : Record::kZero);
    unrolled<P>([&](auto p) {
      int32x4_t sum = vdupq_n_s32(0);
      for (int64_t i = 0; i < Record::kK / 8; ++i) sum = vmmlaq_s32(sum, x[i][p], zero);
      excess[p] = sum;
    });
  }

  [[gnu::noinline]] void add(const std::byte* record, bool accumulate, float* to) const {
    for (int64_t i = 0; !accumulate && i < P * kPairSums; i += 4) vst1q_f32(to + i, vdupq_n_f32(0.0f));
    for (int64_t c = 0; c < kPanelColumns; c += 8) add_columns(record, c, to);
  }

  // Eight columns of a record.
  [[gnu::always_inline]] void add_columns(const std::byte* record, int64_t column, float* to) const {
    int32x4_t sum[P][4];
    unrolled<P>([&](auto p) {
      const int32x4_t start = Record::kHasZeros ? no_sum() : vsubq_s32(no_sum(), excess[p]);
      unrolled<4>([&](auto v) { sum[p][v] = start; });
    });
#pragma GCC unroll 1  // else GCC mixes two steps, with sums on the stack
    for (int64_t line = 0; line < Record::kLines; ++line) {
      unrolled<Record::kRows / 2>([&](auto pair) {
        int8x16_t w[4];
        expand_rows<Record, pair>(record + line * 256 + column * 4, w);
        unrolled<P>([&](auto p) {
          const int8x16_t two = ordered(x[line * (Record::kRows / 2) + pair][p]);
          unrolled<4>([&](auto v) { sum[p][v] = vmmlaq_s32(sum[p][v], two, w[v]); });
        });
      });
    }
    const std::byte* scales = record + Record::kCodeBytes;
    const float16x8_t halves = vreinterpretq_f16_u16(vld1q_u16(reinterpret_cast<const uint16_t*>(scales) + column));
    const float32x4_t scale[2] = {vcvt_f32_f16(vget_low_f16(halves)), vcvt_high_f32_f16(halves)};
    int32x4_t zero[2];
    if constexpr (Record::kHasZeros) {
      const auto* zero_points = reinterpret_cast<const uint8_t*>(scales + kPanelColumns * 2);
      const uint16x8_t wide = vmovl_u8(vld1_u8(zero_points + column));
      zero[0] = vreinterpretq_s32_u32(vmovl_u16(vget_low_u16(wide)));
      zero[1] = vreinterpretq_s32_u32(vmovl_high_u16(wide));
    }
    unrolled<4>([&](auto v) {
      constexpr bool kRight = v % 2;
      const float32x4_t by = twice(scale[v / 2], kRight);
      unrolled<P>([&](auto p) {
        int32x4_t exact = sum[p][v];
        if constexpr (Record::kHasZeros) {
          const auto z = vreinterpretq_s32_f32(twice(vreinterpretq_f32_s32(zero[v / 2]), kRight));
          exact = vmlsq_s32(exact, z, excess[p]);
        }
        float* total = to + p * kPairSums + column * 2 + v * 4;
        vst1q_f32(total, vfmaq_f32(vld1q_f32(total), to_float(exact), by));
      });
    });
  }

  template <class Way>
  static void run(const int8_t* a, int64_t lda, int64_t rows, GroupedPanel first, int64_t panels, float* acc) {
    constexpr int64_t kRun = Way::kPattern.w4_panels;
    static_assert(kRun <= kMostPanels);
    FewGroupedRows s;
    for (int64_t count; panels > 0; panels -= count) {
      count = panels < kRun ? panels : kRun;
      each_record<Way, Record>(
          a, first, count, s.totals, [&](const int8_t* codes) { s.begin(codes, lda, rows); },
          [&](const std::byte* record, const std::byte* ahead, bool accumulate, float* to) {
            prefetch_record<Way, Record>(ahead);
            s.add(record, accumulate, to);
          },
          P * kPairSums);
      for (int64_t p = 0; p < count; ++p) {
        store_pairs(s.totals + p * P * kPairSums, rows, acc + p * rows * kPanelColumns);
      }
      first.records += count * panel_bytes(first.format, first.k);
      acc += count * rows * kPanelColumns;
    }
  }
};

void rows_grouped(const int8_t* a, int64_t lda, int64_t rows, const GroupedPanel& first, int64_t panels, float* acc) {
  if (rows < kLeastPaired) return neon_dotprod_kernels().rows_grouped(a, lda, rows, first, panels, acc);
  with_access_pattern([&](auto way) {
    with_rows<kRows / 2, kLeastPaired / 2>((rows + 1) / 2, [&](auto p) {
      with_record(first.format, [&](auto record) {
        FewGroupedRows<decltype(record), decltype(p){}>::template run<decltype(way)>(a, lda, rows, first, panels, acc);
      });
    });
  });
}

}  // namespace

const Kernels& neon_i8mm_kernels() {
  static const Kernels kTable = [] {
    Kernels table = neon_dotprod_kernels();
    table.name = "neon_i8mm";
    table.pack_s8 = pack_s8<8, 0>;
    table.gemm_s8 = gemm_s8;
    table.s8_shape = {.rows = kRows, .row_multiple = 2, .group = 8};
    table.gemm_grouped = gemm_grouped;
    table.rows_s8 = rows_s8;
    table.rows_grouped = rows_grouped;
    table.make_query_s8 = make_query_s8<Attention>;
    table.attend_s8 = attend_s8<Attention>;
    return table;
  }();
  return kTable;
}

}  // namespace pinion
