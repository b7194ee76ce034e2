// Runs code that cannot be trusted to end, to survive, or to be harmless, in a child process: with limits on its time
// and memory, without files, and without the right to open any, to talk to others or to start programs.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "kernels/base/error.h"

namespace pinion {

struct RunLimits {
  int cpu_seconds = 2;                        // of its own: waiting and other processes do not count
  int wall_seconds = 30;                      // with them, in case it sleeps
  int64_t memory_bytes = int64_t{512} << 20;  // beyond what the process has now
  int64_t output_bytes = int64_t{16} << 20;
};

// Calls `work` in a child process; its error, or the text it made, is what comes back. Whatever else `work` changes is
// lost with the child. One that runs out of time or memory, or crashes, is an error too; `where` names it there.
Error run_limited(const std::function<Error(std::string*)>& work, const std::string& where, std::string* out,
                  RunLimits limits = {});

// Whether system calls can be filtered here. Where not, `work` has the limits, but may open files and talk to others.
bool can_filter_calls();

}  // namespace pinion
