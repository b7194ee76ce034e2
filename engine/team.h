// A team of pinned threads that runs one function together, stage by stage:
//
//   team.run([&](Worker& worker) {
//     worker.for_each(panels, [&](int64_t panel) { ... });   // claimed one by one, each by exactly one worker
//     worker.barrier();                                      // what was written before is seen by all after
//   });
//
// run() is one OpenMP parallel region. Inside it nothing but the barrier and the claims synchronises.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "kernels/error.h"
#include "kernels/workers.h"

namespace pinion {

constexpr int kMaxClaims = 4;  // for_each stages between two barriers

// What the workers share. Each counter has a cache line (two, for prefetchers that fetch pairs) of its own.
struct TeamState {
  struct alignas(128) Counter {
    std::atomic<int64_t> value{0};
  };
  Counter arrived;
  Counter generation;
  Counter claims[kMaxClaims];
  std::atomic<int64_t> barriers{0};
};

// The next of [0, tasks); tasks or more where there is none left for this worker. A slow worker leaves the last
// `reserve` to faster ones, who are done with them before it would be with one: all would wait for it.
inline int64_t claim_task(std::atomic<int64_t>& next, int64_t tasks, int64_t reserve) {
  if (reserve > 0 && next.load(std::memory_order_relaxed) > tasks - reserve) return tasks;
  return next.fetch_add(1, std::memory_order_relaxed);
}

struct WorkerProfile;

struct Worker {
  int32_t index;
  int32_t count;
  TeamState* state;
  bool leads;                        // its cluster: where cores share a unit, this one uses it
  int64_t reserve = 0;               // tasks that it leaves to faster workers at the end of a stage; 0 for the fastest
  int32_t stage = 0;                 // for_each calls since the last barrier, the same for every worker
  WorkerProfile* profile = nullptr;  // where its time is kept; null: nowhere

  void barrier();

  // f(task) for every task in [0, tasks), each run by one worker. All workers must make the same calls.
  template <class F>
  void for_each(int64_t tasks, F&& f) {
    std::atomic<int64_t>& next = state->claims[stage++].value;
    for (int64_t task = claim_task(next, tasks, reserve); task < tasks; task = claim_task(next, tasks, reserve))
      f(task);
  }
};

class Team {
 public:
  // One worker per entry: the CPU it is pinned to, or -1 for a worker that is not pinned. Empty: one unpinned worker.
  // clusters: of each worker's core; where that is not said, all are in one. slowness: how many times as long as the
  // fastest each takes for a task; where that is not said, 1.
  explicit Team(std::vector<int32_t> cpus, std::span<const int32_t> clusters = {},
                std::span<const double> slowness = {});

  int32_t size() const { return static_cast<int32_t>(cpus_.size()); }
  std::span<const int32_t> cpus() const { return cpus_; }
  int64_t regions() const { return regions_; }
  int64_t barriers() const { return state_->barriers.load(std::memory_order_relaxed); }

  // f(worker) on every worker, the caller being worker 0; returns when all have returned.
  void run(const std::function<void(Worker&)>& f);

 private:
  std::vector<int32_t> cpus_;
  std::vector<bool> leads_;
  std::vector<int64_t> reserves_;
  std::unique_ptr<TeamState> state_;
  int64_t regions_ = 0;
};

// The team for the kernels' own operations: each shared piece of work is one run.
Workers workers_of(Team& team);

}  // namespace pinion
