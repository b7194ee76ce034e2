// A team of pinned threads that runs one function together, stage by stage:
//
//   team.run([&](Worker& worker) {
//     worker.for_each(panels, [&](int64_t panel) { ... });   // exactly one worker runs each task
//     worker.barrier();                                      // writes before it are visible to all workers after it
//   });
//
// run() is one OpenMP parallel region. Only the barrier and the claims synchronise inside it.
#pragma once

#include <algorithm>
#include <atomic>
#include <cassert>
#include <memory>

#include "engine/team/straggler_filter.h"
#include "engine/team/topology.h"
#include "kernels/base/workers.h"

namespace pinion {

constexpr int kMaxLoops = 4;  // for_each calls between two barriers

// State shared by the workers. Each counter has two cache lines of its own: some prefetchers fetch pairs.
struct TeamState {
  struct alignas(128) Counter {
    std::atomic<int64_t> value{0};
  };
  // Number of claimed tasks in one worker's range, for each for_each call (loop) since the last barrier. Double
  // buffered: the workers count in one half while the other is cleared.
  struct alignas(128) Taken {
    std::atomic<int64_t> loops[2][kMaxLoops];
  };
  // State of a worker that the others need when they wait for it.
  struct alignas(128) Seat {
    std::atomic<int64_t> arrived{-1};    // generation of the last barrier it reached
    std::atomic<int64_t> lent_core{-1};  // generation of the last barrier at which another worker lent it a core
    std::atomic<int32_t> thread{0};      // thread id of the kernel; 0: not in a run, or not pinned
    std::atomic<int32_t> cpu_clock{0};   // clockid_t of its CPU time
    std::atomic<int32_t> cpu{-1};        // the CPU to which it is pinned
  };
  explicit TeamState(size_t workers) : taken(workers), seats(workers), bounds(workers + 1) {}

  // Divides tasks in proportion to the workers' speeds. Workers beyond slowness.size() get none.
  void set_bounds(std::span<const double> slowness);
  // First task of a worker's own range out of `tasks`; the range ends where that of worker + 1 begins.
  int64_t begin(size_t worker, int64_t tasks) const {
    return static_cast<int64_t>(bounds[worker] * static_cast<double>(tasks));
  }

  Counter arrived;
  Counter generation;
  Counter asleep;  // workers that sleep until the generation changes
  std::atomic<int64_t> barriers{0};
  std::vector<Taken> taken;    // [workers]
  std::vector<Seat> seats;     // [workers]
  std::vector<double> bounds;  // [workers + 1], 0 to 1: worker i owns [bounds[i], bounds[i + 1]) of a stage's tasks
};

// Tasks [first, first + count).
struct TaskRange {
  int64_t first;
  int64_t count;
};

// Work stealing within one for_each. A worker first takes its own range, which is the same for every token, so it reads
// the same weights again. Then it steals single tasks from slower workers.
// - A claim takes at most half of the rest of the worker's own range, so that the others do not wait long at the end.
// - A slow worker leaves the last `reserve` tasks to faster workers, which finish them in the time it needs for one.
struct Claims {
  TeamState& state;
  int64_t tasks;
  int32_t half;  // of TeamState::Taken
  int32_t loop;  // index of this for_each since the last barrier
  int32_t worker;
  int64_t reserve;       // 0 for the fastest workers
  int32_t finished = 0;  // ranges that this worker has seen exhausted

  int64_t begin(size_t owner) const { return state.begin(owner, tasks); }
  std::atomic<int64_t>& taken(size_t owner) const { return state.taken[owner].loops[half][loop]; }

  int64_t remaining() const {
    int64_t count = 0;
    for (size_t owner = 0; owner < state.taken.size(); ++owner) {
      count += std::max<int64_t>(0, begin(owner + 1) - begin(owner) - taken(owner).load(std::memory_order_relaxed));
    }
    return count;
  }

  // Claims 1 to `max_count` tasks; count 0: none are left for this worker.
  TaskRange next(int64_t max_count = 1) {
    if (reserve > 0) max_count = std::min(max_count, remaining() / reserve);
    if (max_count == 0) return {0, 0};
    for (const auto workers = std::ssize(state.taken); finished < workers; ++finished) {
      const size_t owner = (worker + finished) % workers;
      const int64_t first = begin(owner), end = begin(owner + 1);
      const int64_t left = end - first - taken(owner).load(std::memory_order_relaxed);
      if (left <= 0) continue;  // no claim is tried: a load disturbs the owner less than an atomic addition
      const int64_t count = finished == 0 ? std::clamp<int64_t>(left / 2, 1, max_count) : 1;
      const int64_t task = first + taken(owner).fetch_add(count, std::memory_order_relaxed);
      if (task < end) return {task, std::min(count, end - task)};
    }
    return {0, 0};
  }
};

// Called when its worker enters and leaves a barrier.
class WaitListener {
 public:
  virtual void on_barrier_enter() = 0;
  virtual void on_barrier_exit() = 0;

 protected:
  ~WaitListener() = default;
};

struct Worker {
  int32_t index;
  int32_t count;
  TeamState* state;
  int32_t cpu;                       // the CPU to which it is pinned; -1: not pinned
  bool uses_sme;                     // true for as many workers of each SmeUnits::group as the group has units
  int64_t reserve = 0;               // see Claims; 0 for the fastest workers
  int32_t loop = 0;                  // for_each calls since the last barrier, the same for every worker
  int32_t half = 0;                  // current half of TeamState::Taken, the same for every worker
  int64_t waited_ns = 0;             // at barriers, after spinning: long waits only
  int64_t waited_used_ns = 0;        // CPU time used in these waits
  WaitListener* listener = nullptr;  // may be null

  void barrier();

  // Calls f(run) for disjoint runs of 1 to `max_count` tasks that cover [0, tasks). All workers must make the same
  // for_each and for_each_run calls between two barriers.
  template <class F>
  void for_each_run(int64_t tasks, int64_t max_count, F&& f) {
    assert(loop < kMaxLoops);
    Claims claims{*state, tasks, half, loop++, index, reserve};
    for (TaskRange run = claims.next(max_count); run.count > 0; run = claims.next(max_count)) f(run);
  }

  // Calls f(task) for every task in [0, tasks).
  template <class F>
  void for_each(int64_t tasks, F&& f) {
    for_each_run(tasks, 1, [&](TaskRange run) { f(run.first); });
  }
};

// Reference to the function of a run: no copy, no allocation. The function must outlive the run.
class WorkerFunction {
 public:
  template <class F>
  WorkerFunction(const F& f)
      : object_(&f), call_([](const void* object, Worker& worker) { (*static_cast<const F*>(object))(worker); }) {}

  void operator()(Worker& worker) const { call_(object_, worker); }

 private:
  const void* object_;
  void (*call_)(const void* object, Worker& worker);
};

// Fails if this process cannot have `count` threads. Call it before a team's first run: OpenMP would end the process.
Error check_threads(int64_t count);

class Team {
 public:
  // cpus: the CPU of each worker; -1: not pinned. Empty: one unpinned worker.
  // sme: SME units of each worker's core; missing entries share one unit. slowness: time per task of each worker
  // relative to the fastest one; missing entries are 1.
  explicit Team(std::vector<int32_t> cpus, std::span<const SmeUnits> sme = {}, std::span<const double> slowness = {});

  int32_t size() const { return static_cast<int32_t>(cpus_.size()); }
  std::span<const int32_t> cpus() const { return cpus_; }
  int64_t regions() const { return regions_; }  // runs so far
  int64_t barriers() const { return state_->barriers.load(std::memory_order_relaxed); }

  // Calls f(worker) on every worker and returns when all calls have returned. The calling thread is worker 0.
  void run(WorkerFunction f) { run_on(everybody_, f); }

  // Calls f on some workers, ascending, at least one. Worker.index counts from 0; worker i runs on workers[i]'s CPU.
  void run_on(std::span<const int32_t> workers, WorkerFunction f);

  // Calls f on the active workers (straggler_filter.h). For short, repeated runs such as decode.
  void run_active(WorkerFunction f);

  // Unpins the calling thread until the next run: it and the threads that it starts may use all CPUs of the process.
  static void unpin_caller();

 private:
  void configure(std::span<const int32_t> workers);

  std::vector<int32_t> cpus_;
  std::vector<SmeUnits> sme_;
  std::vector<double> slowness_;
  std::vector<int32_t> everybody_;
  StragglerFilter stragglers_;
  std::vector<WorkerWaits> waits_;  // of the last run's workers
  std::unique_ptr<TeamState> state_;
  int64_t regions_ = 0;

  // Configuration of the last run's workers. Members, so that later runs allocate nothing: stragglers change in decode.
  std::vector<int32_t> configured_;
  std::vector<bool> use_sme_;
  std::vector<int64_t> reserves_;
  std::vector<SmeUnits> units_in_use_;
  std::vector<double> configured_slowness_;
};

// Adapts a team to the interface of packing and of kernel operations: each run_pieces() is one run of the team. Null:
// the calling thread does all the work. If pieces throw, run_pieces() rethrows one exception after all have ended.
Workers workers_of(Team* team);

}  // namespace pinion
