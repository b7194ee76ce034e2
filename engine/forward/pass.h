// One run of some tokens through the model, as all its parts see it.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/forward/delta_state.h"
#include "engine/forward/kv_cache.h"
#include "engine/forward/matmul.h"
#include "engine/forward/profile.h"
#include "engine/forward/rope.h"
#include "engine/model/model.h"
#include "engine/team/team.h"
#include "kernels/kernels.h"

namespace pinion {

// What a rotation makes of the tokens' positions.
struct RopeAngles {
  std::vector<float> cos, sin;     // [M][dims / 2]
  std::vector<float> query_scale;  // [M]
};

// What the parts of a pass hand on to one another, allocated once. M: the most tokens in one pass; E: times experts of
// a token, where the model has experts.
struct Activations {
  std::vector<float> x;                     // [M][hidden] the residual stream
  std::vector<float> branch;                // [M][hidden] what is normed before it is added to that
  std::vector<float> attended;              // [M][heads * head_dim or value_width] what o multiplies
  std::vector<float> activation;            // [ME][intermediate] what down multiplies
  std::vector<RopeAngles> angles;           // by each of the model's ropes
  std::vector<int32_t> panel_best;          // [panels of the vocabulary]: the last row's likeliest id of each
  InputBuffers inputs;                      // ME rows
  std::vector<OwnInputBuffers> own_inputs;  // [workers]
};

struct Trace;

struct Pass {
  const Model& model;
  const Kernels& kernels;
  KvCache& cache;
  DeltaState& state;
  Activations& activations;
  std::span<const RopeFrequencies> ropes;  // the model's, for the sequence as this pass leaves it
  std::span<const int32_t> tokens;         // checked: in the vocabulary, no more than the memory and the cache hold
  int64_t position;                        // of tokens[0]
  int64_t logit_rows;                      // of how many of the last tokens logits are wanted
  float* logits;                           // [logit_rows][vocab]
  Profile* profile;                        // one entry a worker, where time is added; null: nowhere
  Trace* trace;                            // what the pass looks like inside; null: not wanted
};

// The worker as it multiplies; its time from here on counts for `stage`.
inline Multiplier at(Worker& worker, const Pass& p, Stage stage) {
  const auto index = static_cast<size_t>(worker.index);
  if (p.profile) p.profile->workers[index].enter(stage);
  return {worker, p.kernels, p.activations.inputs, p.activations.own_inputs[index]};
}

inline Gating gating_of(const ModelConfig& config) { return {config.activation, config.activation_limit}; }

}  // namespace pinion
