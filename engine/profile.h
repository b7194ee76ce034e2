// Where a pass's time goes: for each worker and stage, time at work and time waiting at barriers.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <string_view>
#include <vector>

#include "engine/team.h"

namespace pinion {

// In the order of the pass. An input is what a projection reads: merged or taken as it is, then quantised or packed.
// The router chooses experts and, where there are several tokens, gathers those of each; other layers have none.
enum class Stage : uint8_t {
  embed,
  attention_norm,
  qkv,
  attention,
  o_input,
  o,
  mlp_norm,
  router,
  gate_up,
  down_input,
  down,
  final_norm,
  head,
};

constexpr std::array<std::string_view, 13> kStageNames = {
    "embed",  "attention_norm", "qkv",        "attention", "o_input",    "o",   "mlp_norm",
    "router", "gate_up",        "down_input", "down",      "final_norm", "head"};
constexpr size_t kStages = kStageNames.size();

// What every worker does for itself when there is one token: time that more workers do not shorten.
constexpr std::array<bool, kStages> kRepeatedForOneToken = {false, true,  false, false, true, false, true,
                                                            false, false, true,  false, true, false};

struct StageTime {
  int64_t work_ns = 0;
  int64_t wait_ns = 0;
};

// Written by its worker only, on cache lines of its own.
struct alignas(128) WorkerProfile {
  std::array<StageTime, kStages> stages;
  Stage stage = Stage::embed;
  int64_t last_ns = 0;  // up to when time is accounted for

  static int64_t now_ns() { return std::chrono::steady_clock::now().time_since_epoch() / std::chrono::nanoseconds(1); }

  int64_t lap() {
    const int64_t now = now_ns();
    const int64_t passed = now - last_ns;
    last_ns = now;
    return passed;
  }
  void start() {
    stage = Stage::embed;
    last_ns = now_ns();
  }
  void stop_work() { stages[static_cast<size_t>(stage)].work_ns += lap(); }
  void stop_wait() { stages[static_cast<size_t>(stage)].wait_ns += lap(); }
};

struct Profile {
  std::vector<WorkerProfile> workers;
};

// The worker, whose time from here on counts for `stage`.
inline Worker& at(Worker& worker, Stage stage) {
  if (worker.profile) {
    worker.profile->stop_work();
    worker.profile->stage = stage;
  }
  return worker;
}

}  // namespace pinion
