// Read bandwidth of a team, the roof of decode, and the cost of its barriers.
#pragma once

#include "engine/team/team.h"
#include "kernels/base/error.h"
#include "loader/files/mapped_file.h"

namespace pinion {

// The memory that is read. Each worker touches its own range first, so the range lies on the worker's NUMA node.
struct ReadBuffer {
  Arena arena;
  int64_t worker_bytes = 0;  // of one worker's range
  // Set by the caller, may be null. If true, touching and reading end at once, without usable results.
  const std::atomic<bool>* stop = nullptr;

  bool is_stopped() const { return stop && stop->load(std::memory_order_relaxed); }
};

// buffer_bytes: should be several times the last-level cache.
Error allocate_read_buffer(Team& team, int64_t buffer_bytes, ReadBuffer* out);

// The result of one streaming read of the buffer, by the team that allocated it. All workers stop when the first one
// has finished its range, so the time includes no phase in which only slow cores work.
struct ReadPass {
  int streams = 0;  // concurrent streams of a worker
  int64_t bytes = 0;
  uint64_t sum = 0;  // xor of the words that were read
  double seconds = 0;
};

// Reads the buffer `passes` times for each number of streams, in turn.
std::vector<ReadPass> read_passes(Team& team, const ReadBuffer& buffer, int passes);

// Bytes per second: the median over `passes` reads (at least 1) for the fastest number of streams. 0: stopped.
double read_bandwidth(Team& team, const ReadBuffer& buffer, int passes);

// Seconds per barrier when all workers arrive together: the median of `rounds` (at least 1) of 100 barriers each.
double barrier_seconds(Team& team, int rounds);

}  // namespace pinion
