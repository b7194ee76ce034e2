// FUZZ_TARGET(NAME) begins the function of NAME_fuzz.cpp. For libFuzzer it is the only one of its program; otherwise
// all are in the program fuzz_replay, which runs them over their seeds with every compiler and on every platform.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>

#ifdef PINION_FUZZ
#define FUZZ_TARGET(name) extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size)
#else
namespace pinion {

using FuzzTarget = int(const uint8_t* data, size_t size);

inline std::map<std::string, FuzzTarget*>& fuzz_targets() {
  static std::map<std::string, FuzzTarget*> targets;
  return targets;
}

}  // namespace pinion

#define FUZZ_TARGET(name)                                                                      \
  static int name##_fuzz(const uint8_t* data, size_t size);                                    \
  static const bool name##_listed = pinion::fuzz_targets().emplace(#name, name##_fuzz).second; \
  static int name##_fuzz(const uint8_t* data, size_t size)
#endif
