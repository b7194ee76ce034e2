// SME2: outer products into the ZA tiles, in streaming mode, for any vector length. A tile of sums is one vector of
// rows by four vectors of columns: 16 x 64, a whole panel, at 512 bits. One row is multiplied without outer products
// (sme2_row.h). NEON keeps everything but matmuls.
//
// Streaming code must not use NEON registers, which the compiler may use in any ordinary function. So all functions
// that run in streaming mode are declared __arm_streaming and call only each other.
#include <arm_sme.h>

#include "kernels/isa/sme2_row.h"
#include "kernels/kernels.h"

namespace pinion {
namespace {

// A tile of a product: rows of one row block by four vectors of columns. Missing rows and columns read as zero.
struct TileAt {
  int64_t block_rows = 0;    // rows of the row block
  int64_t offset_bytes = 0;  // offset of the row block
  int64_t first_row = 0;     // first row of the tile in the row block
  int64_t rows = 0;          // rows of the tile
  int64_t row = 0;           // first row of the tile in the result
  int64_t column = 0;        // first column of the tile
};

// ZA += a * b for four vectors of columns. Missing rows are zero in a, and their sums are not stored.
[[gnu::always_inline]] inline void outer(svint8_t a, svint8x4_t b) __arm_streaming __arm_inout("za") {
  const svbool_t all = svptrue_b8();
  svmopa_za32_s8_m(0, all, all, a, svget4(b, 0));
  svmopa_za32_s8_m(1, all, all, a, svget4(b, 1));
  svmopa_za32_s8_m(2, all, all, a, svget4(b, 2));
  svmopa_za32_s8_m(3, all, all, a, svget4(b, 3));
}

[[gnu::always_inline]] inline void outer(svfloat32_t a, svfloat32x4_t b) __arm_streaming __arm_inout("za") {
  const svbool_t all = svptrue_b32();
  svmopa_za32_f32_m(0, all, all, a, svget4(b, 0));
  svmopa_za32_f32_m(1, all, all, a, svget4(b, 1));
  svmopa_za32_f32_m(2, all, all, a, svget4(b, 2));
  svmopa_za32_f32_m(3, all, all, a, svget4(b, 3));
}

// Loads eight k of the rows as two operands of SMOPA, which takes four k: the first four of every row, then the others.
// Rows are packed in groups of eight k for SMMLA.
[[gnu::always_inline]] inline svint8x2_t two_operands(svcount_t rows, const int8_t* a) __arm_streaming {
  const svint8x2_t x = svld1_x2(rows, a);
  const svint32x2_t halves = svuzp(svcreate2(svreinterpret_s32(svget2(x, 0)), svreinterpret_s32(svget2(x, 1))));
  return svcreate2(svreinterpret_s8(svget2(halves, 0)), svreinterpret_s8(svget2(halves, 1)));
}

[[gnu::always_inline]] inline void add_products(const TileAt& t, const int8_t* a, const int8_t* b,
                                                int64_t k) __arm_streaming __arm_inout("za") {
  const svcount_t rows = svwhilelt_c8(int64_t{0}, t.rows * 8, 2);
  const svcount_t columns = svwhilelt_c8(t.column * 4, kPanelColumns * 4, 4);
  a += t.first_row * 8;
  b += t.column * 4;
  for (int64_t i = 0; i < k; i += 8, a += t.block_rows * 8, b += 8 * kPanelColumns) {
    const svint8x2_t x = two_operands(rows, a);
    outer(svget2(x, 0), svld1_x4(columns, b));
    outer(svget2(x, 1), svld1_x4(columns, b + 4 * kPanelColumns));
  }
}

[[gnu::always_inline]] inline svfloat32x4_t four_vectors(const float* b, int64_t column) __arm_streaming {
  return svld1_x4(svwhilelt_c32(column, kPanelColumns, 4), b + column);
}

// Widens bf16 by appending sixteen zero bits.
[[gnu::always_inline]] inline svfloat32x4_t four_vectors(const bf16* b, int64_t column) __arm_streaming {
  const svuint16x2_t w =
      svld1_x2(svwhilelt_c16(column, kPanelColumns, 2), reinterpret_cast<const uint16_t*>(b + column));
  const svuint16_t zero = svdup_u16(0);
  return svcreate4(svreinterpret_f32(svzip1(zero, svget2(w, 0))), svreinterpret_f32(svzip2(zero, svget2(w, 0))),
                   svreinterpret_f32(svzip1(zero, svget2(w, 1))), svreinterpret_f32(svzip2(zero, svget2(w, 1))));
}

// FMOPA adds by fma, one k at a time, in the order of the definition.
template <class B>
[[gnu::always_inline]] inline void add_products(const TileAt& t, const float* a, const B* b,
                                                int64_t k) __arm_streaming __arm_inout("za") {
  const svbool_t rows = svwhilelt_b32(int64_t{0}, t.rows);
  a += t.first_row;
  for (int64_t i = 0; i < k; ++i, a += t.block_rows, b += kPanelColumns) {
    outer(svld1(rows, a), four_vectors(b, t.column));
  }
}

// to [rows][64], from the tile's column on, = ZA.
[[gnu::always_inline]] inline void store_tile(const TileAt& t, int32_t* to) __arm_streaming __arm_inout("za") {
  const int64_t lanes = static_cast<int64_t>(svcntw());
  const svbool_t active0 = columns_of<0>(t.column), active1 = columns_of<1>(t.column);
  const svbool_t active2 = columns_of<2>(t.column), active3 = columns_of<3>(t.column);
  to += t.column;
  for (int64_t r = 0; r < t.rows; ++r, to += kPanelColumns) {
    const auto slice = static_cast<uint32_t>(r);
    svst1_hor_za32(0, slice, active0, to);
    svst1_hor_za32(1, slice, active1, to + lanes);
    svst1_hor_za32(2, slice, active2, to + 2 * lanes);
    svst1_hor_za32(3, slice, active3, to + 3 * lanes);
  }
}

template <class Product>
void multiply(const Product& p) __arm_streaming __arm_inout("za", "zt0");

// The arguments of gemm_s8, gemm_f32 and gemm_bf16.
template <class A, class B>
struct Product {
  const GemmTerm* terms;
  int64_t count;
  RowBlocks blocks;
  int64_t rows;
  void* acc;  // [rows][64] of 32 bits

  void run() const __arm_streaming __arm_inout("za", "zt0") { multiply(*this); }

  [[gnu::always_inline]] void tile(const TileAt& t) const __arm_streaming __arm_inout("za") {
    svzero_za();
    for (const GemmTerm* term = terms; term < terms + count; ++term) {
      const auto* a = reinterpret_cast<const A*>(static_cast<const char*>(term->a) + t.offset_bytes);
      add_products(t, a, static_cast<const B*>(term->b), term->k);
    }
    store_tile(t, static_cast<int32_t*>(acc) + t.row * kPanelColumns);
  }
};

// Formats with groups keep the sums of one group in ZA and the totals in memory.

// ZA += the rows' codes at `a` by a line of a record; step leads to the next eight k of the rows. Returns a_sums, plus
// each row's sum of these codes if the format has zero points.
template <class Record>
[[gnu::always_inline]] inline svint32_t add_line(svcount_t rows, const int8_t* a, int64_t step, svuint8x4_t line,
                                                 svint32_t a_sums) __arm_streaming __arm_inout("za") __arm_in("zt0") {
  const svint8x2_t x = two_operands(rows, a);
  if constexpr (Record::kRows == 4) {
    const svint8x4_t w0 = four_rows(svget4(line, 0)), w1 = four_rows(svget4(line, 1));
    const svint8x4_t w2 = four_rows(svget4(line, 2)), w3 = four_rows(svget4(line, 3));
    const svint8x2_t y = two_operands(rows, a + step);
    outer(svget2(x, 0), row_of<0>(w0, w1, w2, w3));
    outer(svget2(x, 1), row_of<1>(w0, w1, w2, w3));
    outer(svget2(y, 0), row_of<2>(w0, w1, w2, w3));
    outer(svget2(y, 1), row_of<3>(w0, w1, w2, w3));
  } else {
    const svint8x2_t w0 = two_rows(svget4(line, 0)), w1 = two_rows(svget4(line, 1));
    const svint8x2_t w2 = two_rows(svget4(line, 2)), w3 = two_rows(svget4(line, 3));
    outer(svget2(x, 0), row_of<0>(w0, w1, w2, w3));
    outer(svget2(x, 1), row_of<1>(w0, w1, w2, w3));
  }
  if constexpr (Record::kHasZeros) a_sums = svdot(svdot(a_sums, svget2(x, 0), svdup_s8(1)), svget2(x, 1), svdup_s8(1));
  return a_sums;
}

// ZA = the sums of one group of a tile, without subtraction of zero points. a, record: codes of the group. Returns each
// row's sum of codes if the format has zero points.
template <class Record>
[[gnu::always_inline]] inline svint32_t add_group(
    const TileAt& t, const int8_t* a, const uint8_t* record) __arm_streaming __arm_inout("za") __arm_in("zt0") {
  const svcount_t rows = svwhilelt_c8(int64_t{0}, t.rows * 8, 2);
  const svcount_t columns = svwhilelt_c8(t.column * 4, kPanelColumns * 4, 4);
  const int64_t step = t.block_rows * 8;  // from eight k to the next eight
  const uint8_t* line = record + t.column * 4;
  svint32_t a_sums = svdup_s32(0);
  svzero_za();
  for (int64_t i = 0; i < Record::kLines; ++i, a += step * (Record::kRows / 2), line += 4 * kPanelColumns) {
    a_sums = add_line<Record>(rows, a, step, svld1_x4(columns, line), a_sums);
  }
  return a_sums;
}

// ZA -= the sums of the rows' codes times the stored zero points of the columns. Both fit 16 bits. SMOPS multiplies
// pairs of 16 bits, and the upper half of a zero point is 0.
template <int V>
[[gnu::always_inline]] inline void subtract_zeros(svint32_t a_sums, int64_t column,
                                                  const uint8_t* zero_points) __arm_streaming __arm_inout("za") {
  const svint32_t zero = svld1ub_vnum_s32(columns_of<V>(column), zero_points + column, V);
  svmops_za32_s16_m(V, svptrue_b16(), svptrue_b16(), svreinterpret_s16(a_sums), svreinterpret_s16(zero));
}

// acc (+)= sums * scales for row R of four. A load without active lanes makes the totals zero if there are none yet.
// All four fma share the predicate of the first vector: an all-true one would make the compiler add into copies.
template <int R>
[[gnu::always_inline]] inline void add_row(svfloat32x4_t sums0, svfloat32x4_t sums1, svfloat32x4_t sums2,
                                           svfloat32x4_t sums3, svfloat32x4_t scales, int64_t column, bool accumulate,
                                           float* acc) __arm_streaming {
  const svbool_t active = columns_of<0>(column);
  const svfloat32x4_t total =
      svld1_x4(svwhilelt_c32(column, accumulate ? kPanelColumns : 0, 4), acc + R * kPanelColumns);
  svst1(svwhilelt_c32(column, kPanelColumns, 4), acc + R * kPanelColumns,
        svcreate4(svmla_m(active, svget4(total, 0), svget4(sums0, R), svget4(scales, 0)),
                  svmla_m(active, svget4(total, 1), svget4(sums1, R), svget4(scales, 1)),
                  svmla_m(active, svget4(total, 2), svget4(sums2, R), svget4(scales, 2)),
                  svmla_m(active, svget4(total, 3), svget4(sums3, R), svget4(scales, 3))));
}

// add_row for `Rows` rows from slice `slice` of ZA on. acc: their totals, from the tile's column on.
template <int Rows>
[[gnu::always_inline]] inline void add_rows(uint32_t slice, svfloat32x4_t scales, int64_t column, bool accumulate,
                                            float* acc) __arm_streaming __arm_inout("za") {
  const svfloat32x4_t sums0 = svcvt_f32(svread_hor_za32_s32_vg4(0, slice));
  const svfloat32x4_t sums1 = svcvt_f32(svread_hor_za32_s32_vg4(1, slice));
  const svfloat32x4_t sums2 = svcvt_f32(svread_hor_za32_s32_vg4(2, slice));
  const svfloat32x4_t sums3 = svcvt_f32(svread_hor_za32_s32_vg4(3, slice));
  add_row<0>(sums0, sums1, sums2, sums3, scales, column, accumulate, acc);
  if constexpr (Rows > 1) add_row<1>(sums0, sums1, sums2, sums3, scales, column, accumulate, acc);
  if constexpr (Rows > 2) add_row<2>(sums0, sums1, sums2, sums3, scales, column, accumulate, acc);
  if constexpr (Rows > 3) add_row<3>(sums0, sums1, sums2, sums3, scales, column, accumulate, acc);
}

// acc [rows][64] (+)= float(ZA) * scales for the rows of a tile.
[[gnu::always_inline]] inline void add_scaled(const TileAt& t, svfloat32x4_t scales, bool accumulate,
                                              float* acc) __arm_streaming __arm_inout("za") {
  acc += t.column;
  uint32_t r = 0;
  for (; r + 4 <= t.rows; r += 4, acc += 4 * kPanelColumns) add_rows<4>(r, scales, t.column, accumulate, acc);
  const int64_t left = t.rows - r;
  if (left == 3) add_rows<3>(r, scales, t.column, accumulate, acc);
  if (left == 2) add_rows<2>(r, scales, t.column, accumulate, acc);
  if (left == 1) add_rows<1>(r, scales, t.column, accumulate, acc);
}

// The arguments of gemm_grouped.
template <class Record>
struct GroupedProduct {
  const int8_t* a;
  RowBlocks blocks;
  int64_t rows;
  GroupedPanel panel;
  float* acc;

  void run() const __arm_streaming __arm_inout("za", "zt0") { multiply(*this); }

  [[gnu::always_inline]] void tile(const TileAt& t) const __arm_streaming __arm_inout("za", "zt0") {
    svldr_zt(0, &kCodeTable<Record>);
    const int8_t* x = a + t.offset_bytes + t.first_row * 8;
    const auto* record = reinterpret_cast<const uint8_t*>(panel.records);
    for (int64_t k = 0; k < panel.k; k += Record::kK, record += Record::kBytes) {
      const svint32_t a_sums = add_group<Record>(t, x + k * t.block_rows, record);
      const auto* scales = reinterpret_cast<const uint16_t*>(record + Record::kCodeBytes);
      if constexpr (Record::kHasZeros) {
        const uint8_t* zero_points = record + Record::kCodeBytes + kPanelColumns * 2;
        subtract_zeros<0>(a_sums, t.column, zero_points);
        subtract_zeros<1>(a_sums, t.column, zero_points);
        subtract_zeros<2>(a_sums, t.column, zero_points);
        subtract_zeros<3>(a_sums, t.column, zero_points);
      }
      add_scaled(t,
                 svcreate4(scales_of<Record, 0>(t.column, scales), scales_of<Record, 1>(t.column, scales),
                           scales_of<Record, 2>(t.column, scales), scales_of<Record, 3>(t.column, scales)),
                 k > 0, acc + t.row * kPanelColumns);
    }
  }
};

// Computes all tiles of a product.
template <class Product>
[[gnu::always_inline]] inline void multiply(const Product& p) __arm_streaming __arm_inout("za", "zt0") {
  const int64_t lanes = static_cast<int64_t>(svcntw());
  TileAt t = {.block_rows = p.blocks.rows};
  for (int64_t first = 0; first < p.rows; first += t.block_rows, t.offset_bytes += p.blocks.step_bytes) {
    const int64_t present = p.rows - first < t.block_rows ? p.rows - first : t.block_rows;
    for (t.first_row = 0; t.first_row < present; t.first_row += lanes) {
      t.rows = present - t.first_row < lanes ? present - t.first_row : lanes;
      t.row = first + t.first_row;
      for (t.column = 0; t.column < kPanelColumns; t.column += 4 * lanes) p.tile(t);
    }
  }
}

template <class Product>
void run(const void* product) __arm_streaming __arm_inout("za", "zt0") {
  static_cast<const Product*>(product)->run();
}

// Runs the product in streaming mode with ZA and ZT0. The mode switch is written by hand, because the compiler's own
// (__arm_new("za")) needs a run-time function that GCC's library lacks before version 14. It is one statement, because
// the switches clear all vector registers; these are clobbers, so that the caller's d8 to d15 are saved.
template <class Product>
void run_streaming(const Product& product) {
  void (*f)(const void*) __arm_streaming __arm_inout("za", "zt0") = run<Product>;
  register const void* argument asm("x0") = &product;
  asm volatile(
      "smstart\n\t"
      "blr %[f]\n\t"
      "smstop"
      : "+r"(argument)
      : [f] "r"(f)
      : "memory", "cc", "x1", "x2", "x3", "x4", "x5", "x6", "x7", "x8", "x9", "x10", "x11", "x12", "x13", "x14", "x15",
        "x16", "x17", "x18", "x30", "v0", "v1", "v2", "v3", "v4", "v5", "v6", "v7", "v8", "v9", "v10", "v11", "v12",
        "v13", "v14", "v15", "v16", "v17", "v18", "v19", "v20", "v21", "v22", "v23", "v24", "v25", "v26", "v27", "v28",
        "v29", "v30", "v31", "p0", "p1", "p2", "p3", "p4", "p5", "p6", "p7", "p8", "p9", "p10", "p11", "p12", "p13",
        "p14", "p15");
}

// Up to a quarter of a tile NEON is as fast, and every core has its own, whereas cores may share an SME unit.
int32_t min_sme_rows() { return static_cast<int32_t>(svcntsw() / 4 + 1); }

// False if a caller has live ZA contents that must be saved first (lazy save, TPIDR2_EL0): then NEON is used.
bool is_za_free() {
  uint64_t lazy_save;
  asm volatile("mrs %0, tpidr2_el0" : "=r"(lazy_save));
  return lazy_save == 0;
}

bool sme_is_faster(int64_t rows) { return rows >= min_sme_rows() && is_za_free(); }

// One row gains only from streaming vectors that are wider than those of NEON.
bool sme_is_faster_for_one_row() { return svcntsw() > 4 && is_za_free(); }

void gemv_s8(const int8_t* a, const int8_t* b, int64_t row_bytes, int64_t k, int32_t* acc) {
  if (!sme_is_faster_for_one_row()) return neon_bf16_kernels().gemv_s8(a, b, row_bytes, k, acc);
  if (svcntsw() == 8) return run_streaming(RowProduct<2>{a, b, row_bytes, k, acc});
  run_streaming(RowProduct<1>{a, b, row_bytes, k, acc});
}

void gemv_grouped(const int8_t* a, const GroupedPanel& first, int64_t panels, float* acc) {
  if (!sme_is_faster_for_one_row()) return neon_bf16_kernels().gemv_grouped(a, first, panels, acc);
  with_record(first.format, [&](auto record) {
    using Record = decltype(record);
    if (svcntsw() == 8) return run_streaming(GroupedRowProduct<Record, 2>{a, first, panels, acc});
    run_streaming(GroupedRowProduct<Record, 1>{a, first, panels, acc});
  });
}

void gemm_s8(const GemmTerm* terms, int64_t count, const RowBlocks& blocks, int64_t rows, const int32_t* column_sum,
             int32_t* acc) {
  if (!sme_is_faster(rows)) return neon_bf16_kernels().gemm_s8(terms, count, blocks, rows, column_sum, acc);
  run_streaming(Product<int8_t, int8_t>{terms, count, blocks, rows, acc});
}

void gemm_grouped(const int8_t* a, const RowBlocks& blocks, int64_t rows, const GroupedPanel& panel, float* acc) {
  if (!sme_is_faster(rows)) return neon_bf16_kernels().gemm_grouped(a, blocks, rows, panel, acc);
  with_record(panel.format,
              [&](auto record) { run_streaming(GroupedProduct<decltype(record)>{a, blocks, rows, panel, acc}); });
}

void gemm_bf16(const GemmTerm* terms, int64_t count, const RowBlocks& blocks, int64_t rows, float* acc) {
  if (!sme_is_faster(rows)) return neon_bf16_kernels().gemm_bf16(terms, count, blocks, rows, acc);
  run_streaming(Product<float, bf16>{terms, count, blocks, rows, acc});
}

void gemm_f32(const GemmTerm* terms, int64_t count, const RowBlocks& blocks, int64_t rows, float* acc) {
  if (!sme_is_faster(rows)) return neon_bf16_kernels().gemm_f32(terms, count, blocks, rows, acc);
  run_streaming(Product<float, float>{terms, count, blocks, rows, acc});
}

}  // namespace

// Rows are packed as for SMMLA, in row blocks of another size, so that NEON can multiply rows packed for SMOPA.
const Kernels& sme2_kernels() {
  static const Kernels kTable = [] {
    Kernels table = neon_bf16_kernels();
    table.name = "sme2";
    table.companion = &neon_bf16_kernels();
    table.gemv_s8 = gemv_s8;
    table.gemv_grouped = gemv_grouped;
    table.gemm_s8 = gemm_s8;
    table.gemm_grouped = gemm_grouped;
    table.gemm_bf16 = gemm_bf16;
    table.gemm_f32 = gemm_f32;
    table.s8_shape.rows = table.f32_shape.rows = static_cast<int32_t>(svcntsw());
    table.s8_shape.min_rows = table.f32_shape.min_rows = min_sme_rows();
    if (table.few_rows >= min_sme_rows()) table.few_rows = min_sme_rows() - 1;
    return table;
  }();
  return kTable;
}

}  // namespace pinion
