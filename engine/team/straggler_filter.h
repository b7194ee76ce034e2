// Which workers are active in a team's next run. Where another process wants one of the cores, its worker is a
// straggler: it is away for milliseconds at a time, and all others wait for it at the next barrier. They are faster
// without it.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace pinion {

// What one worker lost in a run.
struct WorkerWaits {
  int64_t waited_ns = 0;  // at barriers, after spinning: long waits only
  int64_t away_ns = 0;    // had work and was not let
};

// A run is a strike against the worker that was away longest, if it cost more time than it saved. After kStrikes
// strikes in a row the worker rests for kRest runs, then is tried for one run. If that is a strike, too, it rests twice
// as long, up to kLongestRest. One good run clears its record. A strike shows in two ways: another worker waited for it
// longer than its share of the work is worth, or the run was slower than recent runs without it.
class StragglerFilter {
 public:
  static constexpr int32_t kStrikes = 4;
  static constexpr int32_t kRest = 16;
  static constexpr int32_t kLongestRest = 256;
  static constexpr int32_t kRemembered = 256;  // runs with a worker after which without_ns is forgotten

  // slowness: of each worker, see Team.
  explicit StragglerFilter(std::span<const double> slowness);

  // Those who take part in the next run, rising; never none.
  std::span<const int32_t> active() const { return active_; }

  // How a run went: of those who took part, in the order of active().
  void note(std::span<const WorkerWaits> each, int64_t run_ns);

 private:
  struct State {
    double speed;
    int32_t strikes = 0;
    int32_t resting = 0;  // runs that are left of its rest
    int32_t rest = kRest;
    int64_t without_ns = 0;  // what runs without it took of late; 0: there were none
    int32_t runs_since = 0;  // with it
  };
  void measure(int64_t run_ns);
  void judge(std::span<const WorkerWaits> each, int64_t run_ns);
  bool is_too_slow_with(size_t culprit, std::span<const WorkerWaits> each, int64_t run_ns) const;
  bool was_faster_without(size_t culprit, std::span<const WorkerWaits> each, int64_t run_ns) const;

  std::vector<State> workers_;
  std::vector<int32_t> active_;
};

}  // namespace pinion
