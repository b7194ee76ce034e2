// What whoever starts the program may have taken from it: open descriptors 0 to 2, and a stack of the usual size. One
// of less than 64 kB is raised to that before main, or refused in words.
#pragma once

#include <functional>

namespace pinion {

// A file that is opened later would get the number of a closed one, and then what is printed, or the other way round.
void open_standard_descriptors();

// Runs it where the stack has the usual size, however small `ulimit -s` is, and lets threads that it starts have that
// too. `run` throws nothing.
int run_on_enough_stack(const std::function<int()>& run);

}  // namespace pinion
