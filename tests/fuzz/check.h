// What fuzz targets ask of whatever they call.
#pragma once

#include <cstdlib>
#include <string>

#include "kernels/base/error.h"

namespace pinion {

inline void require(bool condition) {
  if (!condition) std::abort();  // what libFuzzer reports
}

// Whether it is an error, which must be one line.
inline bool failed(const Error& e) {
  require(e.message().find('\n') == std::string::npos);
  return static_cast<bool>(e);
}

}  // namespace pinion
