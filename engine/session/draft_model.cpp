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

}  // namespace

Error check_draft_model(const ModelConfig& config) {
  if (can_be_cut(config)) return {};
  return error("cannot draft: it has a recurrent state, or positions that follow the length of the text", "draft model",
               "a model whose text can be cut at any token");
}

void begin_drafts(DraftModel& model, std::span<const int32_t> history, const Sampler& sampler) {
  const int64_t known = common_prefix(model.text, history);
  model.text.resize(static_cast<size_t>(known));
  model.text.insert(model.text.end(), history.begin() + known, history.end());
  rewind(model.session->sequence, std::min(known, std::ssize(history) - 1));
  model.sampler.options = sampler.options;
  model.sampler.prompt_tokens = sampler.prompt_tokens;
  model.sampler.draws = sampler.draws;
}

Error next_draft(DraftModel& model, bool* found, int32_t* id, double* likely) {
  Session& session = *model.session;
  const int64_t vocab = session.model->config.vocab_size;
  *found = false;
  const std::span<const int32_t> rest = std::span(model.text).subspan(session.sequence.ids.size());
  if (std::ssize(model.text) > session.sequence.cache.capacity) return {};
  if (std::ranges::any_of(rest, [&](int32_t one) { return one >= vocab; })) return {};
  model.logits.resize(static_cast<size_t>(vocab));
  if (Error e = evaluate(session, rest, false, model.logits.data())) {
    if (session.interrupted && *session.interrupted) return {};
    e.where = "the draft model's " + e.where;
    return e;
  }
  *id = sample(model.sampler, model.logits, panel_best(session, session.last_logit_row), model.text);
  if (*id >= model.vocab_size) return {};
  *likely = about_how_likely(model, *id);
  model.text.push_back(*id);
  *found = true;
  return {};
}

}  // namespace pinion
