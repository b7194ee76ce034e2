// NEON with SMMLA (Cortex-A510, A710 and later): each instruction multiplies 2 rows by 2 columns by 8 k. Two packed
// rows are one operand; ZIP1 and ZIP2 on 32-bit lanes make the other from two neighbouring rows of four k of the panel.
// A single row gains nothing, so SDOT multiplies it.
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

// Each ZIP serves one SMMLA per pair of rows, so tiles are tall: 6 pairs of rows by 4 pairs of columns.
constexpr int kRows = 12;
constexpr int kVectors = 2;  // of 4 columns

// Eight columns of two rows of four k as SMMLA reads them: each register holds eight k of two columns.
[[gnu::always_inline]] inline void zip_rows(const int8x16_t (&first)[2], const int8x16_t (&second)[2],
                                            int8x16_t (&w)[4]) {
  unrolled<2>([&](auto v) {
    const int32x4_t w0 = vreinterpretq_s32_s8(first[v]), w1 = vreinterpretq_s32_s8(second[v]);
    w[2 * v] = vreinterpretq_s8_s32(vzip1q_s32(w0, w1));
    w[2 * v + 1] = vreinterpretq_s8_s32(vzip2q_s32(w0, w1));
  });
}

// sum += P packed pairs of rows by 4 pairs of columns.
template <int P>
[[gnu::always_inline]] inline void add_pairs(const int8_t* a, const int8x16_t (&w)[4], int32x4_t (&sum)[P][4]) {
  unrolled<P>([&](auto p) {
    const int8x16_t x = ordered_load(a + p * 16);
    unrolled<4>([&](auto v) { sum[p][v] = vmmlaq_s32(sum[p][v], x, w[v]); });
  });
}

// c [rows][64] (+)= `rows` rows, P pairs, by 8 columns of the panel, from `column` on.
template <int P>
[[gnu::always_inline]] inline void gemm_tile(const RowTile& tile, int64_t row_bytes, int64_t column, int rows,
                                             bool accumulate, int32_t* c) {
  int32x4_t sum[P][2 * kVectors];  // (row, column) of a pair of columns: (0, 0), (0, 1), (1, 0), (1, 1)
  unrolled<P, 2 * kVectors>([&](auto p, auto v) { sum[p][v] = vdupq_n_s32(0); });
  for (const GemmTerm* term = tile.terms; term < tile.terms + tile.count; ++term) {
    const int8_t* a = static_cast<const int8_t*>(term->a) + tile.offset_bytes;
    const int8_t* b = static_cast<const int8_t*>(term->b) + column * 4;
    for (int64_t i = 0; i < term->k; i += 8, a += tile.block_rows * 8, b += 2 * row_bytes) {
      const int8x16_t first[2] = {vld1q_s8(b), vld1q_s8(b + 16)};
      const int8x16_t second[2] = {vld1q_s8(b + row_bytes), vld1q_s8(b + row_bytes + 16)};
      int8x16_t w[2 * kVectors];
      zip_rows(first, second, w);
      add_pairs(a, w, sum);
    }
  }
  const auto store = [&](int64_t row, int64_t v, int64x2_t sums) {
    int32_t* to = c + row * kPanelColumns + v * 4;
    const int32x4_t value = vreinterpretq_s32_s64(sums);
    vst1q_s32(to, accumulate ? vaddq_s32(value, vld1q_s32(to)) : value);
  };
  // Copies: the calls below take addresses, which would force the sums of the loop into memory, too.
  int64x2_t pair[P][2 * kVectors];
  unrolled<P, 2 * kVectors>([&](auto p, auto v) { pair[p][v] = vreinterpretq_s64_s32(sum[p][v]); });
  unrolled<P, kVectors>([&](auto p, auto v) {
    const int64x2_t left = pair[p][2 * v], right = pair[p][2 * v + 1];
    store(2 * p, v, vzip1q_s64(left, right));
    if (2 * p + 1 < rows) store(2 * p + 1, v, vzip2q_s64(left, right));
  });
}

// A row tile by all columns. Not inlined: if all instances are, GCC keeps the sums of six pairs in memory.
template <int P>
[[gnu::noinline]] void gemm_tiles(const RowTile& tile, int rows, bool accumulate, int32_t* acc) {
  for (int64_t c = 0; c < kPanelColumns; c += 4 * kVectors) {
    gemm_tile<P>(tile, 4 * kPanelColumns, c, rows, accumulate, acc + c);
  }
}

void gemm_s8(const GemmTerm* terms, int64_t count, const RowBlocks& blocks, int64_t rows, const int32_t* /*column_sum*/,
             int32_t* acc) {
  for_each_run(terms, count, blocks, [&](const GemmTerm* run, int64_t length, bool accumulate) {
    for_each_register_tile<kRows, 8>(run, length, blocks, rows, [&](auto n, const RowTile& tile, int64_t row) {
      gemm_tiles<(n + 1) / 2>(tile, n, accumulate, acc + row * kPanelColumns);
    });
  });
}

// Rows of a tile of 4 pairs of columns. Registers: 12 sums and 12 totals, 4 of w, one of x; or 24 sums of 6 pairs.
template <class Slice>
constexpr int kGroupedRows = kHoldsTotals<Slice> ? 6 : 12;

// acc (+)= `rows` rows, P pairs, by 8 columns of a slice, from `column` on. The codes of the slice are zipped already.
// A vector of sums holds (row, column) (0, 0), (0, 1), (1, 0), (1, 1).
template <int P, class Slice>
void grouped_tile(int rows, const RowTile& tile, const Slice& slice, int64_t column, bool accumulate, float* acc) {
  const auto at = [&](int r, int v) { return acc + r * kPanelColumns + column + v * 2; };
  const auto below = [&](int p) { return 2 * p + 1 < rows ? 2 * p + 1 : 2 * p; };  // second row of a pair, if any
  const auto stored = [&](int p, int v) {
    return accumulate ? vcombine_f32(vld1_f32(at(2 * p, v)), vld1_f32(at(below(p), v))) : vdupq_n_f32(0.0f);
  };
  const auto store = [&](int p, int v, float32x4_t value) {
    vst1_f32(at(2 * p, v), vget_low_f32(value));
    if (2 * p + 1 < rows) vst1_f32(at(2 * p + 1, v), vget_high_f32(value));
  };
  float32x4_t total[P][4];
  if constexpr (kHoldsTotals<Slice>) {
    unrolled<P, 4>([&](auto p, auto v) { total[p][v] = stored(p, v); });
  }
  const int8_t* a = static_cast<const int8_t*>(tile.terms->a) + tile.offset_bytes;
  const int8_t* b = slice.codes + column * 8;
  for (int64_t g = column; g < slice.groups * kPanelColumns; g += kPanelColumns) {
    int32x4_t sum[P][4];
    unrolled<P, 4>([&](auto p, auto v) { sum[p][v] = magic_zero(); });
    for (int64_t i = 0; i < Slice::kK; i += 8, a += tile.block_rows * 8, b += 8 * kPanelColumns) {
      int8x16_t w[4];
      unrolled<4>([&](auto v) { w[v] = vld1q_s8(b + v * 16); });
      add_pairs(a, w, sum);
    }
    unrolled<4>([&](auto v) {
      const float32x2_t two = vld1_f32(slice.scales + g + v * 2);
      const float32x4_t scale = vcombine_f32(two, two);
      unrolled<P>([&](auto p) {
        const float32x4_t before = kHoldsTotals<Slice> ? total[p][v] : stored(p, v);
        total[p][v] = vfmaq_f32(before, to_float(sum[p][v]), scale);
        if constexpr (!kHoldsTotals<Slice>) store(p, v, total[p][v]);
      });
    });
  }
  if constexpr (kHoldsTotals<Slice>) {
    unrolled<P, 4>([&](auto p, auto v) { store(p, v, total[p][v]); });
  }
}

void gemm_grouped(const int8_t* a, const RowBlocks& blocks, int64_t rows, const GroupedPanel& panel, float* acc) {
  with_record(panel.format, [&](auto record) {
    using Slice = ExpandedSlice<decltype(record), true>;
    for_each_grouped_tile<Slice, kGroupedRows<Slice>, 8, 8>(
        a, blocks, rows, panel, acc, [](auto n, const auto&... args) { grouped_tile<(n + 1) / 2>(n, args...); });
  });
}

// A faster pack_s8 for k a multiple of 16. The last of an odd number of rows is stored twice.
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

// acc [rows][64] = rows by 64 columns, for attention. Rows are packed in pairs, except one or two rows, where SDOT is
// as fast, and rare heads that do not fit the buffer.
void multiply_rows(const int8_t* a, int64_t lda, int64_t rows, const int8_t* b, int64_t row_bytes, int64_t k,
                   int32_t* acc) {
  if (rows <= 2 || k > kAttentionChunk) return sdot_rows(a, lda, rows, b, row_bytes, k, acc);
  int8_t packed[kRows * kAttentionChunk];
  for_each_even_tile<2, kRows>(rows, [&](auto n, int64_t first) {
    constexpr int kPairs = (n + 1) / 2;
    pack_pairs(a + first * lda, lda, n, k, packed);
    const GemmTerm term = {packed, b, k};
    for (int64_t c = 0; c < kPanelColumns; c += 4 * kVectors) {
      gemm_tile<kPairs>({&term, 1, 2 * kPairs, 0}, row_bytes, c, n, false, acc + first * kPanelColumns + c);
    }
  });
}

using Attention = Digits<multiply_rows, multiply_rows>;

constexpr int64_t kMinPairedRows = 4;  // SDOT is as fast for two or three rows

// Sums of two rows by a panel, ordered as by SMMLA: [32][4], for each two columns (0, 0), (0, 1), (1, 0), (1, 1).
constexpr int64_t kPairSums = 2 * kPanelColumns;

// acc [rows][64] = sums of pairs of rows, of 32 bits each.
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

// Loads eight k of eight columns of w8, in program order.
[[gnu::always_inline]] inline void load_rows(const int8_t* b, int64_t row_bytes, int8x16_t (&w)[4]) {
  int8x16_t first[2], second[2];
  unrolled<2>([&](auto v) { first[v] = ordered_load(b + v * 16); });
  unrolled<2>([&](auto v) { second[v] = ordered_load(b + row_bytes + v * 16); });
  zip_rows(first, second, w);
}

// sums += P pairs of packed rows by 8 columns of a slice, from `column` on.
template <int P>
[[gnu::always_inline]] inline void few_rows_tile(const int8_t* packed, const int8_t* panel, const PanelSlice& slice,
                                                 int64_t column, int32_t* sums) {
  const auto at = [&](int p, int v) { return sums + p * kPairSums + column * 2 + v * 4; };
  int32x4_t sum[P][4];
  unrolled<P, 4>([&](auto p, auto v) { sum[p][v] = vld1q_s32(at(p, v)); });
  for_each_strip(slice, packed, panel, column, [&](const int8_t*, const int8_t* b, const int8_t* ahead) {
    for (const int8_t* end = packed + slice.strip_k * 2 * P; packed < end; packed += P * 16) {
      prefetch<kAlignmentBytes, 1>(ahead);
      int8x16_t w[4];
      load_rows(b, 4 * kPanelColumns, w);
      add_pairs(packed, w, sum);
      b += 8 * kPanelColumns, ahead += kAlignmentBytes;
    }
  });
  unrolled<P, 4>([&](auto p, auto v) { vst1q_s32(at(p, v), sum[p][v]); });
}

// sums += rows by a slice of the panel; packs the codes of the slice first.
template <int P>
[[gnu::noinline]] void few_rows_slice(const int8_t* a, int64_t lda, int64_t rows, const int8_t* panel,
                                      const PanelSlice& slice, int32_t* sums) {
  int8_t packed[2 * P * kSliceK];
  int8_t* to = packed;
  for_each_strip(slice, a, panel, 0, [&](const int8_t* x, const int8_t*, const int8_t*) {
    pack_pairs(x, lda, rows, slice.strip_k, to);
    to += slice.strip_k * 2 * P;
  });
  for (int64_t c = 0; c < kPanelColumns; c += 8) few_rows_tile<P>(packed, panel, slice, c, sums);
}

void rows_s8(const int8_t* a, int64_t lda, int64_t rows, const int8_t* panel, int64_t k, int32_t* acc) {
  if (rows < kMinPairedRows) return neon_dotprod_kernels().rows_s8(a, lda, rows, panel, k, acc);
  int32_t sums[kRows / 2 * kPairSums] = {};
  const auto multiply = [&](const PanelSlice& slice) {
    with_rows<kRows / 2, kMinPairedRows / 2>((rows + 1) / 2,
                                             [&](auto p) { few_rows_slice<p>(a, lda, rows, panel, slice, sums); });
  };
  with_access_pattern([&](auto access) {
    using Access = decltype(access);
    static_assert(kMaxSliceK<Access> <= kSliceK, "or packed rows do not fit");
    for_each_slice<Access, 16>(k, multiply);
  });
  store_pairs(sums, rows, acc);
}

// Codes of eight columns by eight k, from rows 2 * Pair and 2 * Pair + 1 of a line.
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

// The left or right two of four columns' values, once for each row of a pair.
[[gnu::always_inline]] inline float32x4_t twice(float32x4_t x, bool right) {
  const auto pairs = vreinterpretq_f64_f32(x);
  return vreinterpretq_f32_f64(right ? vzip2q_f64(pairs, pairs) : vzip1q_f64(pairs, pairs));
}

// Kernels::rows_grouped for P pairs of rows; the last pair may be a single row. Panels are processed in runs that are
// read side by side. Totals keep the order of SMMLA until all groups are added: [panels of a run][P][kPairSums].
template <class Record, int P>
struct FewGroupedRows {
  static constexpr int64_t kMaxPanels = 4;  // panels of a run

  int8x16_t x[Record::kK / 8][P];  // codes of the current group
  // Each row's sum of codes, twice, as floats; times the zero, as integers, if that is the same for all columns.
  std::conditional_t<Record::kHasZeros, float32x4_t, int32x4_t> excess[P];
  alignas(kAlignmentBytes) float totals[kMaxPanels * P * kPairSums];

  [[gnu::noinline]] void begin(const int8_t* codes, int64_t lda, int64_t rows) {
    pack_pairs(codes, lda, rows, Record::kK, reinterpret_cast<int8_t*>(x));
    const int8x16_t zero = vdupq_n_s8(Record::kHasZeros ? 1 : Record::kZero);
    unrolled<P>([&](auto p) {
      int32x4_t sum = vdupq_n_s32(0);
      for (int64_t i = 0; i < Record::kK / 8; ++i) sum = vmmlaq_s32(sum, x[i][p], zero);
      if constexpr (Record::kHasZeros) {
        excess[p] = vcvtq_f32_s32(sum);
      } else {
        excess[p] = sum;
      }
    });
  }

  [[gnu::noinline]] void add(const std::byte* record, bool accumulate, float* to) const {
    for (int64_t i = 0; !accumulate && i < P * kPairSums; i += 4) vst1q_f32(to + i, vdupq_n_f32(0.0f));
    for (int64_t c = 0; c < kPanelColumns; c += 8) add_columns(record, c, to);
  }

  // to += eight columns of a record.
  [[gnu::always_inline]] void add_columns(const std::byte* record, int64_t column, float* to) const {
    int32x4_t sum[P][4];
    unrolled<P>([&](auto p) {
      int32x4_t start = magic_zero();
      if constexpr (!Record::kHasZeros) start = vsubq_s32(start, excess[p]);
      unrolled<4>([&](auto v) { sum[p][v] = start; });
    });
#pragma GCC unroll 1  // else GCC interleaves two steps and spills sums
    for (int64_t line = 0; line < Record::kLines; ++line) {
      unrolled<Record::kRows / 2>([&](auto pair) {
        int8x16_t w[4];
        expand_rows<Record, pair>(record + line * 256 + column * 4, w);
        add_pairs(reinterpret_cast<const int8_t*>(x[line * (Record::kRows / 2) + pair]), w, sum);
      });
    }
    float32x4_t scale[2], zero[2];
    load_scales<Record>(record, column, scale);
    if constexpr (Record::kHasZeros) load_zero_points<Record>(record, column, zero);
    unrolled<4>([&](auto v) {
      constexpr bool kRight = v % 2;
      const float32x4_t by = twice(scale[v / 2], kRight);
      unrolled<P>([&](auto p) {
        float32x4_t exact = to_float(sum[p][v]);
        if constexpr (Record::kHasZeros) exact = vfmsq_f32(exact, twice(zero[v / 2], kRight), excess[p]);
        float* total = to + p * kPairSums + column * 2 + v * 4;
        vst1q_f32(total, vfmaq_f32(vld1q_f32(total), exact, by));
      });
    });
  }

  template <class Access>
  static void run(const int8_t* a, int64_t lda, int64_t rows, GroupedPanel first, int64_t panels, float* acc) {
    constexpr int64_t kRun = Access::kPattern.w4_panels;
    static_assert(kRun <= kMaxPanels);
    FewGroupedRows s;
    for (int64_t count; panels > 0; panels -= count) {
      count = panels < kRun ? panels : kRun;
      for_each_record<Access, Record>(
          a, first, count, s.totals, [&](const int8_t* codes) { s.begin(codes, lda, rows); },
          [&](const std::byte* record, const std::byte* ahead, bool accumulate, float* to) {
            prefetch_record<Access, Record>(ahead);
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
  if (rows < kMinPairedRows) return neon_dotprod_kernels().rows_grouped(a, lda, rows, first, panels, acc);
  with_access_pattern([&](auto access) {
    with_rows<kRows / 2, kMinPairedRows / 2>((rows + 1) / 2, [&](auto p) {
      with_record(first.format, [&](auto record) {
        FewGroupedRows<decltype(record), decltype(p){}>::template run<decltype(access)>(a, lda, rows, first, panels,
                                                                                        acc);
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
