// What the scheduler has of its texts: requests, those that run, wait or have ended, and what a pass holds of them.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "engine/session/continuation.h"
#include "engine/session/draft_depth.h"
#include "engine/session/ngram.h"
#include "engine/session/pass_runner.h"
#include "engine/session/sequence.h"
#include "kernels/base/clock.h"

namespace pinion {

struct SchedulerOptions {
  KvType kv = KvType::q8;
  int64_t sequences = 8;            // that run at once
  int64_t context = 0;              // positions of one at most; 0 = the model's context length, which is also the limit
  int64_t positions = 0;            // of all together, as blocks of the cache; 0 = sequences * context
  int64_t pass_rows = 256;          // the most tokens in a pass
  int64_t rows_beside_decode = 64;  // of prompts in a pass that decodes, too: bounds how long the others wait
  const Kernels* kernels = nullptr;  // null = the best this CPU has
  Team* prefill_team = nullptr;      // runs passes of several tokens; null = the team that runs those of one
};

struct TextRequest {
  std::vector<int32_t> prompt;
  GenerateOptions options = {};
  // Drafts what followed where the text went on like this before, and verifies it in the same pass (Speculation); the
  // text is the same. Ignored where a text cannot be cut: recurrent models and dynamic rope draft nothing here.
  bool speculate_ngram = false;
  // Sees each id as it comes, with the result so far, of whose `ids` it is the last; returning false stops. This one
  // and the next must be given.
  std::function<bool(int32_t, const GenerateResult& so_far)> on_token = {};
  // The text has ended: with its result, or with an error. Not called for one that was cancelled.
  std::function<void(const Error&, GenerateResult)> on_end = {};
};

// What a stream drafts from.
struct StreamDrafts {
  SuffixAutomaton text = {};           // what was read of the stream's, where it drafts from that
  std::vector<int32_t> foreseen = {};  // by its rules; they come first
  Acceptance acceptance = {};
  std::vector<int32_t> tokens = {};  // of the next pass: the one drawn last and its drafts; empty: it has none
  std::vector<size_t> buckets = {};  // of the drafts
};

// A request under way.
struct Stream {
  int64_t id;
  TextRequest request;
  Continuation text;
  Sequence sequence;                          // what the model holds of text.history
  std::unique_ptr<StreamDrafts> drafts = {};  // null: it drafts nothing
  int64_t begun_ns = 0, first_token_ns = 0;   // by now_ns()
};

// A text that has ended, whose blocks are kept for those that begin like it, as long as nobody needs the memory.
struct EndedText {
  std::vector<int32_t> ids;
  KvCache cache;
  bool long_factors;
};

struct Scheduler : PassRunner {
  SchedulerOptions options;
  KvPool pool;
  std::vector<std::unique_ptr<Stream>> running;  // in the order in which they were taken up
  std::deque<std::unique_ptr<Stream>> waiting;
  std::vector<Sequence> unused;  // empty sequences: as many as there is room beside those that run
  std::vector<EndedText> ended;  // the one that was used last is the last
  int64_t next_id = 0;
  int64_t passes = 0;
  int64_t preempted = 0;  // streams whose memory others needed: they were read again later

  // Of a pass, kept from one to the next.
  std::vector<Segment> segments;
  std::vector<Stream*> streams;                       // by segment
  std::vector<std::pair<Stream*, int64_t>> choosing;  // their next token, from a row of the logits
  std::vector<float> logits;                          // [sequences + more_logit_rows][vocab]
  // Rows in a pass from which no token is drawn for sure: of drafts, and of prompts whose log probabilities are wanted.
  // 0 until the first such text.
  int64_t more_logit_rows = 0;
  PassSeconds pass_seconds;  // of passes without prompts in which some text speculates
  bool is_pass_timed = false;
  std::vector<Drafter> drafters;
  std::vector<Stream*> drafting;  // by drafter
  int64_t always_drafts = 0;      // so many for every match, whatever they cost, for tests; 0: as many as pay
};

inline int64_t held(const Stream& stream) { return std::ssize(stream.sequence.ids); }
inline int64_t wanted(const Stream& stream) { return std::ssize(stream.text.history); }
inline bool decodes(const Stream& stream) { return wanted(stream) - held(stream) == 1; }

}  // namespace pinion
