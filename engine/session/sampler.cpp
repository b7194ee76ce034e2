// Bias, penalties, temperature, filters, one draw: in the order of Hugging Face's generate(), without model state.
#include "engine/session/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <ranges>

#include "kernels/base/hash.h"
#include "kernels/base/math.h"
#include "kernels/layout.h"

namespace pinion {
namespace {

using Candidates = std::vector<Candidate>;

// Random number `draws` of a seed, in [0, 1): SplitMix64's finaliser of a counter.
double uniform(uint64_t seed, uint64_t draws) {
  const uint64_t base = splitmix64_finalise(seed + kGoldenGamma);
  return static_cast<double>(splitmix64_finalise(base + (draws + 1) * kGoldenGamma) >> 11) * 0x1p-53;
}

// The id with the largest logit, the first one among equals; `otherwise` if all are NaN or minus infinity.
int32_t most_likely(std::span<const float> logits, auto&& ids, int32_t otherwise) {
  float largest = -std::numeric_limits<float>::infinity();
  for (const int32_t id : ids) {
    if (!(logits[id] > largest)) continue;
    largest = logits[id];
    otherwise = id;
  }
  return otherwise;
}

int32_t best_of(std::span<const float> logits, int64_t panel) {
  const auto first = static_cast<int32_t>(panel * kPanelColumns);
  const auto end = static_cast<int32_t>(std::min<int64_t>(std::ssize(logits), first + kPanelColumns));
  return most_likely(logits, std::views::iota(first, end), first);
}

void find_best(Sampler& sampler, std::span<const float> logits, std::span<const int32_t> panel_best) {
  sampler.best.assign(panel_best.begin(), panel_best.end());
  if (!panel_best.empty()) return;
  const int64_t panels = panel_count(std::ssize(logits));
  for (int64_t panel = 0; panel < panels; ++panel) sampler.best.push_back(best_of(logits, panel));
}

void set_logit(Sampler& sampler, int32_t id, float logit) {
  sampler.adjusted[id] = logit;
  sampler.changed[id / kPanelColumns] = true;
}

// Null for ids outside the vocabulary.
int32_t* count_of(Sampler& sampler, int32_t id) {
  return id >= 0 && id < std::ssize(sampler.counts) ? &sampler.counts[id] : nullptr;
}

// Calls f(id, count) once for each id whose count is not 0, and clears the counts. ids: includes all counted ids.
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
  for (const auto& [id, bias] : sampler.options.logit_bias) {
    if (!count_of(sampler, id)) continue;  // outside a draft model's smaller vocabulary
    set_logit(sampler, id, sampler.adjusted[id] + bias);
  }
}

constexpr float kExcluded = -std::numeric_limits<float>::infinity();

void keep_allowed(Sampler& sampler, std::span<const int32_t>) {
  auto next = sampler.options.allowed_ids.begin();
  const auto end = sampler.options.allowed_ids.end();
  for (int32_t id = 0; id < std::ssize(sampler.adjusted); ++id) {
    while (next != end && *next < id) ++next;
    if (next == end || *next != id) set_logit(sampler, id, kExcluded);
  }
}

void exclude_banned(Sampler& sampler, std::span<const int32_t> history) {
  for (const std::vector<int32_t>& sequence : sampler.options.banned) {
    const std::span<const int32_t> begin = std::span(sequence).first(sequence.size() - 1);
    const bool follows = history.size() >= begin.size() && std::ranges::equal(history.last(begin.size()), begin);
    if (follows && count_of(sampler, sequence.back())) set_logit(sampler, sequence.back(), kExcluded);
  }
}

// The end of the history that penalties count.
std::span<const int32_t> recent(const Sampler& sampler, std::span<const int32_t> history) {
  const int32_t most = sampler.options.repeat_last_n;
  return most < 0 ? history : history.last(std::min(history.size(), static_cast<size_t>(most)));
}

void penalise_repetition(Sampler& sampler, std::span<const int32_t> history) {
  history = recent(sampler, history);
  const float penalty = sampler.options.repetition_penalty;
  count_ids(sampler, history);
  visit_counts(sampler, history, [&](int32_t id, int32_t) {
    const float logit = sampler.adjusted[id];
    set_logit(sampler, id, logit > 0 ? logit / penalty : logit * penalty);
  });
}

void penalise_presence_and_frequency(Sampler& sampler, std::span<const int32_t> history) {
  const auto generated = recent(sampler, history.subspan(std::min<size_t>(history.size(), sampler.prompt_tokens)));
  count_ids(sampler, generated);
  visit_counts(sampler, generated, [&](int32_t id, int32_t count) {
    const float times = static_cast<float>(count);
    const float penalty = sampler.options.presence_penalty + times * sampler.options.frequency_penalty;
    set_logit(sampler, id, sampler.adjusted[id] - penalty);
  });
}

// An id prolongs a repetition if it followed an earlier occurrence of a suffix of the text. `counts` holds the longest
// such suffix of each id: a common prefix of the reversed text and its rest, by the Z-function in linear time.
void penalise_dry(Sampler& sampler, std::span<const int32_t> history) {
  const SamplerOptions& options = sampler.options;
  const auto is_breaker = [&](int32_t id) {
    return std::ranges::find(options.dry_breakers, id) != options.dry_breakers.end();
  };
  const auto n = std::ssize(history);
  const auto from_end = [&](int64_t i) { return history[n - 1 - i]; };
  int64_t max_length = 0;  // of a repetition without breakers
  while (max_length < n && !is_breaker(from_end(max_length))) ++max_length;
  std::vector<int64_t>& common = sampler.common_with_end;
  common.assign(n, 0);
  for (int64_t i = 1, left = 0, right = 0; i < n; ++i) {
    int64_t length = i < right ? std::min(right - i, common[i - left]) : 0;
    while (i + length < n && from_end(length) == from_end(i + length)) ++length;
    if (i + length > right) left = i, right = i + length;
    common[i] = length;
    const int64_t repeated = std::min(length, max_length);
    int32_t* longest = count_of(sampler, from_end(i - 1));
    if (!longest || repeated < options.dry_allowed_length || is_breaker(from_end(i - 1))) continue;
    *longest = std::max(*longest, static_cast<int32_t>(repeated));
  }
  visit_counts(sampler, history, [&](int32_t id, int32_t length) {
    const double penalty = options.dry_multiplier * portable_pow(options.dry_base, length - options.dry_allowed_length);
    set_logit(sampler, id, static_cast<float>(sampler.adjusted[id] - penalty));
  });
}

// Sets the logits of disallowed ids to minus infinity, which no adjustment changes.
void forbid(Sampler& sampler) {
  for (const int32_t id : sampler.forbidden) {
    if (count_of(sampler, id)) set_logit(sampler, id, kExcluded);
  }
  if (sampler.allowed.empty()) return;
  const auto vocab = std::ssize(sampler.adjusted), words = std::ssize(sampler.allowed);
  for (int64_t word = 0; word * 32 < vocab; ++word) {
    for (uint32_t left = word < words ? ~sampler.allowed[word] : ~0u; left != 0; left &= left - 1) {
      const auto id = static_cast<int32_t>(word * 32 + std::countr_zero(left));
      if (id < vocab) set_logit(sampler, id, kExcluded);
    }
  }
}

// Excluded ids do not count. The sums run in the order of the ids.
void keep_top_sigma(Sampler& sampler, std::span<const int32_t>) {
  double sum = 0, squares = 0, count = 0, largest = kExcluded;
  for (const double logit : sampler.adjusted) {
    if (!(logit > kExcluded)) continue;
    sum += logit, squares += logit * logit, ++count;
    largest = std::max(largest, logit);
  }
  const double mean = sum / count, deviation = std::sqrt(std::max(0.0, squares / count - mean * mean));
  const double least = largest - sampler.options.top_n_sigma * deviation;
  for (int32_t id = 0; id < std::ssize(sampler.adjusted); ++id) {
    if (sampler.adjusted[id] < least) set_logit(sampler, id, kExcluded);
  }
}

// In the order of application.
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
    {[](const SamplerOptions& o) { return !o.allowed_ids.empty(); }, keep_allowed},
    {[](const SamplerOptions& o) { return !o.banned.empty(); }, exclude_banned},
    {[](const SamplerOptions& o) { return o.top_n_sigma > 0; }, keep_top_sigma},
};

// The logits after all adjustments; updates `best`.
std::span<const float> adjust(Sampler& sampler, std::span<const float> logits, std::span<const int32_t> history) {
  const bool is_restricted = !sampler.allowed.empty() || !sampler.forbidden.empty();
  sampler.adjusted.clear();
  if (!is_restricted && !adjusts_logits(sampler.options)) return logits;
  sampler.adjusted.assign(logits.begin(), logits.end());
  sampler.counts.resize(logits.size());
  sampler.changed.assign(sampler.best.size(), false);
  forbid(sampler);
  for (const Adjustment& each : kAdjustments) {
    if (each.is_on(sampler.options)) each.apply(sampler, history);
  }
  for (int64_t panel = 0; panel < std::ssize(sampler.best); ++panel) {
    if (sampler.changed[panel]) sampler.best[panel] = best_of(sampler.adjusted, panel);
  }
  return sampler.adjusted;
}

// Replaces logits by e^((logit - largest) / temperature).
void weigh(float largest, float temperature, Candidates& candidates) {
  const double scale = 1.0 / temperature;
  for (Candidate& candidate : candidates) {
    candidate.weight = static_cast<float>(exp_weight((static_cast<double>(candidate.weight) - largest) * scale));
  }
}

// Sums in the order of the candidates, so that rounding is the same everywhere.
double total_weight(const Candidates& candidates) {
  double total = 0;
  for (const Candidate& candidate : candidates) total += candidate.weight;
  return total;
}

// Keeps the first candidates that reach a weight, at least one.
void keep_first(double weight, Candidates& candidates) {
  double reached = 0;
  size_t kept = 0;
  while (kept < candidates.size() && (kept == 0 || reached < weight)) reached += candidates[kept++].weight;
  candidates.resize(kept);
}

// Candidates below (1 - p) / n of the total weigh less than 1 - p together: dropping them first leaves few to sort.
void keep_top_p(Sampler& sampler) {
  const SamplerOptions& options = sampler.options;
  Candidates& candidates = sampler.candidates;
  if (!(options.top_p < 1)) return;
  const double total = total_weight(candidates);
  const double min_weight = (1.0 - options.top_p) * total / static_cast<double>(candidates.size());
  std::erase_if(candidates, [min_weight](const Candidate& candidate) { return candidate.weight < min_weight; });
  std::ranges::sort(candidates, more_likely);
  keep_first(options.top_p * total, candidates);
}

void keep_min_p(Sampler& sampler) {
  const float min_weight = std::min(sampler.options.min_p, 1.0f);  // the most likely candidate has weight 1 and stays
  if (min_weight > 0) std::erase_if(sampler.candidates, [&](const Candidate& c) { return c.weight < min_weight; });
}

void keep_typical(Sampler& sampler) {
  if (!(sampler.options.typical_p < 1)) return;
  Candidates& candidates = sampler.candidates;
  std::erase_if(candidates, [](const Candidate& candidate) { return !(candidate.weight > 0); });
  const double total = total_weight(candidates);
  double mean = 0;
  std::vector<std::pair<double, Candidate>> by_distance;
  for (const Candidate& candidate : candidates) {
    const double probability = candidate.weight / total, surprise = -portable_log(probability);
    mean += probability * surprise;
    by_distance.emplace_back(surprise, candidate);
  }
  for (auto& [surprise, candidate] : by_distance) surprise = std::abs(surprise - mean);
  std::ranges::sort(by_distance, {}, [](const auto& pair) { return std::pair(pair.first, pair.second.id); });
  std::ranges::transform(by_distance, candidates.begin(), [](const auto& pair) { return pair.second; });
  keep_first(sampler.options.typical_p * total, candidates);
}

void exclude_top_choices(Sampler& sampler) {
  const SamplerOptions& options = sampler.options;
  if (!(options.xtc_probability > 0)) return;
  if (!(uniform(options.seed, sampler.draws++) < options.xtc_probability)) return;
  Candidates& candidates = sampler.candidates;
  const double min_weight = options.xtc_threshold * total_weight(candidates);
  const auto is_top = [&](const Candidate& candidate) { return candidate.weight >= min_weight; };
  const Candidate* least_likely = nullptr;  // of the top ones
  for (const Candidate& candidate : candidates) {
    if (is_top(candidate) && (!least_likely || more_likely(*least_likely, candidate))) least_likely = &candidate;
  }
  if (!least_likely) return;
  const Candidate kept = *least_likely;
  std::erase_if(candidates, is_top);
  candidates.insert(candidates.begin(), kept);
}

// In the order of application. Each filter keeps at least one candidate, and all of them if its option is off.
constexpr void (*kFilters[])(Sampler&) = {keep_top_p, keep_min_p, keep_typical, exclude_top_choices};

// The candidate at fraction `position` in [0, 1) of the total weight, never one of weight 0; else `otherwise`.
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

bool adjusts_logits(const SamplerOptions& options) {
  return std::ranges::any_of(kAdjustments, [&](const Adjustment& each) { return each.is_on(options); });
}

int64_t candidates_needed(const SamplerOptions& options) {
  if (adjusts_logits(options)) return 0;
  if (!(options.temperature > 0)) return 1;
  // The other filters only narrow the result of top-k.
  return options.top_k > 0 && options.top_k <= kMaxCandidates ? options.top_k : 0;
}

int32_t sample(Sampler& sampler, std::span<const float> logits, std::span<const int32_t> panel_best,
               std::span<const int32_t> history) {
  const SamplerOptions& options = sampler.options;
  find_best(sampler, logits, panel_best);
  logits = adjust(sampler, logits, history);
  const int32_t best = most_likely(logits, sampler.best, 0);
  if (!(options.temperature > 0)) return best;

  if (options.top_k > 0 && options.top_k < std::ssize(logits)) {
    find_likeliest(options.top_k, logits, sampler.best, sampler.panel_logits, sampler.candidates);
  } else {
    sampler.candidates.clear();
    for (int32_t id = 0; id < std::ssize(logits); ++id) sampler.candidates.push_back({logits[id], id});
  }
  weigh(logits[best], options.temperature, sampler.candidates);
  for (const auto filter : kFilters) filter(sampler);
  return draw(sampler.candidates, uniform(options.seed, sampler.draws++), best);
}

LogSoftmax log_softmax_of(std::span<const float> logits) {
  const double largest = *std::ranges::max_element(logits);
  double sum = 0;
  for (const float logit : logits) {
    const double x = static_cast<double>(logit) - largest;
    sum += x == x ? exp_weight(x) : x;
  }
  return {largest, sum == sum ? portable_log(sum) : sum};
}

Logprobs logprobs_of(std::span<const float> logits, int32_t id, int32_t top) {
  const LogSoftmax log_softmax = log_softmax_of(logits);
  const auto entry = [&](int32_t each) { return TokenLogprob{each, log_softmax(logits[each])}; };
  // NaN sorts last.
  const auto key = [&](int32_t each) {
    const float logit = logits[each];
    return std::pair(logit == logit ? -logit : std::numeric_limits<float>::infinity(), each);
  };
  std::vector<int32_t> ids(logits.size());
  std::iota(ids.begin(), ids.end(), 0);
  const auto end = ids.begin() + std::min<int64_t>(top, std::ssize(ids));
  std::ranges::partial_sort(ids, end, {}, key);
  Logprobs result = {entry(id), {}};
  for (auto each = ids.begin(); each < end; ++each) result.top.push_back(entry(*each));
  return result;
}

}  // namespace pinion
