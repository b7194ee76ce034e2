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
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "engine/team/straggler_filter.h"
#include "kernels/error.h"
#include "kernels/workers.h"

namespace pinion {

constexpr int kMaxClaims = 4;  // for_each stages between two barriers

// What the workers share. Each counter has a cache line (two, for prefetchers that fetch pairs) of its own.
struct TeamState {
  struct alignas(128) Counter {
    std::atomic<int64_t> value{0};
  };
  // How many of a worker's own tasks are taken, in each stage between two barriers. One half counts; the other is being
  // cleared for what comes after the next barrier.
  struct alignas(128) Taken {
    std::atomic<int64_t> stages[2][kMaxClaims];
  };
  explicit TeamState(size_t workers) : taken(workers), shares(workers + 1) {}

  // Who has which part, from each one's slowness (see Team); there may be fewer than workers.
  void share_out(std::span<const double> slowness);
  // The first of `tasks` that is this worker's own; its own end where the next worker's begin.
  int64_t begin(size_t owner, int64_t tasks) const {
    return static_cast<int64_t>(shares[owner] * static_cast<double>(tasks));
  }

  Counter arrived;
  Counter generation;
  std::atomic<int64_t> barriers{0};
  std::vector<Taken> taken;    // [workers]
  std::vector<double> shares;  // [workers + 1], from 0 to 1: where each worker's own tasks begin
};

// Tasks [first, first + count).
struct TaskRun {
  int64_t first;
  int64_t count;
};

// One worker's view of one stage: first the tasks that are its own, one behind the other in memory and the same every
// time; then what others have not come to yet. A worker that is slow or interrupted so does less. Its own it takes up
// to `most` at once, never more than half of what is left of them, those of others one by one, so that nobody waits for
// much at the end of a stage. A slow one also leaves the last `reserve` to faster ones, who are done with them before
// it would be with one.
struct Claims {
  TeamState& state;
  int64_t tasks;
  int32_t half;
  int32_t stage;
  int32_t worker;
  int64_t reserve;
  int32_t helped = 0;  // how many ranges this worker has seen the end of

  int64_t begin(size_t owner) const { return state.begin(owner, tasks); }
  std::atomic<int64_t>& taken(size_t owner) const { return state.taken[owner].stages[half][stage]; }

  int64_t remaining() const {
    int64_t count = 0;
    for (size_t owner = 0; owner < state.taken.size(); ++owner) {
      count += std::max<int64_t>(0, begin(owner + 1) - begin(owner) - taken(owner).load(std::memory_order_relaxed));
    }
    return count;
  }

  // The next tasks, none where none are left for this worker.
  TaskRun next(int64_t most = 1) {
    if (reserve > 0) most = std::min(most, remaining() / reserve);
    if (most == 0) return {0, 0};
    for (const auto workers = std::ssize(state.taken); helped < workers; ++helped) {
      const auto owner = static_cast<size_t>((worker + helped) % workers);
      const int64_t first = begin(owner), end = begin(owner + 1);
      const int64_t left = end - first - taken(owner).load(std::memory_order_relaxed);
      if (left <= 0) continue;  // a look disturbs less than a claim
      const int64_t wanted = helped == 0 ? std::clamp<int64_t>(left / 2, 1, most) : 1;
      const int64_t task = first + taken(owner).fetch_add(wanted, std::memory_order_relaxed);
      if (task < end) return {task, std::min(wanted, end - task)};
    }
    return {0, 0};
  }
};

// Told when its worker comes to a barrier and when it goes on.
class WaitListener {
 public:
  virtual void stop_work() = 0;
  virtual void stop_wait() = 0;

 protected:
  ~WaitListener() = default;
};

struct Worker {
  int32_t index;
  int32_t count;
  TeamState* state;
  bool leads;                        // its cluster: where cores share a unit, this one uses it
  int64_t reserve = 0;               // tasks that it leaves to faster workers at the end of a stage; 0 for the fastest
  int32_t stage = 0;                 // for_each calls since the last barrier, the same for every worker
  int32_t half = 0;                  // of TeamState::Taken, likewise
  int64_t waited_ns = 0;             // at barriers, beyond what a barrier itself takes
  int64_t waited_used_ns = 0;        // CPU time in these waits
  WaitListener* listener = nullptr;  // null: nobody is told

  void barrier();

  // The tasks that it takes first: its own.
  TaskRun own(int64_t tasks) const {
    const int64_t first = state->begin(static_cast<size_t>(index), tasks);
    return {first, state->begin(static_cast<size_t>(index) + 1, tasks) - first};
  }

  // f(run) for runs of at most `most` tasks that make up [0, tasks), each run by one worker. All workers must make the
  // same calls.
  template <class F>
  void for_each_run(int64_t tasks, int64_t most, F&& f) {
    Claims claims{*state, tasks, half, stage++, index, reserve};
    for (TaskRun run = claims.next(most); run.count > 0; run = claims.next(most)) f(run);
  }

  // f(task) for every task in [0, tasks), likewise.
  template <class F>
  void for_each(int64_t tasks, F&& f) {
    for_each_run(tasks, 1, [&](TaskRun run) { f(run.first); });
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
  void run(WorkerFunction f) { run_on(everybody_, f); }

  // The same on some, rising and at least one: workers 0 to who.size() - 1, on the CPUs of those.
  void run_on(std::span<const int32_t> who, WorkerFunction f);

  // Lets the calling thread, and threads that it starts, run on any of the process's CPUs until the next run.
  static void unpin_caller();

  // On all but those whose CPU other processes take away, for work that comes again and again in short runs.
  void run_active(WorkerFunction f);

 private:
  void line_up(std::span<const int32_t> who);

  std::vector<int32_t> cpus_;
  std::vector<int32_t> clusters_;
  std::vector<double> slowness_;
  std::vector<int32_t> everybody_;
  StragglerFilter stragglers_;
  std::vector<WorkerWaits> waits_;  // of the last run's workers
  std::unique_ptr<TeamState> state_;
  int64_t regions_ = 0;

  // Of the last run's workers.
  std::vector<int32_t> lined_up_;
  std::vector<bool> leads_;
  std::vector<int64_t> reserves_;
};

// The team for packing and the kernels' own operations: each shared piece of work is one run. Null: the caller alone.
Workers workers_of(Team* team);

}  // namespace pinion
