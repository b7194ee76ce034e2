// Drafts from a smaller model of the same vocabulary, which reads the text beside the model that is asked, or from that
// model's own MTP layer.
//
// An MTP layer says what comes after a token from the token and from the asked model's hidden state before it (after
// the final norm): position i of its text is token i + 1 with hidden state i. Drafts after the first have in place of
// that the layer's own hidden state. (As vLLM has it: qwen3_next_mtp.py, and its proposer, which shifts the tokens.)
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "engine/session/sampler.h"
#include "engine/session/session.h"
#include "kernels/base/error.h"
#include "loader/config/model_config.h"

namespace pinion {

struct DraftModel {
  std::unique_ptr<Session> session;
  int64_t vocab_size = 0;     // of the model that is asked
  Sampler sampler;            // that of the text: the same random numbers find the same token more often
  std::vector<int32_t> text;  // what was drawn, and the drafts after it
  std::vector<float> logits;  // [vocab], after all of the text
  int64_t unread = 0;         // rows of the session's unread_hidden; an MTP layer's
};

inline bool reads_hidden(const DraftModel& model) { return model.session->model->reads_hidden(); }

// Whether a model can draft: drafts that were not accepted must be cut off its own text again.
Error check_draft_model(const ModelConfig& config);

// The asked model's hidden states of the last of `tokens`, which follow those `before`. The MTP layer reads them when
// it has as many as go into a pass, or when drafts are wanted. Where it missed some it goes on with zeros: only what is
// drafted depends on them.
void read_hidden(DraftModel& model, std::span<const int32_t> before, std::span<const int32_t> tokens,
                 std::span<const float> hidden);

// The text that drafts are wanted for next, and the sampler that draws it.
void begin_drafts(DraftModel& model, std::span<const int32_t> history, const Sampler& sampler);

// One draft more. `likely`: about how likely the model finds it. Where the text leaves the small model's vocabulary or
// context, its draft is not in the large one's vocabulary, or reading was interrupted, there is none.
Error next_draft(DraftModel& model, bool* found, int32_t* id, double* likely);

}  // namespace pinion
