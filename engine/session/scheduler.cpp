#include "engine/session/scheduler.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <utility>

#include "engine/forward/rope.h"
#include "engine/team/memory.h"

namespace pinion {
namespace {

// A beginning that is shorter than this is read again: copying the block that it ends in would take longer.
constexpr int64_t kLeastCopied = 16;

double now_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Of a prompt whose log probabilities are wanted, in a pass: bounds what the logits take.
constexpr int64_t kPromptLogitRows = 64;

int64_t held(const Stream& stream) { return std::ssize(stream.sequence.ids); }
int64_t wanted(const Stream& stream) { return std::ssize(stream.text.history); }

// Forgets what the model holds of a text.
void empty(Sequence& sequence) {
  release_blocks(&sequence.cache, 0);
  restore(&sequence.snapshots, 0, &sequence.state);
  sequence.ids.clear();
}

// Memory: what nobody uses goes first, then the stream that came last, which is read again later.

void take_back_last(Scheduler& s) {
  std::unique_ptr<Stream> stream = std::move(s.running.back());
  s.running.pop_back();
  empty(stream->sequence);
  s.unused.push_back(std::move(stream->sequence));
  s.waiting.push_front(std::move(stream));
  ++s.preempted;
}

void forget_oldest(Scheduler& s) {
  release_blocks(&s.ended.front().cache, 0);
  s.ended.erase(s.ended.begin());
}

// Blocks for the stream's first `positions`. Streams behind it may lose theirs. False: there are none without taking
// them from those before it.
bool make_room(Scheduler& s, const Stream& stream, int64_t positions) {
  const int64_t missing = missing_blocks(stream.sequence.cache, positions);
  while (std::ssize(s.pool.unused) < missing) {
    if (!s.ended.empty()) {
      forget_oldest(s);
    } else if (s.running.back().get() != &stream) {
      take_back_last(s);
    } else {
      return false;
    }
  }
  return true;
}

// Beginnings that another text has, too.

struct Donor {
  const KvCache* cache = nullptr;  // of one that runs
  int64_t tokens = 0;
  int64_t ended = -1;  // its place among the ended texts; -1: it runs
  int64_t coming = 0;  // tokens that some stream holds or is about to read

  int64_t whole_blocks() const { return tokens / kAttentionChunk; }
};

// What holds most of the stream's text, but for its last token, which is evaluated in any case.
Donor find_donor(const Scheduler& s, const Stream& stream, bool long_factors) {
  const std::span<const int32_t> wants = std::span(stream.text.history).first(stream.text.history.size() - 1);
  Donor best;
  for (const auto& other : s.running) {
    if (other->sequence.long_factors != long_factors) continue;
    const int64_t tokens = common_prefix(other->sequence.ids, wants);
    if (tokens > best.tokens) best = {&other->sequence.cache, tokens, -1, best.coming};
    best.coming = std::max(best.coming, common_prefix(other->text.history, wants));
  }
  for (size_t i = 0; i < s.ended.size(); ++i) {
    if (s.ended[i].long_factors != long_factors) continue;
    const int64_t tokens = common_prefix(s.ended[i].ids, wants);
    if (tokens > best.tokens) best = {nullptr, tokens, static_cast<int64_t>(i), best.coming};
  }
  return best;
}

// The donor's whole blocks are held by both; of the one that the beginning ends in there is a copy, for which other
// ended texts may have to go.
void share(Scheduler& s, const Donor& donor, Sequence* sequence, std::span<const int32_t> text) {
  const size_t kept = donor.ended < 0 ? 0 : 1;  // the donor, which was used now, becomes the last
  if (kept > 0) std::rotate(s.ended.begin() + donor.ended, s.ended.begin() + donor.ended + 1, s.ended.end());
  const auto whole = static_cast<size_t>(donor.whole_blocks());
  int64_t tokens = donor.whole_blocks() * kAttentionChunk;
  const bool copies = donor.tokens - tokens >= kLeastCopied;
  while (copies && s.pool.unused.empty() && s.ended.size() > kept) forget_oldest(s);

  const KvCache& cache = kept > 0 ? s.ended.back().cache : *donor.cache;
  for (size_t i = 0; i < whole; ++i) {
    ++s.pool.holders[static_cast<size_t>(cache.blocks[i])];
    sequence->cache.blocks.push_back(cache.blocks[i]);
  }
  if (copies && !s.pool.unused.empty()) {
    tokens = donor.tokens;
    take_blocks(&sequence->cache, tokens);
    std::memcpy(s.pool.block(sequence->cache.blocks.back()), s.pool.block(cache.blocks[whole]),
                static_cast<size_t>(s.pool.shape.block_bytes()));
  }
  sequence->ids.assign(text.begin(), text.begin() + tokens);
}

// Whether there are blocks for all of a stream's text without taking any from those that run.
bool has_room(const Scheduler& s, const Stream& stream, const Donor& donor) {
  int64_t blocks = std::ssize(s.pool.unused);
  for (const EndedText& text : s.ended) {
    for (const int32_t block : text.cache.blocks) blocks += s.pool.holders[static_cast<size_t>(block)] == 1;
  }
  // The donor's own stay where they are.
  if (donor.ended < 0) blocks += donor.whole_blocks();
  return KvShape::chunks_of(wanted(stream)) <= blocks;
}

// Joining and leaving.

// For all tokens that it may get, so that no pass allocates; for those that wait it would be much.
void reserve_tokens(const Scheduler& s, Stream& stream) {
  const int64_t room = s.options.context + 1 - wanted(stream);
  const auto most = static_cast<size_t>(std::clamp<int64_t>(stream.request.options.max_tokens, 0, room));
  stream.text.history.reserve(stream.text.history.size() + most);
  stream.text.result.ids.reserve(most);
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

// Keeps what the model holds of a text that has ended. Of two texts of which one begins with the other, the longer one
// is enough.
void keep_beginning(Scheduler& s, Sequence& sequence) {
  const auto begins_with_it = [&](const EndedText& old) {
    return old.long_factors == sequence.long_factors &&
           common_prefix(old.ids, sequence.ids) == std::ssize(sequence.ids);
  };
  if (std::ranges::any_of(s.ended, begins_with_it)) return;
  std::erase_if(s.ended, [&](EndedText& old) {
    if (old.long_factors != sequence.long_factors) return false;
    if (common_prefix(old.ids, sequence.ids) < std::ssize(old.ids)) return false;
    release_blocks(&old.cache, 0);
    return true;
  });
  EndedText& text = s.ended.emplace_back(EndedText{sequence.ids, sequence.cache, sequence.long_factors});
  release_blocks(&text.cache, std::ssize(text.ids));
  sequence.cache.blocks.clear();
}

void leave(Scheduler& s, Stream& stream, bool is_sound) {
  if (is_sound && can_be_cut(s.model->config) && held(stream) > 0) keep_beginning(s, stream.sequence);
  empty(stream.sequence);
  s.unused.push_back(std::move(stream.sequence));
}

void end(Scheduler& s, std::unique_ptr<Stream> stream, const Error& error) {
  GenerateResult& result = stream->text.result;
  const double now = now_seconds();
  if (stream->first_token_seconds == 0) stream->first_token_seconds = now;
  result.prefill_seconds = stream->first_token_seconds - stream->begun_seconds;
  result.decode_seconds = now - stream->first_token_seconds;
  leave(s, *stream, !error);
  stream->request.on_end(error, std::move(result));
}

// A pass.

// Up to where the next tokens have the frequencies that they had when they were evaluated first. Where they change,
// what the model holds is forgotten.
int64_t next_stop(const ModelConfig& c, Stream& stream) {
  Sequence& sequence = stream.sequence;
  const int64_t all = wanted(stream);
  if (uses_long_factors(c, all) != sequence.long_factors) {
    empty(sequence);
    sequence.long_factors = !sequence.long_factors;
    sequence.ropes = rope_frequencies(c, all);
  }
  if (!frequencies_follow_length(c)) return all;
  const int64_t stop = std::max(stream.text.sampler.prompt_tokens, held(stream) + 1);
  sequence.ropes = rope_frequencies(c, stop);
  return stop;
}

// How many of a stream's tokens that come before its next `end` get logits: the last of all, from which the next is
// drawn, and those of a prompt that lack log probabilities.
int64_t logit_rows_to(const Stream& stream, int64_t end) {
  if (!lacks_prompt_logprobs(stream.text)) return end == wanted(stream);
  return std::max<int64_t>(0, end - std::max(held(stream), std::ssize(stream.text.result.prompt_logprobs)));
}

// Which tokens go into the next pass: one of each stream that decodes, and chunks of prompts.
void fill_pass(Scheduler& s) {
  s.segments.clear(), s.streams.clear();
  const auto decodes = [](const auto& stream) { return wanted(*stream) - held(*stream) == 1; };
  const int64_t decoding = std::ranges::count_if(s.running, decodes);
  int64_t prompt_rows =
      decoding > 0 ? std::min(s.options.rows_beside_decode, s.options.pass_rows - decoding) : s.options.pass_rows;
  int64_t prompt_logit_rows = s.prompt_logit_rows;
  for (size_t i = 0; i < s.running.size(); ++i) {  // room for one may cost the last ones theirs
    Stream& stream = *s.running[i];
    const bool is_decoding = decodes(s.running[i]);
    const int64_t stop = next_stop(s.model->config, stream);
    int64_t count = is_decoding ? 1 : std::min(prompt_rows, stop - held(stream));
    const int64_t without_logits = count - logit_rows_to(stream, held(stream) + count);
    if (lacks_prompt_logprobs(stream.text)) count = std::min(count, without_logits + prompt_logit_rows);
    if (count == 0) continue;
    if (!make_room(s, stream, held(stream) + count)) return take_back_last(s);
    take_blocks(&stream.sequence.cache, held(stream) + count);
    const int64_t logit_rows = logit_rows_to(stream, held(stream) + count);
    if (lacks_prompt_logprobs(stream.text)) prompt_logit_rows -= logit_rows;
    if (!is_decoding) prompt_rows -= count;
    s.streams.push_back(&stream);
    s.segments.push_back(
        {.cache = &stream.sequence.cache,
         .state = &stream.sequence.state,
         .ropes = stream.sequence.ropes,
         .tokens =
             std::span(stream.text.history).subspan(static_cast<size_t>(held(stream)), static_cast<size_t>(count)),
         .position = held(stream),
         .logit_rows = logit_rows});
  }
}

std::span<const float> logits_of(const Scheduler& s, int64_t row, int64_t rows) {
  const auto vocab = static_cast<size_t>(s.model->config.vocab_size);
  return std::span(s.logits).subspan(static_cast<size_t>(row) * vocab, static_cast<size_t>(rows) * vocab);
}

// Draws a stream's next token from a row of the pass's logits. Returns whether the text goes on.
bool draw_next(Scheduler& s, Stream& stream, int64_t row) {
  if (stream.first_token_seconds == 0) {
    stream.first_token_seconds = now_seconds();
  } else {
    ++stream.text.result.decode_passes;
  }
  if (stream.text.options.max_tokens <= 0) return false;
  const auto on_token = [&stream](int32_t id) { return stream.request.on_token(id, stream.text.result); };
  return draw(stream.text, logits_of(s, row, 1), panel_best(s, row), s.model->eos_ids, stream.sequence.cache.capacity,
              on_token);
}

std::unique_ptr<Stream> take(std::vector<std::unique_ptr<Stream>>& streams, const Stream* which) {
  const auto at = std::ranges::find(streams, which, &std::unique_ptr<Stream>::get);
  std::unique_ptr<Stream> stream = std::move(*at);
  streams.erase(at);
  return stream;
}

// What the pass means for its streams: tokens, and the end of some.
void read_pass(Scheduler& s) {
  int64_t row = 0;
  for (size_t i = 0; i < s.segments.size(); ++i) {
    Stream& stream = *s.streams[i];
    const std::span<const int32_t> tokens = s.segments[i].tokens;
    stream.sequence.ids.insert(stream.sequence.ids.end(), tokens.begin(), tokens.end());
    const int64_t rows = s.segments[i].logit_rows;
    Error e;
    if (!are_logits_finite(s, row, rows)) e = error("NaN or infinity; the weights may be damaged", "logits");
    if (!e) add_prompt_logprobs(stream.text, logits_of(s, row, rows), s.model->config.vocab_size);
    row += rows;
    const bool is_last = held(stream) == wanted(stream);
    if (e || (is_last && !draw_next(s, stream, row - 1))) end(s, take(s.running, &stream), e);
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
  s.logits.resize(static_cast<size_t>((s.options.sequences + s.prompt_logit_rows) * s.model->config.vocab_size));
}

// The next pass takes it: whoever submits may be a callback, between two that look at the last pass's logits.
Error make_room_for_prompt_logits(Scheduler& s) {
  if (s.prompt_logit_rows > 0) return {};
  const int64_t rows = std::min(kPromptLogitRows, s.options.pass_rows);
  const int64_t bytes = rows * s.model->config.vocab_size * static_cast<int64_t>(sizeof(float));
  const std::string what = "too little memory for logits of " + std::to_string(rows) + " tokens of a prompt";
  if (Error e = check_memory(bytes, free_memory(), what, "log probabilities", "")) return e;
  s.prompt_logit_rows = rows;
  return {};
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
  const KvShape shape = kv_shape_of(c, options.kv);
  const int64_t others = options.sequences * (delta_state_of(c).bytes() + c.vocab_size * 4);
  const std::string what = std::to_string(positions) + " positions of " + std::to_string(options.sequences) + " texts";
  if (Error e = take_scratch(s.get(), options.pass_rows, context, shape.bytes(positions), others, what, "")) return e;
  if (Error e = allocate_kv_pool(shape, KvShape::chunks_of(positions), &s->pool)) return e;
  for (int64_t i = 0; i < options.sequences; ++i) {
    if (Error e = make_sequence(c, &s->pool, context, 0, &s->unused.emplace_back())) return e;
  }
  s->segments.reserve(static_cast<size_t>(options.sequences));
  s->streams.reserve(static_cast<size_t>(options.sequences));
  s->running.reserve(static_cast<size_t>(options.sequences));
  take_logits(*s);
  *out = std::move(s);
  return {};
}

Error submit(Scheduler& s, TextRequest request, int64_t* id) {
  const ModelConfig& c = s.model->config;
  const int64_t capacity = s.options.context;
  if (Error e = check_prompt(c, request.prompt, capacity)) return e;
  if (Error e = check_generate_options(c, request.options)) return e;
  if (request.options.prompt_logprobs) {
    if (Error e = make_room_for_prompt_logits(s)) return e;
  }
  auto stream = std::make_unique<Stream>();
  stream->id = *id = s.next_id++;
  stream->text = begin_continuation(request.prompt, request.options);
  stream->request = std::move(request);
  stream->begun_seconds = now_seconds();
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
  run_pass(s, s.segments, s.logits.data());
  ++s.passes;
  read_pass(s);
  return true;
}

}  // namespace pinion
