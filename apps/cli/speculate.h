// --speculate: where drafts come from.
#pragma once

#include <optional>
#include <string>

#include "apps/cli/common.h"
#include "engine/session/speculation.h"

namespace pinion {

void add_speculate_option(Command app, std::string* what);  // "off", "ngram", "mtp" or a model's folder

inline bool is_speculating(const std::string& what) { return what != "off"; }

// Before the model is loaded: whether what is asked for can draft for it.
Error check_speculation(const std::string& what, const RunOptions& run);

// Of the session that is drafted for.
SessionNeeds session_needs(const std::string& speculate, int64_t capacity);

// What a session drafts with; it outlives the session's last pass.
struct Drafting {
  Runtime runtime;  // of the small model, whose teams rest, or of the MTP layer, which has none
  std::optional<Speculation> speculation;
  bool failure_is_told = false;
};

// After the session was opened for it. Opens the model that drafts, if one is asked for, to run on the session's team
// beside it. A note where drafts are not possible.
Error begin_speculation(const std::string& what, const RunOptions& run, const Runtime& runtime, Session* session,
                        Drafting* out);

// After an answer: a note, once, where drafts have failed on the way.
void tell_failure(Drafting& drafting);

}  // namespace pinion
