#include "engine/team.h"

#include <omp.h>
#include <sched.h>

#include <algorithm>

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

}  // namespace

// The last to arrive resets what the stage used and opens the gate: its release pairs with the acquire of those who
// wait, and each arrival's acq_rel chains the writes of all before it.
void Worker::barrier() {
  stage = 0;
  const int64_t generation = state->generation.value.load(std::memory_order_relaxed);
  if (state->arrived.value.fetch_add(1, std::memory_order_acq_rel) + 1 == count) {
    state->arrived.value.store(0, std::memory_order_relaxed);
    for (TeamState::Counter& claim : state->claims) claim.value.store(0, std::memory_order_relaxed);
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

Team::Team(std::vector<int32_t> cpus, std::span<const int32_t> clusters)
    : cpus_(std::move(cpus)), state_(std::make_unique<TeamState>()) {
  if (cpus_.empty()) cpus_.push_back(-1);
  std::vector<int32_t> seen;
  for (size_t i = 0; i < cpus_.size(); ++i) {
    const int32_t cluster = i < clusters.size() ? clusters[i] : 0;
    leads_.push_back(std::ranges::find(seen, cluster) == seen.end());
    if (leads_.back()) seen.push_back(cluster);
  }
  pin_thread(-1);
  omp_set_dynamic(0);
}

void Team::run(const std::function<void(Worker&)>& f) {
  ++regions_;
#pragma omp parallel num_threads(size())
  {
    const int32_t index = omp_get_thread_num();
    pin_thread(cpus_[static_cast<size_t>(index)]);
    // A limit of the environment may have given fewer threads than asked for.
    Worker worker{index, omp_get_num_threads(), state_.get(), leads_[static_cast<size_t>(index)]};
    f(worker);
    worker.barrier();  // leaves the claims at zero for the next run
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
