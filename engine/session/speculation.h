// Speculative decoding: a pass evaluates several drafts and keeps them up to the first one that differs from the drawn
// token. Each token is drawn from the same logits with the same random number as without drafts, so only the speed
// changes. Drafts come from the text, from a smaller model with the same vocabulary, or from the model's MTP layer.
#pragma once

#include "engine/session/continuation.h"
#include "engine/session/drafts.h"

namespace pinion {

struct Session;

// ---- Draft models: draft_model.cpp ----

// A smaller model or an MTP layer, with a session that follows the text of the main model.
//
// An MTP layer predicts the token after next: at position i it reads token i + 1 and the main model's hidden state i,
// after the final norm. For drafts after the first one it reads its own hidden state instead. vLLM has the same scheme:
// qwen3_next_mtp.py, and its proposer, which shifts the tokens.
struct DraftModel {
  std::unique_ptr<Session> session;
  int64_t vocab_size = 0;     // of the main model
  Sampler sampler;            // copy of the text's sampler: equal random numbers often draw equal tokens
  std::vector<int32_t> text;  // the text and the drafts after it
  std::vector<float> logits;  // [vocab] after the whole text
  int64_t unread_rows = 0;    // MTP layer: rows of Session::input_hidden that are not evaluated yet

  ~DraftModel();
};

bool reads_hidden(const DraftModel& model);

// Fails if the model cannot draft because its sequence cannot be truncated, which rejected drafts require.
Error check_draft_model(const ModelConfig& config);

// Stores the main model's hidden states of the last tokens of `tokens`, which follow `before`. The MTP layer evaluates
// them when they fill a pass or drafts are requested. Zeros replace missing states, which changes drafts only.
void receive_hidden(DraftModel& model, std::span<const int32_t> before, std::span<const int32_t> tokens,
                    std::span<const float> hidden);

// Sets the text that the next drafts continue, and its sampler.
void begin_drafts(DraftModel& model, std::span<const int32_t> history, const Sampler& sampler);

struct ModelDraft {
  int32_t id;
  double probability;  // estimate of the draft model
};

// Draws the next draft. Sets `out` to nullopt if the text has ids outside the draft model's vocabulary or exceeds its
// context, if the draft is outside the main model's vocabulary, or after an interruption.
Error next_draft(DraftModel& model, std::optional<ModelDraft>* out);

// The drafts of one text at a time, and the measurements for their number, which the next text inherits.
struct Speculation {
  std::unique_ptr<DraftModel> model = {};  // null: drafts come from the rules and from the text itself
  SuffixAutomaton text = {};               // of the evaluated tokens, without a draft model
  std::vector<int32_t> jump_forward = {};  // TextRules::jump_forward(); preferred to drafts from the text
  Acceptance acceptance = {};
  double draft_seconds = 0;          // running mean of a draft model's pass
  std::vector<int32_t> tokens = {};  // for the next pass: the drawn token and the drafts after it; empty: no drafts
  std::vector<size_t> buckets = {};  // of the drafts; see Acceptance
  Error failure = {};                // of the draft model; stops drafting
};

// A pass that drafts lengthen.
struct DraftedPass {
  const PassSeconds& seconds;
  int64_t rows = 1;  // without these drafts, one of the text itself
  int64_t max_drafts = 0;
  int64_t fixed_drafts = 0;  // for tests: number of drafts; 0: as many as pay
};

// Sets the tokens and buckets to drafts of the model while they pay. After an error there are none, then and later.
void draft_from_model(Speculation& speculation, const Continuation& text, const DraftedPass& pass);

}  // namespace pinion
