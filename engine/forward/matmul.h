// Linear layers over the team: rows are prepared once (made, quantised, packed) and multiplied by all the matrices that
// share them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <vector>

#include "engine/forward/scratch_sizer.h"
#include "engine/model/layer.h"
#include "engine/team/team.h"
#include "kernels/kernels.h"
#include "kernels/ops/tiles.h"

namespace pinion {

// The forms in which some matrices want their input.
struct InputForms {
  bool values = false;   // bf16
  bool plain = false;    // codes
  bool rotated = false;  // codes of the rotated rows

  void add(const Matrix& matrix) {
    if (matrix.n == 0) return;  // a layer may do without it
    (!traits_of(matrix.format).has_scales ? values : matrix.rotation > 1 ? rotated : plain) = true;
  }
  bool codes() const { return plain || rotated; }
};

struct Codes {
  const int8_t* codes = nullptr;  // padded_k(k) a row
  const float* scales = nullptr;  // [rows]
};

// What a matmul multiplies: an input in the forms that its matrices want, the others null. Up to Kernels::few_rows rows
// lie as they are; more are packed in blocks (see RowBlocks).
struct Input {
  int64_t rows;
  int64_t k;
  int64_t block;        // rows of a block; 1: rows as they are
  const float* values;  // k a row
  Codes plain;
  Codes rotated;  // of rows that were rotated in blocks of rotation_of(k)

  const Codes& codes_for(const Matrix& matrix) const { return matrix.rotation > 1 ? rotated : plain; }
  InputForms forms() const { return {values != nullptr, plain.codes != nullptr, rotated.codes != nullptr}; }
};

// Quantised rows.
struct CodeBuffer {
  std::vector<int8_t> codes;  // [rows][padded k]
  std::vector<float> scales;  // [rows]

  void make(ScratchSizer* sizer, int64_t rows, int64_t k);
};

// Inputs of several rows, in blocks, shared by all workers. Rows are padded.
struct InputBuffers {
  std::vector<float> values;  // [rows][any width]
  CodeBuffer plain, rotated;

  // Sizes the buffers for `rows` of k, in the forms that are wanted.
  void make(ScratchSizer* sizer, InputForms forms, int64_t rows, int64_t k);
};

// Each worker's own: here it makes rows, and here a single row's input lies.
struct OwnInputBuffers {
  std::vector<float> values;       // [a block's rows][any width]
  std::vector<float> rotated_row;  // [any width]
  CodeBuffer plain, rotated;       // [a block's rows, or experts of a token]

  void make(ScratchSizer* sizer, InputForms forms, int64_t rows, int64_t k);
};

// What a worker multiplies with.
struct Multiplier {
  Worker& worker;
  const Kernels& kernels;
  InputBuffers& shared;
  OwnInputBuffers& own;

  // The kernels for matmuls. Cores that share an SME unit would wait for one another there, so only as many use it
  // as there are units.
  const Kernels& table() const { return worker.uses_sme || !kernels.follower ? kernels : *kernels.follower; }
};

// The activation of an MLP: activation(gate x) * (up x), or activation(up x).
struct Gating {
  Activation activation;
  float limit;  // clamped_swiglu's
  Xielu xielu;
};

constexpr int32_t kUnfitPanel = -1;

struct Projection {
  const Linear* linear;
  float* out = nullptr;  // [rows][n of the whole matrix]
  // [rows][panels likewise]: which column of each is the row's largest, kUnfitPanel if a number there is NaN or
  // infinite; null: not wanted.
  int32_t* panel_best = nullptr;

  int64_t stride() const { return linear->rows.count; }
  // Where a row has the columns of a panel of the rows that are here.
  float* at(int64_t row, int64_t panel) const { return out + row * stride() + linear->first + panel * kPanelColumns; }
};

// out = W x + b for matrices that share an input, then the epilogue `after` (its scales and bias are the matrices'). Of
// a matrix that boards share, the columns whose rows are here.
void project(const Multiplier& m, const Input& in, std::initializer_list<Projection> projections,
             const Epilogue& after = {});

// out = activation(gate x) * (up x), or activation(up x) where the model has no gate; likewise.
void project_activated(const Multiplier& m, const Input& in, const Linear& gate, const Linear& up, const Gating& gating,
                       float* out);

// --- For callers that distribute the work themselves: experts, and first touch.

// One worker's tile: sums, and the gates of a gated MLP.
struct Tile {
  alignas(kAlignmentBytes) int32_t sums[kTileRows * kPanelColumns];
  alignas(kAlignmentBytes) float values[kTileRows * kPanelColumns];
  alignas(kAlignmentBytes) float gates[kTileRows * kPanelColumns];
};

// Panels of a matrix.
using PanelRange = TaskRange;

// Of all the projections' matrices together.
inline int64_t panels_of(std::span<const Projection> projections) {
  int64_t panels = 0;
  for (const Projection& one : projections) panels += panel_count(one.linear->weight.n);
  return panels;
}

// Splits a range of all projections' panels at their borders: f(projection, its part of the range).
template <class F>
void each_part(std::span<const Projection> projections, PanelRange left, F f) {
  for (const Projection& to : projections) {
    const int64_t here = panel_count(to.linear->weight.n);
    const PanelRange run = {left.first, std::clamp<int64_t>(here - left.first, 0, left.count)};
    left = {std::max<int64_t>(0, left.first - here), left.count - run.count};
    if (run.count > 0) f(to, run);
  }
}

// Panels that a task takes at once. For rows as they are several are read side by side, as streams (w4).
constexpr int64_t kPanelsAtOnce = 4;
inline int64_t panels_at_once(int64_t rows) { return rows == 1 ? kPanelsAtOnce : 1; }

// out = epilogue of rows [first, first + rows) of the input times the panels: whole blocks, at most kTileRows rows.
// Several panels, at most kTileRows, only for a single row; ops.gate then belongs to all of them.
void multiply(const Kernels& kernels, const Linear& linear, PanelRange run, const Input& in, int64_t first,
              int64_t rows, const Epilogue& ops, Tile* tile, float* out, int64_t ldo);

// The same for activation(gate x) * (up x), or activation(up x) where the gate has no rows; for a single row at most
// kTileRows / 2 panels. out: [rows][n of the whole matrix].
void multiply_gated(const Kernels& kernels, const Linear& gate, const Linear& up, const Gating& gating, PanelRange run,
                    const Input& in, int64_t first, int64_t rows, Tile* tile, float* out);

// The input that the buffers hold from row `first` on, in these forms.
template <class Buffers>  // InputBuffers or OwnInputBuffers
Input input_in(const Buffers& buffers, InputForms forms, int64_t rows, int64_t k, int64_t block, const float* values,
               int64_t first) {
  const auto codes = [&](bool wanted, const CodeBuffer& buffer) {
    return wanted ? Codes{buffer.codes.data() + first * padded_k(k), buffer.scales.data() + first} : Codes{};
  };
  return {rows,
          k,
          block,
          forms.values ? values : nullptr,
          codes(forms.plain, buffers.plain),
          codes(forms.rotated, buffers.rotated)};
}

// Quantises a row, in these forms, into row `at` of the worker's own buffers, or of the shared ones.
void quantize_row(const Multiplier& m, const float* row, int64_t k, InputForms forms, int64_t at);
void share_row(const Multiplier& m, const float* row, int64_t k, InputForms forms, int64_t at);

// Quantises and packs rows [first, first + count) of an input, given as floats [count][k]: one block, which begins at
// row `first` of the shared buffers. A single row is not packed.
void pack_block(const Multiplier& m, const float* rows, int64_t first, int64_t count, const Input& in);

// Makes the input that these matrices share. make(first, count, out) returns `count` rows from `first` on: `out`,
// filled, or rows that exist already. Every worker makes a single row for itself, which costs less than a barrier; of
// several, rows are distributed, or blocks of them.
template <class Make>
Input prepare(const Multiplier& m, int64_t rows, int64_t k, std::initializer_list<const Linear*> matrices, Make make) {
  InputForms forms;
  for (const Linear* matrix : matrices) forms.add(matrix->weight);
  if (rows == 1) {
    const float* row = make(0, 1, m.own.values.data());
    quantize_row(m, row, k, forms, 0);
    return input_in(m.own, forms, 1, k, 1, row, 0);
  }
  if (rows <= m.kernels.few_rows && forms.codes()) {
    m.worker.for_each(rows, [&](int64_t row) { share_row(m, make(row, 1, m.own.values.data()), k, forms, row); });
    m.worker.barrier();
    return input_in(m.shared, forms, rows, k, 1, m.shared.values.data(), 0);
  }
  const int64_t block = block_rows(forms.codes() ? m.kernels.s8_shape : m.kernels.f32_shape, rows);
  const Input in = input_in(m.shared, forms, rows, k, block, m.shared.values.data(), 0);
  m.worker.for_each((rows + block - 1) / block, [&](int64_t task) {
    const int64_t first = task * block;
    const int64_t count = std::min(block, rows - first);
    pack_block(m, make(first, count, m.own.values.data()), first, count, in);
  });
  m.worker.barrier();
  return in;
}

}  // namespace pinion
