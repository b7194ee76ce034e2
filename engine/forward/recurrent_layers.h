// Recurrent layers: gated DeltaNet (Yang et al. 2024, "Gated Delta Networks"), also with decays by channel (Kimi
// Linear, 2025), Mamba 1 and 2 (Gu and Dao 2023 and 2024), RG-LRU (De et al. 2024) and LFM2's gated short convolution.
// All begin with a causal convolution over time. All but the last then advance a state per value head, or block of
// channels; Mamba's B, C and x are called keys, queries and values here. Every head, or run of channels, processes the
// tokens in order, so the sums do not depend on the division of a prompt into passes.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/forward/pass.h"

namespace pinion {

// Maximum tokens by which one kernel call advances the state of a head. All drafts of a pass fit into one call.
constexpr int64_t kStateTokens = 16;

// Scratch of one worker for up to kStateTokens tokens of one head.
struct StateRows {
  std::vector<float> q, k, v;      // [kStateTokens][key_dim] twice, [kStateTokens][value_dim]; rg_lru: q are gates
  std::vector<float> decay, beta;  // [kStateTokens][decays], [kStateTokens]
  std::vector<float> trial;        // copy of a head's state, which drafts advance
};

// Vectors that the model's kind of layer does not need are empty.
struct RecurrentScratch {
  std::vector<float> qkv;                     // [M][channels] projected; a single row is projected into the state
  std::vector<float> z;                       // [M][value_width] the gates, which the gated outputs replace
  std::vector<float> convolved;               // [mamba] [M][channels]
  std::vector<float> narrow, z_narrow;        // [M][step_rank] inputs of state_dt and state_z_wide
  std::vector<float> b;                       // [M][write_gates]
  std::vector<float> a;                       // [M][value_heads][decays]
  std::vector<float> query_scale, key_scale;  // [key_dim] constants
  std::vector<StateRows> workers;
};

void make_recurrent_scratch(const ModelConfig& config, int64_t tokens, int32_t workers, ScratchSizer* sizer,
                            RecurrentScratch* out);

// Advances the layer's states by the pass; gated outputs go to scratch.z. x: input of the layer's first matrices;
// index: of the layer.
void recur(Worker& worker, const Pass& pass, RecurrentScratch& scratch, const Layer& layer, const Input& x,
           int64_t index);

// The outputs of recur() as the input of the layer's last matrix.
Input recurrent_output(Worker& worker, const Pass& pass, RecurrentScratch& scratch, const Layer& layer);

}  // namespace pinion
