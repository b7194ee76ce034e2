// Where a pass's time goes: for each worker and stage, time at work and time waiting at barriers.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <vector>

#include "engine/stages.h"
#include "engine/team.h"

namespace pinion {

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
