// The program as one of several processes that share a model: rank 0 behaves as if alone, the others print nothing.
#pragma once

#include "apps/commands.h"
#include "engine/boards/exchange.h"

namespace pinion {

// Connects this process with those that a launcher has started beside it. *out stays null if there are none.
Error connect_launched_boards(std::unique_ptr<Exchange>* out);

// Parses each process's command line; rank 0 alone reports mistakes. Returns an exit status unless all can go on.
std::optional<int> parse_on_boards(Exchange& exchange, const std::function<std::optional<int>()>& parse);

// Runs a command whose options are parsed.
int run_on_boards(Exchange& exchange, const Run& run);

// After this no loss is reported: at the end of a failed run mpirun takes processes that end together for lost ones.
void stop_reporting_losses();

// Called on rank 0 when another board is lost, at most once, on any thread, right before the program ends. The message
// about the loss ends with the returned text. `save` must own its data: the command may already be ending.
void save_when_board_lost(std::function<std::string()> save);

// Read bandwidth of this board in bytes per second, as measured by `pinion tune` under mpirun: a model is divided in
// proportion to it. 0: no file, or an unreadable one.
double saved_board_speed();
Error save_board_speed(double bytes_per_second);
Error remove_board_speed();

// CONFIG/pinion/boards/HOST.json, because boards may share a home folder. Empty: no configuration folder.
std::string board_speed_file();

}  // namespace pinion
