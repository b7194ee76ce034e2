// Boards as processes of an MPI job: `mpirun -n 4 --hostfile boards pinion chat --model DIR`. Only this file has MPI.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "engine/boards/exchange.h"
#include "kernels/base/error.h"

namespace pinion {

// Rank and number of the processes that Open MPI or MPICH started together, by the environment; without: one process.
struct LaunchedProcess {
  int32_t rank = 0;
  int32_t count = 1;
};
LaunchedProcess launched_process();

// Connects this process with the others, once. A board that detects a loss calls `on_lost`, then all processes end with
// status 1. Errors: no MPI, or one without MPI_THREAD_SERIALIZED; more than kMaxBoards boards.
Error join_boards(std::function<void(const Error&)> on_lost, std::unique_ptr<Exchange>* out);

}  // namespace pinion
