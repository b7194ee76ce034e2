#include "engine/attendance.h"

#include <algorithm>
#include <numeric>

namespace pinion {
namespace {

// What one of so many workers is worth, as a share of a run. Decode is bound by memory: one core fewer costs less than
// its share of the cores.
double worth_of_one(size_t workers) { return 0.8 / static_cast<double>(workers); }

int64_t longest_wait_ns(std::span<const Presence> each) {
  return std::ranges::max(each, {}, &Presence::waited_ns).waited_ns;
}

}  // namespace

Attendance::Attendance(int32_t workers) : workers_(static_cast<size_t>(workers)), present_(workers_.size()) {
  std::iota(present_.begin(), present_.end(), 0);
}

void Attendance::judge(std::span<const Presence> each, int64_t run_ns) {
  const int64_t lost_ns = longest_wait_ns(each);
  const auto culprit = std::ranges::max_element(each, {}, &Presence::away_ns) - each.begin();
  const bool too_long = static_cast<double>(lost_ns) > worth_of_one(each.size()) * static_cast<double>(run_ns);
  // Others may wait for a worker that is slow or reads from a disk: that is not what a rest is for.
  const bool is_culprit = each[static_cast<size_t>(culprit)].away_ns > lost_ns / 2;
  for (size_t i = 0; i < each.size(); ++i) {
    State& worker = workers_[static_cast<size_t>(present_[i])];
    if (!too_long || !is_culprit || static_cast<int64_t>(i) != culprit) {
      worker = {};
    } else if (++worker.strikes >= kStrikes) {
      worker.resting = worker.rest;
      worker.rest = std::min(2 * worker.rest, kLongestRest);
      worker.strikes = kStrikes - 1;  // back for a single run, if that is no better
    }
  }
}

void Attendance::note(std::span<const Presence> each, int64_t run_ns) {
  for (State& worker : workers_) worker.resting = std::max(0, worker.resting - 1);
  if (each.size() > 1) judge(each, run_ns);
  present_.clear();
  for (size_t i = 0; i < workers_.size(); ++i) {
    if (workers_[i].resting == 0) present_.push_back(static_cast<int32_t>(i));
  }
}

}  // namespace pinion
