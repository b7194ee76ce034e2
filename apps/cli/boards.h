// The program as one of several processes that share a model: the first is the program as ever, the others compute what
// it says and write nothing.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "apps/cli/common.h"
#include "engine/boards/exchange.h"

namespace pinion {

// Connects this process with those that a launcher has started beside it; there may be none.
Error join_others(std::unique_ptr<Exchange>* out);

// Parses the command line, which every process has of its own: the first alone says what is wrong with it. An exit
// status, where this is not to go on on all of them.
std::optional<int> parse_on_boards(Exchange& exchange, const std::function<std::optional<int>()>& parse);

// Runs a command whose options are parsed.
int run_on_boards(Exchange& exchange, const Run& run);

// Nothing more is lost with another board: from here on nobody tells of one. Processes that end at about the same time
// are taken for lost ones by mpirun where they have failed.
void end_of_losses();

// What the first board does when another is lost, before the end of losses: called once at most, on whatever thread,
// right before the program ends, and what it returns ends the one line about it. It owns what it reads: of a loss a
// command may first see the end of its input, since mpirun closes that.
void keep_when_lost(std::function<std::string()> keep);

}  // namespace pinion
