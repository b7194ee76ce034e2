// Optional measurements inside a pass: the profile (time of each stage), the trace (hashes of the residual stream,
// outliers in the inputs of matrices) and the second moments of these inputs, which calibration needs.
#pragma once

#include "engine/forward/matmul.h"
#include "kernels/base/clock.h"

namespace pinion {

// --- Profile

struct StageTime {
  int64_t work_ns = 0;
  int64_t wait_ns = 0;  // at barriers
};

// Written by its worker only, on cache lines of its own.
struct alignas(128) WorkerProfile final : WaitListener {
  std::array<StageTime, kStages> stages = {};
  Stage stage = Stage::embed;
  int64_t last_ns = 0;  // the time up to here is counted

  // Starts a pass. Time between passes is not counted.
  void begin() {
    stage = Stage::embed;
    last_ns = now_ns();
  }
  // Counts the time from here on as work of this stage.
  void enter(Stage next) {
    on_barrier_enter();
    stage = next;
  }
  void on_barrier_enter() override { stages[static_cast<size_t>(stage)].work_ns += lap(); }
  void on_barrier_exit() override { stages[static_cast<size_t>(stage)].wait_ns += lap(); }

 private:
  int64_t lap() {
    const int64_t now = now_ns();
    const int64_t passed = now - last_ns;
    last_ns = now;
    return passed;
  }
};

struct Profile {
  std::vector<WorkerProfile> workers;
  int64_t exchange_ns = 0;  // time of worker 0 in gathers between boards, waits for slower boards included
};

// The profile that a board reports to board 0: the mean over the workers that took part.
struct BoardProfile {
  std::array<StageTime, kStages> stages = {};
  int64_t exchange_ns = 0;
};

// --- Moments

constexpr int64_t kAllExperts = -2;

// An input of matrices in a layer: of a stage; of one expert; of all experts, if a norm of their own makes it.
struct InputId {
  int64_t layer;
  Stage stage;
  int64_t expert = kNoExpert;
  auto operator<=>(const InputId&) const = default;
};

// Second moments: sums of x x^T over the rows x of an input.
struct Moments {
  struct Sum {
    int64_t k = 0;
    int64_t rows = 0;
    std::vector<float> values;  // [moments_elements(k)]
  };

  bool rotate = true;           // rotates x, as for a quantised matrix
  std::map<InputId, Sum> sums;  // of those that are collected
  std::vector<float> scratch;   // the rows of one pass, in panels and in row blocks: [2][tokens][padded_n(k) + 64]

  int64_t layers() const { return sums.empty() ? 0 : sums.rbegin()->first.layer + 1; }  // that a pass must evaluate
};

// --- Trace

// Outliers of a matrix's input: max |x| / rms(x) of its rows.
struct Spread {
  double worst = 0;
  double sum = 0;
  int64_t rows = 0;

  double mean() const { return rows > 0 ? sum / static_cast<double>(rows) : 0; }
};

constexpr int64_t kNoLayer = -1;

struct TracePoint {
  int64_t layer = kNoLayer;  // kNoLayer: before the first layer
  Stage stage = Stage::embed;
};

// Written by worker 0; accumulates over passes.
struct Trace {
  std::vector<uint64_t> residual;                   // [layers] hash of the residual stream's bits after each layer
  std::vector<std::array<Spread, kStages>> inputs;  // [layers] by the stage of the product; single-row passes only
  std::optional<TracePoint> first_non_finite;       // first NaN or infinity in the residual stream
  Moments* moments = nullptr;  // collects moments of the inputs, in passes that end with their last layer; null: off

  explicit Trace(int64_t layers);
};

// The first layer after which the residual streams differ; -1: none.
int64_t first_difference(const Trace& a, const Trace& b);

// Records the residual stream x [rows][hidden] after a stage. Does nothing if trace is null, here and below.
void trace_residual(const Worker& worker, Trace* trace, std::span<const float> x, TracePoint after);

// Records an input; of experts, its moments only. All workers call it; it has barriers if moments are collected.
void trace_input(Worker& worker, Trace* trace, const InputId& id, const Input& in);

}  // namespace pinion
