// The filter on synthetic runs of 10 ms.
#include "engine/team/straggler_filter.h"

#include <gtest/gtest.h>

#include <span>
#include <vector>

namespace pinion {
namespace {

constexpr int64_t kRun = 10'000'000;
constexpr double kEight[] = {1, 1, 1, 1, 1, 1, 1, 1};
constexpr std::span<const double> kAlike = kEight;

std::vector<int32_t> active_of(const StragglerFilter& filter) {
  return {filter.active().begin(), filter.active().end()};
}

// A run in which `culprit` was away for away_ns and the others waited as long; -1: no worker was away.
void note_run(StragglerFilter& filter, int32_t culprit, int64_t away_ns) {
  std::vector<WorkerWaits> waits;
  for (const int32_t worker : filter.active()) {
    waits.push_back(worker == culprit ? WorkerWaits{0, away_ns} : WorkerWaits{culprit >= 0 ? away_ns : 0, 0});
  }
  filter.note(waits, kRun);
}

// Number of runs until `count` workers are active, at most 1000.
int runs_until(StragglerFilter& filter, size_t count, int32_t culprit, int64_t away_ns) {
  int runs = 0;
  for (; filter.active().size() != count && runs < 1000; ++runs) note_run(filter, culprit, away_ns);
  return runs;
}

TEST(StragglerFilter, AllAreActiveWithoutStragglers) {
  StragglerFilter filter(kAlike.first(3));
  for (int i = 0; i < 1000; ++i) note_run(filter, -1, 0);
  EXPECT_EQ(active_of(filter), (std::vector<int32_t>{0, 1, 2}));
}

TEST(StragglerFilter, RestsDouble) {
  for (const int32_t culprit : {0, 1}) {
    StragglerFilter filter(kAlike.first(2));
    EXPECT_EQ(runs_until(filter, 1, culprit, kRun / 2), StragglerFilter::kStrikes);
    EXPECT_EQ(active_of(filter), (std::vector<int32_t>{1 - culprit}));
    for (int rest = StragglerFilter::kRest; rest <= StragglerFilter::kLongestRest; rest *= 2) {
      EXPECT_EQ(runs_until(filter, 2, culprit, kRun / 2), rest);
      EXPECT_EQ(runs_until(filter, 1, culprit, kRun / 2), 1);  // one run shows no improvement
    }
    EXPECT_EQ(runs_until(filter, 2, culprit, kRun / 2), StragglerFilter::kLongestRest);
  }
}

TEST(StragglerFilter, OneGoodRunClearsTheRecord) {
  StragglerFilter filter(kAlike.first(2));
  runs_until(filter, 1, 1, kRun / 2);
  EXPECT_EQ(runs_until(filter, 2, 1, kRun / 2), StragglerFilter::kRest);
  note_run(filter, -1, 0);
  EXPECT_EQ(runs_until(filter, 1, 1, kRun / 2), StragglerFilter::kStrikes);
  EXPECT_EQ(runs_until(filter, 2, 1, kRun / 2), StragglerFilter::kRest);
}

TEST(StragglerFilter, RareInterruptionsCauseNoRest) {
  StragglerFilter filter(kAlike.first(2));
  for (int i = 0; i < 1000; ++i) note_run(filter, i % 4 == 3 ? -1 : 1, kRun / 2);
  EXPECT_EQ(filter.active().size(), 2u);
}

// One of two workers is worth 0.4 of a run, one of eight 0.1.
TEST(StragglerFilter, StaysWhileWorthMoreThanTheWait) {
  StragglerFilter two(kAlike.first(2)), eight(kAlike.first(8));
  EXPECT_EQ(runs_until(two, 1, 1, kRun * 39 / 100), 1000);
  EXPECT_EQ(runs_until(eight, 7, 5, kRun * 9 / 100), 1000);
  EXPECT_EQ(runs_until(eight, 7, 5, kRun * 11 / 100), StragglerFilter::kStrikes);
  EXPECT_EQ(active_of(eight), (std::vector<int32_t>{0, 1, 2, 3, 4, 6, 7}));
}

// `culprit` is away for a fifth of the run, which alone causes no strike.
void note_short_absence(StragglerFilter& filter, int32_t culprit, int64_t run_ns) {
  std::vector<WorkerWaits> waits;
  for (const int32_t worker : filter.active()) {
    waits.push_back(worker == culprit ? WorkerWaits{0, run_ns / 5} : WorkerWaits{run_ns / 5, 0});
  }
  filter.note(waits, run_ns);
}

TEST(StragglerFilter, ComparesWithRunsWithoutTheWorker) {
  StragglerFilter filter(kAlike.first(2));
  for (int i = 0; i < 1000; ++i) note_short_absence(filter, 1, 2 * kRun);
  ASSERT_EQ(filter.active().size(), 2u);

  runs_until(filter, 1, 1, kRun / 2);
  runs_until(filter, 2, 1, kRun / 2);                                            // runs without it take kRun
  for (int i = 0; i < 10; ++i) note_short_absence(filter, 1, kRun + kRun / 17);  // as fast as without it
  for (int i = 0; i < 10; ++i) filter.note(std::vector<WorkerWaits>{{kRun / 9, 0}, {0, kRun / 9}}, 2 * kRun);
  for (int i = 0; i < StragglerFilter::kStrikes; ++i) {
    EXPECT_EQ(filter.active().size(), 2u);
    note_short_absence(filter, 1, kRun + kRun / 15);
  }
  EXPECT_EQ(active_of(filter), std::vector<int32_t>{0});
}

TEST(StragglerFilter, RunsWithoutAWorkerAreForgotten) {
  StragglerFilter filter(kAlike.first(2));
  runs_until(filter, 1, 1, kRun / 2);
  runs_until(filter, 2, 1, kRun / 2);
  for (int i = 0; i <= StragglerFilter::kRemembered; ++i) note_run(filter, -1, 0);
  for (int i = 0; i < 1000; ++i) note_short_absence(filter, 1, 2 * kRun);  // a longer context, for example
  EXPECT_EQ(filter.active().size(), 2u);
}

TEST(StragglerFilter, RunsWithoutAWorkerCountForItOnly) {
  StragglerFilter filter(kAlike.first(4));
  runs_until(filter, 3, 1, kRun / 2);
  for (int i = 0; i < 1000; ++i) {  // 1 is away in all its runs, 2 for a fifth of some runs
    if (filter.active().size() == 4) {
      note_run(filter, 1, kRun / 2);
    } else if (i % 16 < 8) {
      note_run(filter, -1, 0);
    } else {
      note_short_absence(filter, 2, 2 * kRun);
    }
    EXPECT_EQ(filter.active()[filter.active().size() - 2], 2);
  }
}

// Two workers, one of them with a quarter of the other's speed: the fast one is worth 0.64, the slow one 0.16.
TEST(StragglerFilter, FastWorkersAreWorthMore) {
  constexpr double kSlowness[] = {1, 4};
  StragglerFilter fast(kSlowness), slow(kSlowness);
  EXPECT_EQ(runs_until(fast, 1, 0, kRun * 63 / 100), 1000);
  EXPECT_EQ(runs_until(fast, 1, 0, kRun * 65 / 100), StragglerFilter::kStrikes);
  EXPECT_EQ(runs_until(slow, 1, 1, kRun * 15 / 100), 1000);
  EXPECT_EQ(runs_until(slow, 1, 1, kRun * 17 / 100), StragglerFilter::kStrikes);
}

// A shared core, but no other worker waits for its worker.
TEST(StragglerFilter, AbsenceWithoutWaitsCausesNoRest) {
  StragglerFilter filter(kAlike.first(2));
  for (int i = 0; i < 1000; ++i) filter.note(std::vector<WorkerWaits>{{kRun / 2, kRun / 2}, {0, kRun / 5}}, kRun);
  EXPECT_EQ(filter.active().size(), 2u);
}

TEST(StragglerFilter, WaitsWithoutAbsenceCauseNoRest) {
  StragglerFilter filter(kAlike.first(2));
  for (int i = 0; i < 1000; ++i) filter.note(std::vector<WorkerWaits>{{kRun / 2, 0}, {0, kRun / 5}}, kRun);
  EXPECT_EQ(filter.active().size(), 2u);
}

TEST(StragglerFilter, OneWorkerIsAlwaysActive) {
  StragglerFilter alone(kAlike.first(1));
  for (int i = 0; i < 100; ++i) alone.note(std::vector<WorkerWaits>{{0, kRun}}, kRun);
  EXPECT_EQ(active_of(alone), std::vector<int32_t>{0});
  StragglerFilter filter(kAlike.first(3));
  for (int i = 0; i < 5000; ++i) {  // the first active worker is away
    note_run(filter, filter.active().front(), kRun / 2);
    ASSERT_FALSE(filter.active().empty());
  }
}

}  // namespace
}  // namespace pinion
