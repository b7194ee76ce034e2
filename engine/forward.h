// The forward pass: tokens and a cache in, logits out, run by every worker of a team together.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/delta_state.h"
#include "engine/kv_cache.h"
#include "engine/model.h"
#include "engine/profile.h"
#include "engine/room.h"
#include "engine/rope.h"
#include "engine/routing.h"
#include "engine/team.h"
#include "kernels/kernels.h"

namespace pinion {

// Query rows that one attention task takes at a time: whole tiles of 2, 4, 5 or 6.
constexpr int64_t kAttentionRows = 60;

// Softmax states of several rows with the memory they stand in.
struct AttentionBuffer {
  std::vector<float> max;  // [rows]
  std::vector<float> sum;  // [rows]
  std::vector<float> acc;  // [rows][padded head_dim]

  void make(Room* room, int64_t rows, int64_t head_dim);
  AttentionState from(int64_t row, int64_t head_dim);
  // Rows of another buffer into the ones from `row` on.
  void copy(int64_t row, const AttentionBuffer& other, int64_t other_row, int64_t rows, int64_t head_dim);
};

// In which forms the inputs of some matrices are wanted.
struct InputForms {
  bool values = false;   // bf16
  bool plain = false;    // codes
  bool rotated = false;  // codes of the rotated rows

  void add(const Matrix& matrix) {
    (matrix.format == Format::bf16 ? values : matrix.rotation > 1 ? rotated : plain) = true;
  }
  bool codes() const { return plain || rotated; }
};

// Rows as codes, with room for as many as there are.
struct CodeBuffer {
  std::vector<int8_t> codes;  // [rows][padded k]
  std::vector<float> scales;  // [rows]

  void make(Room* room, int64_t rows, int64_t k);
};

struct WorkerScratch {
  std::vector<float> rows;        // [a block's rows][any width]: normed, or attention's output
  std::vector<float> rotated;     // [any width] one of them, rotated
  CodeBuffer plain_codes;         // [a block's rows, or experts of a token] the same, quantised
  CodeBuffer rotated_codes;       // likewise of the rotated ones
  Choices choices;                // of one token
  ExpertGroups groups;            // the pass's choices, by expert
  std::vector<float> q;           // [heads][padded head_dim] one token's queries as attention takes them
  std::vector<bool> has_queries;  // [kv_heads] whose queries are there
  std::vector<float> scores;      // [kAttentionRows][kAttentionChunk]
  std::vector<float> key;         // [padded head_dim]
  AttentionBuffer state;          // [max(heads, kAttentionRows)]
  AttentionBuffer next;           // likewise
  AttentionBuffer sink;           // [1] a head's, whose value is zero

  // Room for the codes of so many rows, in the forms that are wanted.
  void make_codes(Room* room, InputForms forms, int64_t own_rows, int64_t k);
};

// A few tokens of one head of a layer with a recurrent state.
struct DeltaRows {
  std::vector<float> q, k, v;      // [kDeltaTokens][key_dim] twice, [kDeltaTokens][value_dim]
  std::vector<float> decay, beta;  // [kDeltaTokens]
};

// What such layers need; empty where a model has none.
struct DeltaScratch {
  std::vector<float> qkv;                     // [M][channels] as projected, where M is more than one token
  std::vector<float> z;                       // [M][value_width]
  std::vector<float> b, a;                    // [M][value_heads]
  std::vector<float> query_scale, key_scale;  // [key_dim] constants
  std::vector<DeltaRows> workers;
};

// What a rotation makes of the tokens' positions.
struct RopeAngles {
  std::vector<float> cos, sin;     // [M][dims / 2]
  std::vector<float> query_scale;  // [M]
};

// Everything that a pass writes besides the cache, allocated once. M: the most tokens in one pass; E: times experts of
// a token, where the model has experts. Rows that are multiplied are padded, those of experts for each of them.
struct Scratch {
  std::vector<float> x;          // [M][hidden] the residual stream
  std::vector<float> branch;     // [M][hidden] what is normed before it is added to that
  std::vector<float> packed;     // [ME, padded][any width] whatever is being multiplied, in blocks
  CodeBuffer plain_codes;        // [ME, padded] the same, quantised
  CodeBuffer rotated_codes;      // [ME, padded] the same, rotated and quantised
  std::vector<float> q, k, v;    // [M][rows of each matrix]: as projected
  std::vector<float> rotated;    // [kv_heads][M][group][padded head_dim] queries as attention takes them
  std::vector<float> attention;  // [M][heads * head_dim], or [M][value_width]
  DeltaScratch delta;
  std::vector<float> activation;    // [ME][intermediate]
  std::vector<float> router;        // [M][experts] logits
  Choices choices;                  // of several tokens
  std::vector<RopeAngles> angles;   // by each of the model's ropes
  std::vector<int32_t> panel_best;  // [panels of the vocabulary]: the last row's likeliest id of each
  AttentionBuffer partial;          // [chunks of the cache][heads]: one token's attention, chunk by chunk
  std::vector<WorkerScratch> workers;
};

// Of passes of at most `tokens`, in a cache of `positions`. Where the room is only counted, `out` is of no use.
void make_scratch(const Model& model, const Kernels& kernels, int64_t tokens, int64_t positions, int32_t workers,
                  Room* room, Scratch* out);

struct Trace;

struct Pass {
  const Model& model;
  const Kernels& kernels;
  KvCache& cache;
  DeltaState& state;
  Scratch& scratch;
  std::span<const RopeFrequencies> ropes;  // the model's, for the sequence as this pass leaves it
  std::span<const int32_t> tokens;         // checked: in the vocabulary, no more than the scratch and the cache hold
  int64_t position;                        // of tokens[0]
  int64_t logit_rows;                      // of how many of the last tokens logits are wanted
  float* logits;                           // [logit_rows][vocab]
  Profile* profile;                        // one entry a worker, where time is added; null: nowhere
  Trace* trace;                            // what the pass looks like inside; null: not wanted
};

void forward(Worker& worker, const Pass& pass);

}  // namespace pinion
