#include "engine/team.h"

#include <omp.h>
#include <sched.h>
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <numeric>

#include "engine/profile.h"

namespace pinion {
namespace {

// Spins this often before it gives the core away: long against a barrier's own time, short against a time slice, so
// that a team larger than the machine still moves.
constexpr int kSpins = 1000;

void pause_cpu() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

cpu_set_t process_affinity() {
  cpu_set_t set;
  CPU_ZERO(&set);
  sched_getaffinity(0, sizeof set, &set);
  return set;
}

// Threads outlive teams, so each remembers where it is pinned. Failure costs speed only.
void pin_thread(int32_t cpu) {
  static const cpu_set_t kUnpinned = process_affinity();  // first called before any pinning, by Team's constructor
  thread_local int32_t pinned_to = -1;
  if (cpu == pinned_to) return;
  cpu_set_t set = kUnpinned;
  if (cpu >= 0) {
    CPU_ZERO(&set);
    CPU_SET(static_cast<size_t>(cpu), &set);
  }
  sched_setaffinity(0, sizeof set, &set);
  pinned_to = cpu;
}

int64_t now_ns() { return std::chrono::steady_clock::now().time_since_epoch() / std::chrono::nanoseconds(1); }

// What a thread has had of its CPU, and how often others took that away.
struct CpuUse {
  int64_t at_ns;
  int64_t used_ns;
  int64_t times_taken;

  static CpuUse of_this_thread() {
    rusage usage = {};
    getrusage(RUSAGE_THREAD, &usage);
    const auto ns = [](const timeval& t) { return t.tv_sec * int64_t{1000000000} + t.tv_usec * int64_t{1000}; };
    return {now_ns(), ns(usage.ru_utime) + ns(usage.ru_stime), usage.ru_nivcsw};
  }
};

Presence presence_since(const CpuUse& start, int64_t waited_ns) {
  const CpuUse now = CpuUse::of_this_thread();
  if (now.times_taken == start.times_taken) return {waited_ns, 0};
  return {waited_ns, now.at_ns - start.at_ns - (now.used_ns - start.used_ns)};
}

// The last to arrive opens the gate: its release pairs with the acquire of those who wait, and each arrival's acq_rel
// chains the writes of all before it. Returns how long a wait took that was no longer one of spinning.
int64_t meet(TeamState* state, int32_t count) {
  const int64_t generation = state->generation.value.load(std::memory_order_relaxed);
  if (state->arrived.value.fetch_add(1, std::memory_order_acq_rel) + 1 == count) {
    state->arrived.value.store(0, std::memory_order_relaxed);
    state->barriers.fetch_add(1, std::memory_order_relaxed);
    state->generation.value.store(generation + 1, std::memory_order_release);
    return 0;
  }
  const auto is_closed = [&] { return state->generation.value.load(std::memory_order_acquire) == generation; };
  for (int spins = 0; spins < kSpins; ++spins) {
    if (!is_closed()) return 0;
    pause_cpu();
  }
  const int64_t start_ns = now_ns();
  while (is_closed()) sched_yield();
  return now_ns() - start_ns;
}

}  // namespace

TeamState::TeamState(std::span<const double> slowness) : taken(slowness.size()), shares(slowness.size() + 1) {
  for (size_t i = 0; i < slowness.size(); ++i) shares[i + 1] = shares[i] + 1 / slowness[i];
  const double total = shares.back();
  for (double& share : shares) share /= total;
}

void Worker::barrier() {
  if (profile) profile->stop_work();
  waited_ns += meet(state, count);
  // Nobody claims from this half before the next barrier. Workers that an environment's limit kept away have ranges
  // too.
  for (size_t owner = static_cast<size_t>(index); owner < state->taken.size(); owner += static_cast<size_t>(count)) {
    for (int32_t i = 0; i < stage; ++i) state->taken[owner].stages[half][i].store(0, std::memory_order_relaxed);
  }
  stage = 0;
  half = 1 - half;
  if (profile) profile->stop_wait();
}

Team::Team(std::vector<int32_t> cpus, std::span<const int32_t> clusters, std::span<const double> slowness)
    : cpus_(cpus.empty() ? std::vector<int32_t>{-1} : std::move(cpus)), everybody_(cpus_.size()), attendance_(size()) {
  std::iota(everybody_.begin(), everybody_.end(), 0);
  std::vector<int32_t> seen;
  for (size_t i = 0; i < cpus_.size(); ++i) {
    const int32_t cluster = i < clusters.size() ? clusters[i] : 0;
    leads_.push_back(std::ranges::find(seen, cluster) == seen.end());
    if (leads_.back()) seen.push_back(cluster);
  }
  std::vector<double> each(slowness.begin(), slowness.end());
  each.resize(cpus_.size(), 1);
  for (const double own : each) {
    double done = 0;  // by all that are faster, while this one does one task
    for (const double other : each) done += other < own ? own / other : 0;
    reserves_.push_back(static_cast<int64_t>(std::ceil(done)));
  }
  state_ = std::make_unique<TeamState>(each);
  pin_thread(-1);
  omp_set_dynamic(0);
}

void Team::run(const std::function<void(Worker&)>& f) { run_on(everybody_, f); }

void Team::run_present(const std::function<void(Worker&)>& f) {
  const std::span<const int32_t> present = attendance_.present();
  std::vector<Presence> each(present.size());
  const int64_t start_ns = now_ns();
  run_on(present, [&](Worker& worker) {
    const CpuUse start = CpuUse::of_this_thread();
    f(worker);
    each[static_cast<size_t>(worker.index)] = presence_since(start, worker.waited_ns);
  });
  attendance_.note(each, now_ns() - start_ns);
}

void Team::run_on(std::span<const int32_t> who, const std::function<void(Worker&)>& f) {
  ++regions_;
#pragma omp parallel num_threads(static_cast<int>(who.size()))
  {
    const int32_t index = omp_get_thread_num();
    const auto i = static_cast<size_t>(who[static_cast<size_t>(index)]);
    pin_thread(cpus_[i]);
    // A limit of the environment may have given fewer threads than asked for, perhaps none of the fast ones.
    const int32_t count = omp_get_num_threads();
    Worker worker{index, count, state_.get(), leads_[i], count == size() ? reserves_[i] : 0};
    f(worker);
    worker.barrier();  // leaves both halves of the counters at zero for the next run
  }
}

Workers workers_of(Team& team) {
  return {team.size(),
          [](void* lent, int64_t pieces, void (*piece)(void* context, int64_t index), void* context) {
            static_cast<Team*>(lent)->run(
                [&](Worker& worker) { worker.for_each(pieces, [&](int64_t index) { piece(context, index); }); });
          },
          &team};
}

}  // namespace pinion
