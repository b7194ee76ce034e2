// Loads in the NEON sources that stay in the order in which they are written.
#pragma once

#include <arm_neon.h>

#include <cstdint>

namespace pinion {
namespace {

// GCC moves a plain load next to its use, which stalls a core that runs in order (Cortex-A55, A510) at every vector, or
// all of them to the top of the loop, which drives sums out of the registers. An empty volatile statement is not moved
// across another one.
[[maybe_unused]] int8x16_t ordered(int8x16_t value) {
  asm volatile("" : "+w"(value));
  return value;
}
[[maybe_unused]] int8x16_t ordered_load(const int8_t* p) { return ordered(vld1q_s8(p)); }

}  // namespace
}  // namespace pinion
