// SME2: outer products into the ZA tiles, in streaming mode, whatever its vector length. A tile of sums is one vector
// of rows by four vectors of columns, that is 16 x 64 (a whole panel) at 512 bits. One row has nothing to gain from an
// outer product: that, and all that is no matmul, stays with NEON.
//
// Streaming code may not touch NEON registers, and whatever the compiler makes of an ordinary function may: so the
// functions that run in streaming mode say so, and call nothing but each other.
#include <arm_sme.h>

#include "kernels/kernels.h"

namespace pinion {
namespace {

// One matmul: the arguments of the table's entries.
struct Product {
  const GemmTerm* terms;
  int64_t count;
  RowBlocks blocks;
  int64_t rows;
  void* acc;  // [rows][64] of 32 bits
};

// Where one term's operands of a tile lie. The tile's rows and columns that do not exist count as zeros.
template <class A, class B>
struct Operands {
  const A* a;
  int64_t a_step;  // from a group of k to the next
  int64_t rows;    // from a on
  const B* b;      // the panel
  int64_t column;  // the first of the tile's
  int64_t k;
};

// ZA += a * b, four vectors of columns. A zero row of a leaves rows alone that are not stored.
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

// Rows are packed in groups of eight k, as SMMLA wants them; SMOPA takes four k of a row and four of a column.
void add_products(const Operands<int8_t, int8_t>& t) __arm_streaming __arm_inout("za") {
  const svcount_t rows = svwhilelt_c8(int64_t{0}, t.rows * 8, 2);
  const svcount_t columns = svwhilelt_c8(t.column * 4, kPanelColumns * 4, 4);
  const int8_t* a = t.a;
  const int8_t* b = t.b + t.column * 4;
  for (int64_t i = 0; i < t.k; i += 8, a += t.a_step, b += 8 * kPanelColumns) {
    const svint8x2_t x = svld1_x2(rows, a);
    const svint32_t low = svreinterpret_s32(svget2(x, 0));
    const svint32_t high = svreinterpret_s32(svget2(x, 1));
    outer(svreinterpret_s8(svuzp1(low, high)), svld1_x4(columns, b));
    outer(svreinterpret_s8(svuzp2(low, high)), svld1_x4(columns, b + 4 * kPanelColumns));
  }
}

[[gnu::always_inline]] inline svfloat32x4_t four_vectors(const float* b, int64_t column) __arm_streaming {
  return svld1_x4(svwhilelt_c32(column, kPanelColumns, 4), b + column);
}

// A bf16 with sixteen zeros below it is the float.
[[gnu::always_inline]] inline svfloat32x4_t four_vectors(const bf16* b, int64_t column) __arm_streaming {
  const svuint16x2_t w =
      svld1_x2(svwhilelt_c16(column, kPanelColumns, 2), reinterpret_cast<const uint16_t*>(b + column));
  const svuint16_t zero = svdup_u16(0);
  return svcreate4(svreinterpret_f32(svzip1(zero, svget2(w, 0))), svreinterpret_f32(svzip2(zero, svget2(w, 0))),
                   svreinterpret_f32(svzip1(zero, svget2(w, 1))), svreinterpret_f32(svzip2(zero, svget2(w, 1))));
}

// FMOPA is one fma for each sum: in the order of k, as everywhere.
template <class B>
void add_products(const Operands<float, B>& t) __arm_streaming __arm_inout("za") {
  const svbool_t rows = svwhilelt_b32(int64_t{0}, t.rows);
  const float* a = t.a;
  const B* b = t.b;
  for (int64_t i = 0; i < t.k; ++i, a += t.a_step, b += kPanelColumns) {
    outer(svld1(rows, a), four_vectors(b, t.column));
  }
}

// to[rows][64] from `column` on = ZA.
void store_tile(int64_t rows, int64_t column, int32_t* to) __arm_streaming __arm_inout("za") {
  const int64_t lanes = static_cast<int64_t>(svcntw());
  const svbool_t some0 = svwhilelt_b32(column, kPanelColumns);
  const svbool_t some1 = svwhilelt_b32(column + lanes, kPanelColumns);
  const svbool_t some2 = svwhilelt_b32(column + 2 * lanes, kPanelColumns);
  const svbool_t some3 = svwhilelt_b32(column + 3 * lanes, kPanelColumns);
  to += column;
  for (int64_t r = 0; r < rows; ++r, to += kPanelColumns) {
    const auto slice = static_cast<uint32_t>(r);
    svst1_hor_za32(0, slice, some0, to);
    svst1_hor_za32(1, slice, some1, to + lanes);
    svst1_hor_za32(2, slice, some2, to + 2 * lanes);
    svst1_hor_za32(3, slice, some3, to + 3 * lanes);
  }
}

// Group: elements of a row that lie together.
template <class A, int Group, class B>
void multiply(const Product* p) __arm_streaming __arm_inout("za") {
  const int64_t lanes = static_cast<int64_t>(svcntw());
  const RowBlocks blocks = p->blocks;
  for (int64_t first = 0, at = 0; first < p->rows; first += blocks.rows, at += blocks.step_bytes) {
    const int64_t present = p->rows - first < blocks.rows ? p->rows - first : blocks.rows;
    for (int64_t r = 0; r < present; r += lanes) {
      const int64_t rows = present - r < lanes ? present - r : lanes;
      for (int64_t column = 0; column < kPanelColumns; column += 4 * lanes) {
        svzero_za();
        for (const GemmTerm* term = p->terms; term < p->terms + p->count; ++term) {
          const A* a = reinterpret_cast<const A*>(static_cast<const char*>(term->a) + at) + r * Group;
          add_products(Operands<A, B>{a, blocks.rows * Group, rows, static_cast<const B*>(term->b), column, term->k});
        }
        store_tile(rows, column, static_cast<int32_t*>(p->acc) + (first + r) * kPanelColumns);
      }
    }
  }
}

// f(&product) in streaming mode with ZA. By hand, and in one piece: the compiler's own switch (__arm_new("za")) needs a
// run-time function that GCC's library has since version 14 only, and nothing may come between the switches, for they
// clear every vector register. Those are named, so that the caller's d8 to d15 are kept.
void run_streaming(void (*f)(const Product*) __arm_streaming __arm_inout("za"), const Product& product) {
  register const Product* argument asm("x0") = &product;
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

// Up to a quarter of a tile NEON is as fast, and cores do not share it as they may share their SME unit.
int32_t least_rows() { return static_cast<int32_t>(svcntsw() / 4 + 1); }

// Nor is this for where a caller further up has left its ZA on, to be saved by whoever needs the registers (the ABI's
// lazy save, announced in TPIDR2_EL0): NEON needs none.
bool worth_it(int64_t rows) {
  uint64_t lazy_save;
  asm volatile("mrs %0, tpidr2_el0" : "=r"(lazy_save));
  return lazy_save == 0 && rows >= least_rows();
}

void gemm_s8(const GemmTerm* terms, int64_t count, const RowBlocks& blocks, int64_t rows, const int32_t* column_sum,
             int32_t* acc) {
  if (!worth_it(rows)) return neon_i8mm_kernels().gemm_s8(terms, count, blocks, rows, column_sum, acc);
  run_streaming(multiply<int8_t, 8, int8_t>, {terms, count, blocks, rows, acc});
}

void gemm_bf16(const GemmTerm* terms, int64_t count, const RowBlocks& blocks, int64_t rows, float* acc) {
  if (!worth_it(rows)) return neon_i8mm_kernels().gemm_bf16(terms, count, blocks, rows, acc);
  run_streaming(multiply<float, 1, bf16>, {terms, count, blocks, rows, acc});
}

void gemm_f32(const GemmTerm* terms, int64_t count, const RowBlocks& blocks, int64_t rows, float* acc) {
  if (!worth_it(rows)) return neon_i8mm_kernels().gemm_f32(terms, count, blocks, rows, acc);
  run_streaming(multiply<float, 1, float>, {terms, count, blocks, rows, acc});
}

}  // namespace

// Rows stay packed as for SMMLA, only in blocks of another size: NEON can multiply what was packed for SMOPA.
const Kernels& sme2_kernels() {
  static const Kernels kTable = [] {
    Kernels table = neon_i8mm_kernels();
    table.name = "sme2";
    table.beside = &neon_i8mm_kernels();
    table.gemm_s8 = gemm_s8;
    table.gemm_bf16 = gemm_bf16;
    table.gemm_f32 = gemm_f32;
    table.s8.rows = table.f32.rows = static_cast<int32_t>(svcntsw());
    table.s8.least = table.f32.least = least_rows();
    return table;
  }();
  return kTable;
}

}  // namespace pinion
