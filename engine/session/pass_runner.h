// Sequences, and the passes that evaluate tokens of one or many of them.
#pragma once

#include "engine/forward/forward.h"
#include "engine/session/board_messages.h"

namespace pinion {

constexpr int64_t kDefaultSnapshotBytes = int64_t{512} << 20;

// Number of tokens at the end of a prompt that may change in the next turn: chat templates may render an answer without
// its thoughts, and without the "<think>" that ended the prompt.
constexpr int64_t kAnswerOpening = 16;

// Evaluated tokens, with their KV cache and recurrent state.
struct Sequence {
  KvCache cache;             // of attention layers
  RecurrentState state;      // of recurrent layers, after all of `ids` except the drafts that it holds
  Snapshots snapshots;       // earlier recurrent states
  std::vector<int32_t> ids;  // by position
  std::vector<RopeFrequencies> ropes;
  bool long_factors = false;  // the cached keys were rotated with longrope's long factors
};

// An empty sequence of at most `capacity` tokens. Does not check that the memory of a recurrent state is free.
Error make_sequence(const ModelConfig& config, KvPool* pool, int64_t capacity, Sequence* out);

// Length of the common prefix.
int64_t common_prefix(std::span<const int32_t> a, std::span<const int32_t> b);

// True if a sequence can be truncated after any token with the same bits: no recurrent state, no dynamic rope.
bool can_truncate(const ModelConfig& config);

// Drops the tokens from `position` on, but no cache blocks; returns the remaining number. A recurrent state can drop
// the last pass's drafts; to drop more it returns to a snapshot, so fewer than `position` tokens may remain.
int64_t rewind(Sequence& sequence, int64_t position);

// Drops all tokens and their memory.
void clear(Sequence& sequence);

// A model, its teams and the memory of its passes.
struct PassRunner {
  const Model* model = nullptr;
  const Kernels* kernels = nullptr;
  Team* team = nullptr;          // for passes of one row
  Team* prefill_team = nullptr;  // for passes of several rows
  Scratch scratch;
  Followers followers;         // counterparts on the other boards
  std::vector<float> hidden;   // [rows][hidden] of the last pass, after the final norm; empty: not recorded
  Profile* profile = nullptr;  // adds up the times of passes on this board; null: off
  Trace* trace = nullptr;      // records results of stages; null: off
};

// Null kernels: the best for this CPU. Null prefill_team: `team`.
Error make_runner(const Model& model, Team& team, Team* prefill_team, const Kernels* kernels, PassRunner* out);

// Allocates the scratch of passes of at most `tokens` tokens of sequences of at most `positions` positions. Fails if
// it, cache_bytes and other_bytes exceed the free memory. what: owner in the message; detail: text after its size.
Error allocate_scratch(PassRunner* runner, int64_t tokens, int64_t positions, int64_t cache_bytes, int64_t other_bytes,
                       const std::string& what, const std::string& detail);

// Bytes of memory-mapped weights. The kernel counts them as free memory, but every token reads them, so they must fit.
int64_t mapped_bytes(const Model& model);

// Copies a cache block on all boards.
void copy_block(PassRunner& runner, KvPool& pool, int32_t from, int32_t to);

// The most likely id of each panel of a row of logits. logit_row: index among the last pass's rows with logits.
std::span<const int32_t> panel_best(const PassRunner& runner, int64_t logit_row);

// Evaluates the segments' tokens and sets each segment's row. logits: [rows with logits][vocab], in the order of the
// segments; null if there are none. Returns the number of tokens. Does not change Sequence::ids. A recurrent state
// holds the drafts afterwards.
int64_t run_pass(PassRunner& runner, std::span<Segment> segments, float* logits);

// False if the last pass's logits in rows [first, first + count) contain NaN or infinity.
bool are_logits_finite(const PassRunner& runner, int64_t first, int64_t count);

}  // namespace pinion
