// Who takes part: rules on made-up runs of 10 ms.
#include "engine/attendance.h"

#include <gtest/gtest.h>

#include <span>
#include <vector>

namespace pinion {
namespace {

constexpr int64_t kRun = 10'000'000;
constexpr double kEight[] = {1, 1, 1, 1, 1, 1, 1, 1};
constexpr std::span<const double> kAlike = kEight;

std::vector<int32_t> present(const Attendance& attendance) {
  return {attendance.present().begin(), attendance.present().end()};
}

// A run in which `culprit` was away for so long and the others waited as long; nobody was where that is -1.
void note_run(Attendance& attendance, int32_t culprit, int64_t away_ns) {
  std::vector<Presence> each;
  for (const int32_t worker : attendance.present()) {
    each.push_back(worker == culprit ? Presence{0, away_ns} : Presence{culprit >= 0 ? away_ns : 0, 0});
  }
  attendance.note(each, kRun);
}

// How many runs it takes until so many are present, at most 1000.
int runs_until(Attendance& attendance, size_t count, int32_t culprit, int64_t away_ns) {
  int runs = 0;
  for (; attendance.present().size() != count && runs < 1000; ++runs) note_run(attendance, culprit, away_ns);
  return runs;
}

TEST(Attendance, AllArePresentWhereNobodyIsAway) {
  Attendance attendance(kAlike.first(3));
  for (int i = 0; i < 1000; ++i) note_run(attendance, -1, 0);
  EXPECT_EQ(present(attendance), (std::vector<int32_t>{0, 1, 2}));
}

TEST(Attendance, OneThatIsAwayForHalfTheTimeRestsLongerAndLonger) {
  for (const int32_t culprit : {0, 1}) {
    Attendance attendance(kAlike.first(2));
    EXPECT_EQ(runs_until(attendance, 1, culprit, kRun / 2), Attendance::kStrikes);
    EXPECT_EQ(present(attendance), (std::vector<int32_t>{1 - culprit}));
    for (int rest = Attendance::kRest; rest <= Attendance::kLongestRest; rest *= 2) {
      EXPECT_EQ(runs_until(attendance, 2, culprit, kRun / 2), rest);
      EXPECT_EQ(runs_until(attendance, 1, culprit, kRun / 2), 1);  // one run shows that nothing is better
    }
    EXPECT_EQ(runs_until(attendance, 2, culprit, kRun / 2), Attendance::kLongestRest);
  }
}

TEST(Attendance, OneGoodRunForgivesAll) {
  Attendance attendance(kAlike.first(2));
  runs_until(attendance, 1, 1, kRun / 2);
  EXPECT_EQ(runs_until(attendance, 2, 1, kRun / 2), Attendance::kRest);
  note_run(attendance, -1, 0);
  EXPECT_EQ(runs_until(attendance, 1, 1, kRun / 2), Attendance::kStrikes);
  EXPECT_EQ(runs_until(attendance, 2, 1, kRun / 2), Attendance::kRest);
}

TEST(Attendance, InterruptionsHereAndThereAreNoReason) {
  Attendance attendance(kAlike.first(2));
  for (int i = 0; i < 1000; ++i) note_run(attendance, i % 4 == 3 ? -1 : 1, kRun / 2);
  EXPECT_EQ(attendance.present().size(), 2u);
}

// Of two, one is worth 0.4 of a run; of eight 0.1.
TEST(Attendance, AWorkerStaysWhileItIsWorthMoreThanTheWait) {
  Attendance two(kAlike.first(2)), eight(kAlike.first(8));
  EXPECT_EQ(runs_until(two, 1, 1, kRun * 39 / 100), 1000);
  EXPECT_EQ(runs_until(eight, 7, 5, kRun * 9 / 100), 1000);
  EXPECT_EQ(runs_until(eight, 7, 5, kRun * 11 / 100), Attendance::kStrikes);
  EXPECT_EQ(present(eight), (std::vector<int32_t>{0, 1, 2, 3, 4, 6, 7}));
}

// The first is there all the time, `culprit` away for a fifth of the run, which alone is no reason.
void note_short_absence(Attendance& attendance, int32_t culprit, int64_t run_ns) {
  std::vector<Presence> each;
  for (const int32_t worker : attendance.present()) {
    each.push_back(worker == culprit ? Presence{0, run_ns / 5} : Presence{run_ns / 5, 0});
  }
  attendance.note(each, run_ns);
}

TEST(Attendance, OneThatRestedIsMeasuredByTheRunsWithoutIt) {
  Attendance attendance(kAlike.first(2));
  for (int i = 0; i < 1000; ++i) note_short_absence(attendance, 1, 2 * kRun);
  ASSERT_EQ(attendance.present().size(), 2u);

  runs_until(attendance, 1, 1, kRun / 2);
  runs_until(attendance, 2, 1, kRun / 2);                                            // those without it take kRun
  for (int i = 0; i < 10; ++i) note_short_absence(attendance, 1, kRun + kRun / 17);  // as good as without it
  for (int i = 0; i < 10; ++i) attendance.note(std::vector<Presence>{{kRun / 9, 0}, {0, kRun / 9}}, 2 * kRun);
  for (int i = 0; i < Attendance::kStrikes; ++i) {
    EXPECT_EQ(attendance.present().size(), 2u);
    note_short_absence(attendance, 1, kRun + kRun / 15);
  }
  EXPECT_EQ(present(attendance), std::vector<int32_t>{0});
}

TEST(Attendance, TheMeasureIsForgotten) {
  Attendance attendance(kAlike.first(2));
  runs_until(attendance, 1, 1, kRun / 2);
  runs_until(attendance, 2, 1, kRun / 2);
  for (int i = 0; i <= Attendance::kRemembered; ++i) note_run(attendance, -1, 0);
  for (int i = 0; i < 1000; ++i) note_short_absence(attendance, 1, 2 * kRun);  // a longer context, say
  EXPECT_EQ(attendance.present().size(), 2u);
}

TEST(Attendance, TheMeasureIsOneWorkersOwn) {
  Attendance attendance(kAlike.first(4));
  runs_until(attendance, 3, 1, kRun / 2);
  for (int i = 0; i < 1000; ++i) {  // 1 is away whenever it comes back, 2 for a fifth of some runs
    if (attendance.present().size() == 4) {
      note_run(attendance, 1, kRun / 2);
    } else if (i % 16 < 8) {
      note_run(attendance, -1, 0);
    } else {
      note_short_absence(attendance, 2, 2 * kRun);
    }
    EXPECT_EQ(attendance.present()[attendance.present().size() - 2], 2);
  }
}

// Of a fast worker and one of a quarter of its speed, the one is worth 0.64, the other 0.16.
TEST(Attendance, AFastWorkerIsWorthMore) {
  constexpr double kSlowness[] = {1, 4};
  Attendance fast(kSlowness), slow(kSlowness);
  EXPECT_EQ(runs_until(fast, 1, 0, kRun * 63 / 100), 1000);
  EXPECT_EQ(runs_until(fast, 1, 0, kRun * 65 / 100), Attendance::kStrikes);
  EXPECT_EQ(runs_until(slow, 1, 1, kRun * 15 / 100), 1000);
  EXPECT_EQ(runs_until(slow, 1, 1, kRun * 17 / 100), Attendance::kStrikes);
}

// A core that is shared, but nobody waits for its worker.
TEST(Attendance, BeingAwayWhileOthersAreAtWorkIsNoReason) {
  Attendance attendance(kAlike.first(2));
  for (int i = 0; i < 1000; ++i) attendance.note(std::vector<Presence>{{kRun / 2, kRun / 2}, {0, kRun / 5}}, kRun);
  EXPECT_EQ(attendance.present().size(), 2u);
}

TEST(Attendance, WaitingForOneThatWasNotAwayIsNoReason) {
  Attendance attendance(kAlike.first(2));
  for (int i = 0; i < 1000; ++i) attendance.note(std::vector<Presence>{{kRun / 2, 0}, {0, kRun / 5}}, kRun);
  EXPECT_EQ(attendance.present().size(), 2u);
}

TEST(Attendance, NeverNobody) {
  Attendance alone(kAlike.first(1));
  for (int i = 0; i < 100; ++i) alone.note(std::vector<Presence>{{0, kRun}}, kRun);
  EXPECT_EQ(present(alone), std::vector<int32_t>{0});
  Attendance attendance(kAlike.first(3));
  for (int i = 0; i < 5000; ++i) {  // whoever is there first is away
    note_run(attendance, attendance.present().front(), kRun / 2);
    ASSERT_FALSE(attendance.present().empty());
  }
}

}  // namespace
}  // namespace pinion
