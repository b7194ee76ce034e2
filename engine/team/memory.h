// Memory of the machine and of this process's control groups.
#pragma once

#include <cstddef>
#include <vector>

#include "kernels/base/error.h"

namespace pinion {

// The number at the start of a file; `otherwise` if there is no number ("max") or no such file.
int64_t read_number(const std::string& path, int64_t otherwise);

// Bytes that can be allocated without swapping, and the tightest limit.
struct FreeMemory {
  int64_t bytes;
  std::string limit;  // "free", or "left by /sys/fs/cgroup/x/memory.max" if a control group grants less

  std::string text() const;  // "512 MB free"
};

// The least of MemAvailable and of what each control group has left. root: prefix of all paths, for tests.
FreeMemory free_memory(const std::string& root = "");
int64_t available_memory_bytes();

int64_t total_memory_bytes();  // 0: unknown

int64_t peak_rss_bytes();                                // largest resident size of this process so far
int64_t private_bytes();                                 // that this process would free at its end
int64_t resident_bytes(std::byte* page, int64_t bytes);  // that were touched, in whole pages

// Returns the error `what` if `bytes` exceeds free.bytes. detail: text after the size in the message.
Error check_memory(int64_t bytes, const FreeMemory& free, std::string what, std::string where,
                   const std::string& detail = {});

std::string megabytes_text(int64_t bytes);  // "1234 MB", rounded up

// Folders of the control groups that limit this process, innermost first, for `controller` ("cpu", "memory") in
// version 1 and all controllers in version 2. Some may not exist: inside a container the path can be the host's while
// only the container's own group is mounted, as the root. The walk up to the root finds that group.
std::vector<std::string> cgroup_folders(const std::string& root, const std::string& controller);

}  // namespace pinion
