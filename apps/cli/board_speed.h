// How fast this board reads memory, as `pinion tune` under mpirun has measured it: what decides how much of a model it
// gets beside others.
#pragma once

#include <string>

#include "kernels/base/error.h"

namespace pinion {

// CONFIG/pinion/boards/HOST.json, since boards may have one home; empty where the user has no folder for it.
std::string board_speed_file();

double kept_board_speed();  // bytes a second; 0: none is kept, or none that can be read
Error keep_board_speed(double bytes_per_second);
Error forget_board_speed();  // where there is one

}  // namespace pinion
