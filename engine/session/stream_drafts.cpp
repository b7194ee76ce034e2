#include "engine/session/stream_drafts.h"

#include <algorithm>
#include <limits>

#include "engine/forward/rope.h"

namespace pinion {
namespace {

// Drafts make no pass take longer by more than this, if it has texts that do not speculate.
constexpr double kMostDelay = 0.1;

// What may come next: what the rules foresee, else what followed where the text went on like this before.
std::span<const int32_t> candidates(const StreamDrafts& drafts) {
  if (!drafts.foreseen.empty()) return drafts.foreseen;
  return std::span(drafts.text.text).subspan(static_cast<size_t>(drafts.text.match_end));
}

int64_t match_length(const StreamDrafts& drafts) {
  return drafts.foreseen.empty() ? drafts.text.match_length : kForeseenMatch;
}

// As many as the text and the block that its next token goes to have room for: no text loses memory to drafts. None
// where longrope's factors would change.
int64_t most_drafts(const ModelConfig& c, const Stream& stream) {
  const int64_t all = wanted(stream);
  const int64_t end = std::min(stream.sequence.cache.capacity, round_up(all, kAttentionChunk));
  const int64_t most = std::min({kMostDrafts, end - all, std::ssize(candidates(*stream.drafts)),
                                 stream.text.options.max_tokens - std::ssize(stream.text.result.ids) - 1});
  const bool has_long_factors = stream.sequence.long_factors;
  const bool changes =
      uses_long_factors(c, all) != has_long_factors || uses_long_factors(c, all + most) != has_long_factors;
  return changes ? 0 : most;
}

void list_drafters(Scheduler& s) {
  for (const auto& stream : s.running) {
    if (!stream->drafts) continue;
    follow_text(*stream, wanted(*stream));
    if (stream->text.rules) stream->drafts->foreseen = stream->text.rules->foreseen();
    const int64_t most = most_drafts(s.model->config, *stream);
    if (most < 1) continue;
    s.drafting.push_back(stream.get());
    s.drafters.push_back({&stream->drafts->acceptance, match_length(*stream->drafts), most});
  }
}

void choose_always(const Scheduler& s, int64_t room, std::span<Drafter> drafters) {
  for (Drafter& one : drafters) {
    one.drafts = one.match_length > 0 ? std::min({s.always_drafts, one.most, room}) : 0;
    room -= one.drafts;
  }
}

void take_drafts(Stream& stream, int64_t count) {
  if (count == 0) return;
  StreamDrafts& drafts = *stream.drafts;
  const std::span<const int32_t> ids = candidates(drafts).first(static_cast<size_t>(count));
  drafts.tokens.assign(1, stream.text.history.back());
  drafts.tokens.insert(drafts.tokens.end(), ids.begin(), ids.end());
  drafts.buckets.assign(ids.size(), bucket_of_match(match_length(drafts)));
}

}  // namespace

// A text that is read again is known already.
void follow_text(Stream& stream, int64_t tokens) {
  if (!stream.request.speculate_ngram) return;
  SuffixAutomaton& text = stream.drafts->text;
  for (int64_t i = std::ssize(text.text); i < tokens; ++i) append(text, stream.text.history[static_cast<size_t>(i)]);
}

void choose_drafts(Scheduler& s) {
  s.drafters.clear(), s.drafting.clear();
  int64_t speculating = 0;
  for (const auto& stream : s.running) {
    if (!stream->drafts) continue;
    stream->drafts->tokens.clear(), stream->drafts->buckets.clear();
    ++speculating;
  }
  s.is_pass_timed = speculating > 0 && std::ranges::all_of(s.running, [](const auto& one) { return decodes(*one); });
  if (!s.is_pass_timed) return;
  list_drafters(s);
  const int64_t rows = std::ssize(s.running), most_rows = std::min(s.options.pass_rows, PassSeconds::kMostRows);
  const bool do_others_wait = speculating < rows;
  const double most_seconds =
      do_others_wait ? (1 + kMostDelay) * seconds_of(s.pass_seconds, rows) : std::numeric_limits<double>::infinity();
  if (s.always_drafts > 0) {
    choose_always(s, most_rows - rows, s.drafters);
  } else {
    choose_depths(s.pass_seconds, rows, most_rows, most_seconds, s.drafters);
  }
  for (size_t i = 0; i < s.drafters.size(); ++i) take_drafts(*s.drafting[i], s.drafters[i].drafts);
}

}  // namespace pinion
