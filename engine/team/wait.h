// Waits for another worker's write without giving up the core.
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
// YIELD does nothing on cores with one thread. ISB takes about as long as PAUSE on x86.
inline void pause_cpu() { asm volatile("isb"); }

// Linux sends every core an event each 100 us if the timer supports it. WFE is then sure to end.
inline bool has_event_stream() {
  constexpr unsigned long kEventStream = 1ul << 2;  // HWCAP_EVTSTRM
  static const bool has = (getauxval(AT_HWCAP) & kEventStream) != 0;
  return has;
}

// Sleeps while the value is `old`, until a write to its cache line or another event. The exclusive load watches the
// line; SEVL and the first WFE consume an earlier event. Imposes no memory order.
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

// Waits one or two microseconds, the time of a barrier, for a value other than `old`; on Arm64 until an event. Returns
// true if the value has changed, and then acquires the writes before it.
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
