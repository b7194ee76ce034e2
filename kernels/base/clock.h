// Time as this project measures it: a steady clock for intervals, and the calling thread's computing time.
#pragma once

#include <chrono>
#include <cstdint>
#include <ctime>

namespace pinion {

// Nanoseconds since a fixed moment. Never goes back.
inline int64_t now_ns() { return std::chrono::steady_clock::now().time_since_epoch() / std::chrono::nanoseconds(1); }

// The same in seconds.
inline double now_seconds() { return 1e-9 * static_cast<double>(now_ns()); }

// Computing time of the calling thread, in seconds. Limits on untrusted work count it, so that other load does not
// matter.
inline double thread_seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

}  // namespace pinion
