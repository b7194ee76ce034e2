// The project's two clocks: a steady one for intervals, and the CPU time of the calling thread for limits.
#pragma once

#include <chrono>
#include <cstdint>
#include <ctime>

namespace pinion {

// Nanoseconds since an arbitrary fixed moment, monotonic.
inline int64_t now_ns() { return std::chrono::steady_clock::now().time_since_epoch() / std::chrono::nanoseconds(1); }

// now_ns() in seconds.
inline double now_seconds() { return 1e-9 * static_cast<double>(now_ns()); }

// CPU time of the calling thread, in seconds: for limits on untrusted input, where the load of others does not count.
inline double thread_seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

}  // namespace pinion
