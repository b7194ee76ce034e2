// A session: one sequence that is evaluated and continued alone, as in a conversation. generate() is a scheduler with
// one request, which continues the session's sequence and leaves it in place.
#pragma once

#include "engine/session/scheduler.h"

namespace pinion {

struct Session : Scheduler {
  Sequence sequence;                               // moves to the request during generate()
  bool speculates = false;                         // generate() uses drafts; see add_draft_model()
  int64_t last_logit_row = 0;                      // argument of panel_best() for the last logits of evaluate()
  std::vector<float> input_hidden;                 // MTP layer: the main model's hidden state before each next token
  const std::atomic<bool>* interrupted = nullptr;  // if true, a prompt stops before its next pass; may be null
};

// Fails, with the sizes, if cache and scratch exceed the free memory. Ignores sequences and keeps_last_text of the
// options.
Error open_session(const Model& model, Team& team, SchedulerOptions options, std::unique_ptr<Session>* out);

// Appends tokens and computes logits: [vocab] of the last token or, with `all`, [tokens][vocab]. Null logits: none are
// computed. candidates: number of a row's largest logits that the caller needs, at most kMaxCandidates; its other
// logits may be minus infinity. 0: all logits. An MTP layer reads one row of input_hidden per token. Errors: ids
// outside the vocabulary; a full cache; an interruption, after which the session holds the tokens evaluated so far; NaN
// or infinity in the logits (the message names the first layer), after which the session is empty.
Error evaluate(Session& session, std::span<const int32_t> tokens, bool all, float* logits, int64_t candidates = 0);

// Appends tokens and passes the logits of all to `sink`, pass by pass: [rows][vocab] of the tokens from index `first`.
using LogitsSink = std::function<void(int64_t first, std::span<const float> logits)>;
Error evaluate(Session& session, std::span<const int32_t> tokens, const LogitsSink& sink);

// Takes a snapshot of the recurrent state, to which rewind() can return.
void keep_snapshot(Session& session);

// Continues `prompt`, the whole text of the sequence. A prefix that the session holds is not evaluated again. Errors:
// an empty or too long prompt, ids outside the vocabulary, options out of range, errors of evaluate() and of the rules.
Error generate(Session& session, std::span<const int32_t> prompt, const GenerateOptions& options,
               const OnToken& on_token, GenerateResult* out);

}  // namespace pinion
