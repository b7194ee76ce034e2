// Boards as the processes of one MPI job: `mpirun -n 4 --hostfile boards pinion chat --model DIR`. Alone in knowing
// MPI.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "engine/boards/exchange.h"
#include "kernels/base/error.h"

namespace pinion {

// What a launcher (of Open MPI, or of MPICH and its kin) says of this process, in the environment: that it has started
// so many side by side. 1 where there was none.
struct LaunchedProcess {
  int32_t rank = 0;
  int32_t count = 1;
};
LaunchedProcess launched_process();

// Connects this process with them, once. `lost` is told on whatever board notices that one is gone, right before all
// end with status 1. Errors: this build has no MPI, or one that cannot be called from several threads; too many.
Error join_boards(std::function<void(const Error&)> lost, std::unique_ptr<Exchange>* out);

}  // namespace pinion
