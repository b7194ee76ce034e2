#include "kernels/ops/gemm.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <string>
#include <utility>

#include "kernels/cpu.h"
#include "kernels/f16.h"
#include "kernels/ops/gemm_pack.h"
#include "kernels/ops/tiles.h"

namespace pinion {
namespace {

// --- the plan: what is packed and where
// ---------------------------------------------------------------------------------

struct Plan {
  const Kernels& kernels;
  const GemmBatch& g;
  int64_t block;        // rows of a packed block
  int64_t a_row_bytes;  // of a packed row
  int64_t a_bytes;      // one matrix A packed, 0 where A is used as it is
  int64_t b_bytes;      // one matrix B packed
  std::byte* packed_a = nullptr;
  std::byte* packed_b = nullptr;  // null where the caller's is packed
};

Plan make_plan(const Kernels& kernels, const GemmBatch& g) {
  const bool pack_a = gemm_needs_pack_a(g);
  const PackShape& shape = g.type == GemmType::s8 ? kernels.s8_shape : kernels.f32_shape;
  const int64_t block = pack_a ? block_rows(shape, g.m) : 1;
  const int64_t row_bytes = packed_k(g.type, g.k) * (g.type == GemmType::s8 ? 1 : 4);
  const int64_t rows = (g.m + block - 1) / block * block;
  return {kernels, g, block, row_bytes, pack_a ? aligned(rows * row_bytes) : 0, gemm_packed_b_bytes(g.type, g.n, g.k)};
}

int64_t scratch_bytes(const Plan& plan) { return plan.g.batch * (plan.a_bytes + (plan.g.b_packed ? 0 : plan.b_bytes)); }

const void* matrix_a(const GemmBatch& g, int64_t index) {
  const int64_t at = g.a_offsets ? g.a_offsets[index] : index * g.a_stride;
  return static_cast<const std::byte*>(g.a) + at * element_bytes(g.type);
}

// The caller's, packed or not.
const std::byte* given_b(const GemmBatch& g, int64_t index) {
  const int64_t at = g.b_offsets ? g.b_offsets[index] : index * g.b_stride;
  return static_cast<const std::byte*>(g.b) + at * (g.b_packed ? 1 : element_bytes(g.type));
}

const std::byte* packed_b(const Plan& plan, int64_t index) {
  return plan.packed_b ? plan.packed_b + index * plan.b_bytes : given_b(plan.g, index);
}

void pack_operands(const Plan& plan, const Workers& workers) {
  const GemmBatch& g = plan.g;
  const int64_t blocks = plan.a_bytes > 0 ? (g.m + plan.block - 1) / plan.block : 0;
  const int64_t panels = plan.packed_b ? panel_count(g.n) : 0;
  run_pieces(workers, g.batch * (blocks + panels), [&](int64_t piece) {
    const int64_t index = piece / (blocks + panels);
    const int64_t part = piece % (blocks + panels);
    if (part < blocks) {
      const int64_t first = part * plan.block;
      pack_a_block(plan.kernels, g.type, {matrix_a(g, index), g.lda, g.a_transposed}, first,
                   std::min(plan.block, g.m - first), g.k, plan.block,
                   plan.packed_a + index * plan.a_bytes + first * plan.a_row_bytes);
    } else {
      pack_b_panel(g.type, {given_b(g, index), g.ldb, g.b_transposed}, g.n, g.k, part - blocks,
                   plan.packed_b + index * plan.b_bytes);
    }
  });
}

// --- results
// -------------------------------------------------------------------------------------------------------------

// How numbers of C become floats, and floats numbers of C. f32 needs neither, s32 has no floats.
struct ResultType {
  int64_t bytes;
  void (*load)(const Kernels& kernels, const void* from, int64_t n, float* to) = nullptr;
  void (*store)(const Kernels& kernels, const float* from, int64_t n, void* to) = nullptr;
};

template <class T>
void load_each(const Kernels&, const void* from, int64_t n, float* to) {
  for (int64_t i = 0; i < n; ++i) {
    if constexpr (std::is_same_v<T, f16>) {
      to[i] = to_float(static_cast<const f16*>(from)[i]);
    } else {
      to[i] = static_cast<const T*>(from)[i];
    }
  }
}

void load_bf16(const Kernels& kernels, const void* from, int64_t n, float* to) {
  kernels.to_float(static_cast<const bf16*>(from), n, to);
}
void store_bf16(const Kernels& kernels, const float* from, int64_t n, void* to) {
  kernels.to_bf16(from, n, static_cast<bf16*>(to));
}
void store_f16(const Kernels&, const float* from, int64_t n, void* to) {
  for (int64_t i = 0; i < n; ++i) static_cast<f16*>(to)[i] = to_f16(from[i]);
}

template <class T>
void store_rounded(const Kernels&, const float* from, int64_t n, void* to) {
  constexpr float kLow = std::numeric_limits<T>::min(), kHigh = std::numeric_limits<T>::max();
  constexpr float kUnit = 0x1.8p23f;  // beside it floats are whole: adding it rounds, to nearest even
  for (int64_t i = 0; i < n; ++i) {
    const float value = from[i] != from[i] ? 0 : std::min(kHigh, std::max(kLow, from[i]));
    static_cast<T*>(to)[i] = static_cast<T>(value + kUnit - kUnit);
  }
}

// In the order of GemmResult.
constexpr ResultType kResultTypes[] = {{4},
                                       {4},
                                       {2, load_bf16, store_bf16},
                                       {2, load_each<f16>, store_f16},
                                       {1, load_each<int8_t>, store_rounded<int8_t>},
                                       {1, load_each<uint8_t>, store_rounded<uint8_t>}};
const ResultType& type_of(GemmResult result) { return kResultTypes[static_cast<size_t>(result)]; }

// --- tiles
// -------------------------------------------------------------------------------------------------------------

struct Sums {
  alignas(64) int32_t ints[kTileRows * kPanelColumns];
  alignas(64) float floats[kTileRows * kPanelColumns];
};

// The sums over `count` products from `index` on, of one tile: rows [first, first + rows) by one panel.
void multiply_tile(const Plan& plan, int64_t index, int64_t count, int64_t panel, int64_t first, int64_t rows,
                   Sums* sums) {
  const GemmBatch& g = plan.g;
  const int64_t k = packed_k(g.type, g.k);
  GemmTerm terms[kMaxGemmTerms];
  int32_t column_sum[kPanelColumns] = {};
  for (int64_t i = 0; i < count; ++i) {
    const std::byte* b = packed_b(plan, index + i);
    const auto* a = static_cast<const std::byte*>(plan.a_bytes > 0 ? plan.packed_a + (index + i) * plan.a_bytes +
                                                                         first * plan.a_row_bytes
                                                                   : matrix_a(g, index + i));
    terms[i] = {a, b + panel * packed_panel_bytes(g.type, g.k), k};
    if (g.type != GemmType::s8) continue;
    const auto* own = reinterpret_cast<const int32_t*>(b + panel_count(g.n) * packed_panel_bytes(g.type, g.k));
    for (int64_t c = 0; c < kPanelColumns; ++c) column_sum[c] += own[panel * kPanelColumns + c];
  }
  const RowBlocks blocks = {plan.block, plan.block * plan.a_row_bytes};
  if (g.type == GemmType::s8 && plan.a_bytes == 0) {
    plan.kernels.gemv_s8(static_cast<const int8_t*>(terms[0].a), static_cast<const int8_t*>(terms[0].b),
                         4 * kPanelColumns, g.k, sums->ints);
  } else if (g.type == GemmType::s8) {
    plan.kernels.gemm_s8(terms, count, blocks, rows, column_sum, sums->ints);
  } else if (g.type == GemmType::bf16) {
    plan.kernels.gemm_bf16(terms, count, blocks, rows, sums->floats);
  } else {
    plan.kernels.gemm_f32(terms, count, blocks, rows, sums->floats);
  }
}

Epilogue post_ops(const GemmBatch& g, int64_t first, int64_t column) {
  return {.row_scale = g.row_scale ? g.row_scale + first : nullptr,
          .column_scale = g.column_scale ? g.column_scale + column : nullptr,
          .alpha = g.alpha,
          .bias = g.bias ? g.bias + column : nullptr,
          .gate = g.gate ? g.gate + first * g.gate_stride + column : nullptr,
          .gate_stride = g.gate_stride,
          .beta = g.beta,
          .low = g.low,
          .high = g.high};
}

// The tile's sums into C, at element `at`.
void store_tile(const Plan& plan, const Sums& sums, const Epilogue& ops, int64_t rows, int64_t columns, int64_t at) {
  const GemmBatch& g = plan.g;
  if (g.result == GemmResult::s32) {
    int32_t* c = static_cast<int32_t*>(g.c) + at;
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t i = 0; i < columns; ++i) {
        const int32_t sum = sums.ints[r * kPanelColumns + i];
        // Unsigned: wraps.
        const uint32_t old = g.beta == 0 ? 0 : static_cast<uint32_t>(c[r * g.ldc + i]);
        c[r * g.ldc + i] = static_cast<int32_t>(old + static_cast<uint32_t>(sum));
      }
    }
    return;
  }
  const auto finish = [&](float* out, int64_t ldo) {
    if (g.type == GemmType::s8) {
      plan.kernels.epilogue_s32(sums.ints, rows, columns, ops, out, ldo);
    } else {
      plan.kernels.epilogue_f32(sums.floats, rows, columns, ops, out, ldo);
    }
  };
  if (g.result == GemmResult::f32) return finish(static_cast<float*>(g.c) + at, g.ldc);
  float wide[kTileRows * kPanelColumns];
  const ResultType& type = type_of(g.result);
  std::byte* c = static_cast<std::byte*>(g.c) + at * type.bytes;
  for (int64_t r = 0; r < rows && g.beta != 0; ++r) {
    type.load(plan.kernels, c + r * g.ldc * type.bytes, columns, wide + r * kPanelColumns);
  }
  finish(wide, kPanelColumns);
  for (int64_t r = 0; r < rows; ++r) {
    type.store(plan.kernels, wide + r * kPanelColumns, columns, c + r * g.ldc * type.bytes);
  }
}

void multiply_all(const Plan& plan, const Workers& workers) {
  const GemmBatch& g = plan.g;
  const int64_t results = g.reduce ? 1 : g.batch;
  const int64_t panels = panel_count(g.n);
  const TileGrid grid = tile_grid(g.m, plan.block, results * panels, workers.count);
  run_pieces(workers, grid.panels * grid.parts, [&](int64_t piece) {
    const int64_t index = piece / grid.parts / panels;
    const int64_t column = piece / grid.parts % panels * kPanelColumns;
    const int64_t begin = piece % grid.parts * grid.part_rows;
    each_tile(begin, std::min(g.m, begin + grid.part_rows), plan.block, [&](int64_t first, int64_t rows) {
      Sums sums;
      const int64_t columns = std::min(kPanelColumns, g.n - column);
      const int64_t at = index * g.c_stride + first * g.ldc + column;
      const int64_t c_bytes = type_of(g.result).bytes;
      prefetch_result(static_cast<std::byte*>(g.c) + at * c_bytes, rows, g.ldc * c_bytes, columns * c_bytes);
      if (g.k > 0 && g.batch > 0) {
        multiply_tile(plan, index, g.reduce ? g.batch : 1, column / kPanelColumns, first, rows, &sums);
      } else {
        std::memset(&sums, 0, sizeof sums);
      }
      store_tile(plan, sums, post_ops(g, first, column), rows, columns, at);
    });
  });
}

// --- preconditions
// -----------------------------------------------------------------------------------------------------

Error argument(const std::string& name, const std::string& expected, int64_t actual) {
  return error("wrong argument", "gemm_batch: " + name, expected, std::to_string(actual));
}
Error argument(const std::string& name, const std::string& expected) {
  return error("wrong argument", "gemm_batch: " + name, expected);
}

// That a row, or where it is transposed a column, is not longer than the distance to the next.
Error check_row(const char* name, int64_t ld, bool transposed, std::pair<const char*, int64_t> rows,
                std::pair<const char*, int64_t> columns) {
  const auto& [what, least] = transposed ? rows : columns;
  return ld >= least ? Error{} : argument(name, "at least " + std::string(what) + " = " + std::to_string(least), ld);
}

Error check_sizes(const GemmBatch& g) {
  for (const auto& [name, value] : {std::pair{"batch", g.batch}, {"m", g.m}, {"n", g.n}, {"k", g.k}}) {
    if (value < 0) return argument(name, "0 or more", value);
  }
  if (g.reduce && g.batch > kMaxGemmTerms) {
    return argument("batch", "at most " + std::to_string(kMaxGemmTerms), g.batch);
  }
  const int64_t terms = g.reduce ? std::max<int64_t>(1, g.batch) : 1;
  if (g.type == GemmType::s8 && g.k > kMaxK / terms) {
    return argument("k", "at most " + std::to_string(kMaxK / terms) + ", or int32 may overflow", g.k);
  }
  if (Error e = check_row("lda", g.lda, g.a_transposed, {"m", g.m}, {"k", g.k})) return e;
  if (Error e = g.b_packed ? Error{} : check_row("ldb", g.ldb, g.b_transposed, {"k", g.k}, {"n", g.n})) return e;
  if (g.ldc < g.n) return argument("ldc", "at least n = " + std::to_string(g.n), g.ldc);
  const int64_t c_span = g.m > 0 ? (g.m - 1) * g.ldc + g.n : 0;
  if (!g.reduce && g.batch > 1 && std::abs(g.c_stride) < c_span) {
    return argument("c_stride", "at least " + std::to_string(c_span) + ", or results overlap", g.c_stride);
  }
  for (int64_t i = 0; g.b_packed && i < (g.b_offsets ? g.batch : std::min<int64_t>(g.batch, 2)); ++i) {
    const int64_t at = g.b_offsets ? g.b_offsets[i] : i * g.b_stride;
    if (at % kAlignmentBytes == 0) continue;
    return argument(g.b_offsets ? "b_offsets" : "b_stride", "a multiple of " + std::to_string(kAlignmentBytes), at);
  }
  if (g.gate && g.gate_stride < g.n) {
    return argument("gate_stride", "at least n = " + std::to_string(g.n), g.gate_stride);
  }
  return {};
}

Error check_pointers(const GemmBatch& g) {
  // Reduced, no terms at all are a sum too, of zero.
  const bool any_c = g.m > 0 && g.n > 0 && (g.batch > 0 || g.reduce), any = any_c && g.k > 0 && g.batch > 0;
  if (any && !g.a) return argument("a", "not null");
  if (any && !g.b) return argument("b", "not null");
  if (any_c && !g.c) return argument("c", "not null");
  if (g.b_packed && reinterpret_cast<uintptr_t>(g.b) % kAlignmentBytes != 0) {
    return argument("b", "aligned to " + std::to_string(kAlignmentBytes) + " bytes where it is packed");
  }
  if (!g.row_scale != !g.column_scale) return argument("row_scale, column_scale", "both or neither");
  return {};
}

Error check_post_ops(const GemmBatch& g) {
  if (g.result != GemmResult::s32) return {};
  if (g.type != GemmType::s8) return argument("result", "of floats or codes: only A and B of s8 have int32 sums");
  if (g.alpha != 1) return argument("alpha", "1 for an int32 result");
  if (g.beta != 0 && g.beta != 1) return argument("beta", "0 or 1 for an int32 result");
  const bool plain = !g.row_scale && !g.bias && !g.gate && g.low == -__builtin_inff() && g.high == __builtin_inff();
  return plain ? Error{} : argument("epilogue", "none for an int32 result");
}

}  // namespace

const Kernels& gemm_kernels(const Kernels* kernels, GemmType type, int64_t m) {
  bool below = kernels == nullptr;
  for (const Variant& variant : kernel_variants()) {
    if (variant.needs & ~cpu_features()) continue;
    const Kernels& table = variant.table();
    below = below || &table == kernels;
    if (below && m >= (type == GemmType::s8 ? table.s8_shape : table.f32_shape).min_rows) return table;
  }
  return scalar_kernels();
}

int64_t gemm_packed_b_bytes(GemmType type, int64_t n, int64_t k) {
  return aligned(panel_count(n) * packed_panel_bytes(type, k) + (type == GemmType::s8 ? padded_n(n) * 4 : 0));
}

void gemm_pack_b(GemmType type, const GemmMatrix& b, int64_t n, int64_t k, std::byte* packed, const Workers& workers) {
  run_pieces(workers, panel_count(n), [&](int64_t panel) { pack_b_panel(type, b, n, k, panel, packed); });
}

bool gemm_needs_pack_a(const GemmBatch& g) {
  if (g.m != 1 || g.a_transposed) return g.m > 0;
  return g.type == GemmType::bf16 || g.type == GemmType::f16 ||
         (g.type == GemmType::s8 && (g.k % 4 != 0 || (g.reduce && g.batch > 1)));
}

int64_t gemm_scratch_bytes(const Kernels* kernels, const GemmBatch& g) {
  return std::min({g.batch, g.m, g.n, g.k}) < 0 ? 0 : scratch_bytes(make_plan(gemm_kernels(kernels, g.type, g.m), g));
}

Error gemm_batch(const Kernels* kernels, const Workers& workers, const GemmBatch& g, std::span<std::byte> scratch) {
  if (Error e = check_sizes(g)) return e;
  if (Error e = check_pointers(g)) return e;
  if (Error e = check_post_ops(g)) return e;
  Plan plan = make_plan(gemm_kernels(kernels, g.type, g.m), g);
  if (std::ssize(scratch) < scratch_bytes(plan)) {
    return argument("scratch", std::to_string(scratch_bytes(plan)) + " bytes (gemm_scratch_bytes)",
                    std::ssize(scratch));
  }
  if (reinterpret_cast<uintptr_t>(scratch.data()) % kAlignmentBytes != 0) {
    return argument("scratch", "aligned to " + std::to_string(kAlignmentBytes) + " bytes");
  }
  if (g.m == 0 || g.n == 0 || (g.batch == 0 && !g.reduce)) return {};
  plan.packed_a = scratch.data();
  plan.packed_b = g.b_packed ? nullptr : scratch.data() + g.batch * plan.a_bytes;
  if (g.k > 0) pack_operands(plan, workers);
  multiply_all(plan, workers);
  return {};
}

}  // namespace pinion
