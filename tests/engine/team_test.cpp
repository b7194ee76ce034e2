// Teams: every task runs once, barriers order writes, any number of threads. Also run with ThreadSanitizer.
#include "engine/team/team.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <limits>
#include <new>
#include <numeric>
#include <thread>
#include <utility>
#include <vector>

namespace pinion {
namespace {

std::vector<int32_t> unpinned(int32_t workers) { return std::vector<int32_t>(workers, -1); }

TEST(Team, RunsOnEveryWorkerOnce) {
  for (int32_t n = 1; n <= 5; ++n) {
    Team team(unpinned(n));
    std::vector<int> runs(n, 0);
    team.run([&](Worker& worker) {
      EXPECT_EQ(worker.count, n);
      ++runs[worker.index];
    });
    EXPECT_EQ(runs, std::vector<int>(n, 1));
    EXPECT_EQ(team.regions(), 1);
  }
}

TEST(Team, EveryTaskRunsOnce) {
  for (int32_t n = 1; n <= 4; ++n) {
    for (const int64_t tasks : {0, 1, 2, 3, 7, 64, 1000}) {
      Team team(unpinned(n));
      std::vector<int> done(tasks, 0);  // each element has one writer between two barriers
      team.run([&](Worker& worker) {
        for (int round = 0; round < 3; ++round) {
          worker.for_each(tasks, [&](int64_t task) { ++done[task]; });
          worker.barrier();
        }
      });
      EXPECT_EQ(done, std::vector<int>(tasks, 3)) << n << " workers, " << tasks << " tasks";
    }
  }
}

TEST(Team, SmeUsersPerGroupMatchUnits) {
  const auto users = [](int32_t n, const std::vector<SmeUnits>& sme) {
    Team team(unpinned(n), sme);
    std::vector<int> use(n);
    team.run([&](Worker& worker) { use[worker.index] = worker.uses_sme; });
    return use;
  };
  EXPECT_EQ(users(4, {{0, 1}, {0, 1}, {1, 1}, {1, 1}}), (std::vector<int>{1, 0, 1, 0}));
  EXPECT_EQ(users(3, {{5, 1}, {2, 1}, {5, 1}}), (std::vector<int>{1, 1, 0}));
  EXPECT_EQ(users(5, {{5, 2}, {5, 2}, {2, 1}, {5, 2}, {2, 1}}), (std::vector<int>{1, 1, 1, 0, 0}));
  EXPECT_EQ(users(3, {}), (std::vector<int>{1, 0, 0}));
}

TEST(Team, SeveralLoopsBetweenTwoBarriers) {
  Team team(unpinned(3));
  std::vector<int> first(100, 0), second(50, 0);
  team.run([&](Worker& worker) {
    worker.for_each(100, [&](int64_t task) { ++first[task]; });
    worker.for_each(50, [&](int64_t task) { ++second[task]; });
  });
  EXPECT_EQ(std::accumulate(first.begin(), first.end(), 0), 100);
  EXPECT_EQ(std::accumulate(second.begin(), second.end(), 0), 50);
}

// After a barrier each worker reads the plain writes of all others: a missing release or acquire is a race for
// ThreadSanitizer and a wrong sum on Arm.
TEST(Team, BarrierOrdersPlainWrites) {
  constexpr int kRounds = 500;
  for (const int32_t n : {2, 3, 4}) {
    Team team(unpinned(n));
    std::vector<int64_t> slot(n, 0);
    std::vector<int64_t> wrong(n, 0);
    team.run([&](Worker& worker) {
      for (int64_t round = 1; round <= kRounds; ++round) {
        slot[worker.index] = round;
        worker.barrier();
        for (const int64_t value : slot) wrong[worker.index] += value != round;
        worker.barrier();
      }
    });
    EXPECT_EQ(wrong, std::vector<int64_t>(n, 0));
    EXPECT_EQ(team.barriers(), 2 * kRounds + 1);
  }
}

TEST(Team, RunsAreOrdered) {
  Team team(unpinned(4));
  int64_t total = 0;
  std::vector<int64_t> part(4, 0);
  for (int64_t round = 0; round < 200; ++round) {
    team.run([&](Worker& worker) { part[worker.index] += total + 1; });
    total = std::accumulate(part.begin(), part.end(), int64_t{0}) % 1000;
  }
  // The same without a team.
  int64_t expected_total = 0, expected_part = 0;
  for (int64_t round = 0; round < 200; ++round) {
    expected_part += expected_total + 1;
    expected_total = 4 * expected_part % 1000;
  }
  EXPECT_EQ(total, expected_total);
}

TEST(Claims, BeginWithOwnTasks) {
  for (const int64_t tasks : {1, 3, 11, 64}) {
    for (int32_t index = 0; index < 3; ++index) {
      TeamState state(3);
      state.set_bounds(std::vector<double>{1, 1, 2});
      Claims claims{state, tasks, 0, 0, index, 0};
      const int64_t end = claims.begin(index + 1);
      for (int64_t task = claims.begin(index); task < end; ++task) EXPECT_EQ(claims.next().first, task);
    }
  }
}

TEST(Team, OwnTasksAreProportionalToSpeed) {
  TeamState state(3);
  state.set_bounds(std::vector<double>{1, 1, 2});
  Claims claims{state, 11, 0, 0, 2, 0};
  const std::vector<int64_t> begins = {claims.begin(0), claims.begin(1), claims.begin(2), claims.begin(3)};
  EXPECT_EQ(begins, (std::vector<int64_t>{0, 4, 8, 11}));
  // Own tasks, then those of worker 0, which has claimed one, then of worker 1.
  EXPECT_EQ(Claims({state, 11, 0, 0, 0, 0}).next().count, 1);
  std::vector<int64_t> order;
  for (TaskRange run = claims.next(); run.count > 0; run = claims.next()) order.push_back(run.first);
  EXPECT_EQ(order, (std::vector<int64_t>{8, 9, 10, 1, 2, 3, 4, 5, 6, 7}));
  EXPECT_EQ(claims.remaining(), 0);
}

TEST(Team, RunsShrinkAndStealsAreSingleTasks) {
  TeamState state(2);
  state.set_bounds(std::vector<double>{1, 1});
  Claims claims{state, 40, 0, 0, 0, 0};
  EXPECT_EQ(Claims({state, 40, 0, 0, 1, 0}).next(64).count, 10);  // half of its own range
  std::vector<std::pair<int64_t, int64_t>> runs;
  for (TaskRange run = claims.next(4); run.count > 0; run = claims.next(4)) runs.push_back({run.first, run.count});
  const std::vector<std::pair<int64_t, int64_t>> expected = {{0, 4},  {4, 4},  {8, 4},  {12, 4}, {16, 2}, {18, 1},
                                                             {19, 1}, {30, 1}, {31, 1}, {32, 1}, {33, 1}, {34, 1},
                                                             {35, 1}, {36, 1}, {37, 1}, {38, 1}, {39, 1}};
  EXPECT_EQ(runs, expected);
}

TEST(Team, RunsCoverAllTasks) {
  Team team(unpinned(4), {}, std::vector<double>{4, 1, 1.5, 4});
  for (const int64_t most : {1, 3, 4, 100}) {
    for (const int64_t tasks : {0, 1, 2, 7, 11, 12, 64, 1000}) {
      std::vector<int> done(tasks, 0);
      std::atomic<bool> too_long{false};
      team.run([&](Worker& worker) {
        worker.for_each_run(tasks, most, [&](TaskRange run) {
          if (run.count > most) too_long = true;
          for (int64_t task = run.first; task < run.first + run.count; ++task) ++done[task];
        });
      });
      EXPECT_EQ(done, std::vector<int>(tasks, 1)) << tasks;
      EXPECT_FALSE(too_long);
    }
  }
}

// big.LITTLE in simulated time: 1 per task on a fast worker, its slowness on a slow one. Claims and reserves are real.
struct BigLittle {
  int32_t fast;
  int32_t slow;
  double slowness;
};

std::vector<double> slowness_of(const BigLittle& machine) {
  std::vector<double> slowness(machine.fast, 1);
  slowness.resize(machine.fast + machine.slow, machine.slowness);
  return slowness;
}

std::vector<int64_t> reserves_of(const BigLittle& machine) {
  Team team(unpinned(machine.fast + machine.slow), {}, slowness_of(machine));
  std::vector<int64_t> reserves(team.size());
  team.run([&](Worker& worker) { reserves[worker.index] = worker.reserve; });
  return reserves;
}

struct Stage {
  double time;               // of the last worker's end
  std::vector<int64_t> did;  // tasks of each worker
};

// max_count: tasks per claim. slow_first: order of claims at the same time.
Stage simulate(int64_t tasks, int64_t max_count, const std::vector<double>& slowness,
               const std::vector<int64_t>& reserves, bool slow_first) {
  constexpr double kDone = std::numeric_limits<double>::infinity();
  std::vector<Claims> claims;
  TeamState state(slowness.size());
  state.set_bounds(slowness);
  for (size_t i = 0; i < slowness.size(); ++i) {
    claims.push_back({state, tasks, 0, 0, static_cast<int32_t>(i), reserves[i]});
  }
  std::vector<double> free_at(slowness.size(), 0);
  Stage stage{0, std::vector<int64_t>(slowness.size(), 0)};
  for (;;) {
    const size_t first = std::ranges::min_element(free_at) - free_at.begin();
    const size_t last = free_at.size() - 1 - (std::min_element(free_at.rbegin(), free_at.rend()) - free_at.rbegin());
    const size_t worker = slow_first ? last : first;
    if (free_at[worker] == kDone) return stage;
    if (const TaskRange run = claims[worker].next(max_count); run.count > 0) {
      free_at[worker] += slowness[worker] * static_cast<double>(run.count);
      stage.time = std::max(stage.time, free_at[worker]);
      stage.did[worker] += run.count;
    } else {
      free_at[worker] = kDone;
    }
  }
}

constexpr BigLittle kMachines[] = {{4, 4, 2.5}, {4, 4, 4}, {8, 4, 4}, {1, 3, 1.3}, {2, 6, 1.3}, {4, 8, 3}, {1, 7, 10}};

TEST(Team, SlowWorkersNeverCostTime) {
  for (const BigLittle& machine : kMachines) {
    const std::vector<double> slowness = slowness_of(machine), fast_only(machine.fast, 1);
    const std::vector<int64_t> reserves = reserves_of(machine), none(slowness.size(), 0);
    for (const int64_t most : {1, 4}) {
      double worst = 0, worst_without_reserves = 0;
      for (int64_t tasks = 1; tasks <= 600; ++tasks) {
        const double alone = simulate(tasks, most, fast_only, none, false).time;
        for (const bool slow_first : {false, true}) {
          worst = std::max(worst, simulate(tasks, most, slowness, reserves, slow_first).time / alone);
          worst_without_reserves =
              std::max(worst_without_reserves, simulate(tasks, most, slowness, none, slow_first).time / alone);
        }
      }
      EXPECT_LE(worst, 1.02) << machine.fast << " + " << machine.slow << " at " << machine.slowness << ", " << most;
      EXPECT_GT(worst_without_reserves, 1.02);  // the reserves are necessary
    }
  }
}

TEST(Team, SlowWorkersTakeProportionallyFewerTasks) {
  constexpr int64_t kTasks = 2000;
  for (const BigLittle& machine : kMachines) {
    const std::vector<double> slowness = slowness_of(machine);
    const Stage stage = simulate(kTasks, 4, slowness, reserves_of(machine), true);
    EXPECT_EQ(std::accumulate(stage.did.begin(), stage.did.end(), int64_t{0}), kTasks);
    const double rate = machine.fast + machine.slow / machine.slowness;  // of the team, in tasks of a fast worker
    for (size_t i = 0; i < slowness.size(); ++i) {
      const double share = kTasks / rate / slowness[i];
      EXPECT_NEAR(static_cast<double>(stage.did[i]), share, 0.1 * share + 1) << i;
    }
    EXPECT_LE(stage.time, 1.05 * kTasks / rate);
  }
}

TEST(Team, EveryTaskRunsOnceWithSlowWorkers) {
  Team team(unpinned(4), {}, std::vector<double>{4, 1, 1.5, 4});
  for (const int64_t tasks : {0, 1, 2, 7, 11, 12, 64, 1000}) {
    std::vector<int> done(tasks, 0);
    team.run([&](Worker& worker) {
      for (int round = 0; round < 3; ++round) {
        worker.for_each(tasks, [&](int64_t task) { ++done[task]; });
        worker.barrier();
      }
    });
    EXPECT_EQ(done, std::vector<int>(tasks, 3)) << tasks;
  }
}

// Changing subsets of the workers.
TEST(Team, SubsetsRunAllTasks) {
  Team team(unpinned(4), std::vector<SmeUnits>{{0, 1}, {0, 1}, {1, 1}, {1, 1}}, std::vector<double>{1, 1, 4, 4});
  const std::vector<std::vector<int32_t>> sets = {{0}, {3}, {0, 1, 2, 3}, {1, 2}, {2, 3}, {0, 1, 3}, {0, 1, 2, 3}};
  const std::vector<std::vector<bool>> leads = {{true},
                                                {true},
                                                {true, false, true, false},
                                                {true, true},
                                                {true, false},
                                                {true, false, true},
                                                {true, false, true, false}};
  const std::vector<std::vector<int64_t>> reserves = {{0}, {0}, {0, 0, 8, 8}, {0, 4}, {0, 0}, {0, 0, 8}, {0, 0, 8, 8}};
  for (size_t set = 0; set < sets.size(); ++set) {
    std::vector<int> done(1000, 0);
    std::vector<bool> led(sets[set].size());
    std::vector<int64_t> reserved(sets[set].size());
    for (size_t i = 0; i < sets[set].size(); ++i) {
      // One element per run: bits of a vector<bool> share words, so only one worker may write.
      team.run_on(sets[set], [&](Worker& worker) {
        EXPECT_EQ(worker.count, std::ssize(sets[set]));
        if (worker.index == static_cast<int32_t>(i)) led[i] = worker.uses_sme, reserved[i] = worker.reserve;
        worker.for_each_run(1000, 4, [&](TaskRange run) {
          for (int64_t task = run.first; task < run.first + run.count; ++task) ++done[task];
        });
      });
    }
    EXPECT_EQ(done, std::vector<int>(1000, static_cast<int>(sets[set].size()))) << set;
    EXPECT_EQ(led, leads[set]) << set;
    EXPECT_EQ(reserved, reserves[set]) << set;
  }
}

TEST(Team, ActiveWorkersRunAllTasks) {
  Team team(unpinned(3));
  std::vector<int> done(1000, 0);
  for (int run = 0; run < 200; ++run) {
    team.run_active([&](Worker& worker) { worker.for_each(1000, [&](int64_t task) { ++done[task]; }); });
  }
  EXPECT_EQ(done, std::vector<int>(1000, 200));
}

// Two usable CPUs; fewer if there are not two.
std::vector<int32_t> two_cpus() {
  Team::unpin_caller();
  cpu_set_t usable;
  std::vector<int32_t> cpus;
  sched_getaffinity(0, sizeof usable, &usable);
  for (int32_t cpu = 0; cpu < CPU_SETSIZE && cpus.size() < 2; ++cpu) {
    if (CPU_ISSET(cpu, &usable)) cpus.push_back(cpu);
  }
  return cpus;
}

// A sleeping worker uses no CPU time, like a preempted one.
TEST(Team, StragglerBorrowsACoreAndReturns) {
  const std::vector<int32_t> cpus = two_cpus();
  if (cpus.size() < 2) GTEST_SKIP() << "needs two CPUs";
  for (const int32_t straggler : {0, 1}) {
    const int32_t own = cpus[straggler], other = cpus[1 - straggler];
    bool was_lent = false, is_back = false;
    Team(cpus).run([&](Worker& worker) {
      for (int waits = 0; worker.index == straggler && !was_lent && waits < 20'000; ++waits) {
        usleep(1000);
        was_lent = sched_getcpu() == other;
      }
      worker.barrier();
      for (int barriers = 0; !is_back && barriers < 20'000; ++barriers) {  // on a busy core it may be moved again soon
        worker.barrier();
        if (worker.index == straggler) is_back = sched_getcpu() == own;
        worker.barrier();
      }
    });
    EXPECT_TRUE(was_lent);
    EXPECT_TRUE(is_back);
  }
}

TEST(Team, AllTasksRunBesideABusyProcess) {
  const std::vector<int32_t> cpus = two_cpus();
  if (cpus.size() < 2) GTEST_SKIP() << "needs two CPUs";
  std::atomic<bool> stop = false;
  std::jthread loop([&] {
    cpu_set_t first;
    CPU_ZERO(&first);
    CPU_SET(cpus[0], &first);
    sched_setaffinity(0, sizeof first, &first);
    while (!stop) continue;
  });
  Team team(cpus);
  constexpr int kStages = 1000;
  std::vector<int> done(16, 0);
  const auto stages = [&](Worker& worker) {
    for (int stage = 0; stage < kStages; ++stage) {
      worker.for_each(std::ssize(done), [&](int64_t task) { ++done[task]; });
      worker.barrier();
    }
  };
  team.run(stages);
  team.run_active(stages);
  stop = true;
  EXPECT_EQ(done, std::vector<int>(done.size(), 2 * kStages));
}

// As when memory runs out while weights are packed.
TEST(Team, ExceptionsReachTheCaller) {
  Team team({-1, -1});
  const auto last_throws = [](int64_t i) {
    if (i == 99) throw std::bad_alloc();
  };
  EXPECT_THROW(run_pieces(workers_of(&team), 100, last_throws), std::bad_alloc);
  std::atomic<int> done = 0;
  run_pieces(workers_of(&team), 100, [&](int64_t) { ++done; });
  EXPECT_EQ(done, 100);
}

TEST(Team, EmptyListIsOneWorker) {
  Team team({});
  EXPECT_EQ(team.size(), 1);
  int runs = 0;
  team.run([&](Worker&) { ++runs; });
  EXPECT_EQ(runs, 1);
}

}  // namespace
}  // namespace pinion
