// From logits to the next token. Deterministic: the same logits, history, options and seed give the same token on
// every machine (own counter-based generator, own exp, ties go to the lower id).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/forward/candidates.h"
#include "engine/session/generation_config.h"

namespace pinion {

struct Sampler {
  SamplerOptions options;
  int64_t prompt_tokens = 0;  // that many ids of the history were not generated
  uint64_t draws = 0;         // the generator's counter
  // Of the next draw, as TextRules has them: the others have no chance. Empty: all have.
  std::span<const uint32_t> allowed{};

  std::vector<Candidate> candidates{};  // scratch
  std::vector<int32_t> best{};          // scratch: the likeliest id of each panel
  std::vector<float> panel_logits{};    // scratch: their logits
  std::vector<float> adjusted{};        // scratch: logits after bias and penalties
  std::vector<bool> changed{};          // scratch: panels of which one was
  std::vector<int32_t> counts{};        // scratch: by id; 0 between uses
  // Scratch of DRY, by the distance from the end: how many ids up to there equal those at the end.
  std::vector<int64_t> common_with_end{};
};

// Whether a bias or a penalty changes the logits first.
bool adjusts_logits(const SamplerOptions& options);

// How many of the likeliest logits give the token that all would give, whatever the others are; 0: all are looked at.
int64_t candidates_needed(const SamplerOptions& options);

// history: the prompt and what was generated so far, for penalties. panel_best: the likeliest id of each
// kPanelColumns logits, as the team has found them (Scratch); empty: they are searched here. A NaN never wins.
int32_t sample(Sampler& sampler, std::span<const float> logits, std::span<const int32_t> panel_best,
               std::span<const int32_t> history);

}  // namespace pinion
