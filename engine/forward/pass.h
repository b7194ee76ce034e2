// One run of some tokens through the model, as all its parts see it. Its rows are tokens of one sequence or of many: a
// row's bits never depend on the rows beside it.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/forward/candidates.h"
#include "engine/forward/kv_cache.h"
#include "engine/forward/matmul.h"
#include "engine/forward/profile.h"
#include "engine/forward/recurrent_state.h"
#include "engine/forward/rope.h"
#include "engine/model/model.h"
#include "engine/team/team.h"
#include "kernels/kernels.h"

namespace pinion {

// One rope's cos and sin of the tokens' positions.
struct RopeAngles {
  std::vector<float> cos, sin;     // [M][dims / 2]
  std::vector<float> query_scale;  // [M]
};

// What boards tell the first one of where a draw needs no more than a row's likeliest. Empty on one board.
struct CandidateBuffers {
  std::vector<Candidate> of_all;  // [boards but the first][M][kMostCandidates or that board's columns]
  std::vector<Candidate> found;   // [own columns] of a row
  std::vector<float> panel_best;  // [own panels] their logits
};

// Buffers that the parts of a pass share, allocated once. M: the most tokens in a pass; E: experts of a token, 1 in a
// model without experts.
struct Activations {
  std::vector<float> x;  // [M][hidden] the residual stream
  std::vector<float>
      branch;  // [M][hidden] a branch's output, where a norm stands before it is added to x; a shared expert's
  std::vector<float> attended;              // [M][heads * value_dim] the input of o
  std::vector<float> activation;            // [ME][intermediate] the input of down
  std::vector<float> gates;                 // [M][intermediate] where they are sparse: activation then has up's outputs
  std::vector<float> laurel_narrow;         // [M][rank]
  std::vector<float> laurel;                // [M][hidden] what attention's branch is averaged with
  std::vector<RopeAngles> angles;           // by each of the model's ropes
  std::vector<int32_t> panel_best;          // [rows with logits][panels of the vocabulary]: the likeliest id of each
  std::vector<int32_t> segment_of;          // [M] by row
  std::vector<int32_t> logit_rows;          // rows that get logits
  std::vector<float> gathered;              // [M][any width] of several boards (gather.h)
  CandidateBuffers candidates;              // likewise
  InputBuffers inputs;                      // ME rows
  std::vector<OwnInputBuffers> own_inputs;  // [workers]
};

struct Trace;

// Tokens of one sequence that follow one another.
struct Segment {
  KvCache* cache;  // holds the blocks that they go to
  RecurrentState* state;
  std::span<const RopeFrequencies> ropes;  // the model's, for the sequence as this pass leaves it
  std::span<const int32_t> tokens;         // checked: in the vocabulary
  int64_t position;                        // of tokens[0]
  int64_t logit_rows;                      // this many of the last tokens get logits
  const float* hidden = nullptr;           // [tokens][hidden] the states before them, for an MTP layer
  int64_t drafts = 0;      // this many of the last tokens are on trial, at most as the state has room for
  int64_t candidates = 0;  // so many of a row's likeliest logits are enough, at most kMostCandidates; 0: all are wanted
  int64_t row = 0;         // of tokens[0] in the pass

  int64_t size() const { return std::ssize(tokens); }
  int64_t sure() const { return size() - drafts; }
};

struct Pass {
  const Model& model;
  const Kernels& kernels;
  Activations& activations;
  std::span<const Segment> segments;  // each of another sequence
  int64_t rows;                       // all segments' tokens, no more than the memory is for
  float* logits;                      // [rows that get them][vocab], segment by segment: see gather_logits()
  float* hidden;                      // [rows][hidden] gets the hidden states, after the final norm; null: not wanted
  Profile* profile;                   // gets each worker's times; null: off
  Trace* trace;                       // records what the pass computes; null: off

  const Segment& segment_of(int64_t row) const {
    return segments[static_cast<size_t>(activations.segment_of[static_cast<size_t>(row)])];
  }
};

// Starts a stage: from here on the worker's time counts for it. Returns what the worker multiplies with.
inline Multiplier begin_stage(Worker& worker, const Pass& p, Stage stage) {
  const auto index = static_cast<size_t>(worker.index);
  if (p.profile) p.profile->workers[index].enter(stage);
  return {worker, p.kernels, p.activations.inputs, p.activations.own_inputs[index]};
}

inline Gating gating_of(const ModelConfig& config, const Layer& layer) {
  const XieluLayer& x = layer.xielu;
  const Xielu curve = x.beta ? Xielu{*x.alpha_p, *x.beta + *x.alpha_n, *x.beta, *x.eps} : Xielu{};
  return {config.activation, config.activation_limit, curve};
}

// A row of the residual stream's width, normed. out may be x.
inline void normalize(const Pass& p, const Norm& norm, const float* x, float* out) {
  const ModelConfig& c = p.model.config;
  if (c.layer_norm) return p.kernels.layer_norm(x, norm.weight, norm.bias, c.hidden_size, c.norm_eps, out);
  p.kernels.rms_norm(x, norm.weight, c.hidden_size, c.norm_eps, out);
}

// Rows of another width, [count][width], for prepare: in `out`, normed, where the family norms what the last matrix of
// a branch multiplies; else where they are.
inline const float* normed_rows(const Pass& p, const Norm& norm, const float* rows, int64_t count, int64_t width,
                                float* out) {
  if (!norm.weight) return rows;
  for (int64_t i = 0; i < count * width; i += width) {
    p.kernels.rms_norm(rows + i, norm.weight, width, p.model.config.norm_eps, out + i);
  }
  return out;
}

}  // namespace pinion
