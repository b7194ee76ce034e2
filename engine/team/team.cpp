#include "engine/team/team.h"

#include <linux/futex.h>
#include <omp.h>
#include <pthread.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <bit>
#include <cmath>
#include <exception>
#include <latch>
#include <limits>
#include <new>
#include <numeric>
#include <system_error>
#include <thread>

#include "engine/team/wait.h"
#include "kernels/base/clock.h"

namespace pinion {
namespace {

// A worker spins this long before it yields its core: long against a barrier's latency, short against a time slice. The
// limit is a time, not a number of pauses, since a pause takes 5 to 140 cycles.
constexpr int64_t kSpin_ns = 25'000;
// Time between two readings of another worker's CPU time: long enough for it to rise if that worker runs.
constexpr int64_t kGlance_ns = 5'000;

cpu_set_t process_affinity() {
  cpu_set_t set;
  CPU_ZERO(&set);
  sched_getaffinity(0, sizeof set, &set);
  return set;
}

cpu_set_t only(int32_t cpu) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(cpu, &set);
  return set;
}

// Threads outlive teams, so each remembers its CPU. Another worker may have moved it (lend_core). Failure costs speed.
void pin_thread(int32_t cpu) {
  static const cpu_set_t kUnpinned = process_affinity();  // first called before any pinning, by Team's constructor
  thread_local int32_t pinned_to = -1;
  if (cpu == pinned_to && (cpu < 0 || cpu == sched_getcpu())) return;
  const cpu_set_t set = cpu >= 0 ? only(cpu) : kUnpinned;
  // If the CPU is no longer available, any CPU is better than a borrowed core.
  if (sched_setaffinity(0, sizeof set, &set) != 0) sched_setaffinity(0, sizeof kUnpinned, &kUnpinned);
  pinned_to = cpu;
}

// CPU time of a thread; -1: unknown.
int64_t cpu_time_ns(clockid_t thread = CLOCK_THREAD_CPUTIME_ID) {
  timespec time = {};
  return clock_gettime(thread, &time) != 0 ? -1 : time.tv_sec * int64_t{1000000000} + time.tv_nsec;
}

// Time that the calling worker lost in a run since start_ns, with used_before_ns of CPU time. away_ns: without the CPU
// outside barriers; 0 if the thread was not preempted, or read from a disk, a delay that no other process caused.
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

// The release store of the thread id publishes its clock.
void take_seat(int32_t cpu, TeamState::Seat* seat) {
  clockid_t clock = 0;
  if (cpu < 0 || pthread_getcpuclockid(pthread_self(), &clock) != 0) return;
  seat->cpu_clock.store(clock, std::memory_order_relaxed);
  seat->cpu.store(cpu, std::memory_order_relaxed);
  seat->thread.store(static_cast<int32_t>(gettid()), std::memory_order_release);
}

static_assert(std::endian::native == std::endian::little);  // a futex is the low half of a counter

long futex(std::atomic<int64_t>* counter, int operation, int32_t value, const timespec* timeout = nullptr) {
  return syscall(SYS_futex, counter, operation | FUTEX_PRIVATE_FLAG, value, timeout, nullptr, 0);
}

// Sleeps until the generation changes, at most 1 ms. The last worker to arrive changes the generation, then reads the
// number of sleepers; seq_cst on both sides excludes a missed wake-up.
void sleep_a_while(TeamState* state, int64_t generation) {
  constexpr timespec kTimeout = {.tv_sec = 0, .tv_nsec = 1'000'000};
  state->asleep.value.fetch_add(1, std::memory_order_seq_cst);
  futex(&state->generation.value, FUTEX_WAIT, static_cast<int32_t>(generation), &kTimeout);
  state->asleep.value.fetch_sub(1, std::memory_order_relaxed);
}

bool has_passed(const TeamState* state, int64_t generation) {
  return state->generation.value.load(std::memory_order_acquire) != generation;
}

bool spin(const TeamState* state, int64_t generation, int64_t spin_ns) {
  for (const int64_t start_ns = now_ns(); now_ns() - start_ns < spin_ns;) {
    if (wait_a_moment(state->generation.value, generation)) return true;
  }
  return false;
}

void move_thread(int32_t thread, int32_t cpu) {
  const cpu_set_t set = only(cpu);
  sched_setaffinity(thread, sizeof set, &set);
}

// Moves a straggler to this worker's core. It returns to its own core after the barrier (pin_thread). If it has passed
// the barrier meanwhile, it may have checked its CPU before the move, so this function moves it back.
void lend_core(const TeamState* state, int64_t generation, int32_t thread, const TeamState::Seat& straggler) {
  move_thread(thread, sched_getcpu());
  if (has_passed(state, generation)) move_thread(thread, straggler.cpu.load(std::memory_order_relaxed));
}

// Waits briefly for a worker that has not arrived. If its CPU time stands still, another process occupies its core.
// Then this worker lends its own core, unless another worker has done so, and sleeps to keep the lent core free.
void wait_for_one(TeamState* state, int64_t generation, TeamState::Seat* other, bool can_lend) {
  const int32_t thread = other->thread.load(std::memory_order_acquire);
  const clockid_t clock = other->cpu_clock.load(std::memory_order_relaxed);
  const int64_t used_ns = can_lend && thread != 0 ? cpu_time_ns(clock) : -1;
  if (used_ns < 0) {
    sched_yield();
    return;
  }
  if (spin(state, generation, kGlance_ns) || cpu_time_ns(clock) != used_ns) return;
  if (other->lent_core.exchange(generation, std::memory_order_relaxed) != generation) {
    lend_core(state, generation, thread, *other);
  }
  sleep_a_while(state, generation);
}

void wait_long(TeamState* state, int64_t generation, const Worker& worker) {
  while (!has_passed(state, generation)) {
    bool is_any_missing = false;
    for (int32_t i = 1; i < worker.count; ++i) {
      TeamState::Seat& other = state->seats[(worker.index + i) % worker.count];
      if (other.arrived.load(std::memory_order_relaxed) == generation) continue;
      is_any_missing = true;
      wait_for_one(state, generation, &other, worker.cpu >= 0);
      if (has_passed(state, generation)) return;
    }
    if (!is_any_missing) sched_yield();  // the last one was preempted between its arrival and its release
  }
}

// A central barrier. The last worker to arrive releases the others; its release pairs with their acquire. The acq_rel
// of each arrival passes on the writes of all earlier ones. Only time after spinning counts as waited.
void wait_for_all(TeamState* state, Worker* worker) {
  const int64_t generation = state->generation.value.load(std::memory_order_relaxed);
  state->seats[worker->index].arrived.store(generation, std::memory_order_relaxed);
  if (state->arrived.value.fetch_add(1, std::memory_order_acq_rel) + 1 == worker->count) {
    state->arrived.value.store(0, std::memory_order_relaxed);
    state->barriers.fetch_add(1, std::memory_order_relaxed);
    state->generation.value.store(generation + 1, std::memory_order_seq_cst);
    if (state->asleep.value.load(std::memory_order_seq_cst) > 0) {
      futex(&state->generation.value, FUTEX_WAKE, std::numeric_limits<int32_t>::max());
    }
    return;
  }
  if (wait_a_moment(state->generation.value, generation) || spin(state, generation, kSpin_ns)) return;
  const int64_t start_ns = now_ns(), used_before_ns = cpu_time_ns();
  wait_long(state, generation, *worker);
  worker->waited_ns += now_ns() - start_ns;
  worker->waited_used_ns += cpu_time_ns() - used_before_ns;
}

template <class T>
std::vector<T> filled(std::span<const T> values, size_t count, T rest) {
  std::vector<T> all(values.begin(), values.end());
  all.resize(count, rest);
  return all;
}

}  // namespace

void TeamState::set_bounds(std::span<const double> slowness) {
  bounds[0] = 0;
  for (size_t i = 0; i < taken.size(); ++i) bounds[i + 1] = bounds[i] + (i < slowness.size() ? 1 / slowness[i] : 0);
  const double total = bounds.back();
  for (double& bound : bounds) bound /= total;
}

void Worker::barrier() {
  if (listener) listener->on_barrier_enter();
  wait_for_all(state, this);
  pin_thread(cpu);  // returns from a borrowed core
  // No worker claims from this half before the next barrier. A thread limit may have left out owners of ranges.
  for (size_t owner = index; owner < state->taken.size(); owner += count) {
    for (int32_t i = 0; i < loop; ++i) state->taken[owner].loops[half][i].store(0, std::memory_order_relaxed);
  }
  loop = 0;
  half = 1 - half;
  if (listener) listener->on_barrier_exit();
}

Error check_threads(int64_t count) {
  thread_local int64_t tried = 1;  // OpenMP keeps the threads that it started for this one: only more are tested
  std::latch all_tried(1);
  std::vector<std::jthread> threads;
  std::string reason;
  try {
    threads.reserve(std::max<int64_t>(0, count - tried));
    while (tried + std::ssize(threads) < count) threads.emplace_back([&] { all_tried.wait(); });
  } catch (const std::system_error& failure) {
    reason = failure.code().message();
  } catch (const std::bad_alloc&) {
    reason = "out of memory";
  }
  all_tried.count_down();
  if (reason.empty()) {
    tried = std::max(tried, count);
    return {};
  }
  return error("cannot start " + std::to_string(count) + " threads", "",
               "a smaller --threads, or more room in `ulimit -u`, `ulimit -v` or the control group's pids.max", reason);
}

Team::Team(std::vector<int32_t> cpus, std::span<const SmeUnits> sme, std::span<const double> slowness)
    : cpus_(cpus.empty() ? std::vector<int32_t>{-1} : std::move(cpus)),
      sme_(filled(sme, cpus_.size(), SmeUnits{})),
      slowness_(filled(slowness, cpus_.size(), 1.0)),
      everybody_(cpus_.size()),
      stragglers_(slowness_),
      waits_(cpus_.size()),
      state_(std::make_unique<TeamState>(cpus_.size())) {
  std::iota(everybody_.begin(), everybody_.end(), 0);
  unpin_caller();
  omp_set_dynamic(0);
}

void Team::unpin_caller() { pin_thread(-1); }

void Team::configure(std::span<const int32_t> workers) {
  if (std::ranges::equal(workers, configured_)) return;
  configured_.assign(workers.begin(), workers.end());
  use_sme_.clear();
  reserves_.clear();
  units_in_use_.clear();
  configured_slowness_.clear();
  for (const int32_t worker : workers) {
    const SmeUnits sme = sme_[worker];
    use_sme_.push_back(std::ranges::count(units_in_use_, sme.group, &SmeUnits::group) < sme.units);
    if (use_sme_.back()) units_in_use_.push_back(sme);
    configured_slowness_.push_back(slowness_[worker]);
  }
  for (const double slowness : configured_slowness_) {
    double done = 0;  // tasks of all faster workers in the time of one task here
    for (const double other : configured_slowness_) done += other < slowness ? slowness / other : 0;
    reserves_.push_back(static_cast<int64_t>(std::ceil(done)));
  }
  state_->set_bounds(configured_slowness_);
}

void Team::run_on(std::span<const int32_t> workers, WorkerFunction f) {
  ++regions_;
  configure(workers);
  const auto wanted = static_cast<int32_t>(workers.size());
#pragma omp parallel num_threads(wanted)
  {
    const int32_t index = omp_get_thread_num();
    const int64_t i = index;
    const int32_t cpu = cpus_[workers[i]];
    pin_thread(cpu);
    // A thread limit of the environment may have left out workers, even all fast ones.
    const int32_t count = omp_get_num_threads();
    Worker worker{index, count, state_.get(), cpu, use_sme_[i], count == wanted ? reserves_[i] : 0};
    take_seat(cpu, &state_->seats[i]);
    f(worker);
    worker.barrier();  // leaves both halves of the counters at zero for the next run
    state_->seats[i].thread.store(0, std::memory_order_relaxed);
  }
}

void Team::run_active(WorkerFunction f) {
  const std::span<const int32_t> active = stragglers_.active();
  const std::span<WorkerWaits> waits = std::span(waits_).first(active.size());
  const int64_t start_ns = now_ns();
  run_on(active, [&](Worker& worker) {
    const int64_t used_before_ns = cpu_time_ns();
    f(worker);
    waits[worker.index] = waits_of(worker, start_ns, used_before_ns);
  });
  stragglers_.note(waits, now_ns() - start_ns);
}

Workers workers_of(Team* team) {
  if (!team) return {};
  return {team->size(),
          [](void* object, int64_t pieces, void (*piece)(void* context, int64_t index), void* context) {
            std::atomic_flag has_thrown;
            std::exception_ptr thrown;  // bad_alloc, for example: no exception may leave an OpenMP region
            const auto run_piece = [&](int64_t index) {
              try {
                piece(context, index);
              } catch (...) {
                if (!has_thrown.test_and_set()) thrown = std::current_exception();
              }
            };
            static_cast<Team*>(object)->run([&](Worker& worker) { worker.for_each(pieces, run_piece); });
            if (thrown) std::rethrow_exception(thrown);
          },
          team};
}

}  // namespace pinion
