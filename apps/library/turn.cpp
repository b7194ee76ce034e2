#include "apps/library/turn.h"

#include "engine/team/team.h"

namespace pinion {

Turn::Turn(Turns& turns) : turns_(turns) {
  if (turns.runner.load() == std::this_thread::get_id()) return;
  lock_ = std::unique_lock(turns.mutex);
  turns.runner = std::this_thread::get_id();
  has_affinity_ = sched_getaffinity(0, sizeof affinity_, &affinity_) == 0;
}

Turn::~Turn() {
  if (!is_taken()) return;
  Team::unpin_caller();  // so that the team knows of it
  if (has_affinity_) sched_setaffinity(0, sizeof affinity_, &affinity_);
  turns_.runner = std::thread::id();
}

}  // namespace pinion
