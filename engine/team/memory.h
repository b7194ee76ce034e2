// How much memory there is, as the system tells.
#pragma once

#include <cstdint>
#include <string>

#include "kernels/error.h"

namespace pinion {

// What can be allocated without swapping: MemAvailable, or what the process's own cgroup still grants if that is less.
// Limits of its parent groups, and cgroups of version 1, are not seen.
int64_t available_memory_bytes();

int64_t total_memory_bytes();  // 0: unknown

// The most that this process has had resident.
int64_t peak_rss_bytes();

// Whether the packed weights of `where` fit into what is available, before they are made.
Error check_memory(int64_t weight_bytes, const std::string& where);

std::string megabytes_text(int64_t bytes);  // "1234 MB", rounded up

}  // namespace pinion
