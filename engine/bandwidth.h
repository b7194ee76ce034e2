// The roof: how fast this team can read memory, and what it costs that its workers meet.
#pragma once

#include <cstdint>

#include "engine/team.h"
#include "kernels/error.h"
#include "loader/arena.h"

namespace pinion {

// Memory to read, each worker's part touched first by that worker.
struct ReadBuffer {
  Arena arena;
  int64_t part_bytes = 0;
};

// buffer_bytes: several times the last-level cache.
Error allocate_read_buffer(Team& team, int64_t buffer_bytes, ReadBuffer* out);

// Bytes per second of a plain streaming read of the buffer by the same team, in few places at once or in many,
// whichever gives more: the median of so many passes, at least one.
double read_bandwidth(Team& team, const ReadBuffer& buffer, int passes);

// Seconds that a barrier takes where all come at once: the median of so many rounds (at least one) of 100.
double barrier_seconds(Team& team, int rounds);

}  // namespace pinion
