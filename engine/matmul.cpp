#include "engine/matmul.h"

#include <cstddef>

namespace pinion {

namespace {

// The sums of rows [first, first + rows) by one panel, and what comes after them.
void multiply_panel(const Kernels& kernels, const Matrix& w, int64_t panel, const Input& in, int64_t first,
                    int64_t rows, const PostOps& ops, Tile* tile, float* out, int64_t ldo) {
  const int64_t column = panel * kPanelColumns;
  const int64_t columns = std::min(kPanelColumns, w.n - column);
  const auto* base = static_cast<const std::byte*>(w.panels) + panel * panel_bytes(w.format, w.k);
  prefetch_result(out, rows, ldo * 4, columns * 4);
  if (w.format == Format::bf16) {
    const GemmTerm term = {in.values + first * in.k, base, in.k};
    const RowBlocks blocks = {in.block, in.block * in.k * static_cast<int64_t>(sizeof(float))};
    kernels.gemm_bf16(&term, 1, blocks, rows, tile->values);
    return kernels.finish_f32(tile->values, rows, columns, ops, out, ldo);
  }
  const int64_t k = padded_k(in.k);
  const RowBlocks blocks = {in.block, in.block * k};
  if (is_w4(w.format)) {
    kernels.gemm_w4(in.codes + first * k, blocks, rows, {base, k, w.format == Format::w4z}, tile->values);
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

}  // namespace

void multiply(const Kernels& kernels, const Linear& linear, PanelRun run, const Input& in, int64_t first, int64_t rows,
              const PostOps& ops, Tile* tile, float* out, int64_t ldo) {
  const Matrix& w = linear.weight;
  const bool at_once = in.rows == 1 && is_w4(w.format);
  if (at_once) {
    const auto* base = static_cast<const std::byte*>(w.panels) + run.first * panel_bytes(w.format, w.k);
    kernels.gemv_w4(in.codes, {base, padded_k(in.k), w.format == Format::w4z}, run.count, tile->values);
  }
  for (int64_t i = 0; i < run.count; ++i) {
    const int64_t panel = run.first + i, column = panel * kPanelColumns, at = i * kPanelColumns;
    PostOps here = ops;
    if (w.format != Format::bf16) {
      here.row_scale = in.scales + first;
      here.column_scale = w.scale + column;
    }
    if (linear.bias) here.bias = linear.bias + column;
    if (ops.gate) here.gate = ops.gate + at;
    if (at_once) {
      kernels.finish_f32(tile->values + at, 1, std::min(kPanelColumns, w.n - column), here, out + at, ldo);
    } else {
      multiply_panel(kernels, w, panel, in, first, rows, here, tile, out + at, ldo);
    }
  }
}

void multiply_gated(const Kernels& kernels, const Linear& gate, const Linear& up, const ModelConfig& config,
                    PanelRun run, const Input& in, int64_t first, int64_t rows, Tile* tile, float* out) {
  const PostOps gated = {.gate = tile->gates,
                         .gate_stride = kPanelColumns,
                         .activation = config.activation,
                         .limit = config.activation_limit};
  multiply(kernels, gate, run, in, first, rows, {}, tile, tile->gates, kPanelColumns);
  multiply(kernels, up, run, in, first, rows, gated, tile, out + run.first * kPanelColumns, up.weight.n);
}

PanelRuns panel_runs(int64_t rows, const Matrix& w, int64_t panels, int64_t workers) {
  constexpr int64_t kMost = 4, kTasksPerWorker = 4;
  if (rows > 1 || !is_w4(w.format)) return {panels, 1};
  return {panels, std::clamp<int64_t>(panels / (kTasksPerWorker * workers), 1, kMost)};
}

// Cores that share an SME unit would only wait for one another there.
const Kernels& table_of(const Worker& worker, const Pass& p) {
  return worker.leads || !p.kernels.beside ? p.kernels : *p.kernels.beside;
}

namespace {

// f(run, first, rows) for every tile of `runs` by the input's rows, claimed by the workers.
template <class F>
void for_each_tile(Worker& worker, const Input& in, const PanelRuns& runs, F f) {
  const TileGrid grid = tile_grid(in.rows, in.block, runs.count(), worker.count);
  worker.for_each(grid.panels * grid.parts, [&](int64_t task) {
    const int64_t begin = task % grid.parts * grid.part_rows;
    each_tile(begin, std::min(in.rows, begin + grid.part_rows), in.block,
              [&](int64_t first, int64_t rows) { f(runs[task / grid.parts], first, rows); });
  });
}

void note_best(const Kernels& kernels, const Projection& to, PanelRun run, int64_t row) {
  const int64_t n = to.linear->weight.n;
  for (int64_t panel = run.first; panel < run.first + run.count; ++panel) {
    const int64_t column = panel * kPanelColumns;
    const float* values = to.out + row * n + column;
    to.panel_best[panel] = static_cast<int32_t>(column + kernels.argmax(values, std::min(kPanelColumns, n - column)));
  }
}

}  // namespace

void project(Worker& worker, const Pass& p, const Input& in, std::initializer_list<Projection> projections,
             const PostOps& after) {
  int64_t panels = 0;
  for (const Projection& one : projections) panels += panel_count(one.linear->weight.n);
  const PanelRuns runs = panel_runs(in.rows, projections.begin()->linear->weight, panels, worker.count);
  const Kernels& kernels = table_of(worker, p);
  Tile tile;
  for_each_tile(worker, in, runs, [&](PanelRun left, int64_t first, int64_t rows) {
    for (const Projection& to : projections) {  // a run may begin in one matrix and end in another
      const int64_t n = to.linear->weight.n, here = panel_count(n);
      const PanelRun run = {left.first, std::clamp<int64_t>(here - left.first, 0, left.count)};
      left = {std::max<int64_t>(0, left.first - here), left.count - run.count};
      if (run.count == 0) continue;
      multiply(kernels, *to.linear, run, in, first, rows, after, &tile, to.out + first * n + run.first * kPanelColumns,
               n);
      if (to.panel_best && first + rows == in.rows) note_best(kernels, to, run, in.rows - 1);
    }
  });
  worker.barrier();
}

void project_gated(Worker& worker, const Pass& p, const Input& in, const Linear& gate, const Linear& up, float* out) {
  const int64_t n = gate.weight.n;
  const PanelRuns runs = panel_runs(in.rows, gate.weight, panel_count(n), worker.count);
  const Kernels& kernels = table_of(worker, p);
  Tile tile;
  // The same panels of both matrices are one task.
  for_each_tile(worker, in, runs, [&](PanelRun run, int64_t first, int64_t rows) {
    multiply_gated(kernels, gate, up, p.model.config, run, in, first, rows, &tile, out + first * n);
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
