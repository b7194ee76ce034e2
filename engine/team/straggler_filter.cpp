#include "engine/team/straggler_filter.h"

#include <algorithm>

namespace pinion {

StragglerFilter::StragglerFilter(std::span<const double> slowness) {
  for (const double time : slowness) {
    active_.push_back(static_cast<int32_t>(workers_.size()));
    workers_.push_back({.speed = 1 / time});
  }
}

// True if another worker waited for this one longer than the others need to do its work: kWorth times its fraction of
// the run, below 1 because decode is memory-bound: a lost core costs less than its share.
bool StragglerFilter::is_too_slow_with(size_t culprit, std::span<const WorkerWaits> waits, int64_t run_ns) const {
  constexpr double kWorth = 0.8;
  int64_t lost_ns = 0;
  double speed = 0;
  for (size_t i = 0; i < waits.size(); ++i) {
    if (i != culprit) lost_ns = std::max(lost_ns, waits[i].waited_ns);
    speed += workers_[active_[i]].speed;
  }
  const double fraction = workers_[active_[culprit]].speed / speed;
  return static_cast<double>(lost_ns) > kWorth * fraction * static_cast<double>(run_ns) &&
         waits[culprit].away_ns > lost_ns / 2;
}

// True if the run was slower than those without this worker beyond noise (1/16) and it was away for 1/8 of the run.
bool StragglerFilter::was_faster_without(size_t culprit, std::span<const WorkerWaits> waits, int64_t run_ns) const {
  const int64_t without_ns = workers_[active_[culprit]].without_ns;
  return without_ns > 0 && run_ns - without_ns > without_ns / 16 && waits[culprit].away_ns > run_ns / 8;
}

// Updates each worker's without_ns. Call it before judge(), which starts rests.
void StragglerFilter::measure(int64_t run_ns) {
  for (State& worker : workers_) {
    if (worker.resting > 0) {
      worker.without_ns += (run_ns - worker.without_ns) / (worker.without_ns > 0 ? 4 : 1);
      worker.runs_since = 0;
    } else if (worker.without_ns > 0 && ++worker.runs_since > kRemembered) {
      worker.without_ns = 0;
    }
  }
}

void StragglerFilter::judge(std::span<const WorkerWaits> waits, int64_t run_ns) {
  const auto culprit = static_cast<size_t>(std::ranges::max_element(waits, {}, &WorkerWaits::away_ns) - waits.begin());
  const bool too_slow = is_too_slow_with(culprit, waits, run_ns) || was_faster_without(culprit, waits, run_ns);
  for (size_t i = 0; i < waits.size(); ++i) {
    State& worker = workers_[active_[i]];
    if (!too_slow || i != culprit) {
      worker.strikes = 0;
      worker.rest = kRest;
    } else if (++worker.strikes >= kStrikes) {
      worker.resting = worker.rest;
      worker.rest = std::min(2 * worker.rest, kLongestRest);
      worker.strikes = kStrikes - 1;  // the first bad run after the rest starts the next one
    }
  }
}

void StragglerFilter::note(std::span<const WorkerWaits> waits, int64_t run_ns) {
  measure(run_ns);
  for (State& worker : workers_) worker.resting = std::max(0, worker.resting - 1);
  if (waits.size() > 1) judge(waits, run_ns);
  active_.clear();
  for (size_t i = 0; i < workers_.size(); ++i) {
    if (workers_[i].resting == 0) active_.push_back(static_cast<int32_t>(i));
  }
}

}  // namespace pinion
