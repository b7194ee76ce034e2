// Linear layers over the team: rows are prepared once (made, quantised, packed) and multiplied by all the matrices that
// share them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <span>

#include "engine/forward.h"
#include "kernels/tiles.h"

namespace pinion {

struct Codes {
  const int8_t* codes = nullptr;  // padded_k(k) a row
  const float* scales = nullptr;  // [rows]
};

// What a matmul multiplies: an input in the forms that its matrices want, the others null. A single row lies as it is,
// several in blocks (see RowBlocks).
struct Input {
  int64_t rows;
  int64_t k;
  int64_t block;        // rows of a block
  const float* values;  // k a row
  Codes plain;
  Codes rotated;  // of rows that were rotated in blocks of rotation_of(k)

  const Codes& codes_for(const Matrix& matrix) const { return matrix.rotation > 1 ? rotated : plain; }
  InputForms forms() const { return {values != nullptr, plain.codes != nullptr, rotated.codes != nullptr}; }
};

struct Projection {
  const Linear* linear;
  float* out = nullptr;           // [rows][n]
  int32_t* panel_best = nullptr;  // [panels]: which column of each is the last row's largest; null: not wanted
};

// out = W x + b for matrices that share an input, with `after` on the way out (its scales and bias are the matrices').
void project(Worker& worker, const Pass& pass, const Input& in, std::initializer_list<Projection> projections,
             const PostOps& after = {});

// out = activation(gate x, up x), the activation being the model's.
void project_gated(Worker& worker, const Pass& pass, const Input& in, const Linear& gate, const Linear& up, float* out);

// --- For those who share out the work themselves.

// What one worker works on: sums and, gated, gates.
struct Tile {
  alignas(kAlignmentBytes) int32_t sums[kTileRows * kPanelColumns];
  alignas(kAlignmentBytes) float values[kTileRows * kPanelColumns];
  alignas(kAlignmentBytes) float gates[kTileRows * kPanelColumns];
};

// The table that this worker multiplies with.
const Kernels& table_of(const Worker& worker, const Pass& pass);

// Panels of a matrix.
using PanelRun = TaskRun;

// Of all the projections' matrices together.
inline int64_t panels_of(std::span<const Projection> projections) {
  int64_t panels = 0;
  for (const Projection& one : projections) panels += panel_count(one.linear->weight.n);
  return panels;
}

// f(projection, run) for the parts of a run of all projections' panels, which may begin in one and end in another.
template <class F>
void each_part(std::span<const Projection> projections, PanelRun left, F f) {
  for (const Projection& to : projections) {
    const int64_t here = panel_count(to.linear->weight.n);
    const PanelRun run = {left.first, std::clamp<int64_t>(here - left.first, 0, left.count)};
    left = {std::max<int64_t>(0, left.first - here), left.count - run.count};
    if (run.count > 0) f(to, run);
  }
}

// The most panels to take at once for so many rows. Those of a single row are read side by side (w4).
inline int64_t panels_at_once(int64_t rows) { return rows == 1 ? 4 : 1; }

// out = rows [first, first + rows) of the input, at most kTileRows of whole blocks, times the panels, and what comes
// after it. Several panels, at most kTileRows, only for a single row; ops.gate is theirs.
void multiply(const Kernels& kernels, const Linear& linear, PanelRun run, const Input& in, int64_t first, int64_t rows,
              const PostOps& ops, Tile* tile, float* out, int64_t ldo);

// The same panels of activation(gate x, up x), the activation being the model's; of a single row at most
// kTileRows / 2. out: these rows' own, [rows][n].
void multiply_gated(const Kernels& kernels, const Linear& gate, const Linear& up, const ModelConfig& config,
                    PanelRun run, const Input& in, int64_t first, int64_t rows, Tile* tile, float* out);

// The input that lies in these buffers from row `first` on, in some forms.
template <class Buffers>  // Scratch or WorkerScratch
Input input_in(const Buffers& buffers, InputForms forms, int64_t rows, int64_t k, int64_t block, const float* values,
               int64_t first) {
  const auto codes = [&](bool wanted, const CodeBuffer& buffer) {
    return wanted ? Codes{buffer.codes.data() + first * padded_k(k), buffer.scales.data() + first} : Codes{};
  };
  return {rows,
          k,
          block,
          forms.values ? values : nullptr,
          codes(forms.plain, buffers.plain_codes),
          codes(forms.rotated, buffers.rotated_codes)};
}

// A row's codes, in the forms that are wanted, as row `at` of the worker's own.
void quantize_row(const Kernels& kernels, const float* row, int64_t k, InputForms forms, int64_t at,
                  WorkerScratch* own);

// Quantises and packs rows [first, first + count) of an input, given as floats [count][k]: one block, which begins at
// row `first` of the scratch. The only row of an input stays as it is.
void pack_block(const Pass& pass, const float* rows, int64_t first, int64_t count, const Input& in, WorkerScratch* own);

// The input that these matrices share. make(first, count, out) gives that many rows: `out` filled, or rows that exist
// already. A single row is made by every worker for itself, which costs less than a barrier; blocks of several are
// shared out.
template <class Make>
Input prepare(Worker& worker, const Pass& p, int64_t rows, int64_t k, std::initializer_list<const Linear*> matrices,
              Make make) {
  Scratch& s = p.scratch;
  WorkerScratch& own = s.workers[static_cast<size_t>(worker.index)];
  InputForms forms;
  for (const Linear* matrix : matrices) forms.add(matrix->weight);
  if (rows == 1) {
    const float* row = make(0, 1, own.rows.data());
    quantize_row(p.kernels, row, k, forms, 0, &own);
    return input_in(own, forms, 1, k, 1, row, 0);
  }
  const int64_t block = block_rows(forms.codes() ? p.kernels.s8 : p.kernels.f32, rows);
  const Input in = input_in(s, forms, rows, k, block, s.packed.data(), 0);
  worker.for_each((rows + block - 1) / block, [&](int64_t task) {
    const int64_t first = task * block;
    const int64_t count = std::min(block, rows - first);
    pack_block(p, make(first, count, own.rows.data()), first, count, in, &own);
  });
  worker.barrier();
  return in;
}

}  // namespace pinion
