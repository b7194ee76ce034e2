// --speculate: where drafts come from.
#pragma once

#include <optional>
#include <string>

#include "apps/cli/common.h"
#include "engine/session/speculation.h"

namespace pinion {

void add_speculate_option(Command app, std::string* what);  // "off", "ngram" or a model's folder

inline bool is_speculating(const std::string& what) { return what != "off"; }
inline int64_t drafts_for(const std::string& what) { return is_speculating(what) ? kMostDrafts : 0; }  // of a session

// Before the model is loaded: whether what is asked for can draft for it.
Error check_speculation(const std::string& what, const std::string& model);

// What a session drafts with; it outlives the session's last pass.
struct Drafting {
  Runtime runtime;  // of the small model; its teams rest
  std::optional<Speculation> speculation;
};

// After the session was opened, with SessionNeeds::drafts. Opens the small model, if one is asked for, to run on the
// session's team beside it. A note where drafts are not possible.
Error begin_speculation(const std::string& what, const RunOptions& run, const Runtime& runtime, Session* session,
                        Drafting* out);

}  // namespace pinion
