// How a worker waits for another's write without giving up its core.
#pragma once

#include <atomic>
#include <cstdint>

#if defined(__aarch64__)
#include <sys/auxv.h>
#endif

namespace pinion {

#if defined(__x86_64__)
inline void pause_cpu() { __builtin_ia32_pause(); }
#elif defined(__aarch64__)
// YIELD does nothing on cores with one thread each. ISB takes about as long as PAUSE does on x86.
inline void pause_cpu() { asm volatile("isb"); }

// Linux sends every core an event each 100 us, where the clock can: then WFE is sure to end.
inline bool has_event_stream() {
  constexpr unsigned long kEventStream = 1ul << 2;  // HWCAP_EVTSTRM
  static const bool has = (getauxval(AT_HWCAP) & kEventStream) != 0;
  return has;
}

// Sleeps until somebody writes the cache line of a value that is still `old`, or an event comes. The exclusive load
// watches the line; SEVL and the first WFE use up an event that came before it. It orders nothing.
inline void wait_for_write(const std::atomic<int64_t>& value, int64_t old) {
  int64_t seen;
  asm volatile(
      "sevl\n\t"
      "wfe\n\t"
      "ldxr %0, %1\n\t"
      "cmp %0, %2\n\t"
      "b.ne 1f\n\t"
      "wfe\n"
      "1:"
      : "=&r"(seen)
      : "Q"(value), "r"(old)
      : "cc", "memory");
}
#else
inline void pause_cpu() {}
#endif

// Waits for a value other than `old`, as long as a barrier should take: one or two microseconds, on Arm64 until an
// event. True if it is another; what was written before it is then seen, too.
inline bool wait_a_moment(const std::atomic<int64_t>& value, int64_t old) {
  constexpr int kPauses = 64;
  for (int i = 0; i < kPauses; ++i) {
    if (value.load(std::memory_order_acquire) != old) return true;
    pause_cpu();
  }
#if defined(__aarch64__)
  if (has_event_stream()) wait_for_write(value, old);
#endif
  return value.load(std::memory_order_acquire) != old;
}

}  // namespace pinion
