// Checks for fuzz targets.
#pragma once

#include <cstdlib>
#include <string>

#include "kernels/base/error.h"

namespace pinion {

inline void require(bool condition) {
  if (!condition) std::abort();  // libFuzzer reports it
}

// True for an error, whose message must be one line.
inline bool failed(const Error& e) {
  require(e.message().find('\n') == std::string::npos);
  return static_cast<bool>(e);
}

}  // namespace pinion
