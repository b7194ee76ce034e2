// Many requests at once (continuous batching, Yu et al. 2022, "Orca"). Requests join and leave between passes. A pass
// has one row per decoding request, the rows of its drafts, and chunks of prompts. Each request has the same text as
// alone, because the bits of a row do not depend on other rows. Requests with a common prefix share cache blocks.
//
// Not thread-safe: the caller serialises submit(), cancel() and step().
#pragma once

#include "engine/session/prompt_cache.h"
#include "engine/session/speculation.h"

namespace pinion {

inline constexpr const char* kNonFiniteLogits = "logits";  // Error::where for NaN or infinity in the logits

struct Scheduler;

constexpr int64_t kDefaultPrefillChunk = 256;

struct SchedulerOptions {
  KvType kv = KvType::q8;
  int64_t sequences = 8;  // concurrent requests
  int64_t context = 0;    // positions per request; 0: the model's context length, which is also the maximum
  int64_t positions = 0;  // of all requests together, as cache blocks; 0: sequences * context
  int64_t pass_rows = kDefaultPrefillChunk;  // maximum tokens in a pass; affects speed and memory, never results
  int64_t rows_beside_decode = 64;  // maximum prompt tokens in a pass that also decodes: bounds the delay of decoding
  int64_t snapshot_bytes = kDefaultSnapshotBytes;  // limit for snapshots of recurrent states; 0: no snapshots
  const Kernels* kernels = nullptr;                // null: the best for this CPU
  Team* prefill_team = nullptr;                    // for passes of several tokens; null: the team for single tokens
  const Scheduler* also_open = nullptr;            // its untouched memory is not counted as free
  bool keeps_hidden = false;     // record hidden states, for drafts of an MTP layer or TextRequest::on_hidden
  bool keeps_inputs = false;     // of all matrices as floats, for Trace::moments
  bool keeps_last_text = false;  // a finished request leaves its tokens in its sequence (Session)
};

struct TextRequest {
  std::vector<int32_t> prompt;
  GenerateOptions options = {};
  // Uses drafts, of a free draft model or the text itself, which do not change the text. Ignored with dynamic rope.
  bool speculates = false;
  // Tokens of the first message, which later texts may share; 0: up to the first end-of-sequence id.
  int64_t first_message_tokens = 0;
  bool is_pinned = false;  // the text stays in memory for the life of the scheduler, if that leaves a whole context
  // Not null: the text is read for its hidden states only, which keeps_hidden provides. Receives those of each pass,
  // after the final norm: [tokens][hidden] from token `first` on; from 0 on again if the text loses its memory.
  std::function<void(int64_t first, std::span<const float> rows)> on_hidden = {};
  bool needs_all_hidden = false;  // on_hidden: of all tokens, so that no prefix is shared; false: of the last token
  // Receives each id, which is the last of so_far.ids; returns false to stop. Required without on_hidden.
  std::function<bool(int32_t, const GenerateResult& so_far)> on_token = {};
  // Receives the result at the end of the text, or an error. Not called for cancelled requests.
  std::function<void(const Error&, GenerateResult)> on_end = {};
};

// A submitted request: waiting or running.
struct ScheduledRequest {
  int64_t id;
  TextRequest spec;
  Continuation text;
  Sequence sequence;                             // the evaluated prefix of text.history
  std::unique_ptr<Speculation> drafts = {};      // null: no drafts
  std::vector<int64_t> snapshot_positions = {};  // a prompt pass ends at each, for a snapshot; ascending
  int64_t submitted_ns = 0, first_token_ns = 0;  // now_ns()

  int64_t evaluated() const { return std::ssize(sequence.ids); }
  int64_t total() const { return std::ssize(text.history); }
  // No prefix may be shared: every token's hidden state or logits are needed.
  bool needs_all_rows() const { return lacks_prompt_logprobs(text) || spec.needs_all_hidden; }
  bool is_decoding() const { return total() - evaluated() == 1; }
};

// Blocks and snapshots of a finished request, kept for requests with a common prefix until the blocks are needed.
struct CachedPrefix {
  std::vector<int32_t> ids;
  KvCache cache;
  Snapshots snapshots;
  bool long_factors;  // see Sequence
  bool is_pinned;     // never evicted
};

struct Scheduler : PassRunner {
  SchedulerOptions options;
  KvPool pool;
  SnapshotPool snapshots;
  std::unique_ptr<PromptCache> prompt_cache;               // set by the owner; null: nothing is stored
  std::vector<std::unique_ptr<ScheduledRequest>> running;  // in the order of admission
  std::deque<std::unique_ptr<ScheduledRequest>> waiting;
  std::vector<Sequence> free_sequences;                   // options.sequences - running.size()
  std::vector<CachedPrefix> prefix_cache;                 // least recently used first
  std::vector<std::unique_ptr<Speculation>> free_drafts;  // of no running request; those with a model are the last
  int64_t next_id = 0;
  int64_t passes = 0;
  int64_t preempted = 0;  // requests that lost their memory and were evaluated again later

  // The current pass.
  std::vector<Segment> segments;
  std::vector<ScheduledRequest*> segment_requests;           // by segment
  std::vector<std::pair<ScheduledRequest*, int64_t>> draws;  // requests that draw a token, and their rows in `logits`
  std::vector<float> logits;                                 // [sequences + extra_logit_rows][vocab]
  // Rows for the logits of drafts and of prompts with log probabilities; 0 until the first such request.
  int64_t extra_logit_rows = 0;
  PassSeconds pass_seconds;  // of passes without prompts in which at least one request drafts
  bool is_pass_timed = false;
  std::vector<Drafter> drafters;
  std::vector<ScheduledRequest*> drafter_requests;  // by drafter
  int64_t fixed_drafts = 0;                         // for tests: drafts for every match; 0: as many as pay
};

// Fails, with the sizes, if caches and scratch exceed the free memory.
Error open_scheduler(const Model& model, Team& team, const SchedulerOptions& options, std::unique_ptr<Scheduler>* out);
Error open_scheduler(const Model& model, Team& team, const SchedulerOptions& options, Scheduler* out);

// Memory that an open scheduler has reserved, but not touched yet, so that the kernel counts it as free. Any thread.
int64_t untouched_bytes(const Scheduler& scheduler);

// Adds a draft model for one request at a time. Its session is on the scheduler's team.
void add_draft_model(Scheduler& scheduler, std::unique_ptr<DraftModel> model);

// Adds a request to the waiting ones. Errors: those of generate() for prompt and options. The first request with log
// probabilities of its prompt, drafts or rules sets extra_logit_rows. With too little memory for them, log
// probabilities are an error, and the others have no drafts.
Error submit(Scheduler& scheduler, TextRequest spec, int64_t* id);

// An error for a model without a head, or whose tokens attend to later ones: it cannot continue a text.
Error check_writes_texts(const ModelConfig& config);

// Ends a request between two passes. Returns false for an unknown id.
bool cancel(Scheduler& scheduler, int64_t id);

// Runs one pass. Returns false if there are no requests. Callbacks may submit, but not cancel.
bool step(Scheduler& scheduler);

// ---- Parts of step(): scheduler_passes.cpp ----

// Chooses the tokens of the next pass: the drawn token of each decoding request, drafts, and chunks of prompts.
void fill_pass(Scheduler& scheduler);

// Draws tokens from the logits of the pass, calls the callbacks and ends finished requests.
void finish_pass(Scheduler& scheduler);

// ---- Memory of requests: take, share, preempt, keep for reuse: scheduler_blocks.cpp ----

// Admits waiting requests, first come, first served. One without room blocks the later ones, or it could starve.
void admit_waiting(Scheduler& scheduler);

// Frees the memory of the request that was admitted last, and makes it wait again.
void preempt_last(Scheduler& scheduler);

// Frees blocks until the request can take those for its first `positions`: evicts cached prefixes, then preempts later
// requests. Returns false if only earlier requests hold blocks.
bool free_blocks_for(Scheduler& scheduler, const ScheduledRequest& request, int64_t positions);

// Takes the snapshots that are due after a pass, and stores what the pass has evaluated in the prompt cache.
void keep_evaluated(Scheduler& scheduler, ScheduledRequest& request, int64_t from);

// Makes the drafts of a request, with a draft model if it speculates and one is free that has not failed.
void take_drafts(Scheduler& scheduler, ScheduledRequest& request);

// Frees the drafts of a request for others.
void drop_drafts(Scheduler& scheduler, ScheduledRequest& request);

// Ends a request. is_sound: its sequence may enter the prefix cache.
void release(Scheduler& scheduler, ScheduledRequest& request, bool is_sound);

}  // namespace pinion
