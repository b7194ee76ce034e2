// Start of the process: open standard descriptors, enough stack, and a report when a mapped file becomes unreadable. A
// stack limit below 64 kB is raised before main, or the program ends with a message.
#pragma once

#include <functional>

namespace pinion {

// Opens those of the descriptors 0 to 2 that are closed. Otherwise a file opened later could get such a number, and
// would then receive what the program prints.
void open_standard_descriptors();

// After this, a read of a mapped file that was shortened, or whose disk or network failed, ends the program with a line
// that names the file, and with kFailure. The kernel reports such a read as SIGBUS; other bus errors keep their effect.
void install_bus_error_handler();

// Calls `run` on a stack of the usual size even under a small `ulimit -s`, which becomes the default of new threads as
// well. `run` must not throw.
int run_on_enough_stack(const std::function<int()>& run);

}  // namespace pinion
