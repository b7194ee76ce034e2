// Rotary position embedding: the angles' frequencies as each scaling rule wants them.
#pragma once

#include <cstdint>
#include <vector>

#include "loader/model_config.h"

namespace pinion {

struct RopeFrequencies {
  std::vector<float> inverse;  // [head_dim / 2]: angle = position * inverse[i]
  float amplitude = 1.0f;      // factor of cos and sin (yarn)
};

// `sequence`: positions the sequence has once this pass is done. Only the dynamic rule looks at it: like transformers
// with a cache, it rotates a whole prompt for the prompt's length, then each token for the length it makes.
RopeFrequencies rope_frequencies(const ModelConfig& config, int64_t sequence);

// cos, sin: [head_dim / 2] for one position.
void rope_angles(const RopeFrequencies& frequencies, int64_t position, float* cos, float* sin);

// Positions the model can take, with the stretch that its scaling rule gives.
int64_t context_length(const ModelConfig& config);

}  // namespace pinion
