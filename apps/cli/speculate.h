// --speculate: the source of drafts for speculative decoding.
#pragma once

#include <optional>
#include <string>

#include "apps/cli/common.h"
#include "engine/session/scheduler.h"
#include "engine/session/speculation.h"

namespace pinion {

// `source` is "off", "ngram", "mtp" or the folder of a draft model.
void add_speculate_option(Command app, std::string* source);

inline bool is_speculating(const std::string& source) { return source != "off"; }

// Before the model is loaded: fails unless the source can draft for it.
Error check_speculation(const std::string& source, const RunOptions& run);

// Needs of the target model's session.
SessionNeeds session_needs(const std::string& source, int64_t capacity);

// Must outlive the session's last pass.
struct Drafting {
  Runtime runtime;  // of the draft model, whose own teams stay idle, or of the MTP layer, which has no team
  std::optional<Speculation> speculation;
  bool failure_noted = false;
};

// After session_needs() and opening the session. Opens the draft model, if one is given, on the session's team. Prints
// a note if drafts are not possible.
Error begin_speculation(const std::string& source, const RunOptions& run, const Runtime& runtime, Session* session,
                        Drafting* out);

// The same for the requests of a scheduler, whose options must have `keeps_hidden` for "mtp". Each running request has
// a draft model of its own, with as much context as fits.
Error begin_speculation(const std::string& source, const RunOptions& run, const Runtime& runtime, Scheduler* scheduler,
                        Drafting* out);

// After an answer: a note, once, if drafting has failed and stopped.
void note_draft_failure(Drafting& drafting);

}  // namespace pinion
