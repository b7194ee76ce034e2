#include "engine/session/draft_model.h"

#include <algorithm>
#include <cmath>

#include "engine/forward/rope.h"
#include "engine/session/sequence.h"

namespace pinion {
namespace {

// e^logit over the sum of all, of which only each panel's largest is counted: a little too likely, and a thousandth of
// the work.
double about_how_likely(const DraftModel& model, int32_t id) {
  const float logit = model.logits[static_cast<size_t>(id)];
  double sum = 0;
  for (const int32_t best : panel_best(*model.session, model.session->last_logit_row)) {
    sum += std::exp(static_cast<double>(model.logits[static_cast<size_t>(best)] - logit));
  }
  return 1 / std::max(sum, 1.0);
}

// How many tokens of the text the session has read, and at which place the others begin.
int64_t read_tokens(const DraftModel& model) {
  return std::ssize(model.session->sequence.ids) + int64_t{reads_hidden(model)};
}

int64_t hidden_size(const DraftModel& model) { return model.session->model->config.hidden_size; }
float* unread_row(DraftModel& model, int64_t row) {
  return model.session->unread_hidden.data() + row * hidden_size(model);
}

// Evaluates the tokens that unread hidden states go with: the one after each. Without logits only a full cache fails,
// and then nothing is drafted: next_draft() misses what is lost here.
void read_all(DraftModel& model) {
  const auto first = static_cast<size_t>(read_tokens(model)), count = static_cast<size_t>(model.unread);
  model.unread = 0;
  [[maybe_unused]] const Error full =
      evaluate(*model.session, std::span(model.text).subspan(first, count), false, nullptr);
}

// The hidden states of further tokens; null: zeros. What does not fit beside others makes those be read.
void add_hidden(DraftModel& model, const float* hidden, int64_t rows) {
  const int64_t width = hidden_size(model), most = std::ssize(model.session->unread_hidden) / width;
  for (int64_t row = 0; row < rows; ++row) {
    if (model.unread == most) read_all(model);
    float* to = unread_row(model, model.unread++);
    hidden ? std::copy_n(hidden + row * width, width, to) : std::fill_n(to, width, 0.0f);
  }
}

// Makes ready for hidden states from `position` on, of a text that begins with `before` and goes on with `tokens`: what
// the layer holds from there on, or of another text, goes. Its last position of what stays may have been computed with
// another next token. It cannot be computed again, since its hidden state is gone.
void follow_text(DraftModel& model, std::span<const int32_t> before, std::span<const int32_t> tokens,
                 int64_t position) {
  int64_t known = common_prefix(model.text, before);
  if (known == std::ssize(before)) {
    known += common_prefix(std::span(model.text).subspan(before.size()), tokens);
  }
  const int64_t held = std::ssize(model.session->sequence.ids), kept = std::min(known, position);
  model.unread = std::clamp<int64_t>(kept - held, 0, model.unread);
  rewind(model.session->sequence, kept);
  model.text.assign(before.begin(), before.end());
  model.text.insert(model.text.end(), tokens.begin(), tokens.end());
  const int64_t have = std::ssize(model.session->sequence.ids) + model.unread;
  add_hidden(model, nullptr, position - have);
}

}  // namespace

Error check_draft_model(const ModelConfig& config) {
  if (can_be_cut(config)) return {};
  return error("cannot draft: it has a recurrent state, or positions that follow the length of the text", "draft model",
               "a model whose text can be cut at any token");
}

void read_hidden(DraftModel& model, std::span<const int32_t> before, std::span<const int32_t> tokens,
                 std::span<const float> hidden) {
  const int64_t rows = std::ssize(hidden) / hidden_size(model);
  follow_text(model, before, tokens, std::ssize(before) + std::ssize(tokens) - rows);
  add_hidden(model, hidden.data(), rows);
}

void begin_drafts(DraftModel& model, std::span<const int32_t> history, const Sampler& sampler) {
  if (reads_hidden(model)) {
    follow_text(model, history, {}, std::ssize(history) - 1);
  } else {
    const int64_t known = common_prefix(model.text, history);
    model.text.resize(static_cast<size_t>(known));
    model.text.insert(model.text.end(), history.begin() + known, history.end());
    rewind(model.session->sequence, std::min(known, std::ssize(history) - 1));
  }
  model.sampler.options = sampler.options;
  model.sampler.prompt_tokens = sampler.prompt_tokens;
  model.sampler.draws = sampler.draws;
  model.sampler.allowed = sampler.allowed;  // of the first draft; what may come after it is not known
}

Error next_draft(DraftModel& model, bool* found, int32_t* id, double* likely) {
  Session& session = *model.session;
  const int64_t vocab = session.model->config.vocab_size;
  *found = false;
  const std::span<const int32_t> rest = std::span(model.text).subspan(static_cast<size_t>(read_tokens(model)));
  if (rest.empty() || std::ssize(model.text) > session.sequence.cache.capacity) return {};
  if (reads_hidden(model) && std::ssize(rest) != model.unread) return {};
  if (std::ranges::any_of(rest, [&](int32_t one) { return one >= vocab; })) return {};
  model.logits.resize(static_cast<size_t>(vocab));
  if (Error e = evaluate(session, rest, false, model.logits.data())) {
    if (session.interrupted && *session.interrupted) return {};
    e.where = "the draft model's " + e.where;
    return e;
  }
  if (reads_hidden(model)) {
    model.unread = 0;
    add_hidden(model, session.hidden.data() + (std::ssize(rest) - 1) * hidden_size(model), 1);
  }
  *id = sample(model.sampler, model.logits, panel_best(session, session.last_logit_row), model.text);
  model.sampler.allowed = {};
  if (*id >= model.vocab_size) return {};
  *likely = about_how_likely(model, *id);
  model.text.push_back(*id);
  *found = true;
  return {};
}

}  // namespace pinion
