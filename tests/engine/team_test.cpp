// The team: every task once, writes seen across barriers, any number of threads. Also under ThreadSanitizer.
#include "engine/team.h"

#include <gtest/gtest.h>

#include <numeric>
#include <vector>

namespace pinion {
namespace {

std::vector<int32_t> unpinned(int32_t workers) { return std::vector<int32_t>(static_cast<size_t>(workers), -1); }

TEST(Team, RunsOnEveryWorkerOnce) {
  for (int32_t n = 1; n <= 5; ++n) {
    Team team(unpinned(n));
    std::vector<int> runs(static_cast<size_t>(n), 0);
    team.run([&](Worker& worker) {
      EXPECT_EQ(worker.count, n);
      ++runs[static_cast<size_t>(worker.index)];
    });
    EXPECT_EQ(runs, std::vector<int>(static_cast<size_t>(n), 1));
    EXPECT_EQ(team.regions(), 1);
  }
}

TEST(Team, EveryTaskIsDoneOnce) {
  for (int32_t n = 1; n <= 4; ++n) {
    for (const int64_t tasks : {0, 1, 2, 3, 7, 64, 1000}) {
      Team team(unpinned(n));
      std::vector<int> done(static_cast<size_t>(tasks), 0);  // each element has one writer between two barriers
      team.run([&](Worker& worker) {
        for (int round = 0; round < 3; ++round) {
          worker.for_each(tasks, [&](int64_t task) { ++done[static_cast<size_t>(task)]; });
          worker.barrier();
        }
      });
      EXPECT_EQ(done, std::vector<int>(static_cast<size_t>(tasks), 3)) << n << " workers, " << tasks << " tasks";
    }
  }
}

TEST(Team, OneWorkerLeadsEachCluster) {
  const auto leaders = [](int32_t n, const std::vector<int32_t>& clusters) {
    Team team(unpinned(n), clusters);
    std::vector<int> leads(static_cast<size_t>(n));
    team.run([&](Worker& worker) { leads[static_cast<size_t>(worker.index)] = worker.leads; });
    return leads;
  };
  EXPECT_EQ(leaders(4, {0, 0, 1, 1}), (std::vector<int>{1, 0, 1, 0}));
  EXPECT_EQ(leaders(3, {5, 2, 5}), (std::vector<int>{1, 1, 0}));
  EXPECT_EQ(leaders(3, {}), (std::vector<int>{1, 0, 0}));
}

TEST(Team, SeveralStagesBetweenTwoBarriers) {
  Team team(unpinned(3));
  std::vector<int> first(100, 0), second(50, 0);
  team.run([&](Worker& worker) {
    worker.for_each(100, [&](int64_t task) { ++first[static_cast<size_t>(task)]; });
    worker.for_each(50, [&](int64_t task) { ++second[static_cast<size_t>(task)]; });
  });
  EXPECT_EQ(std::accumulate(first.begin(), first.end(), 0), 100);
  EXPECT_EQ(std::accumulate(second.begin(), second.end(), 0), 50);
}

// After a barrier each worker reads what all others wrote before it, plainly: a missing release or acquire is a race
// that ThreadSanitizer reports, and on Arm a wrong sum.
TEST(Team, BarrierOrdersPlainWrites) {
  constexpr int kRounds = 500;
  for (const int32_t n : {2, 3, 4}) {
    Team team(unpinned(n));
    std::vector<int64_t> slot(static_cast<size_t>(n), 0);
    std::vector<int64_t> wrong(static_cast<size_t>(n), 0);
    team.run([&](Worker& worker) {
      for (int64_t round = 1; round <= kRounds; ++round) {
        slot[static_cast<size_t>(worker.index)] = round;
        worker.barrier();
        for (const int64_t value : slot) wrong[static_cast<size_t>(worker.index)] += value != round;
        worker.barrier();
      }
    });
    EXPECT_EQ(wrong, std::vector<int64_t>(static_cast<size_t>(n), 0));
    EXPECT_EQ(team.barriers(), 2 * kRounds + 1);
  }
}

TEST(Team, ResultsOfARunAreSeenByTheNextAndByTheCaller) {
  Team team(unpinned(4));
  int64_t total = 0;
  std::vector<int64_t> part(4, 0);
  for (int64_t round = 0; round < 200; ++round) {
    team.run([&](Worker& worker) { part[static_cast<size_t>(worker.index)] += total + 1; });
    total = std::accumulate(part.begin(), part.end(), int64_t{0}) % 1000;
  }
  // The same by hand.
  int64_t expected_total = 0, expected_part = 0;
  for (int64_t round = 0; round < 200; ++round) {
    expected_part += expected_total + 1;
    expected_total = 4 * expected_part % 1000;
  }
  EXPECT_EQ(total, expected_total);
}

TEST(Team, AnEmptyListIsOneWorker) {
  Team team({});
  EXPECT_EQ(team.size(), 1);
  int runs = 0;
  team.run([&](Worker&) { ++runs; });
  EXPECT_EQ(runs, 1);
}

}  // namespace
}  // namespace pinion
