#include "engine/forward/matmul.h"

#include "kernels/base/math.h"

namespace pinion {

void CodeBuffer::make(ScratchSizer* sizer, int64_t rows, int64_t k) {
  sizer->make(&codes, rows * padded_k(k));
  sizer->make(&scales, rows);
}

void InputBuffers::make(ScratchSizer* sizer, InputForms forms, int64_t rows, int64_t k) {
  if (forms.values || keeps_values) sizer->make(&values, rows * k);
  if (forms.plain) plain.make(sizer, rows, k);
  if (forms.rotated) rotated.make(sizer, rows, k);
}

void LocalInputBuffers::make(ScratchSizer* sizer, InputForms forms, int64_t rows, int64_t k) {
  sizer->make(&values, rows * k);
  if (forms.plain) plain.make(sizer, rows, k);
  if (!forms.rotated) return;
  rotated.make(sizer, rows, k);
  sizer->make(&rotated_row, k);
}

namespace {

int64_t columns_of(const Matrix& w, PanelRange run) {
  return std::min(run.count * kPanelColumns, w.n - run.first * kPanelColumns);
}

// The product kernels of a format.
//   sum_rows  packed rows [first, first + rows) times one panel
//   sum_few   all unpacked rows times the panels of `run` (one panel if the matrix is interleaved). The sums go to the
//             tile from `at` on, as [panels][rows][64].
//   epilogue  stores sums of the tile from `at` on
struct Product {
  void (*sum_rows)(const Kernels& kernels, const Matrix& w, int64_t panel, const Input& in, int64_t first, int64_t rows,
                   Tile* tile);
  void (*sum_few)(const Kernels& kernels, const Matrix& w, PanelRange run, const Input& in, int64_t at, Tile* tile);
  void (*epilogue)(const Kernels& kernels, const Tile& tile, int64_t at, int64_t rows, int64_t columns,
                   const Epilogue& ops, float* out, int64_t ldo);
};

void sum_rows_bf16(const Kernels& kernels, const Matrix& w, int64_t panel, const Input& in, int64_t first, int64_t rows,
                   Tile* tile) {
  const GemmTerm term = {in.values + first * in.k, panel_of(w, panel), in.k};
  const RowBlocks blocks = {in.block, in.block * in.k * static_cast<int64_t>(sizeof(float))};
  kernels.gemm_bf16(&term, 1, blocks, rows, tile->values);
}

void sum_few_bf16(const Kernels& kernels, const Matrix& w, PanelRange run, const Input& in, int64_t at, Tile* tile) {
  const RowBlocks rows = {1, in.k * static_cast<int64_t>(sizeof(float))};
  for (int64_t panel = run.first; panel < run.first + run.count; ++panel, at += in.rows * kPanelColumns) {
    const GemmTerm term = {in.values, panel_of(w, panel), in.k};
    kernels.gemm_bf16(&term, 1, rows, in.rows, tile->values + at);
  }
}

void sum_rows_w8(const Kernels& kernels, const Matrix& w, int64_t panel, const Input& in, int64_t first, int64_t rows,
                 Tile* tile) {
  const int64_t k = padded_k(in.k);
  const GemmTerm term = {in.codes_for(w).codes + first * k, panel_of(w, panel), k};
  kernels.gemm_s8(&term, 1, {in.block, in.block * k}, rows, w.column_sum + panel * kPanelColumns, tile->sums);
}

void sum_few_w8(const Kernels& kernels, const Matrix& w, PanelRange run, const Input& in, int64_t at, Tile* tile) {
  const int8_t* codes = in.codes_for(w).codes;
  const int64_t k = padded_k(in.k);
  for (int64_t panel = run.first; panel < run.first + run.count; ++panel, at += in.rows * kPanelColumns) {
    const auto* weights = reinterpret_cast<const int8_t*>(panel_of(w, panel));
    if (in.rows == 1) {
      kernels.gemv_s8(codes, weights, 4 * kPanelColumns, k, tile->sums + at);
    } else {
      kernels.rows_s8(codes, k, in.rows, weights, k, tile->sums + at);
    }
  }
}

void sum_rows_grouped(const Kernels& kernels, const Matrix& w, int64_t panel, const Input& in, int64_t first,
                      int64_t rows, Tile* tile) {
  const int64_t k = padded_k(in.k);
  const GroupedPanel records = {panel_of(w, panel), k, w.format};
  kernels.gemm_grouped(in.codes_for(w).codes + first * k, {in.block, in.block * k}, rows, records, tile->values);
}

void sum_few_grouped(const Kernels& kernels, const Matrix& w, PanelRange run, const Input& in, int64_t at, Tile* tile) {
  const GroupedPanel first = {panel_of(w, run.first), padded_k(in.k), w.format};
  const int8_t* codes = in.codes_for(w).codes;
  if (in.rows == 1) return kernels.gemv_grouped(codes, first, run.count, tile->values + at);
  kernels.rows_grouped(codes, first.k, in.rows, first, run.count, tile->values + at);
}

void store_floats(const Kernels& kernels, const Tile& tile, int64_t at, int64_t rows, int64_t columns,
                  const Epilogue& ops, float* out, int64_t ldo) {
  kernels.epilogue_f32(tile.values + at, rows, columns, ops, out, ldo);
}

void store_integers(const Kernels& kernels, const Tile& tile, int64_t at, int64_t rows, int64_t columns,
                    const Epilogue& ops, float* out, int64_t ldo) {
  kernels.epilogue_s32(tile.sums + at, rows, columns, ops, out, ldo);
}

constexpr Product kBf16Product = {sum_rows_bf16, sum_few_bf16, store_floats};
constexpr Product kW8Product = {sum_rows_w8, sum_few_w8, store_integers};
constexpr Product kGroupedProduct = {sum_rows_grouped, sum_few_grouped, store_floats};

const Product& product_of(const Matrix& w) {
  switch (w.format) {
    case Format::bf16: return kBf16Product;
    case Format::w8: return kW8Product;
    case Format::w4:
    case Format::w4z:
    case Format::w2:
    case Format::mxfp4:
    case Format::w4n:
    case Format::w8h: break;
  }
  return kGroupedProduct;
}

// sum_few for gate and up. The tile gets the gate's sums of a panel, then up's sums of the same panel.
void sum_gated_few(const Kernels& kernels, const Matrix& gate, const Matrix& up, PanelRange run, const Input& in,
                   int64_t at, Tile* tile) {
  if (gate.interleaved == 2) {
    const Matrix both = {.format = gate.format,
                         .n = 2 * padded_n(gate.n),
                         .k = gate.k,
                         .panels = gate.panels,
                         .rotation = gate.rotation};
    return product_of(both).sum_few(kernels, both, {2 * run.first, 2 * run.count}, in, at, tile);
  }
  for (int64_t panel = run.first; panel < run.first + run.count; ++panel) {
    for (const Matrix* w : {&gate, &up}) {
      product_of(*w).sum_few(kernels, *w, {panel, 1}, in, at, tile);
      at += in.rows * kPanelColumns;
    }
  }
}

// Rewrites one byte in every cache line of a result of `rows` runs of `count` floats. Other cores have read these
// lines, so the first store to each is a miss that gains ownership. Here these misses overlap; in the epilogue they
// would stall one store after the other. Prefetches gain little.
void acquire_lines(float* out, int64_t rows, int64_t ldo, int64_t count) {
  for (; rows > 0; --rows, out += ldo) {
    auto* bytes = reinterpret_cast<volatile unsigned char*>(out);
    for (int64_t at = 0; at < count * static_cast<int64_t>(sizeof(float)); at += kAlignmentBytes) bytes[at] = bytes[at];
  }
}

// Applies the epilogue to the sums of sum_few, once for all panels if there is a single row. out: the first column of
// these panels.
void apply_few(const Kernels& kernels, const Linear& linear, PanelRange run, const Input& in, const Tile& tile,
               int64_t at, const Epilogue& ops, float* out, int64_t ldo) {
  const Matrix& w = linear.weight;
  const int64_t step = in.rows == 1 ? run.count : 1;
  for (int64_t i = 0; i < run.count; i += step, at += in.rows * kPanelColumns, out += kPanelColumns) {
    const int64_t column = (run.first + i) * kPanelColumns;
    const int64_t columns = columns_of(w, {run.first + i, step});
    product_of(w).epilogue(kernels, tile, at, in.rows, columns, epilogue_of(ops, linear, column, in, 0), out, ldo);
  }
}

// The epilogue of the products with `up`: activation(gates) * value, or activation(value) if gates is null.
Epilogue gated_by(const float* gates, const Gating& gating) {
  return {.gate = gates,
          .gate_stride = kPanelColumns,
          .activates = !gates,
          .activation = gating.activation,
          .limit = gating.limit,
          .xielu = gating.xielu};
}

// Applies the epilogue to the sums of sum_gated_few.
void apply_gated_few(const Kernels& kernels, const Linear& gate, const Linear& up, const Gating& gating, PanelRange run,
                     const Input& in, int64_t at, Tile* tile, float* out, int64_t ldo) {
  for (int64_t panel = run.first; panel < run.first + run.count; ++panel, out += kPanelColumns) {
    apply_few(kernels, gate, {panel, 1}, in, *tile, at, {}, tile->gates, kPanelColumns);
    at += in.rows * kPanelColumns;
    apply_few(kernels, up, {panel, 1}, in, *tile, at, gated_by(tile->gates, gating), out, ldo);
    at += in.rows * kPanelColumns;
  }
}

}  // namespace

Epilogue epilogue_of(Epilogue ops, const Linear& linear, int64_t column, const Input& in, int64_t first) {
  if (linear.weight.scale) {
    ops.row_scale = in.codes_for(linear.weight).scales + first;
    ops.column_scale = linear.weight.scale + column;
  }
  ops.alpha *= linear.alpha;
  if (linear.bias) ops.bias = linear.bias + column;
  return ops;
}

void store_panel_best(const Kernels& kernels, const Projection& to, PanelRange run, int64_t row) {
  const int64_t n = to.stride(), first_panel = to.linear->first / kPanelColumns;
  for (int64_t panel = run.first; panel < run.first + run.count; ++panel) {
    const int64_t column = (first_panel + panel) * kPanelColumns;
    const float* values = to.at(row, panel);
    const int64_t count = std::min(kPanelColumns, n - column);
    to.best_of(row, panel) = all_finite(std::span(values, count))
                                 ? static_cast<int32_t>(column + kernels.argmax(values, count))
                                 : kNonFinitePanel;
  }
}

void multiply(const Kernels& kernels, const Linear& linear, PanelRange run, const Input& in, int64_t first,
              int64_t rows, const Epilogue& ops, Tile* tile, float* out, int64_t ldo) {
  const Matrix& w = linear.weight;
  const int64_t column = run.first * kPanelColumns;
  const int64_t columns = columns_of(w, run);
  prefetch_result(out, rows, ldo * 4, columns * 4);
  if (in.rows == 1) {
    product_of(w).sum_few(kernels, w, run, in, 0, tile);
    return apply_few(kernels, linear, run, in, *tile, 0, ops, out, ldo);
  }
  product_of(w).sum_rows(kernels, w, run.first, in, first, rows, tile);
  product_of(w).epilogue(kernels, *tile, 0, rows, columns, epilogue_of(ops, linear, column, in, first), out, ldo);
}

void multiply_gated(const Kernels& kernels, const Linear& gate, const Linear& up, const Gating& gating, PanelRange run,
                    const Input& in, int64_t first, int64_t rows, Tile* tile, float* out) {
  const Projection to = {&up, out};
  if (gate.rows.count == 0) {
    const Epilogue ops = gated_by(nullptr, gating);
    return multiply(kernels, up, run, in, first, rows, ops, tile, to.at(0, run.first), to.stride());
  }
  if (in.rows == 1) {
    prefetch_result(to.at(0, run.first), 1, 0, columns_of(gate.weight, run) * 4);
    sum_gated_few(kernels, gate.weight, up.weight, run, in, 0, tile);
    return apply_gated_few(kernels, gate, up, gating, run, in, 0, tile, to.at(0, run.first), to.stride());
  }
  multiply(kernels, gate, run, in, first, rows, {}, tile, tile->gates, kPanelColumns);
  multiply(kernels, up, run, in, first, rows, gated_by(tile->gates, gating), tile, to.at(0, run.first), to.stride());
}

namespace {

// Calls f(panel, first, rows) once for every tile of the result; the workers claim them.
template <class F>
void for_each_tile(Worker& worker, const Input& in, int64_t panels, F f) {
  const TileGrid grid = tile_grid(in.rows, in.block, panels, worker.count);
  worker.for_each(grid.panels * grid.row_ranges, [&](int64_t task) {
    const int64_t begin = task % grid.row_ranges * grid.range_rows;
    for_each_row_tile(begin, std::min(in.rows, begin + grid.range_rows), in.block,
                      [&](int64_t first, int64_t rows) { f(PanelRange{task / grid.row_ranges, 1}, first, rows); });
  });
}

struct Gate {
  const Linear& linear;
  const Gating& gating;
};

// project() for unpacked rows, and project_activated() with a gate, whose sums share the tile. The epilogue runs when
// the tile is full or no task is left, not after every panel, since each interruption slows down the stream of weights.
// The result's cache lines are prefetched, since other cores hold them.
void project_few(Worker& worker, const Kernels& kernels, const Input& in, std::span<const Projection> projections,
                 const Epilogue& after, const Gate* gate) {
  struct Run {
    const Projection* to;
    PanelRange run;
  };
  Tile tile;
  Run runs[kTileRows];
  int64_t count = 0, panels = 0;
  const int64_t panel_rows = in.rows * (gate ? 2 : 1), max_panels = kTileRows / panel_rows;
  const auto apply_all = [&] {
    const auto done = std::span(runs, count);
    for (const auto& [to, run] : done) {
      acquire_lines(to->at(0, run.first), in.rows, to->stride(), columns_of(to->linear->weight, run));
    }
    int64_t at = 0;
    for (const auto& [to, run] : done) {
      float* const out = to->at(0, run.first);
      if (gate) {
        apply_gated_few(kernels, gate->linear, *to->linear, gate->gating, run, in, at, &tile, out, to->stride());
      } else {
        apply_few(kernels, *to->linear, run, in, tile, at, after, out, to->stride());
      }
      for (int64_t row = 0; to->panel_best && row < in.rows; ++row) store_panel_best(kernels, *to, run, row);
      at += run.count * panel_rows * kPanelColumns;
    }
    count = panels = 0;
  };
  worker.for_each_run(panels_of(projections), std::min(kPanelsPerClaim, max_panels), [&](PanelRange all) {
    if (panels + all.count > max_panels) apply_all();
    for_each_projection(projections, all, [&](const Projection& to, PanelRange run) {
      const Matrix& w = to.linear->weight;
      const int64_t at = panels * panel_rows * kPanelColumns;
      prefetch_result(to.at(0, run.first), in.rows, to.stride() * 4, columns_of(w, run) * 4);
      if (gate) {
        sum_gated_few(kernels, gate->linear.weight, w, run, in, at, &tile);
      } else {
        product_of(w).sum_few(kernels, w, run, in, at, &tile);
      }
      runs[count++] = {&to, run};
      panels += run.count;
    });
  });
  apply_all();
}

}  // namespace

void project(const Multiplier& m, const Input& in, std::initializer_list<Projection> outputs, const Epilogue& after) {
  const std::span<const Projection> projections(outputs.begin(), outputs.size());
  const Kernels& kernels = m.table();
  if (in.block == 1) {
    project_few(m.worker, kernels, in, projections, after, nullptr);
    return m.worker.barrier();
  }
  Tile tile;
  for_each_tile(m.worker, in, panels_of(projections), [&](PanelRange panel, int64_t first, int64_t rows) {
    for_each_projection(projections, panel, [&](const Projection& to, PanelRange run) {
      multiply(kernels, *to.linear, run, in, first, rows, after, &tile, to.at(first, run.first), to.stride());
      for (int64_t row = first; to.panel_best && row < first + rows; ++row) store_panel_best(kernels, to, run, row);
    });
  });
  m.worker.barrier();
}

void project_activated(const Multiplier& m, const Input& in, const Linear& gate, const Linear& up, const Gating& gating,
                       float* out) {
  if (gate.rows.count == 0) return project(m, in, {{&up, out}}, gated_by(nullptr, gating));
  const Kernels& kernels = m.table();
  if (in.block == 1) {
    const Projection to = {&up, out};
    const Gate gated = {gate, gating};
    project_few(m.worker, kernels, in, {&to, 1}, {}, &gated);
    return m.worker.barrier();
  }
  Tile tile;
  // A task has the same panel of both matrices.
  for_each_tile(m.worker, in, panel_count(gate.weight.n), [&](PanelRange run, int64_t first, int64_t rows) {
    multiply_gated(kernels, gate, up, gating, run, in, first, rows, &tile, out + first * up.rows.count);
  });
  m.worker.barrier();
}

namespace {

void quantize_to(const Multiplier& m, const float* row, int64_t k, InputForms forms, int64_t index, CodeBuffer* plain,
                 CodeBuffer* rotated) {
  const auto quantize = [&](const float* x, CodeBuffer* to) {
    m.kernels.quantize(x, k, to->codes.data() + index * padded_k(k), to->scales.data() + index);
  };
  if (forms.plain) quantize(row, plain);
  if (!forms.rotated) return;
  m.kernels.rotate(row, k, rotation_of(k), m.local.rotated_row.data());
  quantize(m.local.rotated_row.data(), rotated);
}

}  // namespace

void quantize_local(const Multiplier& m, const float* row, int64_t k, InputForms forms, int64_t index) {
  quantize_to(m, row, k, forms, index, &m.local.plain, &m.local.rotated);
}

void quantize_shared(const Multiplier& m, const float* row, int64_t k, InputForms forms, int64_t index) {
  quantize_to(m, row, k, forms, index, &m.shared.plain, &m.shared.rotated);
  if (forms.values) std::copy_n(row, k, m.shared.values.data() + index * k);
}

void pack_block(const Multiplier& m, const float* rows, int64_t first, int64_t count, const Input& in) {
  const int64_t k = padded_k(in.k);
  const InputForms forms = in.forms();
  const auto pack = [&](const CodeBuffer& from, CodeBuffer* to) {
    int8_t* codes = to->codes.data() + first * k;
    std::copy_n(from.scales.data(), count, to->scales.data() + first);
    if (in.rows == 1) {
      std::copy_n(from.codes.data(), k, codes);
    } else {
      m.kernels.pack_s8(from.codes.data(), k, count, k, in.block, codes);
    }
  };
  // The packed form of one row of floats is the row itself.
  if (forms.values) m.kernels.pack_f32(rows, in.k, count, in.k, in.block, m.shared.values.data() + first * in.k);
  for (int64_t r = 0; r < count; ++r) quantize_local(m, rows + r * in.k, in.k, forms, r);
  if (forms.plain) pack(m.local.plain, &m.shared.plain);
  if (forms.rotated) pack(m.local.rotated, &m.shared.rotated);
}

}  // namespace pinion
