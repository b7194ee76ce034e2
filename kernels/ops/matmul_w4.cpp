#include "kernels/ops/matmul_w4.h"

#include <cmath>
#include <cstring>

#include "kernels/ops/operands.h"
#include "kernels/ops/tiles.h"

namespace pinion {
namespace {

// Largest m, n and k: products of two of them, in bytes, fit int64_t.
constexpr int64_t kMaxSize = INT32_MAX;

// The packed operands of a product.
//   A: row blocks, each the codes as packed by pack_s8 (a single row: unpacked), then the scales of its rows
//   B: panels, each the records of layout.h, then the scales of its columns
struct Packing {
  const Kernels& kernels;
  int64_t k;              // padded to whole groups
  int64_t block;          // rows of a row block
  int64_t codes_bytes;    // codes of a row block
  int64_t block_bytes;    // codes and scales of a row block
  int64_t records_bytes;  // records of a panel
  int64_t panel_bytes;    // records and scales of a panel
};

Packing packing_of(const MatmulW4& mm) {
  const Kernels& kernels = gemm_kernels(mm.kernels, GemmType::s8, mm.m);
  const int64_t k = padded_k(mm.k);
  const int64_t block = mm.m == 1 ? 1 : block_rows(kernels.s8_shape, mm.m);
  const int64_t records_bytes = panel_bytes(w4_format(mm.has_zero_points), mm.k);
  constexpr int64_t kScaleBytes = sizeof(float);
  return {.kernels = kernels,
          .k = k,
          .block = block,
          .codes_bytes = block * k,
          .block_bytes = aligned(block * (k + kScaleBytes)),
          .records_bytes = records_bytes,
          .panel_bytes = records_bytes + kPanelColumns * kScaleBytes};
}

int64_t lhs_offset(const Packing& p, int64_t row) { return (row + p.block - 1) / p.block * p.block_bytes; }
int64_t rhs_offset(const Packing& p, int64_t column) { return panel_count(column) * p.panel_bytes; }

Error check_sizes(const char* operation, const MatmulW4& mm) {
  const auto wrong = [&](const char* name, int64_t min, int64_t actual) {
    return argument_error(operation, name, std::to_string(min) + " to " + std::to_string(kMaxSize), actual);
  };
  if (mm.m < 0 || mm.m > kMaxSize) return wrong("m", 0, mm.m);
  if (mm.n < 0 || mm.n > kMaxSize) return wrong("n", 0, mm.n);
  if (mm.k < 1 || mm.k > kMaxSize) return wrong("k", 1, mm.k);
  return {};
}

// `name` is the begin or end of a part in a dimension of `size` rows or columns.
Error check_edge(const char* operation, const char* name, int64_t at, int64_t min, int64_t step, int64_t size) {
  if (at >= min && at <= size && (at % step == 0 || at == size)) return {};
  const std::string multiple = "a multiple of " + std::to_string(step) + " from " + std::to_string(min) + " on";
  return argument_error(operation, name, multiple + ", or " + std::to_string(size), at);
}

Error check_buffer(const char* operation, const char* name, const std::byte* buffer) {
  if (buffer && reinterpret_cast<uintptr_t>(buffer) % kAlignmentBytes == 0) return {};
  return argument_error(operation, name, "not null, aligned to " + std::to_string(kAlignmentBytes) + " bytes");
}

Error check_weights(const MatmulW4& mm, const MatmulW4Weights& w) {
  constexpr const char* kOperation = "matmul_w4_pack_rhs";
  if (w.group < kGroupK || w.group % kGroupK != 0) {
    return argument_error(kOperation, "group", "a multiple of " + std::to_string(kGroupK), w.group);
  }
  if (mm.has_zero_points != (w.zero_points != nullptr)) {
    const char* expected = mm.has_zero_points ? "not null with has_zero_points" : "null without has_zero_points";
    return argument_error(kOperation, "zero_points", expected);
  }
  if (mm.n > 0 && !w.codes) return argument_error(kOperation, "codes", "not null");
  if (mm.n > 0 && !w.scales) return argument_error(kOperation, "scales", "not null");
  for (int64_t i = 0; w.column_scale && i < mm.n; ++i) {
    if (!std::isfinite(w.column_scale[i])) {
      return argument_error(kOperation, "column_scale[" + std::to_string(i) + "]", "a finite number");
    }
  }
  const int64_t count = mm.n * ((mm.k - 1) / w.group + 1);
  for (int64_t i = 0; i < count; ++i) {
    if (!std::isfinite(to_float(w.scales[i]))) {
      return argument_error(kOperation, "scales[" + std::to_string(i) + "]", "a finite number");
    }
    if (w.zero_points && w.zero_points[i] > kMaxZero) {
      return argument_error(kOperation, "zero_points[" + std::to_string(i) + "]", at_most(kMaxZero), w.zero_points[i]);
    }
  }
  return {};
}

Error check_part(const MatmulW4& mm, const Packing& p, const MatmulW4Part& part) {
  constexpr const char* kOperation = "matmul_w4";
  if (Error e = check_edge(kOperation, "m0", part.m0, 0, p.block, mm.m)) return e;
  if (Error e = check_edge(kOperation, "m1", part.m1, part.m0, p.block, mm.m)) return e;
  if (Error e = check_edge(kOperation, "n0", part.n0, 0, kPanelColumns, mm.n)) return e;
  if (Error e = check_edge(kOperation, "n1", part.n1, part.n0, kPanelColumns, mm.n)) return e;
  const int64_t columns = part.n1 - part.n0;
  if (part.ldo < columns) return argument_error(kOperation, "ldo", at_least(columns), part.ldo);
  const Epilogue& ops = part.ops;
  if (ops.row_scale || ops.column_scale) {
    return argument_error(kOperation, "ops", "no row_scale and no column_scale: they are packed");
  }
  if (ops.gate && ops.gate_stride < columns) {
    return argument_error(kOperation, "ops.gate_stride", at_least(columns), ops.gate_stride);
  }
  if (part.m0 == part.m1 || columns == 0) return {};
  if (Error e = check_buffer(kOperation, "lhs", part.lhs)) return e;
  if (Error e = check_buffer(kOperation, "rhs", part.rhs)) return e;
  return part.out ? Error{} : argument_error(kOperation, "out", "not null");
}

void pack_column(const MatmulW4& mm, const MatmulW4Weights& w, const Packing& p, int64_t column, std::byte* panel) {
  const Format format = w4_format(mm.has_zero_points);
  const uint8_t* codes = w.codes + column * ((mm.k + 1) / 2);
  for (int64_t k = 0; k < mm.k; ++k) {
    const int code = codes[k / 2] >> (k % 2 * 4) & 15;
    panel[code_offset(format, k, column)] |= static_cast<std::byte>(code << code_shift(format, k));
  }
  const int64_t groups = (mm.k - 1) / w.group + 1;
  for (int64_t k = 0; k < mm.k; k += kGroupK) {
    const int64_t from = column * groups + k / w.group;
    std::byte* scales = panel + code_offset(format, k, 0) + code_bytes(format);
    std::memcpy(scales + column % kPanelColumns * 2, &w.scales[from], sizeof(f16));
    if (!mm.has_zero_points) continue;
    scales[kPanelColumns * 2 + column % kPanelColumns] = static_cast<std::byte>(w.zero_points[from] * kZeroSteps);
  }
  auto* column_scales = reinterpret_cast<float*>(panel + p.records_bytes);
  column_scales[column % kPanelColumns] = w.column_scale ? w.column_scale[column] : 1.0f;
}

// Packs one row block. x: [rows][ldx].
template <class T>
void pack_block(const MatmulW4& mm, const Packing& p, const T* x, int64_t ldx, int64_t rows, std::byte* packed) {
  constexpr int64_t kEncodedK = 256;  // k that are encoded at a time, whole groups
  int8_t codes[kTileRows * kEncodedK];
  auto* scales = reinterpret_cast<float*>(packed + p.codes_bytes);
  for (int64_t r = 0; r < rows; ++r) scales[r] = row_scale(p.kernels, x + r * ldx, mm.k);
  for (int64_t k = 0; k < mm.k; k += kEncodedK) {
    const int64_t count = std::min(kEncodedK, mm.k - k);
    for (int64_t r = 0; r < rows; ++r) encode_row(p.kernels, x + r * ldx + k, count, scales[r], codes + r * kEncodedK);
    auto* to = reinterpret_cast<int8_t*>(packed) + k * p.block;
    if (mm.m == 1) {
      std::fill(std::copy_n(codes, count, to), to + padded_k(count), int8_t{0});
    } else {
      p.kernels.pack_s8(codes, kEncodedK, rows, count, p.block, to);
    }
  }
}

// Computes rows [first, first + rows), at most kTileRows, of the panel that begins with `column`.
void multiply_tile(const MatmulW4& mm, const Packing& p, const MatmulW4Part& part, int64_t first, int64_t rows,
                   int64_t column) {
  const int64_t columns = std::min(kPanelColumns, part.n1 - column);
  const std::byte* lhs = part.lhs + (first - part.m0) / p.block * p.block_bytes;
  const std::byte* rhs = part.rhs + (column - part.n0) / kPanelColumns * p.panel_bytes;
  float* out = part.out + (first - part.m0) * part.ldo + column - part.n0;
  prefetch_result(out, rows, part.ldo * 4, columns * 4);
  alignas(kAlignmentBytes) float sums[kTileRows * kPanelColumns];
  const auto* codes = reinterpret_cast<const int8_t*>(lhs);
  const GroupedPanel panel = {rhs, p.k, w4_format(mm.has_zero_points)};
  if (mm.m == 1) {
    p.kernels.gemv_grouped(codes, panel, 1, sums);
  } else {
    p.kernels.gemm_grouped(codes, {p.block, p.block_bytes}, rows, panel, sums);
  }
  Epilogue ops = part.ops;
  ops.column_scale = reinterpret_cast<const float*>(rhs + p.records_bytes);
  if (ops.bias) ops.bias += column - part.n0;
  if (ops.gate) ops.gate += (first - part.m0) * ops.gate_stride + column - part.n0;
  for (int64_t r = 0; r < rows; r += p.block, lhs += p.block_bytes) {
    ops.row_scale = reinterpret_cast<const float*>(lhs + p.codes_bytes);
    p.kernels.epilogue_f32(sums + r * kPanelColumns, std::min(p.block, rows - r), columns, ops, out + r * part.ldo,
                           part.ldo);
    if (ops.gate) ops.gate += p.block * ops.gate_stride;
  }
}

}  // namespace

Error matmul_w4_sizes(const MatmulW4& mm, MatmulW4Sizes* sizes) {
  if (Error e = check_sizes(__func__, mm)) return e;
  const Packing p = packing_of(mm);
  *sizes = {p.block, kPanelColumns, lhs_offset(p, mm.m), rhs_offset(p, mm.n)};
  return {};
}

Error matmul_w4_lhs_packed_offset(const MatmulW4& mm, int64_t m0, int64_t* offset_bytes) {
  if (Error e = check_sizes(__func__, mm)) return e;
  const Packing p = packing_of(mm);
  if (Error e = check_edge(__func__, "m0", m0, 0, p.block, mm.m)) return e;
  *offset_bytes = lhs_offset(p, m0);
  return {};
}

Error matmul_w4_rhs_packed_offset(const MatmulW4& mm, int64_t n0, int64_t* offset_bytes) {
  if (Error e = check_sizes(__func__, mm)) return e;
  if (Error e = check_edge(__func__, "n0", n0, 0, kPanelColumns, mm.n)) return e;
  *offset_bytes = rhs_offset(packing_of(mm), n0);
  return {};
}

Error matmul_w4_dst_offset(const MatmulW4& mm, int64_t m0, int64_t n0, int64_t ldo, int64_t* offset) {
  if (Error e = check_sizes(__func__, mm)) return e;
  if (Error e = check_edge(__func__, "m0", m0, 0, packing_of(mm).block, mm.m)) return e;
  if (Error e = check_edge(__func__, "n0", n0, 0, kPanelColumns, mm.n)) return e;
  if (ldo < mm.n || ldo > kMaxSize) {
    return argument_error(__func__, "ldo", std::to_string(mm.n) + " to " + std::to_string(kMaxSize), ldo);
  }
  *offset = m0 * ldo + n0;
  return {};
}

Error matmul_w4_pack_rhs(const MatmulW4& mm, const MatmulW4Weights& weights, std::byte* packed,
                         const Workers& workers) {
  if (Error e = check_sizes(__func__, mm)) return e;
  if (Error e = check_weights(mm, weights)) return e;
  if (mm.n == 0) return {};
  if (Error e = check_buffer(__func__, "packed", packed)) return e;
  const Packing p = packing_of(mm);
  run_pieces(workers, panel_count(mm.n), [&](int64_t index) {
    std::byte* panel = packed + index * p.panel_bytes;
    std::memset(panel, 0, p.panel_bytes);
    const int64_t end = std::min(mm.n, (index + 1) * kPanelColumns);
    for (int64_t column = index * kPanelColumns; column < end; ++column) pack_column(mm, weights, p, column, panel);
  });
  return {};
}

template <class T>
Error matmul_w4_pack_lhs(const MatmulW4& mm, int64_t m0, int64_t m1, const T* x, int64_t ldx, std::byte* packed) {
  if (Error e = check_sizes(__func__, mm)) return e;
  const Packing p = packing_of(mm);
  if (Error e = check_edge(__func__, "m0", m0, 0, p.block, mm.m)) return e;
  if (Error e = check_edge(__func__, "m1", m1, m0, p.block, mm.m)) return e;
  if (ldx < mm.k) return argument_error(__func__, "ldx", "at least k = " + std::to_string(mm.k), ldx);
  if (m0 == m1) return {};
  if (!x) return argument_error(__func__, "x", "not null");
  if (Error e = check_buffer(__func__, "packed", packed)) return e;
  for (int64_t row = m0; row < m1; row += p.block, packed += p.block_bytes) {
    pack_block(mm, p, x + (row - m0) * ldx, ldx, std::min(p.block, m1 - row), packed);
  }
  return {};
}

template Error matmul_w4_pack_lhs(const MatmulW4&, int64_t, int64_t, const float*, int64_t, std::byte*);
template Error matmul_w4_pack_lhs(const MatmulW4&, int64_t, int64_t, const bf16*, int64_t, std::byte*);

Error matmul_w4(const MatmulW4& mm, const MatmulW4Part& part) {
  if (Error e = check_sizes(__func__, mm)) return e;
  const Packing p = packing_of(mm);
  if (Error e = check_part(mm, p, part)) return e;
  for (int64_t column = part.n0; column < part.n1; column += kPanelColumns) {
    for_each_row_tile(part.m0, part.m1, p.block,
                      [&](int64_t first, int64_t rows) { multiply_tile(mm, p, part, first, rows, column); });
  }
  return {};
}

}  // namespace pinion
