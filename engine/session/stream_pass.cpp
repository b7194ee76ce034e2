#include "engine/session/stream_pass.h"

#include <algorithm>
#include <utility>

#include "engine/forward/rope.h"
#include "engine/session/stream_drafts.h"
#include "engine/session/stream_memory.h"
#include "kernels/base/clock.h"

namespace pinion {
namespace {

void end(Scheduler& s, std::unique_ptr<Stream> stream, const Error& error) {
  GenerateResult& result = stream->text.result;
  const int64_t now = now_ns();
  if (stream->first_token_ns == 0) stream->first_token_ns = now;
  result.prefill_seconds = static_cast<double>(stream->first_token_ns - stream->begun_ns) * 1e-9;
  result.decode_seconds = static_cast<double>(now - stream->first_token_ns) * 1e-9;
  leave(s, *stream, !error);
  stream->request.on_end(error, std::move(result));
}

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

std::span<const float> logits_of(const Scheduler& s, int64_t row, int64_t rows) {
  const auto vocab = static_cast<size_t>(s.model->config.vocab_size);
  return std::span(s.logits).subspan(static_cast<size_t>(row) * vocab, static_cast<size_t>(rows) * vocab);
}

void choose_from(const Scheduler& s, Stream& stream, int64_t row) {
  choose(stream.text, logits_of(s, row, 1), panel_best(s, row), s.model->eos_ids);
}

bool ends_history(const Stream& stream, const Segment& segment) {
  return segment.position + segment.sure() == wanted(stream);
}

// For all texts that the pass has brought to their next token. Each takes up to a millisecond where more is wanted than
// the likeliest of a large vocabulary: they share the team.
void choose_next(Scheduler& s) {
  s.choosing.clear();
  int64_t row = 0, long_ones = 0;
  for (size_t i = 0; i < s.segments.size(); ++i) {
    Stream& stream = *s.streams[i];
    const int64_t sure_rows = s.segments[i].logit_rows - s.segments[i].drafts;
    const bool draws = ends_history(stream, s.segments[i]) && stream.text.options.max_tokens > 0;
    if (draws && are_logits_finite(s, row, sure_rows)) {
      s.choosing.emplace_back(&stream, row + sure_rows - 1);
      long_ones += candidates_needed(stream.text) != 1;
    }
    row += s.segments[i].logit_rows;
  }
  run_pieces(workers_of(long_ones > 1 ? s.prefill_team : nullptr), std::ssize(s.choosing), [&](int64_t i) {
    const auto& [stream, from] = s.choosing[static_cast<size_t>(i)];
    choose_from(s, *stream, from);
  });
}

// Takes what was chosen. Returns whether the text goes on.
bool take_next(const Scheduler& s, Stream& stream) {
  const auto on_token = [&stream](int32_t id) { return stream.request.on_token(id, stream.text.result); };
  return take(stream.text, s.model->eos_ids, stream.sequence.cache.capacity, on_token);
}

// The same, then tokens from the rows of the drafts behind `row`, as far as these are what was taken. The others are
// forgotten.
bool take_tokens(Scheduler& s, Stream& stream, const Segment& segment, int64_t row) {
  GenerateResult& result = stream.text.result;
  if (stream.first_token_ns == 0) {
    stream.first_token_ns = now_ns();
  } else {
    ++result.decode_passes;
  }
  if (stream.text.options.max_tokens <= 0) return false;
  bool go_on = take_next(s, stream);
  if (segment.drafts == 0) return go_on;
  const std::span<const int32_t> drafts = segment.tokens.subspan(1);
  int64_t agreed = 0;
  const auto agrees = [&] {  // logits that are no numbers are evaluated again, alone, and then an error
    return agreed < segment.drafts && stream.text.history.back() == drafts[static_cast<size_t>(agreed)] &&
           are_logits_finite(s, row + agreed + 1, 1);
  };
  while (go_on && agrees()) {
    choose_from(s, stream, row + ++agreed);
    go_on = take_next(s, stream);
  }
  result.drafted += segment.drafts;
  result.accepted += agreed;
  const std::span<const size_t> buckets = stream.drafts->buckets;
  note_acceptance(stream.drafts->acceptance, go_on ? buckets : buckets.first(static_cast<size_t>(agreed)), agreed);
  rewind(stream.sequence, segment.position + 1 + agreed);
  return go_on;
}

std::unique_ptr<Stream> take_out(std::vector<std::unique_ptr<Stream>>& streams, const Stream* which) {
  const auto at = std::ranges::find(streams, which, &std::unique_ptr<Stream>::get);
  std::unique_ptr<Stream> stream = std::move(*at);
  streams.erase(at);
  return stream;
}

}  // namespace

void fill_pass(Scheduler& s) {
  s.segments.clear(), s.streams.clear();
  choose_drafts(s);
  const int64_t decoding = std::ranges::count_if(s.running, [](const auto& stream) { return decodes(*stream); });
  int64_t prompt_rows =
      decoding > 0 ? std::min(s.options.rows_beside_decode, s.options.pass_rows - decoding) : s.options.pass_rows;
  int64_t prompt_logit_rows = s.more_logit_rows;
  for (size_t i = 0; i < s.running.size(); ++i) {  // room for one may cost the last ones theirs
    Stream& stream = *s.running[i];
    const bool is_decoding = decodes(stream);
    const int64_t stop = next_stop(s.model->config, stream), start = held(stream);
    int64_t count = is_decoding ? 1 : std::min(prompt_rows, stop - start);
    const bool is_scored = lacks_prompt_logprobs(stream.text);
    if (is_scored) count = std::min(count, count - logit_rows_to(stream, start + count) + prompt_logit_rows);
    if (count == 0) continue;
    if (!make_room(s, stream, start + count)) return take_back_last(s);
    take_blocks(&stream.sequence.cache, start + count);
    Segment segment = {
        .cache = &stream.sequence.cache,
        .state = &stream.sequence.state,
        .ropes = stream.sequence.ropes,
        .tokens = std::span(stream.text.history).subspan(static_cast<size_t>(start), static_cast<size_t>(count)),
        .position = start,
        .logit_rows = logit_rows_to(stream, start + count),
        .candidates = candidates_needed(stream.text)};
    if (is_scored) prompt_logit_rows -= segment.logit_rows;
    if (!is_decoding) prompt_rows -= count;
    if (stream.drafts && !stream.drafts->tokens.empty()) {
      segment.tokens = stream.drafts->tokens;
      segment.logit_rows = segment.size();
      segment.drafts = segment.size() - 1;
    }
    s.streams.push_back(&stream);
    s.segments.push_back(segment);
  }
}

void read_pass(Scheduler& s) {
  choose_next(s);
  int64_t row = 0;
  for (size_t i = 0; i < s.segments.size(); ++i) {
    Stream& stream = *s.streams[i];
    const Segment& segment = s.segments[i];
    stream.sequence.ids.insert(stream.sequence.ids.end(), segment.tokens.begin(), segment.tokens.end());
    const int64_t sure_rows = segment.logit_rows - segment.drafts;
    Error e;
    if (!are_logits_finite(s, row, sure_rows)) e = error("NaN or infinity; the weights may be damaged", "logits");
    if (!e) {
      add_prompt_logprobs(stream.text, logits_of(s, row, sure_rows), s.model->config.vocab_size,
                          workers_of(s.prefill_team));
    }
    const bool go_on = !e && (!ends_history(stream, segment) || take_tokens(s, stream, segment, row + sure_rows - 1));
    if (!e) e = stream.text.failure;
    row += segment.logit_rows;
    if (!go_on) {
      end(s, take_out(s.running, &stream), e);
    } else if (stream.drafts) {
      follow_text(stream, held(stream));
    }
  }
}

}  // namespace pinion
