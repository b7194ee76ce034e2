// Drafts from a smaller model of the same vocabulary, which reads the text beside the model that is asked.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "engine/session/sampler.h"
#include "engine/session/session.h"
#include "kernels/error.h"
#include "loader/config/model_config.h"

namespace pinion {

struct DraftModel {
  std::unique_ptr<Session> session;
  int64_t vocab_size = 0;     // of the model that is asked
  Sampler sampler;            // that of the text: the same random numbers find the same token more often
  std::vector<int32_t> text;  // what was drawn, and the drafts after it
  std::vector<float> logits;  // [vocab], after all of the text
};

// Whether a model can draft: drafts that were not accepted must be cut off its own text again.
Error check_draft_model(const ModelConfig& config);

// The text that drafts are wanted for next, and the sampler that draws it.
void begin_drafts(DraftModel& model, std::span<const int32_t> history, const Sampler& sampler);

// One draft more. `likely`: about how likely the model finds it. Where the text leaves the small model's vocabulary or
// context, its draft is not in the large one's vocabulary, or reading was interrupted, there is none.
Error next_draft(DraftModel& model, bool* found, int32_t* id, double* likely);

}  // namespace pinion
