// Selects the workers of a team's next run. Another process on a worker's core makes it a straggler: it is preempted
// for milliseconds while all others wait at the next barrier. The team is faster without it.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace pinion {

// Time that one worker lost in a run.
struct WorkerWaits {
  int64_t waited_ns = 0;  // at barriers, after spinning: long waits only
  int64_t away_ns = 0;    // preempted while it had work
};

// A run counts as a strike against the worker that was away longest if the wait cost more than the worker contributes:
// either another worker waited for it longer than its fraction of the run, or the run was slower than recent runs
// without it. After kStrikes strikes in a row the worker rests for kRest runs, then takes part in one run on trial.
// Another strike doubles the rest, up to kLongestRest. One good run clears the record.
class StragglerFilter {
 public:
  static constexpr int32_t kStrikes = 4;
  static constexpr int32_t kRest = 16;
  static constexpr int32_t kLongestRest = 256;
  static constexpr int32_t kRemembered = 256;  // State::without_ns expires after that many runs with the worker

  // slowness: time per task of each worker relative to the fastest, as in Team.
  explicit StragglerFilter(std::span<const double> slowness);

  // Workers of the next run, ascending; never empty.
  std::span<const int32_t> active() const { return active_; }

  // Records a run. waits: of its workers, in the order of active().
  void note(std::span<const WorkerWaits> waits, int64_t run_ns);

 private:
  struct State {
    double speed;
    int32_t strikes = 0;
    int32_t resting = 0;     // remaining runs of the rest
    int32_t rest = kRest;    // length of the next rest
    int64_t without_ns = 0;  // mean time of recent runs without this worker; 0: none
    int32_t runs_since = 0;  // runs with this worker since then
  };
  void measure(int64_t run_ns);
  void judge(std::span<const WorkerWaits> waits, int64_t run_ns);
  bool is_too_slow_with(size_t culprit, std::span<const WorkerWaits> waits, int64_t run_ns) const;
  bool was_faster_without(size_t culprit, std::span<const WorkerWaits> waits, int64_t run_ns) const;

  std::vector<State> workers_;
  std::vector<int32_t> active_;
};

}  // namespace pinion
