// One conversation with a model: its KV cache or recurrent state, the ids evaluated so far, the scratch memory of the
// forward pass.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "engine/forward/delta_state.h"
#include "engine/forward/forward.h"
#include "engine/forward/kv_cache.h"
#include "engine/model/model.h"
#include "engine/team/team.h"
#include "kernels/kernels.h"

namespace pinion {

constexpr int64_t kDefaultPrefillChunk = 256;
constexpr int64_t kDefaultSnapshotBytes = int64_t{512} << 20;

struct Session;

struct SessionOptions {
  KvType kv = KvType::bf16;
  int64_t capacity = 0;  // positions the cache can hold; 0 = the model's context length, which is also the limit
  // Prompt tokens in one pass; changes speed and memory, never the result.
  int64_t prefill_chunk = kDefaultPrefillChunk;
  const Kernels* kernels = nullptr;                // null = the best this CPU has
  int64_t snapshot_bytes = kDefaultSnapshotBytes;  // that copies of a recurrent state may take; 0 = none are kept
  Team* prefill_team = nullptr;  // runs passes of several tokens; null = the team that runs those of one
  // Another model's, open already, that runs alternately with this one: there must be memory for both.
  const Session* also_open = nullptr;
};

struct Session {
  const Model* model;
  const Kernels* kernels;
  Team* team;          // one token at a time
  Team* prefill_team;  // several
  int64_t prefill_chunk;
  KvCache cache;             // of the layers that attend
  DeltaState state;          // of those that do not, after all of ids
  Snapshots snapshots;       // of that at earlier places
  std::vector<int32_t> ids;  // what the cache holds, one id a position
  std::vector<RopeFrequencies> ropes;
  bool long_factors = false;  // the cache holds keys rotated by longrope's
  Scratch scratch;
  const std::atomic<bool>* interrupted = nullptr;  // set: where true, no further pass of a prompt begins
  Profile* profile = nullptr;                      // set: where the time of every pass is added, one entry a worker
  Trace* trace = nullptr;                          // set: what every pass looks like inside (engine/forward/trace.h)
};

// Fails, with the figures, when the cache and what passes work in do not fit into the memory that is free now.
Error open_session(const Model& model, Team& team, const SessionOptions& options, std::unique_ptr<Session>* out);

// Appends tokens and computes logits: of the last one (out: [vocab]) or, where `all`, of each (out: [tokens, vocab]).
// Errors: an id outside the vocabulary, more tokens than the cache can hold, interrupted: then the session holds those
// tokens that were evaluated.
Error evaluate(Session& session, std::span<const int32_t> tokens, bool all, float* logits);

// Forgets everything from `position` on, or from an earlier place where the model has a recurrent state and the latest
// snapshot of it lies there. Returns how many tokens are left.
int64_t rewind(Session& session, int64_t position);

// Where the model has a recurrent state: keeps a copy, so that rewind can come back to here.
void keep_snapshot(Session& session);

// What the copies take now.
int64_t snapshot_bytes(const Session& session);

}  // namespace pinion
