// The options of a model's numbers, as the first of several boards tells them to the others.
#pragma once

#include "engine/model/load_options.h"
#include "engine/session/board_messages.h"

namespace pinion {

void tell_load_order(Exchange& exchange, const LoadOptions& options);

// Puts what was told in the place of a board's own.
void read_load_order(MessageReader& message, LoadOptions* out);

}  // namespace pinion
