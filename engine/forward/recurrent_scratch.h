// What recurrent layers write besides their state.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/forward/scratch_sizer.h"
#include "loader/config/model_config.h"

namespace pinion {

// Tokens of a head that go through a layer together.
constexpr int64_t kStateTokens = 16;  // no fewer than a pass has drafts

// Scratch for up to kStateTokens tokens of one head.
struct StateRows {
  std::vector<float> q, k, v;      // [kStateTokens][key_dim] twice, [kStateTokens][value_dim]
  std::vector<float> decay, beta;  // [kStateTokens]
  std::vector<float> trial;        // a head's state, to which drafts are written
};

// Empty where a model has no such layer, or one without heads. M: the most tokens in one pass.
struct RecurrentScratch {
  std::vector<float> qkv;                     // [M][channels] as projected, where M is more than one token
  std::vector<float> z;                       // [M][value_width] gates, then what they let through
  std::vector<float> convolved;               // [mamba2] [M][channels]
  std::vector<float> b;                       // [M][writes]
  std::vector<float> a;                       // [M][value_heads]
  std::vector<float> query_scale, key_scale;  // [key_dim] constants
  std::vector<StateRows> workers;
};

void make_recurrent_scratch(const ModelConfig& config, int64_t tokens, int32_t workers, ScratchSizer* sizer,
                            RecurrentScratch* out);

}  // namespace pinion
