// Computing time of the calling thread: what limits on strangers' work count, whatever else runs.
#pragma once

#include <ctime>

namespace pinion {

inline double thread_seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

}  // namespace pinion
