// Boards as the processes of one MPI job: `mpirun -n 4 --hostfile boards pinion chat --model DIR`. No other file
// includes MPI.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "engine/boards/exchange.h"
#include "kernels/base/error.h"

namespace pinion {

// Rank and number of the processes that a launcher (Open MPI, or MPICH and its relatives) started together, from the
// environment. Without a launcher: one process.
struct LaunchedProcess {
  int32_t rank = 0;
  int32_t count = 1;
};
LaunchedProcess launched_process();

// Connects this process with the others, once. A board that detects the loss of another one calls `on_lost` just before
// all processes end with status 1. Errors: this build has no MPI, or one without
// MPI_THREAD_SERIALIZED; more than kMaxBoards boards.
Error join_boards(std::function<void(const Error&)> on_lost, std::unique_ptr<Exchange>* out);

}  // namespace pinion
