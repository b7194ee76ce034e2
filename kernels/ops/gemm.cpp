#include "kernels/ops/gemm.h"

#include <cstdlib>
#include <cstring>
#include <iterator>
#include <limits>

#include "kernels/cpu.h"
#include "kernels/ops/operands.h"
#include "kernels/ops/tiles.h"

namespace pinion {
namespace {

// One call of gemm_batch: its arguments, and the packed operands in the scratch.
struct GemmCall {
  const Kernels& kernels;
  const GemmBatch& g;
  int64_t block;        // rows of a row block
  int64_t a_row_bytes;  // bytes of a packed row
  int64_t a_bytes;      // bytes of one packed matrix A; 0 if A is multiplied unpacked
  int64_t b_bytes;      // bytes of one packed matrix B
  std::byte* packed_a = nullptr;
  std::byte* packed_b = nullptr;  // null if the caller packed B
};

GemmCall make_call(const Kernels& kernels, const GemmBatch& g) {
  const bool pack_a = gemm_needs_pack_a(g);
  const PackShape& shape = g.type == GemmType::s8 ? kernels.s8_shape : kernels.f32_shape;
  const int64_t block = pack_a ? block_rows(shape, g.m) : 1;
  const int64_t row_bytes = packed_k(g.type, g.k) * (g.type == GemmType::s8 ? 1 : 4);
  const int64_t rows = (g.m + block - 1) / block * block;
  return {kernels, g, block, row_bytes, pack_a ? aligned(rows * row_bytes) : 0, gemm_packed_b_bytes(g.type, g.n, g.k)};
}

int64_t scratch_bytes(const GemmCall& call) {
  return call.g.batch * (call.a_bytes + (call.g.b_packed ? 0 : call.b_bytes));
}

const void* matrix_a(const GemmBatch& g, int64_t index) {
  const int64_t at = g.a_offsets ? g.a_offsets[index] : index * g.a_stride;
  return static_cast<const std::byte*>(g.a) + at * element_bytes(g.type);
}

const std::byte* matrix_b(const GemmBatch& g, int64_t index) {
  const int64_t at = g.b_offsets ? g.b_offsets[index] : index * g.b_stride;
  return static_cast<const std::byte*>(g.b) + at * (g.b_packed ? 1 : element_bytes(g.type));
}

const std::byte* packed_b(const GemmCall& call, int64_t index) {
  return call.packed_b ? call.packed_b + index * call.b_bytes : matrix_b(call.g, index);
}

void pack_operands(const GemmCall& call, const Workers& workers) {
  const GemmBatch& g = call.g;
  const int64_t blocks = call.a_bytes > 0 ? (g.m + call.block - 1) / call.block : 0;
  const int64_t panels = call.packed_b ? panel_count(g.n) : 0;
  run_pieces(workers, g.batch * (blocks + panels), [&](int64_t piece) {
    const int64_t index = piece / (blocks + panels);
    const int64_t unit = piece % (blocks + panels);  // row blocks first, then panels
    if (unit < blocks) {
      const int64_t first = unit * call.block;
      pack_a_block(call.kernels, g.type, {matrix_a(g, index), g.lda, g.a_transposed}, first,
                   std::min(call.block, g.m - first), g.k, call.block,
                   call.packed_a + index * call.a_bytes + first * call.a_row_bytes);
    } else {
      pack_b_panel(g.type, {matrix_b(g, index), g.ldb, g.b_transposed}, g.n, g.k, unit - blocks,
                   call.packed_b + index * call.b_bytes);
    }
  });
}

// Conversion of C to and from float. f32 and s32 need none.
struct ResultType {
  int64_t bytes;
  void (*load)(const Kernels& kernels, const void* from, int64_t n, float* to) = nullptr;
  void (*store)(const Kernels& kernels, const float* from, int64_t n, void* to) = nullptr;
};

template <class T>
void load_result(const Kernels& kernels, const void* from, int64_t n, float* to) {
  const T* values = static_cast<const T*>(from);
  if constexpr (std::is_same_v<T, bf16>) return kernels.to_float(values, n, to);
  for (int64_t i = 0; i < n; ++i) {
    if constexpr (std::is_integral_v<T>) to[i] = values[i];
    if constexpr (std::is_same_v<T, f16>) to[i] = to_float(values[i]);
  }
}

// Integers saturate; NaN becomes 0.
template <class T>
T rounded(float x) {
  constexpr float kLow = std::numeric_limits<T>::min(), kHigh = std::numeric_limits<T>::max();
  constexpr float kUnit = 0x1.8p23f;  // floats of this size are integers: adding it rounds to nearest even
  const float value = x != x ? 0 : std::min(kHigh, std::max(kLow, x));
  return static_cast<T>(value + kUnit - kUnit);
}

template <class T>
void store_result(const Kernels& kernels, const float* from, int64_t n, void* to) {
  T* values = static_cast<T*>(to);
  if constexpr (std::is_same_v<T, bf16>) return kernels.to_bf16(from, n, values);
  for (int64_t i = 0; i < n; ++i) {
    if constexpr (std::is_integral_v<T>) values[i] = rounded<T>(from[i]);
    if constexpr (std::is_same_v<T, f16>) values[i] = to_f16(from[i]);
  }
}

template <class T>
constexpr ResultType kConverted = {sizeof(T), load_result<T>, store_result<T>};

// In the order of GemmResult.
constexpr ResultType kResultTypes[] = {
    {4}, {4}, kConverted<bf16>, kConverted<f16>, kConverted<int8_t>, kConverted<uint8_t>};
static_assert(std::size(kResultTypes) == size_t(GemmResult::u8) + 1);
const ResultType& type_of(GemmResult result) { return kResultTypes[size_t(result)]; }

// Sums of one tile, ints for s8 and floats for the other types.
struct Sums {
  alignas(64) int32_t ints[kTileRows * kPanelColumns];
  alignas(64) float floats[kTileRows * kPanelColumns];
};

// sums = rows [first, first + rows) by one panel, added over the products [index, index + count).
void multiply_gemm_tile(const GemmCall& call, int64_t index, int64_t count, int64_t panel, int64_t first, int64_t rows,
                        Sums* sums) {
  const GemmBatch& g = call.g;
  const int64_t k = packed_k(g.type, g.k);
  GemmTerm terms[kMaxGemmTerms];
  int32_t column_sum[kPanelColumns] = {};
  for (int64_t i = 0; i < count; ++i) {
    const std::byte* b = packed_b(call, index + i);
    const auto* a = static_cast<const std::byte*>(call.a_bytes > 0 ? call.packed_a + (index + i) * call.a_bytes +
                                                                         first * call.a_row_bytes
                                                                   : matrix_a(g, index + i));
    terms[i] = {a, b + panel * packed_panel_bytes(g.type, g.k), k};
    if (g.type != GemmType::s8) continue;
    const auto* b_sums = reinterpret_cast<const int32_t*>(b + panel_count(g.n) * packed_panel_bytes(g.type, g.k));
    for (int64_t c = 0; c < kPanelColumns; ++c) column_sum[c] += b_sums[panel * kPanelColumns + c];
  }
  const RowBlocks blocks = {call.block, call.block * call.a_row_bytes};
  if (g.type == GemmType::s8 && call.a_bytes == 0) {
    call.kernels.gemv_s8(static_cast<const int8_t*>(terms[0].a), static_cast<const int8_t*>(terms[0].b),
                         4 * kPanelColumns, g.k, sums->ints);
  } else if (g.type == GemmType::s8) {
    call.kernels.gemm_s8(terms, count, blocks, rows, column_sum, sums->ints);
  } else if (g.type == GemmType::bf16) {
    call.kernels.gemm_bf16(terms, count, blocks, rows, sums->floats);
  } else {
    call.kernels.gemm_f32(terms, count, blocks, rows, sums->floats);
  }
}

// The epilogue of the tile that starts at (first, column).
Epilogue tile_epilogue(const GemmBatch& g, int64_t first, int64_t column) {
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

// Stores the results of a tile into C, from element `at` on.
void store_tile(const GemmCall& call, const Sums& sums, const Epilogue& ops, int64_t rows, int64_t columns,
                int64_t at) {
  const GemmBatch& g = call.g;
  if (g.result == GemmResult::s32) {
    int32_t* c = static_cast<int32_t*>(g.c) + at;
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t i = 0; i < columns; ++i) {
        const int32_t sum = sums.ints[r * kPanelColumns + i];
        const uint32_t old = g.beta == 0 ? 0 : static_cast<uint32_t>(c[r * g.ldc + i]);  // unsigned sums may wrap
        c[r * g.ldc + i] = static_cast<int32_t>(old + static_cast<uint32_t>(sum));
      }
    }
    return;
  }
  const auto finish = [&](float* out, int64_t ldo) {
    if (g.type == GemmType::s8) {
      call.kernels.epilogue_s32(sums.ints, rows, columns, ops, out, ldo);
    } else {
      call.kernels.epilogue_f32(sums.floats, rows, columns, ops, out, ldo);
    }
  };
  if (g.result == GemmResult::f32) return finish(static_cast<float*>(g.c) + at, g.ldc);
  float wide[kTileRows * kPanelColumns];
  const ResultType& type = type_of(g.result);
  std::byte* c = static_cast<std::byte*>(g.c) + at * type.bytes;
  for (int64_t r = 0; r < rows && g.beta != 0; ++r) {
    type.load(call.kernels, c + r * g.ldc * type.bytes, columns, wide + r * kPanelColumns);
  }
  finish(wide, kPanelColumns);
  for (int64_t r = 0; r < rows; ++r) {
    type.store(call.kernels, wide + r * kPanelColumns, columns, c + r * g.ldc * type.bytes);
  }
}

void multiply_all(const GemmCall& call, const Workers& workers) {
  const GemmBatch& g = call.g;
  const int64_t results = g.reduce ? 1 : g.batch;
  const int64_t panels = panel_count(g.n);
  const TileGrid grid = tile_grid(g.m, call.block, results * panels, workers.count);
  run_pieces(workers, grid.panels * grid.row_ranges, [&](int64_t piece) {
    const int64_t index = piece / grid.row_ranges / panels;
    const int64_t column = piece / grid.row_ranges % panels * kPanelColumns;
    const int64_t begin = piece % grid.row_ranges * grid.range_rows;
    for_each_row_tile(begin, std::min(g.m, begin + grid.range_rows), call.block, [&](int64_t first, int64_t rows) {
      Sums sums;
      const int64_t columns = std::min(kPanelColumns, g.n - column);
      const int64_t at = index * g.c_stride + first * g.ldc + column;
      const int64_t c_bytes = type_of(g.result).bytes;
      prefetch_result(static_cast<std::byte*>(g.c) + at * c_bytes, rows, g.ldc * c_bytes, columns * c_bytes);
      if (g.k > 0 && g.batch > 0) {
        multiply_gemm_tile(call, index, g.reduce ? g.batch : 1, column / kPanelColumns, first, rows, &sums);
      } else {
        std::memset(&sums, 0, sizeof sums);
      }
      store_tile(call, sums, tile_epilogue(g, first, column), rows, columns, at);
    });
  });
}

Error gemm_error(const std::string& name, const std::string& expected, std::optional<int64_t> actual = {}) {
  return argument_error("gemm_batch", name, expected, actual);
}

// ld must be at least the length of a row, or of a column if the matrix is transposed.
Error check_row(const char* name, int64_t ld, bool transposed, std::pair<const char*, int64_t> rows,
                std::pair<const char*, int64_t> columns) {
  const auto& [size_name, size] = transposed ? rows : columns;
  if (ld >= size) return {};
  return gemm_error(name, "at least " + std::string(size_name) + " = " + std::to_string(size), ld);
}

Error check_gemm_sizes(const GemmBatch& g) {
  for (const auto& [name, value] : {std::pair{"batch", g.batch}, {"m", g.m}, {"n", g.n}, {"k", g.k}}) {
    if (value < 0) return gemm_error(name, "0 or more", value);
  }
  if (g.reduce && g.batch > kMaxGemmTerms) return gemm_error("batch", at_most(kMaxGemmTerms), g.batch);
  const int64_t terms = g.reduce ? std::max<int64_t>(1, g.batch) : 1;
  if (g.type == GemmType::s8 && g.k > kMaxK / terms) {
    return gemm_error("k", at_most(kMaxK / terms) + ", or int32 may overflow", g.k);
  }
  if (Error e = check_row("lda", g.lda, g.a_transposed, {"m", g.m}, {"k", g.k})) return e;
  if (Error e = g.b_packed ? Error{} : check_row("ldb", g.ldb, g.b_transposed, {"k", g.k}, {"n", g.n})) return e;
  if (g.ldc < g.n) return gemm_error("ldc", "at least n = " + std::to_string(g.n), g.ldc);
  const int64_t c_span = g.m > 0 ? (g.m - 1) * g.ldc + g.n : 0;
  if (!g.reduce && g.batch > 1 && std::abs(g.c_stride) < c_span) {
    return gemm_error("c_stride", at_least(c_span) + ", or results overlap", g.c_stride);
  }
  for (int64_t i = 0; g.b_packed && i < (g.b_offsets ? g.batch : std::min<int64_t>(g.batch, 2)); ++i) {
    const int64_t at = g.b_offsets ? g.b_offsets[i] : i * g.b_stride;
    if (at % kAlignmentBytes == 0) continue;
    return gemm_error(g.b_offsets ? "b_offsets" : "b_stride", "a multiple of " + std::to_string(kAlignmentBytes), at);
  }
  if (g.gate && g.gate_stride < g.n) {
    return gemm_error("gate_stride", "at least n = " + std::to_string(g.n), g.gate_stride);
  }
  return {};
}

Error check_pointers(const GemmBatch& g) {
  // A reduced product of an empty batch is zero, and C is written.
  const bool any_c = g.m > 0 && g.n > 0 && (g.batch > 0 || g.reduce), any = any_c && g.k > 0 && g.batch > 0;
  if (any && !g.a) return gemm_error("a", "not null");
  if (any && !g.b) return gemm_error("b", "not null");
  if (any_c && !g.c) return gemm_error("c", "not null");
  if (g.b_packed && reinterpret_cast<uintptr_t>(g.b) % kAlignmentBytes != 0) {
    return gemm_error("b", "aligned to " + std::to_string(kAlignmentBytes) + " bytes if it is packed");
  }
  if (!g.row_scale != !g.column_scale) return gemm_error("row_scale, column_scale", "both or neither");
  return {};
}

Error check_result_type(const GemmBatch& g) {
  if (g.result != GemmResult::s32) return {};
  if (g.type != GemmType::s8) return gemm_error("result", "a type other than s32 unless A and B are s8");
  if (g.alpha != 1) return gemm_error("alpha", "1 for an int32 result");
  if (g.beta != 0 && g.beta != 1) return gemm_error("beta", "0 or 1 for an int32 result");
  const bool plain = !g.row_scale && !g.bias && !g.gate && g.low == -__builtin_inff() && g.high == __builtin_inff();
  return plain ? Error{} : gemm_error("epilogue", "none for an int32 result");
}

}  // namespace

const Kernels& gemm_kernels(const Kernels* kernels, GemmType type, int64_t m) {
  bool reached = kernels == nullptr;
  for (const Variant& variant : kernel_variants()) {
    if (variant.needs & ~cpu_features()) continue;
    const Kernels& table = variant.table();
    reached = reached || &table == kernels;
    if (reached && m >= (type == GemmType::s8 ? table.s8_shape : table.f32_shape).min_rows) return table;
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
  return std::min({g.batch, g.m, g.n, g.k}) < 0 ? 0 : scratch_bytes(make_call(gemm_kernels(kernels, g.type, g.m), g));
}

Error gemm_batch(const Kernels* kernels, const Workers& workers, const GemmBatch& g, std::span<std::byte> scratch) {
  if (Error e = check_gemm_sizes(g)) return e;
  if (Error e = check_pointers(g)) return e;
  if (Error e = check_result_type(g)) return e;
  GemmCall call = make_call(gemm_kernels(kernels, g.type, g.m), g);
  if (std::ssize(scratch) < scratch_bytes(call)) {
    return gemm_error("scratch", std::to_string(scratch_bytes(call)) + " bytes (gemm_scratch_bytes)",
                      std::ssize(scratch));
  }
  if (reinterpret_cast<uintptr_t>(scratch.data()) % kAlignmentBytes != 0) {
    return gemm_error("scratch", "aligned to " + std::to_string(kAlignmentBytes) + " bytes");
  }
  if (g.m == 0 || g.n == 0 || (g.batch == 0 && !g.reduce)) return {};
  call.packed_a = scratch.data();
  call.packed_b = g.b_packed ? nullptr : scratch.data() + g.batch * call.a_bytes;
  if (g.k > 0) pack_operands(call, workers);
  multiply_all(call, workers);
  return {};
}

}  // namespace pinion
