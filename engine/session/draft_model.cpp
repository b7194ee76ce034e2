#include "engine/session/speculation.h"

#include <cmath>

#include "engine/session/session.h"

namespace pinion {
namespace {

// ---- Draft models ----

// Largest logits over which a draft's probability is estimated, if its sampler does not need more.
constexpr int64_t kEstimatedOver = 8;

// e^logit over the sum of each panel's largest e^logit: slightly too high, but one exponential per panel.
double estimated_probability(const DraftModel& model, int32_t id) {
  const float logit = model.logits[id];
  double sum = 0;
  for (const int32_t best : panel_best(*model.session, model.session->last_logit_row)) {
    sum += std::exp(static_cast<double>(model.logits[best] - logit));
  }
  return 1 / std::max(sum, 1.0);
}

// Index of the first token of the text that the session has not read.
int64_t first_unread_token(const DraftModel& model) {
  return std::ssize(model.session->sequence.ids) + int64_t{reads_hidden(model)};
}

int64_t hidden_size(const DraftModel& model) { return model.session->model->config.hidden_size; }

// Evaluates the tokens after all unread hidden states. Without logits, a full cache is the only possible error; then
// next_draft() detects the missing positions and returns no draft.
void evaluate_unread(DraftModel& model) {
  const int64_t first = first_unread_token(model), count = model.unread_rows;
  model.unread_rows = 0;
  [[maybe_unused]] Error full = evaluate(*model.session, std::span(model.text).subspan(first, count), false, nullptr);
}

// Appends hidden states, zeros if `hidden` is null. Evaluates the unread ones whenever their buffer is full.
void add_hidden(DraftModel& model, const float* hidden, int64_t rows) {
  std::vector<float>& input = model.session->input_hidden;
  const int64_t width = hidden_size(model), capacity = std::ssize(input) / width;
  for (int64_t row = 0; row < rows; ++row) {
    if (model.unread_rows == capacity) evaluate_unread(model);
    float* to = input.data() + model.unread_rows++ * width;
    hidden ? std::copy_n(hidden + row * width, width, to) : std::fill_n(to, width, 0.0f);
  }
}

// Prepares an MTP layer for hidden states from `position` on, of the text `before` + `tokens`: drops its later
// positions and positions of another text. The last remaining position may have been evaluated with another next token.
// It is kept, because the hidden state to evaluate it again is no longer stored.
void align_text(DraftModel& model, std::span<const int32_t> before, std::span<const int32_t> tokens, int64_t position) {
  int64_t known = common_prefix(model.text, before);
  if (known == std::ssize(before)) known += common_prefix(std::span(model.text).subspan(before.size()), tokens);
  const int64_t evaluated = std::ssize(model.session->sequence.ids), kept = std::min(known, position);
  model.unread_rows = std::clamp<int64_t>(kept - evaluated, 0, model.unread_rows);
  rewind(model.session->sequence, kept);
  model.text.assign(before.begin(), before.end());
  model.text.insert(model.text.end(), tokens.begin(), tokens.end());
  const int64_t present = std::ssize(model.session->sequence.ids) + model.unread_rows;
  add_hidden(model, nullptr, position - present);
}

// ---- Number of drafts ----

// Expectation for some drafts.
struct DraftsExpected {
  int64_t drafts = 0;
  double tokens = 1;     // expected number of tokens that the text gains
  double all_agree = 1;  // probability that all drafts are accepted

  void add(double rate) {
    ++drafts;
    all_agree *= rate;
    tokens += all_agree;
  }
};

// Expected tokens per second if the draft model draws `drawn` drafts and the pass has the expected ones.
double token_rate(const Speculation& speculation, const DraftedPass& pass, DraftsExpected expected, int64_t drawn) {
  const double pass_seconds = expected_seconds(pass.seconds, pass.rows + expected.drafts);
  return (static_cast<double>(pass.rows - 1) + expected.tokens) /
         (pass_seconds + static_cast<double>(drawn) * speculation.draft_seconds);
}

// True if more drafts pay, assuming that each is accepted as often as recent ones.
bool do_more_pay(const Speculation& speculation, const DraftedPass& pass, DraftsExpected expected) {
  const double now = token_rate(speculation, pass, expected, expected.drafts);
  while (expected.drafts < kMaxDrafts) {
    expected.add(speculation.acceptance.overall_rate);
    if (token_rate(speculation, pass, expected, expected.drafts) > now) return true;
  }
  return false;
}

}  // namespace

DraftModel::~DraftModel() = default;

bool reads_hidden(const DraftModel& model) { return model.session->model->reads_hidden(); }

Error check_draft_model(const ModelConfig& config) {
  if (can_truncate(config)) return {};
  return error("cannot draft: it has a recurrent state or dynamic rope", "draft model",
               "a model whose sequence can be truncated at any token");
}

void receive_hidden(DraftModel& model, std::span<const int32_t> before, std::span<const int32_t> tokens,
                    std::span<const float> hidden) {
  const int64_t rows = std::ssize(hidden) / hidden_size(model);
  align_text(model, before, tokens, std::ssize(before) + std::ssize(tokens) - rows);
  add_hidden(model, hidden.data(), rows);
}

void begin_drafts(DraftModel& model, std::span<const int32_t> history, const Sampler& sampler) {
  if (reads_hidden(model)) {
    align_text(model, history, {}, std::ssize(history) - 1);
  } else {
    const int64_t known = common_prefix(model.text, history);
    model.text.resize(known);
    model.text.insert(model.text.end(), history.begin() + known, history.end());
    rewind(model.session->sequence, std::min(known, std::ssize(history) - 1));
  }
  model.sampler.options = sampler.options;
  model.sampler.prompt_tokens = sampler.prompt_tokens;
  model.sampler.draws = sampler.draws;
  model.sampler.allowed = sampler.allowed;  // for the first draft only: later masks are unknown
}

Error next_draft(DraftModel& model, std::optional<ModelDraft>* out) {
  Session& session = *model.session;
  const int64_t vocab = session.model->config.vocab_size;
  out->reset();
  const std::span<const int32_t> unread = std::span(model.text).subspan(first_unread_token(model));
  if (unread.empty() || std::ssize(model.text) > session.sequence.cache.capacity) return {};
  if (reads_hidden(model) && std::ssize(unread) != model.unread_rows) return {};
  if (std::ranges::any_of(unread, [&](int32_t id) { return id >= vocab; })) return {};
  model.logits.resize(vocab);
  int64_t needed = model.sampler.allowed.empty() ? candidates_needed(model.sampler.options) : 0;
  if (needed > 0) needed = std::max(needed, kEstimatedOver);
  if (Error e = evaluate(session, unread, false, model.logits.data(), needed)) {
    if (session.interrupted && *session.interrupted) return {};
    e.where = "the draft model's " + e.where;
    return e;
  }
  if (reads_hidden(model)) {
    model.unread_rows = 0;
    add_hidden(model, session.hidden.data() + (std::ssize(unread) - 1) * hidden_size(model), 1);
  }
  const int32_t id = sample(model.sampler, model.logits, panel_best(session, session.last_logit_row), model.text);
  model.sampler.allowed = {};
  if (id >= model.vocab_size) return {};
  *out = {.id = id, .probability = estimated_probability(model, id)};
  model.text.push_back(id);
  return {};
}

void draft_from_model(Speculation& speculation, const Continuation& text, const DraftedPass& pass) {
  if (pass.max_drafts < 1 || speculation.failure) return;
  DraftModel& model = *speculation.model;
  Acceptance& acceptance = speculation.acceptance;
  begin_drafts(model, text.history, text.sampler);
  DraftsExpected expected;
  const bool is_fixed = pass.fixed_drafts > 0;
  const int64_t limit = is_fixed ? std::min(pass.max_drafts, pass.fixed_drafts) : pass.max_drafts;
  while (expected.drafts < limit) {
    const bool may_pay = is_fixed || do_more_pay(speculation, pass, expected);
    if (!may_pay && (expected.drafts > 0 || !is_retry_due(acceptance.skipped[0]))) return;
    const double start = now_seconds();
    const int64_t unread = std::ssize(model.text) - std::ssize(model.session->sequence.ids);
    std::optional<ModelDraft> draft;
    speculation.failure = next_draft(model, &draft);
    if (!draft) return;
    const double seconds = now_seconds() - start;
    // With more than two unread tokens the time includes the evaluation of earlier text: only an upper bound.
    if (unread <= 2 || seconds < speculation.draft_seconds) note_seconds(speculation.draft_seconds, seconds);
    const size_t bucket = bucket_of_probability(draft->probability);
    DraftsExpected with = expected;
    with.add(acceptance.rates[bucket]);
    const bool pays =
        token_rate(speculation, pass, with, with.drafts) >= token_rate(speculation, pass, expected, with.drafts);
    if (!is_fixed && !pays && !is_retry_due(acceptance.skipped[bucket])) return;
    expected = with;
    if (speculation.tokens.empty()) speculation.tokens.assign(1, text.history.back());
    speculation.tokens.push_back(draft->id);
    speculation.buckets.push_back(bucket);
  }
}

}  // namespace pinion
