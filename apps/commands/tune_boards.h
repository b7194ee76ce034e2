#pragma once

#include "apps/cli/common.h"
#include "engine/boards/exchange.h"

namespace pinion {

struct TuneBoardsOptions {
  bool forget = false;   // what is kept goes, and nothing is measured
  bool dry_run = false;  // measured, and not kept
  bool json = false;
};

// On every board, each of which keeps its own speed (apps/cli/board_speed.h). Returns the exit status.
int tune_boards(Exchange& exchange, const RunOptions& run, const TuneBoardsOptions& options);

}  // namespace pinion
