// Rotary position embedding: the frequencies of each scaling rule, and the angles of a position.
#pragma once

#include <cstdint>
#include <vector>

#include "loader/config/model_config.h"

namespace pinion {

struct RopeFrequencies {
  std::vector<float> inverse;  // [dims / 2]: angle = position * inverse[i]
  float amplitude = 1.0f;      // factor of cos and sin (yarn, longrope)

  bool operator==(const RopeFrequencies&) const = default;
};

// `sequence`: number of positions of the sequence after this pass. The dynamic rule depends on it: a prompt is rotated
// with the frequencies for the prompt's length, each later token with those for the length that includes it, as in
// Hugging Face's transformers with a cache. Longrope changes from its short to its long factors once; cached keys are
// then stale, and the sequence is evaluated again (uses_long_factors).
RopeFrequencies rope_frequencies(const Rope& rope, int64_t max_positions, int64_t sequence);

// The frequencies of each of the model's ropes.
std::vector<RopeFrequencies> rope_frequencies(const ModelConfig& config, int64_t sequence);

// True if a longrope model uses its long factors for a sequence of this length.
bool uses_long_factors(const ModelConfig& config, int64_t sequence);

// True for the dynamic rule: frequencies depend on the length of the prompt and change with every token after it.
bool frequencies_follow_length(const ModelConfig& config);

// Length up to which all texts have the same frequencies: the model's positions with the dynamic rule, else no limit.
int64_t fixed_rope_positions(const ModelConfig& config);

// cos, sin: [dims / 2] of one position.
void rope_angles(const RopeFrequencies& frequencies, int64_t position, float* cos, float* sin);

// Factor of the query at this position (Ministral 3); 1 in other models.
float query_scale(const Rope& rope, int64_t position);

// The model's maximum number of positions, stretched by its rope scaling rule.
int64_t context_length(const ModelConfig& config);

}  // namespace pinion
