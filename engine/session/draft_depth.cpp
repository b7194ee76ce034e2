#include "engine/session/draft_depth.h"

#include <algorithm>
#include <bit>
#include <limits>

namespace pinion {
namespace {

constexpr double kNewest = 0.125;   // what the newest figure counts for in a running mean
constexpr int64_t kTryAgain = 48;   // a bucket that does not pay is tried once in so many chances
constexpr double kRowCost = 0.08;   // of one more row over a pass of one, until it is measured
constexpr int64_t kLeastMatch = 2;  // one token alone says too little

void move_mean(double& mean, double newest) { mean += kNewest * (newest - mean); }

// How often the next draft of a text is right, beside all before it.
double likely_next(const Drafter& one) {
  const double agrees = one.acceptance->accepted[bucket_of_match(one.match_length)];
  double likely = 1;
  for (int64_t i = 0; i <= one.drafts; ++i) likely *= agrees;
  return likely;
}

bool may_draft(const Drafter& one) { return one.match_length >= kLeastMatch && one.drafts < one.most; }

// Whose next draft is the likeliest; null: nobody has one.
Drafter* likeliest(std::span<Drafter> drafters) {
  Drafter* best = nullptr;
  double best_likely = 0;
  for (Drafter& one : drafters) {
    if (!may_draft(one)) continue;
    const double likely = likely_next(one);
    if (likely > best_likely) best = &one, best_likely = likely;
  }
  return best;
}

}  // namespace

void note_seconds(double& mean, double newest) {
  if (mean == 0) mean = newest;
  move_mean(mean, std::min(newest, 2 * mean));
}

void note_pass(PassSeconds& seconds, int64_t rows, double newest) {
  if (rows <= PassSeconds::kMostRows) note_seconds(seconds.by_rows[static_cast<size_t>(rows)], newest);
}

// Rows that were not measured take as much as the nearest count that was, and kRowCost for each that differs.
double seconds_of(const PassSeconds& seconds, int64_t rows) {
  for (int64_t off = 0; off < PassSeconds::kMostRows; ++off) {
    for (const int64_t measured : {rows - off, rows + off}) {
      if (measured < 1 || measured > PassSeconds::kMostRows) continue;
      const double found = seconds.by_rows[static_cast<size_t>(measured)];
      if (found == 0) continue;
      const double one = 1 + kRowCost * static_cast<double>(measured - 1);
      return found * (1 + kRowCost * static_cast<double>(rows - 1)) / one;
    }
  }
  return 1 + kRowCost * static_cast<double>(rows - 1);
}

Acceptance::Acceptance() : accepted{0.3, 0.5, 0.7, 0.85, 0.9} {}

size_t bucket_of_match(int64_t length) {
  const int bucket = static_cast<int>(std::bit_width(static_cast<uint64_t>(length))) - 1;
  return static_cast<size_t>(std::clamp<int>(bucket, 0, Acceptance::kBuckets - 1));
}

size_t bucket_of_likely(double likely) {
  constexpr double kEnds[] = {0.3, 0.5, 0.7, 0.9};
  return static_cast<size_t>(std::ranges::count_if(kEnds, [&](double end) { return likely >= end; }));
}

void note_acceptance(Acceptance& acceptance, std::span<const size_t> buckets, int64_t accepted) {
  const int64_t told = std::min(accepted + 1, std::ssize(buckets));  // nothing is known of those after the first wrong
  for (int64_t i = 0; i < told; ++i) {
    move_mean(acceptance.accepted[buckets[static_cast<size_t>(i)]], i < accepted ? 1 : 0);
    move_mean(acceptance.agrees, i < accepted ? 1 : 0);
  }
}

void choose_depths(const PassSeconds& seconds, int64_t rows, int64_t most_rows, double most_seconds,
                   std::span<Drafter> drafters) {
  std::array<Drafter*, PassSeconds::kMostRows> order{};  // of the drafts
  const int64_t room = std::min(most_rows, PassSeconds::kMostRows) - rows;
  double tokens = static_cast<double>(rows);
  double best_rate = tokens / seconds_of(seconds, rows);
  int64_t best = 0;
  for (int64_t drafts = 0; drafts < room;) {
    Drafter* next = likeliest(drafters);
    if (!next) break;
    tokens += likely_next(*next);
    ++next->drafts;
    order[static_cast<size_t>(drafts++)] = next;
    const double took = seconds_of(seconds, rows + drafts);
    if (took < most_seconds && tokens / took > best_rate) best = drafts, best_rate = tokens / took;
  }
  for (Drafter& one : drafters) one.drafts = 0;
  for (int64_t i = 0; i < best; ++i) ++order[static_cast<size_t>(i)]->drafts;
  int64_t tries = room - best;
  for (Drafter& one : drafters) {
    if (one.match_length < kLeastMatch || one.most < 1) continue;
    int64_t& untried = one.acceptance->untried[bucket_of_match(one.match_length)];
    if (one.drafts > 0) {
      untried = 0;
    } else if (tries > 0 && try_again(untried)) {
      one.drafts = 1, --tries;
    }
  }
}

int64_t choose_depth(DraftDepth& depth, int64_t match_length) {
  if (depth.always > 0) return match_length > 0 ? depth.always : 0;
  Drafter alone = {.acceptance = &depth, .match_length = match_length, .most = kMostDrafts};
  choose_depths(depth.passes, 1, kMostDrafts + 1, std::numeric_limits<double>::infinity(), {&alone, 1});
  return alone.drafts;
}

bool try_again(int64_t& untried) {
  if (++untried < kTryAgain) return false;
  untried = 0;
  return true;
}

}  // namespace pinion
