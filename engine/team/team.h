// A team of pinned threads that runs one function together, stage by stage:
//
//   team.run([&](Worker& worker) {
//     worker.for_each(panels, [&](int64_t panel) { ... });   // each done by exactly one worker
//     worker.barrier();                                      // what was written before is seen by all after
//   });
//
// run() is one OpenMP parallel region. Inside it nothing but the barrier and the claims synchronises.
#pragma once

#include <algorithm>
#include <atomic>
#include <cassert>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "engine/team/sme_units.h"
#include "engine/team/straggler_filter.h"
#include "kernels/base/error.h"
#include "kernels/base/workers.h"

namespace pinion {

constexpr int kMaxLoops = 4;  // for_each calls between two barriers; one more is a bug

// What the workers share. Each counter has a cache line (two, for prefetchers that fetch pairs) of its own.
struct TeamState {
  struct alignas(128) Counter {
    std::atomic<int64_t> value{0};
  };
  // How many tasks of a worker's own range are taken, for each loop since the last barrier. Double buffered: one half
  // counts while the other is cleared.
  struct alignas(128) Taken {
    std::atomic<int64_t> loops[2][kMaxLoops];
  };
  // What the others must know of a worker to help it when they wait for it.
  struct alignas(128) Seat {
    std::atomic<int64_t> arrived{-1};    // generation of the last barrier that it came to
    std::atomic<int64_t> lent_core{-1};  // of the last barrier for which another lent it a core
    std::atomic<int32_t> thread{0};      // the system's number; 0: not in a run, or not pinned
    std::atomic<int32_t> cpu_clock{0};   // of that thread
    std::atomic<int32_t> cpu{-1};        // its own
  };
  explicit TeamState(size_t workers) : taken(workers), seats(workers), shares(workers + 1) {}

  // Who has which part, from each one's slowness (see Team); there may be fewer than workers.
  void set_shares(std::span<const double> slowness);
  // The first of `tasks` that is this worker's own; its own end where the next worker's begin.
  int64_t begin(size_t owner, int64_t tasks) const {
    return static_cast<int64_t>(shares[owner] * static_cast<double>(tasks));
  }

  Counter arrived;
  Counter generation;
  Counter asleep;  // workers that sleep until the generation changes
  std::atomic<int64_t> barriers{0};
  std::vector<Taken> taken;    // [workers]
  std::vector<Seat> seats;     // [workers]
  std::vector<double> shares;  // [workers + 1], from 0 to 1: where each worker's own tasks begin
};

// Tasks [first, first + count).
struct TaskRange {
  int64_t first;
  int64_t count;
};

// Work stealing within one for_each. A worker first takes its own tasks: a range that is the same for every token, so
// it reads the same weights. Then it steals from workers that are behind.
// - Of its own it takes up to `most` at once, but at most half of what is left. It steals one by one. So nobody waits
//   long at the end.
// - A slow worker leaves the last `reserve` tasks to faster ones: they do them all in the time that it needs for one.
struct Claims {
  TeamState& state;
  int64_t tasks;
  int32_t half;
  int32_t loop;
  int32_t worker;
  int64_t reserve;
  int32_t finished = 0;  // ranges that this worker has seen the end of

  int64_t begin(size_t owner) const { return state.begin(owner, tasks); }
  std::atomic<int64_t>& taken(size_t owner) const { return state.taken[owner].loops[half][loop]; }

  int64_t remaining() const {
    int64_t count = 0;
    for (size_t owner = 0; owner < state.taken.size(); ++owner) {
      count += std::max<int64_t>(0, begin(owner + 1) - begin(owner) - taken(owner).load(std::memory_order_relaxed));
    }
    return count;
  }

  // The next tasks, none where none are left for this worker.
  TaskRange next(int64_t most = 1) {
    if (reserve > 0) most = std::min(most, remaining() / reserve);
    if (most == 0) return {0, 0};
    for (const auto workers = std::ssize(state.taken); finished < workers; ++finished) {
      const auto owner = static_cast<size_t>((worker + finished) % workers);
      const int64_t first = begin(owner), end = begin(owner + 1);
      const int64_t left = end - first - taken(owner).load(std::memory_order_relaxed);
      if (left <= 0) continue;  // a look disturbs less than a claim
      const int64_t wanted = finished == 0 ? std::clamp<int64_t>(left / 2, 1, most) : 1;
      const int64_t task = first + taken(owner).fetch_add(wanted, std::memory_order_relaxed);
      if (task < end) return {task, std::min(wanted, end - task)};
    }
    return {0, 0};
  }
};

// Told when its worker comes to a barrier and when it goes on.
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
  int32_t cpu;                       // where it is pinned; -1: it is not
  bool uses_sme;                     // where cores share SME units, as many use them as there are: it is one of those
  int64_t reserve = 0;               // tasks that it leaves to faster workers at the end of a stage; 0 for the fastest
  int32_t loop = 0;                  // for_each calls since the last barrier, the same for every worker
  int32_t half = 0;                  // of TeamState::Taken, likewise
  int64_t waited_ns = 0;             // at barriers, after spinning: long waits only
  int64_t waited_used_ns = 0;        // CPU time in these waits
  WaitListener* listener = nullptr;  // null: nobody is told

  void barrier();

  // The tasks that it takes first: its own.
  TaskRange own(int64_t tasks) const {
    const int64_t first = state->begin(static_cast<size_t>(index), tasks);
    return {first, state->begin(static_cast<size_t>(index) + 1, tasks) - first};
  }

  // f(run) for runs of at most `most` tasks that make up [0, tasks), each run by one worker. All workers must make the
  // same calls.
  template <class F>
  void for_each_run(int64_t tasks, int64_t most, F&& f) {
    assert(loop < kMaxLoops);
    Claims claims{*state, tasks, half, loop++, index, reserve};
    for (TaskRange run = claims.next(most); run.count > 0; run = claims.next(most)) f(run);
  }

  // f(task) for every task in [0, tasks), likewise.
  template <class F>
  void for_each(int64_t tasks, F&& f) {
    for_each_run(tasks, 1, [&](TaskRange run) { f(run.first); });
  }
};

// What a team runs, called where it stands: nothing is copied or allocated. It must outlive the run only.
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

// Whether this process may have so many threads, the caller's own among them. OpenMP ends the program where it cannot
// start one, with a line of its own, so ask before a team runs for the first time.
Error try_threads(int64_t count);

class Team {
 public:
  // One worker per entry: the CPU it is pinned to, or -1 for a worker that is not pinned. Empty: one unpinned worker.
  // sme: of each worker's core; where that is not said, all share one unit. slowness: how many times as long as the
  // fastest each takes for a task; where that is not said, 1.
  explicit Team(std::vector<int32_t> cpus, std::span<const SmeShare> sme = {}, std::span<const double> slowness = {});

  int32_t size() const { return static_cast<int32_t>(cpus_.size()); }
  std::span<const int32_t> cpus() const { return cpus_; }
  int64_t regions() const { return regions_; }
  int64_t barriers() const { return state_->barriers.load(std::memory_order_relaxed); }

  // f(worker) on every worker, the caller being worker 0; returns when all have returned.
  void run(WorkerFunction f) { run_on(everybody_, f); }

  // Runs f on some of the workers only. `who`: ascending, not empty. Worker.index then counts from 0 to who.size() - 1;
  // worker i runs on the CPU of who[i].
  void run_on(std::span<const int32_t> who, WorkerFunction f);

  // Lets the calling thread, and threads that it starts, run on any of the process's CPUs until the next run.
  static void unpin_caller();

  // Runs f on the active workers: all but the stragglers (straggler_filter.h). For short runs that repeat, as in
  // decode.
  void run_active(WorkerFunction f);

 private:
  void configure(std::span<const int32_t> who);

  std::vector<int32_t> cpus_;
  std::vector<SmeShare> sme_;
  std::vector<double> slowness_;
  std::vector<int32_t> everybody_;
  StragglerFilter stragglers_;
  std::vector<WorkerWaits> waits_;  // of the last run's workers
  std::unique_ptr<TeamState> state_;
  int64_t regions_ = 0;

  // Of the last run's workers. Kept, so that no run after the first takes memory: in decode stragglers come and go.
  std::vector<int32_t> configured_;
  std::vector<bool> use_sme_;
  std::vector<int64_t> reserves_;
  std::vector<SmeShare> taken_;  // units of theirs that are in use
  std::vector<double> slowness_of_them_;
};

// The team for packing and the kernels' own operations: each shared piece of work is one run. Null: the caller alone.
// What a piece throws, the caller catches, once all are done.
Workers workers_of(Team* team);

}  // namespace pinion
