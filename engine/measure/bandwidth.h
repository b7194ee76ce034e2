// The roof: how fast this team can read memory, and what it costs that its workers meet.
#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

#include "engine/team/team.h"
#include "kernels/base/error.h"
#include "loader/files/arena.h"

namespace pinion {

// Memory to read, each worker's part touched first by that worker.
struct ReadBuffer {
  Arena arena;
  int64_t part_bytes = 0;
  // Once it is true, what touches or reads the buffer ends at once and its figures mean nothing. Null: nothing ends it.
  const std::atomic<bool>* stop = nullptr;

  bool is_stopped() const { return stop && stop->load(std::memory_order_relaxed); }
};

// buffer_bytes: several times the last-level cache. Of `out`, `stop` is the caller's.
Error allocate_read_buffer(Team& team, int64_t buffer_bytes, ReadBuffer* out);

// One streaming read of the buffer, by the team that allocated it. All stop when the first worker has finished its
// part, so no time counts in which only slow cores work.
struct ReadPass {
  int streams = 0;  // that each worker reads side by side
  int64_t bytes = 0;
  uint64_t sum = 0;  // exclusive or of the words read
  double seconds = 0;
};

// `passes` passes for each number of streams, alternating.
std::vector<ReadPass> read_passes(Team& team, const ReadBuffer& buffer, int passes);

// Bytes per second: the median over the passes (at least one), for the number of streams that reads faster. 0: stopped.
double read_bandwidth(Team& team, const ReadBuffer& buffer, int passes);

// Seconds that a barrier takes where all come at once: the median of `rounds` (at least one) of 100 barriers each.
double barrier_seconds(Team& team, int rounds);

}  // namespace pinion
