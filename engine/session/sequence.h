// One text in a model's memory: the tokens evaluated so far, and what the model holds of them.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/forward/kv_cache.h"
#include "engine/forward/recurrent_state.h"
#include "engine/forward/rope.h"
#include "loader/config/model_config.h"

namespace pinion {

struct Sequence {
  KvCache cache;             // attention layers
  RecurrentState state;      // recurrent layers, after all of `ids` but the drafts that it holds
  Snapshots snapshots;       // earlier recurrent states
  std::vector<int32_t> ids;  // one a position
  std::vector<RopeFrequencies> ropes;
  bool long_factors = false;  // cached keys were rotated with longrope's long factors
};

// An empty sequence of at most `capacity` tokens, of which a pass may have so many on trial. The memory of a recurrent
// state is not checked against what is free.
Error make_sequence(const ModelConfig& config, KvPool* pool, int64_t capacity, int64_t drafts, Sequence* out);

// How many ids two texts have in common from their beginning on.
int64_t common_prefix(std::span<const int32_t> a, std::span<const int32_t> b);

// Whether a text can be cut at any token, and go on from there as if it had never been longer. Not where a state cannot
// go back, or where rope's frequencies change with the length (dynamic).
bool can_be_cut(const ModelConfig& config);

// Drops the tokens from `position` on and returns how many are left. A recurrent state goes back behind the last pass's
// drafts only to a snapshot, so then fewer may be left. Blocks of the cache stay held.
int64_t rewind(Sequence& sequence, int64_t position);

}  // namespace pinion
