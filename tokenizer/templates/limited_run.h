// Runs untrusted code in a child process with limits on time and memory, without files, communication and programs.
#pragma once

#include <functional>

#include "kernels/base/error.h"

namespace pinion {

struct RunLimits {
  int cpu_seconds = 2;                        // CPU time of the child
  int wall_seconds = 30;                      // elapsed time, for a child that blocks
  int64_t memory_bytes = int64_t{512} << 20;  // beyond the current address space of this process
  int64_t output_bytes = int64_t{16} << 20;
};

using LimitedWork = std::function<Error(std::string*)>;

// Calls `work` in a child process and returns its error or its text. All other effects of `work` are lost. A child that
// exceeds a limit or crashes is an error; `where` names the code in it.
Error run_limited(const LimitedWork& work, const std::string& where, std::string* out, RunLimits limits = {});

// True if the kernel can filter system calls. Otherwise `work` runs with the limits only.
bool can_filter_calls();

}  // namespace pinion
