// Drafts of many texts, from what each said before.
#pragma once

#include <cstdint>

#include "engine/session/streams.h"

namespace pinion {

// What the stream drafts from knows its first `tokens`, at least: as they are read, so that no pass waits for all of a
// long prompt.
void follow_text(Stream& stream, int64_t tokens);

// What texts that decode have on trial in the next pass: NgramDrafts::tokens. Nothing beside prompts: such a pass has
// many rows already.
void choose_drafts(Scheduler& scheduler);

}  // namespace pinion
