// The program as one of several processes that share a model: rank 0 behaves as without the others, which run the model
// with it and print nothing.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "apps/commands.h"
#include "engine/boards/exchange.h"

namespace pinion {

// Connects this process with those that a launcher has started beside it. *out stays null if there are none.
Error connect_launched_boards(std::unique_ptr<Exchange>* out);

// Parses the command line, of which each process has its own; rank 0 alone prints what is wrong with it. Returns an
// exit status unless all boards can go on.
std::optional<int> parse_on_boards(Exchange& exchange, const std::function<std::optional<int>()>& parse);

// Runs a command whose options are parsed.
int run_on_boards(Exchange& exchange, const Run& run);

// From here on the loss of another board is not reported. At the end of a failed run mpirun takes processes that end at
// about the same time for lost ones.
void stop_reporting_losses();

// Called on rank 0 when another board is lost, at most once, on any thread, right before the program ends; the returned
// text is appended to the message about the loss. `save` must own the data that it reads: mpirun closes standard input
// first, so the command may already be ending.
void save_when_board_lost(std::function<std::string()> save);

// Read bandwidth of this board in bytes per second, as measured by `pinion tune` under mpirun: a model is divided in
// proportion to it. 0: no file, or an unreadable one.
double saved_board_speed();
Error save_board_speed(double bytes_per_second);
Error remove_board_speed();

// CONFIG/pinion/boards/HOST.json: the host name is part of it because boards may share a home folder. Empty: the user
// has no configuration folder.
std::string board_speed_file();

}  // namespace pinion
