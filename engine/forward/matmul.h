// Linear layers: the team prepares input rows once (normed, quantised, packed) for all matrices that share them.
#pragma once

#include "engine/model/model.h"
#include "engine/team/team.h"
#include "kernels/kernels.h"
#include "kernels/ops/tiles.h"

namespace pinion {

// Sizes scratch vectors in two rounds: the first counts bytes, to compare with free memory; the second allocates.
struct ScratchSizer {
  bool allocates = false;
  int64_t bytes = 0;  // if two calls enlarge one vector, the counting round adds both sizes: an upper bound

  // Makes room for at least n elements.
  template <class T>
  void make(std::vector<T>* v, int64_t n) {
    const size_t size = std::max(v->size(), static_cast<size_t>(n));
    bytes += (size - v->size()) * sizeof(T);
    if (allocates) v->resize(size);
  }
};

// The forms in which a set of matrices reads its input.
struct InputForms {
  bool values = false;    // floats, for bf16 weights
  bool plain = false;     // int8 codes of the rows
  bool rotated = false;   // int8 codes of the rows after rotation
  bool unpacked = false;  // any number of rows, for a head by halves

  void add(const Matrix& matrix) {
    if (matrix.n == 0) return;  // the layer or this board has no such matrix
    (!traits_of(matrix.format).has_scales ? values : matrix.rotation > 1 ? rotated : plain) = true;
    unpacked |= traits_of(matrix.format).is_halved;
  }
  void add(std::span<const Linear> matrices) {
    for (const Linear& matrix : matrices) add(matrix.weight);
  }
  bool codes() const { return plain || rotated; }
};

inline InputForms forms_of(const Linear& linear) {
  InputForms forms;
  forms.add(linear.weight);
  return forms;
}

// The forms in which these stages of a layer read one input.
inline InputForms forms_of(const Layer& layer, std::initializer_list<Stage> stages) {
  InputForms forms;
  for (const Stage stage : stages) forms.add(layer.of(stage));
  return forms;
}

struct Codes {
  const int8_t* codes = nullptr;  // [rows][padded_k(k)]
  const float* scales = nullptr;  // [rows]
};

// The input of a matmul in the forms that its matrices need; the other forms are null. Up to Kernels::few_rows
// quantised rows stay unpacked; more are packed in row blocks (see RowBlocks), unless the input is a head's by halves.
struct Input {
  int64_t rows;
  int64_t k;
  int64_t block;        // rows of a row block; 1: unpacked
  const float* values;  // [rows][k]
  Codes plain;
  Codes rotated;  // of the rows after rotation of each run of rotation_of(k) elements

  const Codes& codes_for(const Matrix& matrix) const { return matrix.rotation > 1 ? rotated : plain; }
  InputForms forms() const { return {values != nullptr, plain.codes != nullptr, rotated.codes != nullptr}; }
};

// Quantised rows.
struct CodeBuffer {
  std::vector<int8_t> codes;  // [rows][padded_k(k)]
  std::vector<float> scales;  // [rows]

  void make(ScratchSizer* sizer, int64_t rows, int64_t k);
};

// Buffers of inputs that all workers read: a few unpacked rows, or row blocks, which may include padding rows.
struct InputBuffers {
  bool keeps_values = false;  // also of inputs whose matrices read codes, for the moments of calibration
  std::vector<float> values;  // [rows][k]
  CodeBuffer plain, rotated;

  void make(ScratchSizer* sizer, InputForms forms, int64_t rows, int64_t k);
};

// Buffers of one worker: rows before they are packed, and the input of a pass with a single row.
struct LocalInputBuffers {
  std::vector<float> values;       // [rows of a row block][k]
  std::vector<float> rotated_row;  // [k]
  CodeBuffer plain, rotated;       // [rows of a row block, or experts of a token]

  void make(ScratchSizer* sizer, InputForms forms, int64_t rows, int64_t k);
};

// A worker with the kernels and buffers of its products.
struct Multiplier {
  Worker& worker;
  const Kernels& kernels;
  InputBuffers& shared;
  LocalInputBuffers& local;

  // The kernels for matmuls: of cores that share an SME unit one uses it, the others use the companion table.
  const Kernels& table() const { return worker.uses_sme || !kernels.companion ? kernels : *kernels.companion; }
};

// The activation of an mlp: activation(gate x) * (up x), or activation(up x).
struct Gating {
  Activation activation;
  float limit;  // of clamped_swiglu
  Xielu xielu;
};

// Marks a panel of logits that contains NaN or infinity.
constexpr int32_t kNonFinitePanel = -1;

// A matrix and the destination of its products.
struct Projection {
  const Linear* linear;
  float* out = nullptr;  // [rows][n of the whole matrix]
  // [rows][panels of the whole matrix] the column of each panel's largest output, or kNonFinitePanel; null: not needed.
  int32_t* panel_best = nullptr;
  int64_t width = 0;  // of a row of `out` that holds the products of several matrices; 0: of this one alone

  int64_t stride() const { return width > 0 ? width : linear->rows.count; }
  // The outputs of a row for one panel. panel: index among this board's panels of the matrix.
  float* at(int64_t row, int64_t panel) const { return out + row * stride() + linear->first + panel * kPanelColumns; }
  int32_t& best_of(int64_t row, int64_t panel) const {
    return panel_best[row * panel_count(stride()) + linear->first / kPanelColumns + panel];
  }
};

// out = W x + b for matrices that share an input, with the epilogue `after`; its scales and bias are set from each
// matrix. If boards share a matrix, computes this board's columns only. Ends with a barrier.
void project(const Multiplier& m, const Input& in, std::initializer_list<Projection> projections,
             const Epilogue& after = {});

// out = activation(gate x) * (up x), or activation(up x) if the model has no gate. Columns and barrier as in project().
void project_activated(const Multiplier& m, const Input& in, const Linear& gate, const Linear& up, const Gating& gating,
                       float* out);

// --- For callers that distribute the work themselves: experts, and the first touch of weights.

// The sums of one worker's current task.
struct Tile {
  alignas(kAlignmentBytes) int32_t sums[kTileRows * kPanelColumns];
  alignas(kAlignmentBytes) float values[kTileRows * kPanelColumns];
  alignas(kAlignmentBytes) float gates[kTileRows * kPanelColumns];  // of a gated mlp
};

using PanelRange = TaskRange;

// The epilogue `ops` with the scales and bias of a matrix, from column `column` and input row `first` on.
Epilogue epilogue_of(Epilogue ops, const Linear& linear, int64_t column, const Input& in, int64_t first);

// Sets the row's panel_best for these panels. Boards divide a matrix with panel_best (the head) by whole panels.
void store_panel_best(const Kernels& kernels, const Projection& to, PanelRange run, int64_t row);

// Number of panels of all matrices together.
inline int64_t panels_of(std::span<const Projection> projections) {
  int64_t panels = 0;
  for (const Projection& to : projections) panels += panel_count(to.linear->weight.n);
  return panels;
}

// Splits a range of the consecutive panels of all projections at the matrices; f(projection, its panels in it).
template <class F>
void for_each_projection(std::span<const Projection> projections, PanelRange left, F f) {
  for (const Projection& to : projections) {
    const int64_t panels = panel_count(to.linear->weight.n);
    const PanelRange run = {left.first, std::clamp<int64_t>(panels - left.first, 0, left.count)};
    left = {std::max<int64_t>(0, left.first - panels), left.count - run.count};
    if (run.count > 0) f(to, run);
  }
}

// Maximum number of panels in one claim. For a single row, w4 kernels read several panels as streams side by side.
constexpr int64_t kPanelsPerClaim = 4;
inline int64_t panels_per_claim(int64_t rows) { return rows == 1 ? kPanelsPerClaim : 1; }

// Claims all panels of `matrices` matrices, `panels` each. f(matrix, its panels in a claim). No barrier.
template <class F>
void for_each_panel_run(Worker& worker, int64_t matrices, int64_t panels, int64_t rows, F f) {
  worker.for_each_run(matrices * panels, panels_per_claim(rows), [&](TaskRange all) {
    while (all.count > 0) {  // a claim may continue in the next matrix
      const int64_t panel = all.first % panels, count = std::min(all.count, panels - panel);
      f(all.first / panels, PanelRange{panel, count});
      all = {all.first + count, all.count - count};
    }
  });
}

// out = rows [first, first + rows) of the input times the panels of `run`, after the epilogue. Rows: whole row blocks,
// at most kTileRows. Panels: one, or for a single row up to kTileRows, all of whose columns ops.gate must then cover.
void multiply(const Kernels& kernels, const Linear& linear, PanelRange run, const Input& in, int64_t first,
              int64_t rows, const Epilogue& ops, Tile* tile, float* out, int64_t ldo);

// The same for activation(gate x) * (up x), or activation(up x) if the gate has no rows. A single row takes up to
// kTileRows / 2 panels. out: [rows][n of the whole matrix].
void multiply_gated(const Kernels& kernels, const Linear& gate, const Linear& up, const Gating& gating, PanelRange run,
                    const Input& in, int64_t first, int64_t rows, Tile* tile, float* out);

// An input whose codes are in the buffers from row `first` on. values: its floats, used if `forms` includes them.
template <class Buffers>  // InputBuffers or LocalInputBuffers
Input input_in(const Buffers& buffers, InputForms forms, int64_t rows, int64_t k, int64_t block, const float* values,
               int64_t first) {
  const auto codes = [&](bool needed, const CodeBuffer& buffer) {
    return needed ? Codes{buffer.codes.data() + first * padded_k(k), buffer.scales.data() + first} : Codes{};
  };
  return {rows,
          k,
          block,
          forms.values ? values : nullptr,
          codes(forms.plain, buffers.plain),
          codes(forms.rotated, buffers.rotated)};
}

// Quantises a row in these forms to row `index` of the worker's local buffers, or of the shared buffers.
void quantize_local(const Multiplier& m, const float* row, int64_t k, InputForms forms, int64_t index);
void quantize_shared(const Multiplier& m, const float* row, int64_t k, InputForms forms, int64_t index);

// Quantises and packs one row block of the input `in`: its rows [first, first + count), to row `first` of the shared
// buffers. rows: their floats [count][k]. An input of a single row is not packed.
void pack_block(const Multiplier& m, const float* rows, int64_t first, int64_t count, const Input& in);

// Prepares an input in these forms. make(first, count, out) returns `count` rows from `first` on: it fills
// `out` and returns it, or returns rows that exist already. Every worker prepares a single row for itself, which costs
// less than a barrier. With several rows a task is a row or a row block, and prepare() ends with a barrier.
template <class Make>
Input prepare(const Multiplier& m, int64_t rows, int64_t k, InputForms forms, Make make) {
  forms.values |= m.shared.keeps_values;
  if (rows == 1) {
    const float* row = make(0, 1, m.local.values.data());
    quantize_local(m, row, k, forms, 0);
    return input_in(m.local, forms, 1, k, 1, row, 0);
  }
  if ((rows <= m.kernels.few_rows || forms.unpacked) && forms.codes()) {
    m.worker.for_each(rows, [&](int64_t r) { quantize_shared(m, make(r, 1, m.local.values.data()), k, forms, r); });
    m.worker.barrier();
    return input_in(m.shared, forms, rows, k, 1, m.shared.values.data(), 0);
  }
  const int64_t block = block_rows(forms.codes() ? m.kernels.s8_shape : m.kernels.f32_shape, rows);
  const Input in = input_in(m.shared, forms, rows, k, block, m.shared.values.data(), 0);
  m.worker.for_each((rows + block - 1) / block, [&](int64_t task) {
    const int64_t first = task * block;
    const int64_t count = std::min(block, rows - first);
    pack_block(m, make(first, count, m.local.values.data()), first, count, in);
  });
  m.worker.barrier();
  return in;
}

}  // namespace pinion
