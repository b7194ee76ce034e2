// A running `pinion serve`, asked over HTTP for what a golden file holds.
#pragma once

#include <string>

#include "apps/golden/subject.h"

namespace pinion {

struct ServerOptions {
  std::string url;       // may end in /v1, as clients have it
  std::string key_file;  // its first key is sent; empty: none
};

void add_server_options(Command app, ServerOptions* options);

// Asks what is served: recorder, weights and settings of a golden file. Errors: no server, another one's, a key that is
// missing or wrong.
Error open_server(const ServerOptions& options, Golden* served, Subject* out);

// Whether a server's answers can be those of the recording: the same weights, and the same numbers made of them.
Error check_served(const Golden& recorded, const Golden& served, const std::string& where);

}  // namespace pinion
