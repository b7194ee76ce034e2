#include "engine/team/team.h"

#include <omp.h>
#include <sched.h>
#include <sys/resource.h>

#include <algorithm>
#include <cmath>
#include <ctime>
#include <numeric>

#include "engine/team/clock.h"
#include "engine/team/wait.h"

namespace pinion {
namespace {

// Spins for so long before it gives the core away: long against a barrier's own time, short against a time slice, so
// that a team larger than the machine still moves. A bound by time, since a pause is 5 to 140 cycles.
constexpr int64_t kSpin_ns = 25'000;

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

int64_t cpu_time_ns() {
  timespec time = {};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return time.tv_sec * int64_t{1000000000} + time.tv_nsec;
}

// What a worker lost in a run that began at start_ns. It was away for the time in which it neither waited at a barrier
// nor had the CPU. That is 0 if nobody preempted it, or if it read from a disk: then another process was not the cause.
// used_before_ns: its CPU time at the start.
WorkerWaits waits_of(const Worker& worker, int64_t start_ns, int64_t used_before_ns) {
  thread_local int64_t taken_before = 0, faults_before = 0;
  rusage usage = {};
  getrusage(RUSAGE_THREAD, &usage);
  const bool was_taken = usage.ru_nivcsw != taken_before, read_disk = usage.ru_majflt != faults_before;
  taken_before = usage.ru_nivcsw;
  faults_before = usage.ru_majflt;
  if (!was_taken || read_disk) return {worker.waited_ns, 0};
  const int64_t active_ns = now_ns() - start_ns - worker.waited_ns;
  const int64_t used_ns = cpu_time_ns() - used_before_ns - worker.waited_used_ns;
  return {worker.waited_ns, std::max<int64_t>(0, active_ns - used_ns)};
}

// A central barrier. The last to arrive releases the others; its release pairs with their acquire. The acq_rel of each
// arrival passes on the writes of all who came before it. Only the time after spinning counts as waited.
void wait_for_all(TeamState* state, int32_t count, Worker* worker) {
  const int64_t generation = state->generation.value.load(std::memory_order_relaxed);
  if (state->arrived.value.fetch_add(1, std::memory_order_acq_rel) + 1 == count) {
    state->arrived.value.store(0, std::memory_order_relaxed);
    state->barriers.fetch_add(1, std::memory_order_relaxed);
    state->generation.value.store(generation + 1, std::memory_order_release);
    return;
  }
  if (wait_a_moment(state->generation.value, generation)) return;
  for (const int64_t spin_ns = now_ns(); now_ns() - spin_ns < kSpin_ns;) {
    if (wait_a_moment(state->generation.value, generation)) return;
  }
  const int64_t start_ns = now_ns(), used_before_ns = cpu_time_ns();
  while (state->generation.value.load(std::memory_order_acquire) == generation) sched_yield();
  worker->waited_ns += now_ns() - start_ns;
  worker->waited_used_ns += cpu_time_ns() - used_before_ns;
}

}  // namespace

void TeamState::set_shares(std::span<const double> slowness) {
  std::ranges::fill(shares, 0);
  for (size_t i = 0; i < taken.size(); ++i) shares[i + 1] = shares[i] + (i < slowness.size() ? 1 / slowness[i] : 0);
  const double total = shares.back();
  for (double& share : shares) share /= total;
}

void Worker::barrier() {
  if (listener) listener->on_barrier_enter();
  wait_for_all(state, count, this);
  // Nobody claims from this half before the next barrier. Workers that an environment's limit kept away have ranges
  // too.
  for (size_t owner = static_cast<size_t>(index); owner < state->taken.size(); owner += static_cast<size_t>(count)) {
    for (int32_t i = 0; i < loop; ++i) state->taken[owner].loops[half][i].store(0, std::memory_order_relaxed);
  }
  loop = 0;
  half = 1 - half;
  if (listener) listener->on_barrier_exit();
}

namespace {

std::vector<int32_t> numbers_to(size_t count) {
  std::vector<int32_t> numbers(count);
  std::iota(numbers.begin(), numbers.end(), 0);
  return numbers;
}

template <class T>
std::vector<T> filled(std::span<const T> values, size_t count, T rest) {
  std::vector<T> all(values.begin(), values.end());
  all.resize(count, rest);
  return all;
}

}  // namespace

Team::Team(std::vector<int32_t> cpus, std::span<const SmeShare> sme, std::span<const double> slowness)
    : cpus_(cpus.empty() ? std::vector<int32_t>{-1} : std::move(cpus)),
      sme_(filled(sme, cpus_.size(), SmeShare{})),
      slowness_(filled(slowness, cpus_.size(), 1.0)),
      everybody_(numbers_to(cpus_.size())),
      stragglers_(slowness_),
      waits_(cpus_.size()),
      state_(std::make_unique<TeamState>(cpus_.size())) {
  unpin_caller();
  omp_set_dynamic(0);
}

void Team::unpin_caller() { pin_thread(-1); }

void Team::configure(std::span<const int32_t> who) {
  if (std::ranges::equal(who, configured_)) return;
  configured_.assign(who.begin(), who.end());
  use_sme_.clear();
  reserves_.clear();
  std::vector<SmeShare> taken;
  std::vector<double> each;
  for (const int32_t worker : who) {
    const SmeShare share = sme_[static_cast<size_t>(worker)];
    use_sme_.push_back(std::ranges::count(taken, share.group, &SmeShare::group) < share.units);
    if (use_sme_.back()) taken.push_back(share);
    each.push_back(slowness_[static_cast<size_t>(worker)]);
  }
  for (const double own : each) {
    double done = 0;  // by all that are faster, while this one does one task
    for (const double other : each) done += other < own ? own / other : 0;
    reserves_.push_back(static_cast<int64_t>(std::ceil(done)));
  }
  state_->set_shares(each);
}

void Team::run_on(std::span<const int32_t> who, WorkerFunction f) {
  ++regions_;
  configure(who);
  const auto wanted = static_cast<int32_t>(who.size());
#pragma omp parallel num_threads(wanted)
  {
    const int32_t index = omp_get_thread_num();
    const auto i = static_cast<size_t>(index);
    pin_thread(cpus_[static_cast<size_t>(who[i])]);
    // A limit of the environment may have given fewer threads than asked for, perhaps none of the fast ones.
    const int32_t count = omp_get_num_threads();
    Worker worker{index, count, state_.get(), use_sme_[i], count == wanted ? reserves_[i] : 0};
    f(worker);
    worker.barrier();  // leaves both halves of the counters at zero for the next run
  }
}

void Team::run_active(WorkerFunction f) {
  const std::span<const int32_t> active = stragglers_.active();
  const std::span<WorkerWaits> each = std::span(waits_).first(active.size());
  const int64_t start_ns = now_ns();
  run_on(active, [&](Worker& worker) {
    const int64_t used_before_ns = cpu_time_ns();
    f(worker);
    each[static_cast<size_t>(worker.index)] = waits_of(worker, start_ns, used_before_ns);
  });
  stragglers_.note(each, now_ns() - start_ns);
}

Workers workers_of(Team* team) {
  if (!team) return {};
  return {team->size(),
          [](void* lent, int64_t pieces, void (*piece)(void* context, int64_t index), void* context) {
            static_cast<Team*>(lent)->run(
                [&](Worker& worker) { worker.for_each(pieces, [&](int64_t index) { piece(context, index); }); });
          },
          team};
}

}  // namespace pinion
