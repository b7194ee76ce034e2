#include "engine/session/speculation.h"

#include <algorithm>
#include <bit>

namespace pinion {
namespace {

constexpr double kNewest = 0.125;   // what the newest figure counts for in a running mean
constexpr int64_t kTryAgain = 48;   // a bucket that does not pay is tried once in so many matches
constexpr double kRowCost = 0.08;   // of one more row over a pass of one, until it is measured
constexpr int64_t kLeastMatch = 2;  // one token alone says too little

size_t bucket_of(int64_t match_length) {
  const int bucket = static_cast<int>(std::bit_width(static_cast<uint64_t>(match_length))) - 1;
  return static_cast<size_t>(std::clamp(bucket, 0, DraftDepth::kBuckets - 1));
}

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

}  // namespace

DraftDepth::DraftDepth() : accepted{0.3, 0.5, 0.7, 0.85, 0.9} {}

int64_t choose_depth(DraftDepth& depth, int64_t match_length) {
  if (depth.always > 0) return match_length > 0 ? depth.always : 0;
  if (match_length < kLeastMatch) return 0;
  const size_t bucket = bucket_of(match_length);
  const double agrees = depth.accepted[bucket];
  int64_t best = 0;
  double best_rate = 1 / seconds_of(depth, 1), tokens = 1, all_agree = 1;
  for (int64_t drafts = 1; drafts <= kMostDrafts; ++drafts) {
    all_agree *= agrees;
    tokens += all_agree;
    const double rate = tokens / seconds_of(depth, drafts + 1);
    if (rate > best_rate) best = drafts, best_rate = rate;
  }
  if (best > 0) {
    depth.untried[bucket] = 0;
  } else if (++depth.untried[bucket] == kTryAgain) {
    depth.untried[bucket] = 0;
    return 1;
  }
  return best;
}

void note_pass(DraftDepth& depth, int64_t rows, double seconds) {
  double& known = depth.pass_seconds[static_cast<size_t>(rows)];
  known = known == 0 ? seconds : known + kNewest * (seconds - known);
}

void note_acceptance(DraftDepth& depth, int64_t match_length, int64_t drafted, int64_t accepted) {
  double& known = depth.accepted[bucket_of(match_length)];
  for (int64_t i = 0; i < accepted; ++i) known += kNewest * (1 - known);
  if (accepted < drafted) known -= kNewest * known;
}

std::span<const int32_t> draft(Speculation& speculation, int64_t most) {
  const SuffixAutomaton& a = speculation.text;
  if (most < 1) return {};
  const int64_t known = std::ssize(a.text) - a.match_end;
  const int64_t drafts = std::min({choose_depth(speculation.depth, a.match_length), most, known});
  return std::span(a.text).subspan(static_cast<size_t>(a.match_end), static_cast<size_t>(drafts));
}

}  // namespace pinion
