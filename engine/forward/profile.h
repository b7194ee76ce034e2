// Where a pass's time goes: for each worker and stage, time at work and time waiting at barriers.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "engine/model/stages.h"
#include "engine/team/team.h"
#include "kernels/base/clock.h"

namespace pinion {

struct StageTime {
  int64_t work_ns = 0;
  int64_t wait_ns = 0;
};

// Written by its worker only, on cache lines of its own.
struct alignas(128) WorkerProfile final : WaitListener {
  std::array<StageTime, kStages> stages = {};
  Stage stage = Stage::embed;
  int64_t last_ns = 0;  // up to when time is accounted for

  // Time from here on is work of this stage.
  void enter(Stage next) {
    on_barrier_enter();
    stage = next;
  }
  // Time between passes is nobody's.
  void begin() {
    stage = Stage::embed;
    last_ns = now_ns();
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
  // Of worker 0's time, in gathers of boards that share the model, waiting for slower ones included.
  int64_t exchange_ns = 0;
};

// What one of several boards tells of its own: the mean of the workers that took part.
struct BoardProfile {
  std::array<StageTime, kStages> stages = {};
  int64_t exchange_ns = 0;
};

}  // namespace pinion
