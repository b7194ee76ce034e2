#include "engine/session/speculation.h"

#include <algorithm>
#include <bit>
#include <chrono>

namespace pinion {
namespace {

constexpr double kNewest = 0.125;   // what the newest figure counts for in a running mean
constexpr int64_t kTryAgain = 48;   // a bucket that does not pay is tried once in so many chances
constexpr double kRowCost = 0.08;   // of one more row over a pass of one, until it is measured
constexpr int64_t kLeastMatch = 2;  // one token alone says too little

// What a pass of so many rows takes. Rows that were not measured take as much as the nearest count that was, and
// kRowCost for each that differs.
double seconds_of(const DraftDepth& depth, int64_t rows) {
  for (int64_t off = 0; off <= kMostDrafts; ++off) {
    for (const int64_t measured : {rows - off, rows + off}) {
      if (measured < 1 || measured > kMostDrafts + 1) continue;
      const double seconds = depth.pass_seconds[static_cast<size_t>(measured)];
      if (seconds == 0) continue;
      const double one = 1 + kRowCost * static_cast<double>(measured - 1);
      return seconds * (1 + kRowCost * static_cast<double>(rows - 1)) / one;
    }
  }
  return 1 + kRowCost * static_cast<double>(rows - 1);
}

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
double rate(const DraftDepth& depth, const Draft& draft, int64_t drawn) {
  return draft.tokens / (seconds_of(depth, draft.drafts + 1) + static_cast<double>(drawn) * depth.draft_seconds);
}

// How many drafts more pay, if each agrees so often.
int64_t more_that_pay(const DraftDepth& depth, Draft draft, double agrees) {
  const int64_t before = draft.drafts;
  int64_t best = 0;
  double best_rate = rate(depth, draft, before);
  while (draft.drafts < kMostDrafts) {
    draft.add(agrees);
    const double longer = rate(depth, draft, draft.drafts);
    if (longer > best_rate) best = draft.drafts - before, best_rate = longer;
  }
  return best;
}

// Whether what does not pay gets a chance all the same, now and then: the text may have changed.
bool try_again(int64_t& untried) {
  if (++untried < kTryAgain) return false;
  untried = 0;
  return true;
}

void move_mean(double& mean, double newest) { mean += kNewest * (newest - mean); }

// The same for seconds, of which 0 were never measured. A pass that another program held up counts as one of twice the
// time: it says little about the next.
void note(double& mean, double seconds) {
  if (mean == 0) mean = seconds;
  move_mean(mean, std::min(seconds, 2 * mean));
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
    if (!is_test && more_that_pay(depth, pass, depth.agrees) == 0 &&
        (pass.drafts > 0 || !try_again(depth.untried[0]))) {
      return;
    }
    const auto start = std::chrono::steady_clock::now();
    const int64_t unread = std::ssize(speculation.model->text) - std::ssize(speculation.model->session->sequence.ids);
    bool found = false;
    int32_t id = 0;
    double likely = 0;
    speculation.failure = next_draft(*speculation.model, &found, &id, &likely);
    if (!found) return;
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    // More tokens are a beginning to catch up with: they take longer than one, at least.
    if (unread <= 2 || seconds < depth.draft_seconds) note(depth.draft_seconds, seconds);
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

DraftDepth::DraftDepth() : accepted{0.3, 0.5, 0.7, 0.85, 0.9} {}

size_t bucket_of_match(int64_t length) {
  const int bucket = static_cast<int>(std::bit_width(static_cast<uint64_t>(length))) - 1;
  return static_cast<size_t>(std::clamp<int>(bucket, 0, DraftDepth::kBuckets - 1));
}

size_t bucket_of_likely(double likely) {
  constexpr double kEnds[] = {0.3, 0.5, 0.7, 0.9};
  return static_cast<size_t>(std::ranges::count_if(kEnds, [&](double end) { return likely >= end; }));
}

int64_t choose_depth(DraftDepth& depth, int64_t match_length) {
  if (depth.always > 0) return match_length > 0 ? depth.always : 0;
  if (match_length < kLeastMatch) return 0;
  const size_t bucket = bucket_of_match(match_length);
  const int64_t best = more_that_pay(depth, {}, depth.accepted[bucket]);
  if (best > 0) depth.untried[bucket] = 0;
  return best > 0 ? best : int64_t{try_again(depth.untried[bucket])};
}

void note_pass(DraftDepth& depth, int64_t rows, double seconds) {
  note(depth.pass_seconds[static_cast<size_t>(rows)], seconds);
}

void note_acceptance(DraftDepth& depth, std::span<const size_t> buckets, int64_t accepted) {
  const int64_t told = std::min(accepted + 1, std::ssize(buckets));  // nothing is known of those after the first wrong
  for (int64_t i = 0; i < told; ++i) {
    move_mean(depth.accepted[buckets[static_cast<size_t>(i)]], i < accepted ? 1 : 0);
    move_mean(depth.agrees, i < accepted ? 1 : 0);
  }
}

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
  speculation.model ? ask_model(speculation, text, most) : look_back(speculation, most);
}

}  // namespace pinion
