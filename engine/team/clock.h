#pragma once

#include <chrono>
#include <cstdint>

namespace pinion {

// Nanoseconds since some fixed moment.
inline int64_t now_ns() { return std::chrono::steady_clock::now().time_since_epoch() / std::chrono::nanoseconds(1); }

}  // namespace pinion
