// The roof: how fast this team can read memory.
#pragma once

#include <cstdint>

#include "engine/team.h"
#include "kernels/error.h"

namespace pinion {

// Bytes per second of a plain streaming read of `buffer_bytes` (take several times the last-level cache) by the whole
// team: the best of `passes`.
Error measure_read_bandwidth(Team& team, int64_t buffer_bytes, int passes, double* bytes_per_second);

}  // namespace pinion
