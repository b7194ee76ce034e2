#include "engine/matmul.h"

#include <cstddef>

namespace pinion {

void multiply(const Kernels& kernels, const Linear& linear, int64_t panel, const Input& in, int64_t first, int64_t rows,
              PostOps ops, Tile* tile, float* out, int64_t ldo) {
  const Matrix& w = linear.weight;
  const int64_t column = panel * kPanelColumns;
  const int64_t columns = std::min(kPanelColumns, w.n - column);
  const auto* base = static_cast<const std::byte*>(w.panels) + panel * panel_bytes(w.format, w.k);
  if (linear.bias) ops.bias = linear.bias + column;
  prefetch_result(out, rows, ldo * 4, columns * 4);
  if (w.format == Format::bf16) {
    const GemmTerm term = {in.values + first * in.k, base, in.k};
    const RowBlocks blocks = {in.block, in.block * in.k * static_cast<int64_t>(sizeof(float))};
    kernels.gemm_bf16(&term, 1, blocks, rows, tile->values);
    return kernels.finish_f32(tile->values, rows, columns, ops, out, ldo);
  }
  const int64_t k = padded_k(in.k);
  const RowBlocks blocks = {in.block, in.block * k};
  ops.row_scale = in.scales + first;
  ops.column_scale = w.scale + column;
  if (is_w4(w.format)) {
    const W4Panel records = {base, k, w.format == Format::w4z};
    if (in.rows == 1) {
      kernels.gemv_w4(in.codes, records, tile->values);
    } else {
      kernels.gemm_w4(in.codes + first * k, blocks, rows, records, tile->values);
    }
    return kernels.finish_f32(tile->values, rows, columns, ops, out, ldo);
  }
  if (in.rows == 1) {
    kernels.gemv_s8(in.codes, reinterpret_cast<const int8_t*>(base), 4 * kPanelColumns, k, tile->sums);
  } else {
    const GemmTerm term = {in.codes + first * k, base, k};
    kernels.gemm_s8(&term, 1, blocks, rows, w.column_sum + column, tile->sums);
  }
  kernels.finish_s32(tile->sums, rows, columns, ops, out, ldo);
}

void multiply_gated(const Kernels& kernels, const Linear& gate, const Linear& up, const ModelConfig& config,
                    int64_t panel, const Input& in, int64_t first, int64_t rows, Tile* tile, float* out) {
  const PostOps gated = {.gate = tile->gates,
                         .gate_stride = kPanelColumns,
                         .activation = config.activation,
                         .limit = config.activation_limit};
  const int64_t n = up.weight.n;
  multiply(kernels, gate, panel, in, first, rows, {}, tile, tile->gates, kPanelColumns);
  multiply(kernels, up, panel, in, first, rows, gated, tile, out + panel * kPanelColumns, n);
}

// Cores that share an SME unit would only wait for one another there.
const Kernels& table_of(const Worker& worker, const Pass& p) {
  return worker.leads || !p.kernels.beside ? p.kernels : *p.kernels.beside;
}

namespace {

// f(panel, first, rows) for every tile of `panels` panels by the input's rows, claimed by the workers.
template <class F>
void for_each_tile(Worker& worker, const Input& in, int64_t panels, F f) {
  const TileGrid grid = tile_grid(in.rows, in.block, panels, worker.count);
  worker.for_each(grid.panels * grid.parts, [&](int64_t task) {
    const int64_t begin = task % grid.parts * grid.part_rows;
    each_tile(begin, std::min(in.rows, begin + grid.part_rows), in.block,
              [&](int64_t first, int64_t rows) { f(task / grid.parts, first, rows); });
  });
}

}  // namespace

void project(Worker& worker, const Pass& p, const Input& in, std::initializer_list<Projection> projections,
             const PostOps& after) {
  int64_t panels = 0;
  for (const Projection& one : projections) panels += panel_count(one.linear->weight.n);
  const Kernels& kernels = table_of(worker, p);
  Tile tile;
  for_each_tile(worker, in, panels, [&](int64_t panel, int64_t first, int64_t rows) {
    const Projection* to = projections.begin();
    for (; panel >= panel_count(to->linear->weight.n); ++to) panel -= panel_count(to->linear->weight.n);
    const int64_t n = to->linear->weight.n;
    multiply(kernels, *to->linear, panel, in, first, rows, after, &tile, to->out + first * n + panel * kPanelColumns,
             n);
    if (to->panel_best && first + rows == in.rows) {
      const int64_t column = panel * kPanelColumns;
      const float* last = to->out + (in.rows - 1) * n + column;
      to->panel_best[panel] = static_cast<int32_t>(column + kernels.argmax(last, std::min(kPanelColumns, n - column)));
    }
  });
  worker.barrier();
}

void project_gated(Worker& worker, const Pass& p, const Input& in, const Linear& gate, const Linear& up, float* out) {
  const int64_t n = gate.weight.n;
  const Kernels& kernels = table_of(worker, p);
  Tile tile;
  // The same panel of both matrices is one task.
  for_each_tile(worker, in, panel_count(n), [&](int64_t panel, int64_t first, int64_t rows) {
    multiply_gated(kernels, gate, up, p.model.config, panel, in, first, rows, &tile, out + first * n);
  });
  worker.barrier();
}

void pack_block(const Pass& p, const float* rows, int64_t first, int64_t count, const Input& in, WorkerScratch* own) {
  if (in.rows == 1) {
    if (in.values) std::copy_n(rows, in.k, p.scratch.packed.data() + first * in.k);
    if (in.codes) {
      int8_t* codes = p.scratch.codes.data() + first * padded_k(in.k);
      p.kernels.quantize(rows, in.k, codes, p.scratch.scales.data() + first);
    }
    return;
  }
  if (in.values) p.kernels.pack_f32(rows, in.k, count, in.k, in.block, p.scratch.packed.data() + first * in.k);
  if (!in.codes) return;
  const int64_t k = padded_k(in.k);
  for (int64_t r = 0; r < count; ++r) {
    p.kernels.quantize(rows + r * in.k, in.k, own->codes.data() + r * k, p.scratch.scales.data() + first + r);
  }
  p.kernels.pack_s8(own->codes.data(), k, count, k, in.block, p.scratch.codes.data() + first * k);
}

}  // namespace pinion
