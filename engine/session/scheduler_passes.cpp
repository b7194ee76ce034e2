
#include "engine/session/scheduler.h"

namespace pinion {
namespace {

// ---- Drafts ----

static_assert(kMaxDrafts <= kStateTokens, "a state head handles all drafts of a pass at once");

// Drafts may lengthen a pass by this fraction if it includes requests without drafts.
constexpr double kMaxDelay = 0.1;

// The last token of such a prompt has to wait.
bool waits_for_rules(const Continuation& text) {
  return text.rules && text.result.ids.empty() && !text.rules->is_ready();
}

// Possible drafts: tokens that the rules predict, else those after the earlier occurrence of the text's suffix.
std::span<const int32_t> predicted_tokens(const Speculation& drafts) {
  if (!drafts.jump_forward.empty()) return drafts.jump_forward;
  return std::span(drafts.text.text).subspan(drafts.text.match_end);
}

int64_t match_length(const Speculation& drafts) {
  return drafts.jump_forward.empty() ? drafts.text.match_length : kJumpForwardMatch;
}

// Maximum of `known` drafts, in blocks that no other request can miss. 0 if longrope's factors change in the pass.
int64_t max_drafts(const Scheduler& s, const ScheduledRequest& request, int64_t known) {
  if (waits_for_rules(request.text)) return 0;
  const KvCache& cache = request.sequence.cache;
  const int64_t total = request.total();
  const int64_t spare = std::ssize(s.pool.unused) >= 2 * std::ssize(s.running) ? kMaxDrafts : 0;
  const int64_t held = std::max(round_up(total, kAttentionChunk), std::ssize(cache.blocks) * kAttentionChunk);
  const int64_t end = std::min(cache.capacity, std::max(held, total + spare));
  const int64_t count = std::min(
      {kMaxDrafts, end - total, known, request.text.options.max_tokens - std::ssize(request.text.result.ids) - 1});
  const auto is_long = [&](int64_t tokens) { return uses_long_factors(s.model->config, tokens); };
  const bool has_long_factors = request.sequence.long_factors;
  return is_long(total) == has_long_factors && is_long(total + count) == has_long_factors ? count : 0;
}

// Extends the automaton to the first `tokens` tokens of the text. Called after each pass, so that no pass is delayed by
// a whole prompt. Does nothing for tokens that are evaluated again after a preemption.
void extend_automaton(ScheduledRequest& request, int64_t tokens) {
  if (!request.spec.speculates || request.drafts->model) return;
  SuffixAutomaton& automaton = request.drafts->text;
  for (int64_t i = std::ssize(automaton.text); i < tokens; ++i) append(automaton, request.text.history[i]);
}

void list_drafters(Scheduler& s) {
  for (const auto& request : s.running) {
    if (!request->drafts || request->drafts->model) continue;
    extend_automaton(*request, request->total());
    if (request->text.rules) request->drafts->jump_forward = request->text.rules->jump_forward();
    const int64_t known = std::ssize(predicted_tokens(*request->drafts));
    const int64_t count = max_drafts(s, *request, known);
    if (count < 1) continue;
    s.drafter_requests.push_back(request.get());
    s.drafters.push_back({&request->drafts->acceptance, match_length(*request->drafts), count});
  }
}

void choose_fixed_drafts(int64_t count, int64_t room, std::span<Drafter> drafters) {
  for (Drafter& drafter : drafters) {
    drafter.drafts = drafter.match_length > 0 ? std::min({count, drafter.max_drafts, room}) : 0;
    room -= drafter.drafts;
  }
}

void set_draft_tokens(ScheduledRequest& request, int64_t count) {
  if (count == 0) return;
  Speculation& drafts = *request.drafts;
  const std::span<const int32_t> ids = predicted_tokens(drafts).first(count);
  drafts.tokens.assign(1, request.text.history.back());
  drafts.tokens.insert(drafts.tokens.end(), ids.begin(), ids.end());
  drafts.buckets.assign(ids.size(), bucket_of_match(match_length(drafts)));
}

// Draws drafts from the models while they pay in a pass of `rows` rows without drafts. Returns the rows with them.
int64_t draft_from_models(Scheduler& s, int64_t rows, int64_t max_rows) {
  for (const auto& request : s.running) {
    if (!request->drafts || !request->drafts->model) continue;
    const int64_t count = max_drafts(s, *request, max_rows - rows);
    draft_from_model(*request->drafts, request->text,
                     {.seconds = s.pass_seconds, .rows = rows, .max_drafts = count, .fixed_drafts = s.fixed_drafts});
    rows += std::ssize(request->drafts->buckets);
  }
  return rows;
}

// Sets Speculation::tokens. A pass with prompts, or without memory for drafts' logits, gets none.
void choose_drafts(Scheduler& s) {
  s.drafters.clear(), s.drafter_requests.clear();
  int64_t drafting = 0;
  for (const auto& request : s.running) {
    if (!request->drafts) continue;
    request->drafts->tokens.clear(), request->drafts->buckets.clear();
    ++drafting;
  }
  const bool all_decode = std::ranges::all_of(s.running, [](const auto& request) { return request->is_decoding(); });
  s.is_pass_timed = drafting > 0 && all_decode && s.extra_logit_rows > 0;
  if (!s.is_pass_timed) return;
  list_drafters(s);
  const int64_t max_rows = std::min(s.options.pass_rows, PassSeconds::kMaxRows);
  const int64_t rows = draft_from_models(s, std::ssize(s.running), max_rows);
  const double max_seconds = drafting < std::ssize(s.running) ? (1 + kMaxDelay) * expected_seconds(s.pass_seconds, rows)
                                                              : std::numeric_limits<double>::infinity();
  if (s.fixed_drafts > 0) {
    choose_fixed_drafts(s.fixed_drafts, max_rows - rows, s.drafters);
  } else {
    choose_depths(s.pass_seconds, rows, max_rows, max_seconds, s.drafters);
  }
  for (size_t i = 0; i < s.drafters.size(); ++i) set_draft_tokens(*s.drafter_requests[i], s.drafters[i].drafts);
}

// ---- Segments ----

// The position up to which the request's next tokens can be evaluated in one pass: that of its next snapshot, or the
// end of the tokens with one set of rope frequencies, which this function sets. With dynamic rope these are the whole
// prompt, then one token after the other, also if the text is evaluated again after a preemption: each token keeps the
// frequencies of its first evaluation. Clears the sequence if longrope's factors change.
int64_t next_stop(const ModelConfig& c, ScheduledRequest& request) {
  Sequence& sequence = request.sequence;
  const int64_t total = request.total();
  if (uses_long_factors(c, total) != sequence.long_factors) {
    clear(sequence);
    sequence.long_factors = !sequence.long_factors;
    sequence.ropes = rope_frequencies(c, total);
  }
  if (!frequencies_follow_length(c)) {
    const auto next = std::ranges::upper_bound(request.snapshot_positions, request.evaluated());
    return next == request.snapshot_positions.end() ? total : std::min(*next, total);
  }
  const int64_t stop = std::max(request.text.sampler.prompt_tokens, request.evaluated() + 1);
  sequence.ropes = rope_frequencies(c, stop);
  return stop;
}

// Unevaluated tokens before `end` that need logits: the text's last, and prompt tokens without log probabilities.
int64_t logit_rows_to(const ScheduledRequest& request, int64_t end) {
  if (request.spec.on_hidden) return 0;
  if (!lacks_prompt_logprobs(request.text)) return end == request.total();
  return std::max<int64_t>(0, end - std::max(request.evaluated(), std::ssize(request.text.result.prompt_logprobs)));
}

// ---- Results ----

std::span<const float> logits_of(const Scheduler& s, int64_t row, int64_t rows) {
  const int64_t vocab = s.model->config.vocab_size;
  return std::span(s.logits).subspan(row * vocab, rows * vocab);
}

void draw_from_row(const Scheduler& s, ScheduledRequest& request, int64_t row) {
  draw_token(request.text, logits_of(s, row, 1), panel_best(s, row), s.model->eos_ids);
}

// True if the segment includes the last token of the text: then its logits give the next token.
bool ends_text(const ScheduledRequest& request, const Segment& segment) {
  return segment.position + segment.committed() == request.total();
}

// Draws the next token of each request whose last token the pass has evaluated. A draw from all logits of a large
// vocabulary takes up to a millisecond, so the team divides several such draws.
void draw_tokens(Scheduler& s) {
  s.draws.clear();
  int64_t row = 0, long_draws = 0;
  for (size_t i = 0; i < s.segments.size(); ++i) {
    ScheduledRequest& request = *s.segment_requests[i];
    const int64_t committed_rows = s.segments[i].logit_rows - s.segments[i].drafts;
    const bool draws = ends_text(request, s.segments[i]) && request.text.options.max_tokens > 0;
    if (draws && are_logits_finite(s, row, committed_rows)) {
      s.draws.emplace_back(&request, row + committed_rows - 1);
      long_draws += candidates_needed(request.text) != 1;
    }
    row += s.segments[i].logit_rows;
  }
  run_pieces(workers_of(long_draws > 1 ? s.prefill_team : nullptr), std::ssize(s.draws), [&](int64_t i) {
    const auto& [request, from] = s.draws[i];
    draw_from_row(s, *request, from);
  });
}

// Returns false at the end of the text.
bool append_token(const Scheduler& s, ScheduledRequest& request) {
  const auto on_token = [&request](int32_t id) { return request.spec.on_token(id, request.text.result); };
  return append_drawn(request.text, s.model->eos_ids, request.sequence.cache.capacity, on_token);
}

// Appends the drawn token. While the appended token equals the next draft, draws another token from that draft's row;
// then drops the other drafts. row: row of the drawn token's logits. Returns false at the end of the text.
bool append_tokens(Scheduler& s, ScheduledRequest& request, const Segment& segment, int64_t row) {
  GenerateResult& result = request.text.result;
  if (request.first_token_ns == 0) {
    request.first_token_ns = now_ns();
  } else {
    ++result.decode_passes;
  }
  if (request.text.options.max_tokens <= 0) return false;
  bool continues = append_token(s, request);
  if (segment.drafts == 0) return continues;
  const std::span<const int32_t> drafts = segment.tokens.subspan(1);
  int64_t agreed = 0;
  // After a draft with NaN or infinity in its logits the next pass evaluates that token alone and reports the error.
  while (continues && agreed < segment.drafts && request.text.history.back() == drafts[agreed] &&
         are_logits_finite(s, row + agreed + 1, 1)) {
    draw_from_row(s, request, row + ++agreed);
    continues = append_token(s, request);
  }
  result.drafted += segment.drafts;
  result.accepted += agreed;
  const std::span<const size_t> buckets = request.drafts->buckets;
  note_acceptance(request.drafts->acceptance, continues ? buckets : buckets.first(agreed), agreed);
  rewind(request.sequence, segment.position + 1 + agreed);
  return continues;
}

void end_request(Scheduler& s, const ScheduledRequest* ended, const Error& error) {
  const auto at = std::ranges::find(s.running, ended, &std::unique_ptr<ScheduledRequest>::get);
  const std::unique_ptr<ScheduledRequest> request = std::move(*at);
  s.running.erase(at);
  GenerateResult& result = request->text.result;
  const int64_t now = now_ns();
  if (request->first_token_ns == 0) request->first_token_ns = now;
  result.prefill_seconds = static_cast<double>(request->first_token_ns - request->submitted_ns) * 1e-9;
  result.decode_seconds = static_cast<double>(now - request->first_token_ns) * 1e-9;
  release(s, *request, !error);
  request->spec.on_end(error, std::move(result));
}

}  // namespace

void fill_pass(Scheduler& s) {
  s.segments.clear(), s.segment_requests.clear();
  choose_drafts(s);
  const bool reads_whole_texts = s.model->config.attends_both_ways;  // also one of a single token
  const auto decodes = [&](const auto& request) { return !reads_whole_texts && request->is_decoding(); };
  const int64_t decoding = std::ranges::count_if(s.running, decodes);
  int64_t prompt_rows = s.options.pass_rows - decoding;
  if (decoding > 0) prompt_rows = std::min(s.options.rows_beside_decode, prompt_rows);
  int64_t prompt_logit_rows = s.extra_logit_rows;
  for (size_t i = 0; i < s.running.size(); ++i) {  // an iteration may preempt the last requests
    ScheduledRequest& request = *s.running[i];
    const bool is_decoding = decodes(&request);
    const int64_t stop = next_stop(s.model->config, request), start = request.evaluated();
    int64_t count = is_decoding ? 1 : std::min(prompt_rows, stop - start);
    if (start + count == request.total() && waits_for_rules(request.text)) --count;
    const bool is_scored = lacks_prompt_logprobs(request.text);
    if (is_scored) count = std::min(count, count - logit_rows_to(request, start + count) + prompt_logit_rows);
    if (reads_whole_texts && count < request.total()) break;  // later ones must not overtake it
    if (count == 0) continue;
    const int64_t drafts = request.drafts ? std::ssize(request.drafts->buckets) : 0;
    if (!free_blocks_for(s, request, start + count + drafts)) return preempt_last(s);
    take_blocks(&request.sequence.cache, start + count + drafts);
    Segment segment = {.cache = &request.sequence.cache,
                       .state = &request.sequence.state,
                       .ropes = request.sequence.ropes,
                       .tokens = std::span(request.text.history).subspan(start, count),
                       .position = start,
                       .logit_rows = logit_rows_to(request, start + count),
                       .candidates = candidates_needed(request.text)};
    if (is_scored) prompt_logit_rows -= segment.logit_rows;
    if (!is_decoding) prompt_rows -= count;
    if (request.drafts && !request.drafts->tokens.empty()) {
      segment.tokens = request.drafts->tokens;
      segment.logit_rows = segment.size();
      segment.drafts = segment.size() - 1;
      if (request.text.rules) segment.candidates = 0;  // an accepted draft may begin a mask
    }
    s.segment_requests.push_back(&request);
    s.segments.push_back(segment);
  }
}

void finish_pass(Scheduler& s) {
  draw_tokens(s);
  int64_t row = 0;
  for (size_t i = 0; i < s.segments.size(); ++i) {
    ScheduledRequest& request = *s.segment_requests[i];
    const Segment& segment = s.segments[i];
    request.sequence.ids.insert(request.sequence.ids.end(), segment.tokens.begin(), segment.tokens.end());
    const int64_t committed_rows = segment.logit_rows - segment.drafts;
    Error e;
    if (are_logits_finite(s, row, committed_rows)) {
      add_prompt_logprobs(request.text, logits_of(s, row, committed_rows), s.model->config.vocab_size,
                          workers_of(s.prefill_team));
    } else {
      e = error("NaN or infinity; the weights may be damaged", kNonFiniteLogits);
    }
    const bool continues =
        !e && (!ends_text(request, segment) || append_tokens(s, request, segment, row + committed_rows - 1));
    if (!e) e = request.text.failure;
    row += segment.logit_rows;
    if (!e && request.sequence.state.drafts.held == 0) keep_evaluated(s, request, segment.position);
    if (!continues) {
      end_request(s, &request, e);
    } else if (request.drafts) {
      extend_automaton(request, request.evaluated());
    }
  }
}

}  // namespace pinion
