// Rotary position embedding: the angles' frequencies as each scaling rule wants them.
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

// `sequence`: positions the sequence has once this pass is done. The dynamic rule looks at it: like transformers with a
// cache, it rotates a whole prompt for the prompt's length, then each token for the length it makes. So does longrope,
// whose factors change once: where uses_long_factors does, what is cached has to be evaluated anew.
RopeFrequencies rope_frequencies(const Rope& rope, int64_t max_positions, int64_t sequence);

// The same for each of the model's ropes.
std::vector<RopeFrequencies> rope_frequencies(const ModelConfig& config, int64_t sequence);

// Whether a longrope model takes its long factors for a sequence of that many positions.
bool uses_long_factors(const ModelConfig& config, int64_t sequence);

// Whether the frequencies change with every token (the dynamic rule): a prompt's come from its whole length.
bool frequencies_follow_length(const ModelConfig& config);

// cos, sin: [dims / 2] for one position.
void rope_angles(const RopeFrequencies& frequencies, int64_t position, float* cos, float* sin);

// The factor of a query at this position (Ministral 3; 1 elsewhere).
float query_scale(const Rope& rope, int64_t position);

// Positions the model can take, with the stretch that its scaling rule gives.
int64_t context_length(const ModelConfig& config);

}  // namespace pinion
