#include <algorithm>
#include <iterator>
#include <utility>

#include "engine/session/session.h"
#include "engine/session/speculation.h"
#include "kernels/base/clock.h"

namespace pinion {
namespace {

// Evaluates the prompt up to `end` if the session holds fewer tokens.
Error evaluate_up_to(Session& session, std::span<const int32_t> prompt, int64_t end, float* logits,
                     int64_t candidates) {
  const int64_t held = std::ssize(session.sequence.ids);
  if (end <= held) return {};
  return evaluate(session, prompt.subspan(held, end - held), false, logits, candidates);
}

// With dynamic rope, the keys of a session depend on the lengths of its earlier prompts.
bool uses_prompt_cache(const Session& session) {
  return session.prompt_cache && !frequencies_follow_length(session.model->config);
}

// Saves the state behind all tokens of the session, in memory and in the prompt cache.
void keep_state(Session& session) {
  keep_snapshot(session);
  if (uses_prompt_cache(session) && session.sequence.state.layers > 0)
    session.prompt_cache->store_end(session.sequence);
}

// Evaluates the part of the prompt that the session does not hold. shared: length of its common prefix with the
// previous text. A recurrent state cannot return to earlier tokens, so up to two snapshots are taken on the way:
//   - at `shared`, if that is far ahead: later prompts may have the same prefix, such as a system message;
//   - kAnswerOpening tokens before the end: the next turn continues from there if the template changes the end.
Error evaluate_prompt(Session& session, std::span<const int32_t> prompt, int64_t shared, float* logits,
                      int64_t candidates) {
  const bool can_split = !frequencies_follow_length(session.model->config);
  if (can_split && can_take_snapshot(session.sequence.snapshots, session.sequence.state)) {
    if (shared > std::ssize(session.sequence.ids) + kAnswerOpening) {
      if (Error e = evaluate_up_to(session, prompt, shared, nullptr, 0)) return e;
      keep_state(session);
    }
    if (Error e = evaluate_up_to(session, prompt, std::ssize(prompt) - kAnswerOpening, nullptr, 0)) return e;
  }
  keep_state(session);
  return evaluate_up_to(session, prompt, std::ssize(prompt), logits, candidates);
}

// Evaluates the whole prompt with the log probabilities of its tokens.
Error evaluate_with_logprobs(Session& session, std::span<const int32_t> prompt, Continuation& text,
                             std::span<float> logits) {
  const auto sink = [&](int64_t, std::span<const float> rows) {
    add_prompt_logprobs(text, rows, std::ssize(logits), workers_of(session.prefill_team));
    std::ranges::copy(rows.last(logits.size()), logits.begin());
  };
  return evaluate(session, prompt, sink);
}

// Loads a prefix of the prompt from the prompt cache if it is longer than the one that the session holds.
void load_prefix(Session& session, std::span<const int32_t> prompt, GenerateResult* result) {
  if (!uses_prompt_cache(session)) return;
  const ModelConfig& c = session.model->config;
  Sequence& sequence = session.sequence;
  if (sequence.ids.empty()) sequence.long_factors = uses_long_factors(c, std::ssize(prompt));
  for (;;) {
    const int64_t stored = session.prompt_cache->find(prompt, sequence.long_factors);
    if (stored < result->reused_tokens + kMinLoadedTokens) return;
    sequence.ropes = rope_frequencies(c, stored);
    result->loaded_tokens = session.prompt_cache->load(prompt, stored, &sequence) ? stored : 0;
    result->reused_tokens = result->loaded_tokens;  // a damaged file empties the session
    if (result->loaded_tokens > 0) return;
  }
}

// Stores the tokens of the session in the prompt cache, with the state behind them at the end of a text.
void store_sequence(Session& session, bool ends_text) {
  if (!uses_prompt_cache(session)) return;
  Sequence& sequence = session.sequence;
  const int64_t end = std::ssize(sequence.ids);
  session.prompt_cache->store_blocks(sequence, 0, end);
  if (!ends_text && sequence.state.layers > 0) return;
  apply_drafts(*session.kernels, end, &sequence.state);
  session.prompt_cache->store_end(sequence);
}

// Evaluates the part of the prompt that the session does not hold.
Error prefill(Session& session, std::span<const int32_t> prompt, Continuation& text, std::span<float> logits) {
  GenerateResult& result = text.result;
  // The last token is always evaluated, for its logits.
  const std::span<const int32_t> reusable = prompt.first(prompt.size() - 1);
  const int64_t shared = lacks_prompt_logprobs(text) ? 0 : common_prefix(session.sequence.ids, reusable);
  const double start = now_seconds();
  result.reused_tokens = rewind(session.sequence, shared);
  if (!lacks_prompt_logprobs(text)) load_prefix(session, reusable, &result);
  result.prefilled_tokens = std::ssize(prompt) - result.reused_tokens;
  if (lacks_prompt_logprobs(text)) {
    if (Error e = evaluate_with_logprobs(session, prompt, text, logits)) return e;
  } else if (Error e = evaluate_prompt(session, prompt, shared, logits.data(), candidates_needed(text))) {
    return e;
  }
  result.prefill_seconds = now_seconds() - start;
  store_sequence(session, false);
  return {};
}

// Maximum number of drafts, limited by the session, the text and the cache. 0 with dynamic rope, and if longrope's
// factors change within the pass.
int64_t draft_limit(const Session& session, const Continuation& text) {
  const ModelConfig& c = session.model->config;
  if (frequencies_follow_length(c)) return 0;
  const int64_t held = std::ssize(session.sequence.ids);
  const int64_t room =
      std::min({session.max_drafts, session.prefill_chunk - 1, session.sequence.cache.capacity - held - 1,
                text.options.max_tokens - std::ssize(text.result.ids) - 1});
  return uses_long_factors(c, held + 1) == uses_long_factors(c, held + 1 + room) ? room : 0;
}

struct Decoding {
  Session& session;
  Continuation& text;
  const OnToken& on_token;
  std::vector<float> logits;         // [Session::max_drafts + 1][vocab]; one row without speculation
  std::vector<int32_t> tokens = {};  // of the pass

  // Draws a token from row `row` of `logits` and appends it. panel_row: argument of panel_best() for the same logits.
  // Returns false at the end of the text.
  bool draw_from(int64_t row, int64_t panel_row) {
    const int64_t vocab = session.model->config.vocab_size;
    draw_token(text, std::span(logits).subspan(row * vocab, vocab), panel_best(session, panel_row),
               session.model->eos_ids);
    return append_drawn(text, session.model->eos_ids, session.sequence.cache.capacity, on_token);
  }
};

// Evaluates the last token of the text and drafts after it in one pass, then draws from their logits. Sets `continues`
// to false at the end of the text.
Error decode_pass(Decoding& d, bool* continues) {
  Session& session = d.session;
  GenerateResult& result = d.text.result;
  Speculation* speculation = session.speculation;
  d.tokens.assign(1, d.text.history.back());
  if (speculation) {
    add_token(*speculation, d.tokens[0]);
    find_drafts(*speculation, d.text, draft_limit(session, d.text));
    std::ranges::copy(speculation->drafts.ids, std::back_inserter(d.tokens));
  }
  const int64_t held = std::ssize(session.sequence.ids), rows = std::ssize(d.tokens);
  const double start = now_seconds();
  if (Error e = evaluate_drafts(session, d.tokens, d.logits.data(), candidates_needed(d.text))) return e;
  ++result.decode_passes;
  if (speculation) note_pass(speculation->depth.passes, rows, now_seconds() - start);
  int64_t agreed = 0;
  *continues = d.draw_from(0, 0);
  const auto agrees =
      [&](int64_t row) {  // false for logits with NaN or infinity: the next pass reports them as an error
        return row < rows && d.text.history.back() == d.tokens[row] && are_logits_finite(session, row, 1);
      };
  while (*continues && agrees(agreed + 1)) {
    ++agreed;
    add_token(*speculation, d.text.history.back());
    *continues = d.draw_from(agreed, agreed);
  }
  if (rows == 1) return {};
  result.drafted += rows - 1;
  result.accepted += agreed;
  const std::span<const size_t> buckets = speculation->drafts.buckets;
  note_acceptance(speculation->depth, *continues ? buckets : buckets.first(agreed), agreed);
  rewind(session.sequence, held + 1 + agreed);
  return {};
}

// Draws and evaluates tokens up to the end of the text. logits: of the last token of the prompt.
Error decode(Session& session, const OnToken& on_token, Continuation& text, std::vector<float> logits) {
  if (text.options.max_tokens <= 0) return {};
  if (session.speculation) {
    begin_text(*session.speculation, session, text.history);
    logits.resize(logits.size() * (session.max_drafts + 1));
  }
  Decoding decoding = {session, text, on_token, std::move(logits)};
  bool continues = decoding.draw_from(0, session.last_logit_row);
  while (continues) {
    if (Error e = decode_pass(decoding, &continues)) {
      // Only a longrope model that evaluates the whole text again can be interrupted here.
      if (!session.interrupted || !*session.interrupted) return e;
      text.result.finish_reason = FinishReason::stop;
      return {};
    }
  }
  return text.failure;
}

}  // namespace

Error generate(Session& session, std::span<const int32_t> prompt, const GenerateOptions& options,
               const OnToken& on_token, GenerateResult* out) {
  if (Error e = check_prompt(session.model->config, prompt, session.sequence.cache.capacity)) return e;
  if (Error e = check_generate_options(session.model->config, options)) return e;
  Continuation text = begin_continuation(prompt, options);
  GenerateResult& result = text.result;
  std::vector<float> logits(session.model->config.vocab_size);
  if (Error e = prefill(session, prompt, text, logits)) return e;

  const int64_t regions = session.team->regions();
  const int64_t barriers = session.team->barriers();
  const double decode_start = now_seconds();
  if (Error e = decode(session, on_token, text, std::move(logits))) return e;
  result.decode_seconds = now_seconds() - decode_start;
  result.regions = session.team->regions() - regions;
  result.barriers = session.team->barriers() - barriers;
  store_sequence(session, true);
  *out = std::move(result);
  return {};
}

}  // namespace pinion
