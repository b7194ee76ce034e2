// A pass of many texts: what goes into it, and what it means for them.
#pragma once

#include "engine/session/streams.h"

namespace pinion {

// Which tokens go into the next pass: one of each stream that decodes, and chunks of prompts.
void fill_pass(Scheduler& scheduler);

// What the pass means for its streams: tokens, and the end of some.
void read_pass(Scheduler& scheduler);

}  // namespace pinion
