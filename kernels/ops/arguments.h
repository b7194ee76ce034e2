// Refusals of the public operations' arguments: "OPERATION: NAME: wrong argument: want EXPECTED, have ACTUAL".
#pragma once

#include <cstdint>
#include <string>

#include "kernels/base/error.h"

namespace pinion {

inline Error argument(const std::string& operation, const std::string& name, const std::string& expected) {
  return error("wrong argument", operation + ": " + name, expected);
}
inline Error argument(const std::string& operation, const std::string& name, const std::string& expected,
                      int64_t actual) {
  return error("wrong argument", operation + ": " + name, expected, std::to_string(actual));
}

}  // namespace pinion
