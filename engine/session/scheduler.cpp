#include "engine/session/scheduler.h"

#include <algorithm>
#include <utility>

#include "engine/forward/rope.h"
#include "engine/session/stream_memory.h"
#include "engine/session/stream_pass.h"
#include "engine/team/memory.h"
#include "kernels/base/clock.h"

namespace pinion {
namespace {

// Bounds what the logits take.
constexpr int64_t kMoreLogitRows = 64;
static_assert(kMoreLogitRows >= PassSeconds::kMostRows, "passes have no more rows with drafts");

// For all tokens that it may get, so that no pass allocates; for those that wait it would be much.
void reserve_tokens(const Scheduler& s, Stream& stream) {
  const int64_t room = s.options.context + 1 - wanted(stream);
  const auto most = static_cast<size_t>(std::clamp<int64_t>(stream.request.options.max_tokens, 0, room));
  stream.text.history.reserve(stream.text.history.size() + most);
  stream.text.result.ids.reserve(most);
  if (stream.request.speculate_ngram || (stream.text.rules && can_be_cut(s.model->config))) {
    stream.drafts = std::make_unique<StreamDrafts>();
    stream.drafts->tokens.reserve(kMostDrafts + 1);
    stream.drafts->buckets.reserve(kMostDrafts);
  }
  if (stream.request.options.logprobs) stream.text.result.logprobs.reserve(most);
}

enum class TakenUp : uint8_t { yes, not_yet, no_room };

// Takes up a stream that waits: not yet where another one is just reading what it begins with.
TakenUp take_up(Scheduler& s, std::unique_ptr<Stream>& stream) {
  const ModelConfig& c = s.model->config;
  Sequence& sequence = s.unused.back();
  sequence.long_factors = uses_long_factors(c, wanted(*stream));
  sequence.ropes = rope_frequencies(c, wanted(*stream));
  const bool may_share = can_be_cut(c) && !lacks_prompt_logprobs(stream->text);
  const Donor donor = may_share ? find_donor(s, *stream, sequence.long_factors) : Donor{};
  if (donor.coming >= donor.tokens + kAttentionChunk) return TakenUp::not_yet;
  if (!s.running.empty() && !has_room(s, *stream, donor)) return TakenUp::no_room;
  if (donor.tokens > 0) share(s, donor, &sequence, stream->text.history);
  stream->sequence = std::move(sequence);
  s.unused.pop_back();
  if (stream->text.result.ids.empty()) {
    reserve_tokens(s, *stream);
    stream->text.result.reused_tokens = held(*stream);
    stream->text.result.prefilled_tokens = wanted(*stream) - held(*stream);
  }
  s.running.push_back(std::move(stream));
  return TakenUp::yes;
}

// In the order in which they came. One for which there is no room holds up those behind it: else it might wait for
// ever.
void take_up_waiting(Scheduler& s) {
  for (auto at = s.waiting.begin(); at != s.waiting.end() && !s.unused.empty();) {
    const TakenUp taken = take_up(s, *at);
    if (taken == TakenUp::no_room) return;
    at = taken == TakenUp::yes ? s.waiting.erase(at) : at + 1;
  }
}

Error check_options(const Scheduler& s, int64_t context, int64_t positions) {
  const SchedulerOptions& o = s.options;
  if (o.sequences < 1) return error("out of range", "sequences", "at least 1", std::to_string(o.sequences));
  if (o.pass_rows <= o.sequences) {
    return error("out of range", "rows of a pass", "more than the " + std::to_string(o.sequences) + " texts have",
                 std::to_string(o.pass_rows));
  }
  if (o.rows_beside_decode < 1) {
    return error("out of range", "rows of prompts beside decoding", "at least 1", std::to_string(o.rows_beside_decode));
  }
  if (positions < context) {
    return error("out of range", "positions", "at least one context of " + std::to_string(context),
                 std::to_string(positions));
  }
  return {};
}

void take_logits(Scheduler& s) {
  s.logits.resize(static_cast<size_t>((s.options.sequences + s.more_logit_rows) * s.model->config.vocab_size));
}

// The next pass takes it: whoever submits may be a callback, between two that look at the last pass's logits.
Error make_room_for_logits(Scheduler& s) {
  if (s.more_logit_rows > 0) return {};
  const int64_t rows = std::min(kMoreLogitRows, s.options.pass_rows);
  const int64_t bytes = rows * s.model->config.vocab_size * static_cast<int64_t>(sizeof(float));
  const std::string what = "too little memory for those of " + std::to_string(rows) + " more tokens in a pass";
  if (Error e = check_memory(bytes, free_memory(), what, "logits", "")) return e;
  s.more_logit_rows = rows;
  return {};
}

int64_t rows_of(const Scheduler& s) {
  int64_t rows = 0;
  for (const Segment& segment : s.segments) rows += segment.size();
  return rows;
}

}  // namespace

Error open_scheduler(const Model& model, Team& team, const SchedulerOptions& options, std::unique_ptr<Scheduler>* out) {
  const ModelConfig& c = model.config;
  auto s = std::make_unique<Scheduler>();
  s->options = options;
  if (Error e = make_runner(model, team, options.prefill_team, options.kernels, s.get())) return e;
  const int64_t limit = context_length(c);
  const int64_t context = options.context > 0 ? std::min(options.context, limit) : limit;
  const int64_t positions =
      options.positions > 0 ? options.positions : options.sequences * round_up(context, kAttentionChunk);
  if (Error e = check_options(*s, context, positions)) return e;
  s->options.context = context;
  const KvShape shape = kv_shape_of(c, options.kv, model.shares());
  const int64_t others = options.sequences * (recurrent_state_of(c).bytes() + c.vocab_size * 4);
  const std::string what = std::to_string(positions) + " positions of " + std::to_string(options.sequences) + " texts";
  if (Error e = take_scratch(s.get(), options.pass_rows, context, shape.bytes(positions), others, what, "")) return e;
  if (Error e = allocate_kv_pool(shape, KvShape::chunks_of(positions), &s->pool)) return e;
  for (int64_t i = 0; i < options.sequences; ++i) {
    if (Error e = make_sequence(c, &s->pool, context, 0, &s->unused.emplace_back())) return e;
  }
  if (Error e = open_followers(s.get(), options.pass_rows, context, s->pool)) return e;
  s->segments.reserve(static_cast<size_t>(options.sequences));
  s->streams.reserve(static_cast<size_t>(options.sequences));
  s->choosing.reserve(static_cast<size_t>(options.sequences));
  s->running.reserve(static_cast<size_t>(options.sequences));
  s->drafters.reserve(static_cast<size_t>(options.sequences));
  s->drafting.reserve(static_cast<size_t>(options.sequences));
  take_logits(*s);
  *out = std::move(s);
  return {};
}

Error submit(Scheduler& s, TextRequest request, int64_t* id) {
  const ModelConfig& c = s.model->config;
  const int64_t capacity = s.options.context;
  if (Error e = check_prompt(c, request.prompt, capacity)) return e;
  if (Error e = check_generate_options(c, request.options)) return e;
  request.speculate_ngram &= can_be_cut(c);
  if (request.options.prompt_logprobs || request.speculate_ngram || request.options.rules) {
    if (Error e = make_room_for_logits(s)) return e;
  }
  auto stream = std::make_unique<Stream>();
  stream->id = *id = s.next_id++;
  stream->text = begin_continuation(request.prompt, request.options);
  stream->request = std::move(request);
  stream->begun_ns = now_ns();
  s.waiting.push_back(std::move(stream));
  return {};
}

bool cancel(Scheduler& s, int64_t id) {
  const auto is_it = [&](const auto& stream) { return stream->id == id; };
  const auto waits = std::ranges::find_if(s.waiting, is_it);
  if (waits != s.waiting.end()) {
    s.waiting.erase(waits);
    return true;
  }
  const auto runs = std::ranges::find_if(s.running, is_it);
  if (runs == s.running.end()) return false;
  leave(s, **runs, true);
  s.running.erase(runs);
  return true;
}

bool step(Scheduler& s) {
  take_up_waiting(s);
  if (s.running.empty()) return false;
  take_logits(s);
  fill_pass(s);
  const int64_t start = now_ns();
  run_pass(s, s.segments, s.logits.data());
  ++s.passes;
  if (s.is_pass_timed) note_pass(s.pass_seconds, rows_of(s), static_cast<double>(now_ns() - start) * 1e-9);
  read_pass(s);
  return true;
}

}  // namespace pinion
