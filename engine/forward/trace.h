// A look inside a pass: for finding the layer where two runs part, and the one whose numbers quantise badly.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "engine/forward/moments.h"
#include "engine/forward/pass.h"

namespace pinion {

// How far the largest element of a matrix's input stands above the rest: max |x| / rms(x), over the rows seen.
struct Spread {
  double worst = 0;
  double sum = 0;
  int64_t rows = 0;

  double mean() const { return rows > 0 ? sum / static_cast<double>(rows) : 0; }
};

constexpr int64_t kNoLayer = -1;

struct Place {
  int64_t layer = kNoLayer;  // or before all layers
  Stage stage = Stage::embed;
};

// Filled by worker 0 in each pass that has it; passes add up.
struct Trace {
  std::vector<uint64_t> residual;                   // [layers]: hash over the bits of the stream after each layer
  std::vector<std::array<Spread, kStages>> inputs;  // [layers]: by the stage that multiplies; single rows only
  std::optional<Place> first_unfit;                 // what first put a NaN or an infinity into the stream
  Moments* moments = nullptr;                       // gets the sums of the inputs; null: off

  explicit Trace(int64_t layers);
};

// The first layer whose stream differs; -1 where none does.
int64_t first_difference(const Trace& a, const Trace& b);

// These do nothing where the pass has no trace. The stream is looked at after each stage that writes it.
void trace_residual(const Worker& worker, const Pass& pass, Place after);
void trace_input(Worker& worker, const Pass& pass, int64_t layer, Stage stage, const Input& in);

}  // namespace pinion
