// Gated DeltaNet: a layer that keeps a state of fixed size (Yang et al. 2024, "Gated Delta Networks") where others
// attend to keys and values. Token by token for a head, heads spread over the workers: the same sums however a prompt
// is cut.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/forward/pass.h"
#include "engine/forward/scratch_sizer.h"

namespace pinion {

// Tokens of a head that go through a layer together.
constexpr int64_t kDeltaTokens = 16;  // no fewer than a pass has drafts

// Scratch for up to kDeltaTokens tokens of one head.
struct DeltaRows {
  std::vector<float> q, k, v;      // [kDeltaTokens][key_dim] twice, [kDeltaTokens][value_dim]
  std::vector<float> decay, beta;  // [kDeltaTokens]
  std::vector<float> trial;        // a head's state, to which drafts are written
};

// What such layers write; empty where a model has none. M: the most tokens in one pass.
struct DeltaScratch {
  std::vector<float> qkv;                     // [M][channels] as projected, where M is more than one token
  std::vector<float> z;                       // [M][value_width]
  std::vector<float> b, a;                    // [M][value_heads]
  std::vector<float> query_scale, key_scale;  // [key_dim] constants
  std::vector<DeltaRows> workers;
};

void make_delta_scratch(const ModelConfig& config, int64_t tokens, int32_t workers, ScratchSizer* sizer,
                        DeltaScratch* out);

// A recurrent layer over x, the input that its matrices share. Returns the input of o.
Input delta_net(Worker& worker, const Pass& pass, DeltaScratch& scratch, const Layer& layer, const Input& x);

}  // namespace pinion
