// Many texts at once (continuous batching, Yu et al. 2022, "Orca"). They join and leave between passes; a pass holds a
// row for each text that decodes, and prompts, in chunks, beside them. Each text is the one that generate() would give
// alone: a row's bits depend on no other row. A text that speculates has rows for its drafts, too, where they pay.
//
// Not for two threads at once: requests, cancellations and passes are the caller's, one after the other.
#pragma once

#include <cstdint>
#include <memory>

#include "engine/session/streams.h"

namespace pinion {

// Fails, with the figures, when caches and what passes work in do not fit into the memory that is free now.
Error open_scheduler(const Model& model, Team& team, const SchedulerOptions& options, std::unique_ptr<Scheduler>* out);

// Errors: as generate() has them. The first text that wants log probabilities of its prompt, speculates or has rules
// takes memory for the logits of more rows, and fails where there is too little.
Error submit(Scheduler& scheduler, TextRequest request, int64_t* id);

// Ends a text between two passes. Whether there was one with this id.
bool cancel(Scheduler& scheduler, int64_t id);

// One pass for all that run. Returns whether there was anything to do. What it calls may submit, not cancel.
bool step(Scheduler& scheduler);

}  // namespace pinion
