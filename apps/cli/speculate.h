// --speculate: the source of drafts for speculative decoding.
#pragma once

#include "apps/cli/common.h"

namespace pinion {

// `source` is "off" or empty, "ngram", "mtp" or the folder of a draft model.
void add_speculate_option(Command app, std::string* source);

inline bool is_speculating(const std::string& source) { return !source.empty() && source != "off"; }

// Before the model is loaded: fails unless the source can draft for it.
Error check_speculation(const std::string& source, const RunOptions& run);

// True if the model's sessions and schedulers must keep hidden states.
bool needs_hidden(const std::string& source);

// Must outlive the last pass.
struct Drafting {
  Runtime runtime;  // of the draft model, whose own teams stay idle, or of the MTP layer, which has no team
  bool speculates = false;
  bool failure_noted = false;
};

// Opens the draft model or the MTP layer, if `source` names one, on the scheduler's teams: for each request one of its
// own, with as much context as fits. Prints a note if drafts are not possible; Drafting::speculates is false then.
Error begin_speculation(const std::string& source, const RunOptions& run, const Runtime& runtime, Scheduler* scheduler,
                        Drafting* out);

// After an answer: a note, once, if a draft model has failed. Later texts get drafts from the text itself.
void note_draft_failure(const Scheduler& scheduler, bool* is_noted);

}  // namespace pinion
