#include "engine/team.h"

#include <omp.h>
#include <sched.h>

#include <algorithm>
#include <cmath>

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

// The last to arrive opens the gate: its release pairs with the acquire of those who wait, and each arrival's acq_rel
// chains the writes of all before it.
void meet(TeamState* state, int32_t count) {
  const int64_t generation = state->generation.value.load(std::memory_order_relaxed);
  if (state->arrived.value.fetch_add(1, std::memory_order_acq_rel) + 1 == count) {
    state->arrived.value.store(0, std::memory_order_relaxed);
    state->barriers.fetch_add(1, std::memory_order_relaxed);
    state->generation.value.store(generation + 1, std::memory_order_release);
    return;
  }
  for (int spins = 0; state->generation.value.load(std::memory_order_acquire) == generation; ++spins) {
    if (spins < kSpins) {
      pause_cpu();
    } else {
      sched_yield();
    }
  }
}

}  // namespace

TeamState::TeamState(std::span<const double> slowness) : taken(slowness.size()), shares(slowness.size() + 1) {
  for (size_t i = 0; i < slowness.size(); ++i) shares[i + 1] = shares[i] + 1 / slowness[i];
  const double total = shares.back();
  for (double& share : shares) share /= total;
}

void Worker::barrier() {
  if (profile) profile->stop_work();
  meet(state, count);
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
    : cpus_(std::move(cpus)) {
  if (cpus_.empty()) cpus_.push_back(-1);
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

void Team::run(const std::function<void(Worker&)>& f) {
  ++regions_;
#pragma omp parallel num_threads(size())
  {
    const int32_t index = omp_get_thread_num();
    const auto i = static_cast<size_t>(index);
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
