// Bias, penalties, temperature, then filters that narrow the candidates, then one draw, in the order that Hugging
// Face's generate() has. Owns no model state: what it needs of the past is the history it is given.
#include "engine/session/sampler.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <utility>

#include "kernels/base/hash.h"
#include "kernels/base/math.h"
#include "kernels/layout.h"

namespace pinion {
namespace {

using Candidates = std::vector<Candidate>;

// The draw number `draws` of the stream that belongs to the seed, in [0, 1): SplitMix64's finaliser over a counter.
double uniform(uint64_t seed, uint64_t draws) {
  const uint64_t stream = splitmix64_finalise(seed + kGoldenGamma);
  return static_cast<double>(splitmix64_finalise(stream + (draws + 1) * kGoldenGamma) >> 11) * 0x1p-53;
}

// The likeliest id of a panel; the first where there is none.
int32_t best_of(std::span<const float> logits, int64_t panel) {
  const auto first = static_cast<int32_t>(panel * kPanelColumns);
  const auto end = static_cast<int32_t>(std::min<int64_t>(std::ssize(logits), first + kPanelColumns));
  float largest = -std::numeric_limits<float>::infinity();
  int32_t best = first;
  for (int32_t id = first; id < end; ++id) {
    if (!(logits[id] > largest)) continue;
    largest = logits[id];
    best = id;
  }
  return best;
}

void find_best(Sampler& sampler, std::span<const float> logits, std::span<const int32_t> panel_best) {
  sampler.best.assign(panel_best.begin(), panel_best.end());
  if (!panel_best.empty()) return;
  for (int64_t panel = 0; panel < panel_count(std::ssize(logits)); ++panel) {
    sampler.best.push_back(best_of(logits, panel));
  }
}

void set_logit(Sampler& sampler, int32_t id, float logit) {
  sampler.adjusted[static_cast<size_t>(id)] = logit;
  sampler.changed[static_cast<size_t>(id / kPanelColumns)] = true;
}

// Of the ids in the vocabulary; all the others count for nothing.
int32_t* count_of(Sampler& sampler, int32_t id) {
  return id >= 0 && id < std::ssize(sampler.counts) ? &sampler.counts[static_cast<size_t>(id)] : nullptr;
}

// Calls f(id, count) once for each id that has a count, and takes the count back. `ids` has them all.
void visit_counts(Sampler& sampler, std::span<const int32_t> ids, const auto& f) {
  for (const int32_t id : ids) {
    int32_t* count = count_of(sampler, id);
    if (count && *count > 0) f(id, std::exchange(*count, 0));
  }
}

void count_ids(Sampler& sampler, std::span<const int32_t> ids) {
  for (const int32_t id : ids) {
    if (int32_t* count = count_of(sampler, id)) ++*count;
  }
}

void add_bias(Sampler& sampler, std::span<const int32_t>) {
  for (const LogitBias& one : sampler.options.logit_bias) {
    if (!count_of(sampler, one.id)) continue;  // a draft model may know fewer ids
    set_logit(sampler, one.id, sampler.adjusted[static_cast<size_t>(one.id)] + one.bias);
  }
}

void penalise_repetition(Sampler& sampler, std::span<const int32_t> history) {
  const float penalty = sampler.options.repetition_penalty;
  count_ids(sampler, history);
  visit_counts(sampler, history, [&](int32_t id, int32_t) {
    const float logit = sampler.adjusted[static_cast<size_t>(id)];
    set_logit(sampler, id, logit > 0 ? logit / penalty : logit * penalty);
  });
}

void penalise_presence_and_frequency(Sampler& sampler, std::span<const int32_t> history) {
  const auto generated = history.subspan(std::min(history.size(), static_cast<size_t>(sampler.prompt_tokens)));
  count_ids(sampler, generated);
  visit_counts(sampler, generated, [&](int32_t id, int32_t count) {
    const float times = static_cast<float>(count);
    const float penalty = sampler.options.presence_penalty + times * sampler.options.frequency_penalty;
    set_logit(sampler, id, sampler.adjusted[static_cast<size_t>(id)] - penalty);
  });
}

// The longest repetition that each id would prolong: where the text's end stands earlier in it, too, the id after that
// place. Backwards from the end a repetition is a common prefix, and the Z-function finds all of them in linear time.
void penalise_dry(Sampler& sampler, std::span<const int32_t> history) {
  const SamplerOptions& options = sampler.options;
  const auto is_breaker = [&](int32_t id) {
    return std::ranges::find(options.dry_breakers, id) != options.dry_breakers.end();
  };
  const auto n = std::ssize(history);
  const auto from_end = [&](int64_t i) { return history[static_cast<size_t>(n - 1 - i)]; };
  int64_t most = 0;
  while (most < n && !is_breaker(from_end(most))) ++most;
  std::vector<int64_t>& common = sampler.common_with_end;
  common.assign(static_cast<size_t>(n), 0);
  for (int64_t i = 1, left = 0, right = 0; i < n; ++i) {
    int64_t length = i < right ? std::min(right - i, common[static_cast<size_t>(i - left)]) : 0;
    while (i + length < n && from_end(length) == from_end(i + length)) ++length;
    if (i + length > right) left = i, right = i + length;
    common[static_cast<size_t>(i)] = length;
    const int64_t repeated = std::min(length, most);
    int32_t* longest = count_of(sampler, from_end(i - 1));
    if (!longest || repeated < options.dry_allowed_length || is_breaker(from_end(i - 1))) continue;
    *longest = std::max(*longest, static_cast<int32_t>(repeated));
  }
  visit_counts(sampler, history, [&](int32_t id, int32_t length) {
    const double penalty = options.dry_multiplier * portable_pow(options.dry_base, length - options.dry_allowed_length);
    set_logit(sampler, id, static_cast<float>(sampler.adjusted[static_cast<size_t>(id)] - penalty));
  });
}

void forbid(Sampler& sampler) {
  if (sampler.allowed.empty()) return;
  const auto vocab = std::ssize(sampler.adjusted), known = std::ssize(sampler.allowed);
  for (int64_t word = 0; word * 32 < vocab; ++word) {
    for (uint32_t left = word < known ? ~sampler.allowed[static_cast<size_t>(word)] : ~0u; left != 0;
         left &= left - 1) {
      const auto id = static_cast<int32_t>(word * 32 + std::countr_zero(left));
      if (id < vocab) set_logit(sampler, id, -std::numeric_limits<float>::infinity());
    }
  }
}

// In the order in which they are applied.
struct Adjustment {
  bool (*is_on)(const SamplerOptions&);
  void (*apply)(Sampler&, std::span<const int32_t> history);
};
constexpr Adjustment kAdjustments[] = {
    {[](const SamplerOptions& o) { return !o.logit_bias.empty(); }, add_bias},
    {[](const SamplerOptions& o) { return o.repetition_penalty != 1; }, penalise_repetition},
    {[](const SamplerOptions& o) { return o.presence_penalty != 0 || o.frequency_penalty != 0; },
     penalise_presence_and_frequency},
    {[](const SamplerOptions& o) { return o.dry_multiplier > 0; }, penalise_dry},
};

}  // namespace

bool adjusts_logits(const SamplerOptions& options) {
  return std::ranges::any_of(kAdjustments, [&](const Adjustment& one) { return one.is_on(options); });
}

int64_t candidates_needed(const SamplerOptions& options) {
  if (adjusts_logits(options)) return 0;
  if (!(options.temperature > 0)) return 1;
  // The other filters see no more than top-k has left.
  return options.top_k > 0 && options.top_k <= kMostCandidates ? options.top_k : 0;
}

namespace {

// The logits after all adjustments, with the likeliest of each panel.
std::span<const float> adjust(Sampler& sampler, std::span<const float> logits, std::span<const int32_t> history) {
  if (sampler.allowed.empty() && !adjusts_logits(sampler.options)) return logits;
  sampler.adjusted.assign(logits.begin(), logits.end());
  sampler.counts.resize(logits.size());
  sampler.changed.assign(sampler.best.size(), false);
  for (const Adjustment& one : kAdjustments) {
    if (one.is_on(sampler.options)) one.apply(sampler, history);
  }
  forbid(sampler);
  for (int64_t panel = 0; panel < std::ssize(sampler.best); ++panel) {
    if (sampler.changed[panel]) sampler.best[panel] = best_of(sampler.adjusted, panel);
  }
  return sampler.adjusted;
}

int32_t most_likely(std::span<const float> logits, std::span<const int32_t> best) {
  float largest = -std::numeric_limits<float>::infinity();
  int32_t winner = 0;
  for (const int32_t id : best) {
    if (!(logits[id] > largest)) continue;
    largest = logits[id];
    winner = id;
  }
  return winner;
}

// From logits to weights.
void weigh(float largest, float temperature, Candidates& candidates) {
  const double scale = 1.0 / temperature;
  for (Candidate& candidate : candidates) {
    candidate.weight = static_cast<float>(exp_weight((static_cast<double>(candidate.weight) - largest) * scale));
  }
}

// In the order in which the candidates lie: rounding, too, is the same everywhere.
double total_weight(const Candidates& candidates) {
  double total = 0;
  for (const Candidate& candidate : candidates) total += candidate.weight;
  return total;
}

// All n candidates below (1 - p) / n of the total weigh less than 1 - p together, so top-p never keeps them. Dropping
// them first leaves few to sort.
void keep_top_p(const SamplerOptions& options, Candidates& candidates) {
  if (!(options.top_p < 1)) return;
  const double total = total_weight(candidates);
  const double least = (1.0 - options.top_p) * total / static_cast<double>(candidates.size());
  std::erase_if(candidates, [least](const Candidate& candidate) { return candidate.weight < least; });
  std::ranges::sort(candidates, more_likely);
  double reached = 0;
  size_t kept = 0;
  while (kept < candidates.size() && (kept == 0 || reached < options.top_p * total)) {
    reached += candidates[kept++].weight;
  }
  candidates.resize(kept);
}

void keep_min_p(const SamplerOptions& options, Candidates& candidates) {
  const float least = std::min(options.min_p, 1.0f);  // the most likely has weight 1 and stays
  if (least > 0) std::erase_if(candidates, [least](const Candidate& candidate) { return candidate.weight < least; });
}

// Each leaves at least the most likely; one whose option is off leaves all.
constexpr void (*kFilters[])(const SamplerOptions&, Candidates&) = {keep_top_p, keep_min_p};

// `position` in [0, 1) of the way through the candidates' weights. One of weight 0 is never drawn.
int32_t draw(const Candidates& candidates, double position, int32_t otherwise) {
  const double target = position * total_weight(candidates);
  double passed = 0;
  int32_t id = otherwise;
  for (const Candidate& candidate : candidates) {
    if (!(candidate.weight > 0)) continue;
    passed += candidate.weight;
    id = candidate.id;
    if (passed > target) break;
  }
  return id;
}

}  // namespace

int32_t sample(Sampler& sampler, std::span<const float> logits, std::span<const int32_t> panel_best,
               std::span<const int32_t> history) {
  const SamplerOptions& options = sampler.options;
  find_best(sampler, logits, panel_best);
  logits = adjust(sampler, logits, history);
  const int32_t best = most_likely(logits, sampler.best);
  if (!(options.temperature > 0)) return best;

  if (options.top_k > 0 && options.top_k < std::ssize(logits)) {
    find_likeliest(options.top_k, logits, sampler.best, sampler.panel_logits, sampler.candidates);
  } else {
    sampler.candidates.clear();
    for (int32_t id = 0; id < std::ssize(logits); ++id) sampler.candidates.push_back({logits[id], id});
  }
  weigh(logits[static_cast<size_t>(best)], options.temperature, sampler.candidates);
  for (const auto filter : kFilters) filter(options, sampler.candidates);
  return draw(sampler.candidates, uniform(options.seed, sampler.draws++), best);
}

}  // namespace pinion
