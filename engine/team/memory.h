// How much memory there is, as the system tells.
#pragma once

#include <cstdint>
#include <string>

#include "kernels/base/error.h"

namespace pinion {

// What can be allocated without swapping, and what sets that bound.
struct FreeMemory {
  int64_t bytes;
  std::string limit;  // "free"; where a control group grants less: "left by /sys/fs/cgroup/x/memory.max"

  std::string text() const;  // "512 MB free"
};

// The least of MemAvailable and what each control group of this process still grants. `root`: of the file system, ""
// but in tests.
FreeMemory free_memory(const std::string& root = "");
int64_t available_memory_bytes();

int64_t total_memory_bytes();  // 0: unknown

// The most that this process has had resident.
int64_t peak_rss_bytes();

// Whether `bytes` fit into what is free. `what` is the error's, `detail` what is said about the bytes.
Error check_memory(int64_t bytes, const FreeMemory& free, std::string what, std::string where,
                   const std::string& detail = {});

std::string megabytes_text(int64_t bytes);  // "1234 MB", rounded up

}  // namespace pinion
