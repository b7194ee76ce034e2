#include "engine/session/drafts.h"

#include <algorithm>
#include <bit>

namespace pinion {
namespace {

using State = SuffixAutomaton::State;
using Edge = SuffixAutomaton::Edge;

// Number of suffixes for which append() updates State::end, the longest first, since drafts follow the longest match.
constexpr int kUpdatedSuffixes = 16;

std::vector<Edge>::iterator edge_position(State& state, int32_t id) {
  return std::ranges::lower_bound(state.edges, id, {}, &Edge::id);
}

// The state that an edge leads to; -1: no edge.
int32_t target(State& state, int32_t id) {
  const auto at = edge_position(state, id);
  return at != state.edges.end() && at->id == id ? at->state : -1;
}

void set_edge(State& state, int32_t id, int32_t to) {
  const auto at = edge_position(state, id);
  if (at != state.edges.end() && at->id == id) {
    at->state = to;
  } else {
    state.edges.insert(at, {id, to});
  }
}

// The state of the new text's longest suffix that occurred before. from: the state before `id`; -1: none.
int32_t suffix_link(SuffixAutomaton& a, int32_t from, int32_t id) {
  if (from < 0) return 0;
  const int32_t next = target(a.states[from], id);
  const int32_t length = a.states[from].length + 1;
  if (a.states[next].length == length) return next;
  // The longer substrings of `next` are no suffixes of the new text. A new state takes the substrings that are.
  const auto split = static_cast<int32_t>(a.states.size());
  a.states.push_back(a.states[next]);
  a.states.back().length = length;
  a.states[next].link = split;
  auto& all = a.states;
  for (; from >= 0 && target(all[from], id) == next; from = all[from].link) set_edge(all[from], id, split);
  return split;
}

constexpr double kNewest = 0.125;    // weight of the newest value in a running mean
constexpr int64_t kRetryAfter = 48;  // see is_retry_due()
constexpr double kRowCost = 0.08;    // time of one more row relative to a pass of one row, until it is measured
constexpr int64_t kMinMatch = 2;     // a match of one token predicts too little

void move_mean(double& mean, double newest) { mean += kNewest * (newest - mean); }

// Probability that a text's next draft and all its drafts before it are accepted.
double next_probability(const Drafter& drafter) {
  const double rate = drafter.acceptance->rates[bucket_of_match(drafter.match_length)];
  double probability = 1;
  for (int64_t i = 0; i <= drafter.drafts; ++i) probability *= rate;
  return probability;
}

// The drafter with the most likely next draft; null: none.
Drafter* likeliest(std::span<Drafter> drafters) {
  Drafter* best = nullptr;
  double best_probability = 0;
  for (Drafter& drafter : drafters) {
    if (drafter.match_length < kMinMatch || drafter.drafts >= drafter.max_drafts) continue;
    const double probability = next_probability(drafter);
    if (probability > best_probability) best = &drafter, best_probability = probability;
  }
  return best;
}

}  // namespace

void append(SuffixAutomaton& a, int32_t id) {
  const auto whole = static_cast<int32_t>(a.states.size());
  int32_t from = a.last;
  a.text.push_back(id);
  const auto end = static_cast<int32_t>(a.text.size());
  a.states.push_back({.length = end, .end = end});
  for (; from >= 0 && target(a.states[from], id) < 0; from = a.states[from].link) set_edge(a.states[from], id, whole);
  const int32_t link = suffix_link(a, from, id);
  a.states[whole].link = link;
  a.last = whole;
  a.match_length = a.states[link].length;
  a.match_end = a.states[link].end;
  int32_t state = link;
  for (int i = 0; i < kUpdatedSuffixes && state > 0; ++i) {
    a.states[state].end = end;
    state = a.states[state].link;
  }
}

void note_seconds(double& mean, double newest) {
  if (mean == 0) mean = newest;
  move_mean(mean, std::min(newest, 2 * mean));
}

void note_pass(PassSeconds& seconds, int64_t rows, double newest) {
  if (rows <= PassSeconds::kMaxRows) note_seconds(seconds.by_rows[rows], newest);
}

// Extrapolates from the nearest measured number of rows, with kRowCost per row.
double expected_seconds(const PassSeconds& seconds, int64_t rows) {
  const auto relative_cost = [](int64_t count) { return 1 + kRowCost * static_cast<double>(count - 1); };
  for (int64_t distance = 0; distance < PassSeconds::kMaxRows; ++distance) {
    for (const int64_t measured : {rows - distance, rows + distance}) {
      if (measured < 1 || measured > PassSeconds::kMaxRows) continue;
      const double found = seconds.by_rows[measured];
      if (found > 0) return found * relative_cost(rows) / relative_cost(measured);
    }
  }
  return relative_cost(rows);
}

Acceptance::Acceptance() : rates{0.3, 0.5, 0.7, 0.85, 0.9} {}

size_t bucket_of_match(int64_t length) {
  const int bucket = static_cast<int>(std::bit_width(static_cast<uint64_t>(length))) - 1;
  return std::clamp<int>(bucket, 0, Acceptance::kBuckets - 1);
}

size_t bucket_of_probability(double probability) {
  constexpr double kBounds[] = {0.3, 0.5, 0.7, 0.9};
  return std::ranges::count_if(kBounds, [&](double bound) { return probability >= bound; });
}

void note_acceptance(Acceptance& acceptance, std::span<const size_t> buckets, int64_t accepted) {
  const int64_t known = std::min(accepted + 1, std::ssize(buckets));  // drafts after the first wrong one prove nothing
  for (int64_t i = 0; i < known; ++i) {
    move_mean(acceptance.rates[buckets[i]], i < accepted ? 1 : 0);
    move_mean(acceptance.overall_rate, i < accepted ? 1 : 0);
  }
}

void choose_depths(const PassSeconds& seconds, int64_t rows, int64_t max_rows, double max_seconds,
                   std::span<Drafter> drafters) {
  std::array<Drafter*, PassSeconds::kMaxRows> order{};  // by descending probability of the drafts
  const int64_t room = std::min(max_rows, PassSeconds::kMaxRows) - rows;
  double tokens = static_cast<double>(rows);
  double best_rate = tokens / expected_seconds(seconds, rows);
  int64_t best = 0;
  for (int64_t drafts = 0; drafts < room;) {
    Drafter* next = likeliest(drafters);
    if (!next) break;
    tokens += next_probability(*next);
    ++next->drafts;
    order[drafts++] = next;
    const double duration = expected_seconds(seconds, rows + drafts);
    if (duration < max_seconds && tokens / duration > best_rate) best = drafts, best_rate = tokens / duration;
  }
  for (Drafter& drafter : drafters) drafter.drafts = 0;
  for (int64_t i = 0; i < best; ++i) ++order[i]->drafts;
  int64_t retries = room - best;
  for (Drafter& drafter : drafters) {
    if (drafter.match_length < kMinMatch || drafter.max_drafts < 1) continue;
    int64_t& skipped = drafter.acceptance->skipped[bucket_of_match(drafter.match_length)];
    if (drafter.drafts > 0) {
      skipped = 0;
    } else if (retries > 0 && is_retry_due(skipped)) {
      drafter.drafts = 1, --retries;
    }
  }
}

bool is_retry_due(int64_t& skipped) {
  if (++skipped < kRetryAfter) return false;
  skipped = 0;
  return true;
}

}  // namespace pinion
