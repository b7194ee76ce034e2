// One conversation with a model: a sequence alone, with all that its passes need.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "engine/session/continuation.h"
#include "engine/session/draft_depth.h"
#include "engine/session/pass_runner.h"
#include "engine/session/sequence.h"

namespace pinion {

constexpr int64_t kDefaultPrefillChunk = 256;
constexpr int64_t kDefaultSnapshotBytes = int64_t{512} << 20;

struct Session;
struct Speculation;

struct SessionOptions {
  KvType kv = KvType::q8;
  int64_t capacity = 0;  // positions the cache can hold; 0 = the model's context length, which is also the limit
  // Prompt tokens in one pass; changes speed and memory, never the result.
  int64_t prefill_chunk = kDefaultPrefillChunk;
  const Kernels* kernels = nullptr;                // null = the best this CPU has
  int64_t snapshot_bytes = kDefaultSnapshotBytes;  // that copies of a recurrent state may take; 0 = none are kept
  Team* prefill_team = nullptr;  // runs passes of several tokens; null = the team that runs those of one
  int64_t drafts = 0;            // that a pass may have on trial, at most kMostDrafts
  // A session that stays open beside this one: memory is checked for both.
  const Session* also_open = nullptr;
  bool keeps_hidden = false;  // the hidden states of the last pass, for an MTP layer to draft from
};

// Sees the hidden states, [rows][hidden], of the last of `tokens`, which follow those `before`.
using HiddenSink = std::function<void(std::span<const int32_t> before, std::span<const int32_t> tokens,
                                      std::span<const float> hidden)>;

struct Session : PassRunner {
  int64_t prefill_chunk = 0;
  int64_t most_drafts = 0;  // in a pass
  KvPool pool;              // of the sequence alone
  Sequence sequence;
  int64_t last_logit_row = 0;                      // of the last pass that gave logits: see panel_best()
  Speculation* speculation = nullptr;              // drafts what decoding evaluates together; null: one by one
  HiddenSink on_hidden;                            // after each pass, where they are kept; empty: nobody
  std::vector<float> unread_hidden;                // of an MTP layer's model: those that go with the next tokens
  const std::atomic<bool>* interrupted = nullptr;  // becomes true: no further pass of a prompt begins; null: never
};

// Fails, with the figures, when the cache and what passes work in do not fit into the memory that is free now.
Error open_session(const Model& model, Team& team, const SessionOptions& options, std::unique_ptr<Session>* out);

// Appends tokens and computes logits: of the last token ([vocab]) or, with `all`, of each ([tokens, vocab]); null: of
// none. An MTP layer's model reads a row of unread_hidden, [a pass's most rows][hidden], with each token. Fails on
// an id outside the vocabulary, on a full cache, and when interrupted; after an interruption the session holds the
// tokens that were evaluated until then. Logits that are NaN or infinite are an error that names the layer where that
// began; the session is empty then. candidates: so many of a row's likeliest logits are enough, at most
// kMostCandidates; of a model on several boards, others may be minus infinity then. 0: all are wanted.
Error evaluate(Session& session, std::span<const int32_t> tokens, bool all, float* logits, int64_t candidates = 0);

// The same with the logits of each token, of which all but the first are on trial: only the first row's are looked at,
// and rewind() can drop them. No more tokens than a prefill chunk, and no more on trial than SessionOptions::drafts.
Error evaluate_drafts(Session& session, std::span<const int32_t> tokens, float* logits, int64_t candidates = 0);

// The same with the logits of each token, which are handed over as they come instead of being kept: [rows, vocab] of
// the tokens from the one with the index `first` on.
using LogitsSink = std::function<void(int64_t first, std::span<const float> logits)>;
Error evaluate(Session& session, std::span<const int32_t> tokens, const LogitsSink& sink);

// Writes accepted drafts to the recurrent state, if the model has one, and copies it, so that rewind can come back to
// here.
void keep_snapshot(Session& session);

// Bytes that the snapshots take now.
int64_t snapshot_bytes(const Session& session);

}  // namespace pinion
