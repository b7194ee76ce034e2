// A pass: some tokens evaluated together, with everything that the parts of the forward pass share. The rows of a pass
// are the tokens of one sequence or of many; a row's bits never depend on the other rows.
#pragma once

#include "engine/forward/candidates.h"
#include "engine/forward/kv_cache.h"
#include "engine/forward/probes.h"
#include "engine/forward/recurrent_state.h"
#include "engine/forward/rope.h"
#include "kernels/base/math.h"

namespace pinion {

// In this folder M is the maximum number of tokens of a pass.

// cos and sin of one rope at the positions of a pass.
struct RopeAngles {
  std::vector<float> cos, sin;     // [M][dims / 2]
  std::vector<float> query_scale;  // [M]
};

// Buffers of the top-k candidates that boards send to board 0; empty on one board.
struct CandidateBuffers {
  std::vector<Candidate> all;       // [other boards][M][kMaxCandidates, or fewer columns]
  std::vector<Candidate> found;     // [columns of this board] candidates of one row
  std::vector<float> panel_logits;  // [panels of this board] scratch
};

// Buffers that the parts of a pass share, allocated once. E: experts of a token, 1 in a model without experts.
struct Activations {
  std::vector<float> x;  // [M][hidden] the residual stream
  // [M][hidden] the output of a branch before its norm, or of the shared expert
  std::vector<float> branch;
  std::vector<float> attended;            // [M][heads * value_dim] the input of o
  std::vector<float> activation;          // [ME][intermediate] the input of down
  std::vector<float> gates;               // [M][intermediate] outputs of a sparse gate; those of up are in `activation`
  std::vector<float> laurel_narrow;       // [M][rank] the output of the role laurel_left
  std::vector<float> laurel;              // [M][hidden] the output of Laurel
  std::vector<RopeAngles> angles;         // by rope
  std::vector<int32_t> panel_best;        // [rows with logits][panels of the vocabulary] see Projection
  std::vector<float> head_bounds;         // [ranked rows][workers * kMaxCandidates] see project_head()
  std::vector<int32_t> segment_of;        // [M] by row
  std::vector<int32_t> rows_with_logits;  // ascending
  std::vector<float> gathered;            // [M][width of the widest rows of gather()]
  CandidateBuffers candidates;
  InputBuffers inputs;                          // ME rows
  std::vector<LocalInputBuffers> local_inputs;  // [workers]
};

// Consecutive tokens of one sequence.
struct Segment {
  KvCache* cache;  // has the blocks of the tokens' positions
  RecurrentState* state;
  std::span<const RopeFrequencies> ropes;  // for the sequence's length after this pass
  std::span<const int32_t> tokens;         // valid ids
  int64_t position;                        // of tokens[0]
  int64_t logit_rows;                      // that many of the last tokens get logits
  const float* hidden = nullptr;           // MTP layer: [tokens][hidden] the main model's state before each token
  int64_t drafts = 0;                      // that many of the last tokens are drafts, see StateDrafts
  int64_t candidates = 0;  // number of top logits that sampling needs, at most kMaxCandidates; 0: all logits
  int64_t row = 0;         // row of tokens[0] in the pass

  int64_t size() const { return std::ssize(tokens); }
  int64_t committed() const { return size() - drafts; }  // tokens that are no drafts
};

struct Pass {
  const Model& model;
  const Kernels& kernels;
  Activations& activations;
  std::span<const Segment> segments;  // of different sequences
  int64_t rows;                       // tokens of all segments, at most M
  float* logits;                      // [logit rows][vocab] segment by segment; on board 0 only, see gather_logits()
  float* hidden;                      // [rows][hidden] output: hidden states after the final norm; null: not needed
  Profile* profile;                   // null: off
  Trace* trace;                       // null: off

  const Segment& segment_of(int64_t row) const { return segments[activations.segment_of[row]]; }
};

// Number of candidates that sampling from a row of logits needs; 0: all logits.
inline int64_t candidates_of(const Pass& p, int64_t row) {
  return p.segment_of(p.activations.rows_with_logits[row]).candidates;
}

// Starts a stage: the profile counts the worker's time for it from here on. Returns the worker's kernels and buffers.
inline Multiplier begin_stage(Worker& worker, const Pass& p, Stage stage) {
  if (p.profile) p.profile->workers[worker.index].enter(stage);
  return {worker, p.kernels, p.activations.inputs, p.activations.local_inputs[worker.index]};
}

// Scratch of one worker for a row: as many floats as the largest width of the model. prepare() overwrites it.
inline float* row_scratch(const Pass& p, const Worker& worker) {
  return p.activations.local_inputs[worker.index].values.data();
}

// --- Arithmetic on rows

// Norm of a row of the residual width. out may be x.
inline void normalize(const Pass& p, const Vector& norm, const float* x, float* out) {
  const ModelConfig& c = p.model.config;
  if (c.layer_norm) return p.kernels.layer_norm(x, norm.weight, norm.bias, c.hidden_size, c.norm_eps, out);
  p.kernels.rms_norm(x, norm.weight, c.hidden_size, c.norm_eps, out);
}

// RMSNorm of rows [count][width] to `out`. Without a norm, returns `rows` themselves.
inline const float* normed_rows(const Pass& p, const Vector& norm, const float* rows, int64_t count, int64_t width,
                                float* out) {
  if (!norm.weight) return rows;
  for (int64_t i = 0; i < count * width; i += width) {
    p.kernels.rms_norm(rows + i, norm.weight, width, p.model.config.norm_eps, out + i);
  }
  return out;
}

// The sum of f(i) for i < n, with the kernels' bits: sixteen partial sums, added in pairs 8, 4, 2 and 1 apart.
template <class F>
float row_sum(int64_t n, F f) {
  constexpr int64_t kPartialSums = 16;
  float sums[kPartialSums] = {};
  const int64_t whole = n - n % kPartialSums;
  for (int64_t i = 0; i < whole; i += kPartialSums) {
    for (int64_t lane = 0; lane < kPartialSums; ++lane) sums[lane] += f(i + lane);
  }
  for (int64_t i = whole; i < n; ++i) sums[i - whole] += f(i);
  for (int64_t apart = kPartialSums / 2; apart > 0; apart /= 2) {
    for (int64_t lane = 0; lane < apart; ++lane) sums[lane] += sums[lane + apart];
  }
  return sums[0];
}

inline float dot(const float* a, const float* b, int64_t n) {
  return row_sum(n, [&](int64_t i) { return a[i] * b[i]; });
}

inline float mean_square(const float* x, int64_t n) { return dot(x, x, n) / static_cast<float>(n); }

// 1 / (1 + exp(-x)), computed in double.
inline float sigmoid(float x) { return static_cast<float>(1.0 / (1.0 + portable_exp(-double{x}))); }

// log(1 + e^x), which equals x in float precision if x > 20. NaN remains NaN.
inline double softplus(double x) { return x <= 20.0 ? portable_log(1.0 + portable_exp(x)) : x; }

// --- gather.cpp: exchanges between boards, each of which has computed its columns of some rows. On one board they
// return at once.

// Completes rows [count][columns.count] on all boards. All workers call it after a barrier. Ends with a barrier.
void gather(Worker& worker, const Pass& pass, float* rows, int64_t count, const Division& columns);

// Completes the logits of `count` rows and their panel_best, on board 0 only. No barrier: only the caller of the pass
// reads them. If Segment::candidates is k > 0, the other boards send their k largest logits of such rows in one
// exchange, and board 0 sets their other logits to -inf: the top k of all logits are among the boards' top k.
void gather_logits(const Worker& worker, const Pass& pass, int64_t count);

// Size of Activations::gathered, the buffer of gather(), for passes of `tokens`. 0 on one board.
int64_t gather_floats(const Model& model, int64_t tokens);

void make_candidate_buffers(const Model& model, int64_t tokens, ScratchSizer* sizer, CandidateBuffers* out);

}  // namespace pinion
