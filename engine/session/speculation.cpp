#include "engine/session/speculation.h"

#include <algorithm>

#include "kernels/base/clock.h"

namespace pinion {
namespace {

// A pass as far as it is drafted.
struct Draft {
  int64_t drafts = 0;
  double tokens = 1;     // that it is expected to give
  double all_agree = 1;  // how likely

  void add(double agrees) {
    ++drafts;
    all_agree *= agrees;
    tokens += all_agree;
  }
};

// Tokens a second, where `drawn` drafts were asked for.
double rate(const DraftDepth& depth, const Draft& pass, int64_t drawn) {
  return pass.tokens / (seconds_of(depth.passes, pass.drafts + 1) + static_cast<double>(drawn) * depth.draft_seconds);
}

// Whether any drafts more pay, if each agrees as often as the model's did lately.
bool do_more_pay(const DraftDepth& depth, Draft pass) {
  const double now = rate(depth, pass, pass.drafts);
  while (pass.drafts < kMostDrafts) {
    pass.add(depth.agrees);
    if (rate(depth, pass, pass.drafts) > now) return true;
  }
  return false;
}

// Asks the small model for one draft after another, while that pays. It may find its own draft so unlikely that not
// even a row for it pays.
void ask_model(Speculation& speculation, const Continuation& text, int64_t most) {
  DraftDepth& depth = speculation.depth;
  begin_drafts(*speculation.model, text.history, text.sampler);
  Draft pass;
  const bool is_test = depth.always > 0;
  const int64_t limit = is_test ? std::min(most, depth.always) : most;
  while (pass.drafts < limit) {
    if (!is_test && !do_more_pay(depth, pass) && (pass.drafts > 0 || !try_again(depth.untried[0]))) {
      return;
    }
    const double start = now_seconds();
    const int64_t unread = std::ssize(speculation.model->text) - std::ssize(speculation.model->session->sequence.ids);
    bool found = false;
    int32_t id = 0;
    double likely = 0;
    speculation.failure = next_draft(*speculation.model, &found, &id, &likely);
    if (!found) return;
    const double seconds = now_seconds() - start;
    // More tokens are a beginning to catch up with: they take longer than one, at least.
    if (unread <= 2 || seconds < depth.draft_seconds) note_seconds(depth.draft_seconds, seconds);
    const size_t bucket = bucket_of_likely(likely);
    Draft with = pass;
    with.add(depth.accepted[bucket]);
    const int64_t drawn = pass.drafts + 1;
    if (!is_test && rate(depth, with, drawn) < rate(depth, pass, drawn) && !try_again(depth.untried[bucket])) return;
    pass = with;
    speculation.drafts.ids.push_back(id);
    speculation.drafts.buckets.push_back(bucket);
  }
}

// What the text's rules foresee. Whether that is anything.
bool look_ahead(Speculation& speculation, const Continuation& text, int64_t most) {
  const std::vector<int32_t> ids = text.rules ? text.rules->foreseen() : std::vector<int32_t>();
  const int64_t count = std::min({choose_depth(speculation.depth, kForeseenMatch), most, std::ssize(ids)});
  speculation.drafts.ids.assign(ids.begin(), ids.begin() + count);
  speculation.drafts.buckets.assign(static_cast<size_t>(count), bucket_of_match(kForeseenMatch));
  return !ids.empty();
}

void look_back(Speculation& speculation, int64_t most) {
  const SuffixAutomaton& a = speculation.text;
  const int64_t known = std::ssize(a.text) - a.match_end;
  const int64_t count = std::min({choose_depth(speculation.depth, a.match_length), most, known});
  const std::span<const int32_t> ids =
      std::span(a.text).subspan(static_cast<size_t>(a.match_end), static_cast<size_t>(count));
  speculation.drafts.ids.assign(ids.begin(), ids.end());
  speculation.drafts.buckets.assign(ids.size(), bucket_of_match(a.match_length));
}

}  // namespace

void use_speculation(Speculation* speculation, Session* session) {
  session->speculation = speculation;
  session->on_hidden = {};
  DraftModel* model = speculation ? speculation->model.get() : nullptr;
  if (!model || !reads_hidden(*model) || session->hidden.empty()) return;
  session->on_hidden = [speculation](auto before, auto tokens, auto hidden) {
    if (!speculation->failure) read_hidden(*speculation->model, before, tokens, hidden);
  };
}

void begin_text(Speculation& speculation, const Session& session, std::span<const int32_t> history) {
  if (speculation.model) {
    // An MTP layer's passes are short, and what one missed of a text could not be read again.
    if (!reads_hidden(*speculation.model)) speculation.model->session->interrupted = session.interrupted;
    speculation.model->vocab_size = session.model->config.vocab_size;
  } else {
    follow(speculation.text, history);
  }
}

void add_token(Speculation& speculation, int32_t id) {
  if (!speculation.model) append(speculation.text, id);
}

void find_drafts(Speculation& speculation, const Continuation& text, int64_t most) {
  speculation.drafts.ids.clear(), speculation.drafts.buckets.clear();
  if (most < 1 || speculation.failure) return;
  if (speculation.model) {
    ask_model(speculation, text, most);
  } else if (!look_ahead(speculation, text, most)) {
    look_back(speculation, most);
  }
}

}  // namespace pinion
