// Penalty, temperature, then filters that narrow the candidates, then one draw, in the order that Hugging Face's
// generate() has. Owns no model state: what it needs of the past is the history it is given.
#include "engine/session/sampler.h"

#include <algorithm>
#include <bit>
#include <functional>
#include <limits>

#include "kernels/hash.h"
#include "kernels/layout.h"

namespace pinion {
namespace {

using Candidate = Sampler::Candidate;
using Candidates = std::vector<Candidate>;

// A total order, so that sorting gives the same candidates with every standard library.
bool more_likely(const Candidate& a, const Candidate& b) {
  return a.weight != b.weight ? a.weight > b.weight : a.id < b.id;
}

// e^x for x <= 0, to 1e-8; 0 for NaN and for less than e^-64, which no draw would ever meet. Plain operations, which
// round the same way everywhere.
double exp_weight(double x) {
  constexpr double kRoundingMagic = 6755399441055744.0;  // 1.5 * 2^52: the sum's low mantissa bits are the integer
  const double bounded = x > -64 ? x : -64;
  const double sum = bounded * 1.4426950408889634 + kRoundingMagic;
  const double r = bounded - (sum - kRoundingMagic) * 0.6931471805599453;  // |r| <= ln2 / 2
  double p = 1.0 / 5040;
  for (const double inverse_factorial : {1.0 / 720, 1.0 / 120, 1.0 / 24, 1.0 / 6, 0.5, 1.0, 1.0}) {
    p = p * r + inverse_factorial;
  }
  const uint64_t exponent = (std::bit_cast<uint64_t>(sum) << 52) + (uint64_t{1023} << 52);
  const double weight = p * std::bit_cast<double>(exponent);
  return x > -64 ? weight : 0;
}

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

void penalise(Sampler& sampler, std::span<const float> logits, std::span<const int32_t> history) {
  const float penalty = sampler.options.repetition_penalty;
  sampler.penalised.assign(logits.begin(), logits.end());
  sampler.seen.assign(logits.size(), false);
  for (const int32_t id : history) {
    if (id < 0 || id >= std::ssize(logits) || sampler.seen[id]) continue;
    sampler.seen[id] = true;
    float& logit = sampler.penalised[id];
    logit = logit > 0 ? logit / penalty : logit * penalty;
  }
  for (int64_t panel = 0; panel < std::ssize(sampler.best); ++panel) {
    const auto first = sampler.seen.begin() + panel * kPanelColumns;
    const auto end = panel + 1 < std::ssize(sampler.best) ? first + kPanelColumns : sampler.seen.end();
    if (std::find(first, end, true) != end) sampler.best[panel] = best_of(sampler.penalised, panel);
  }
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

// A lower bound of the k-th largest logit: k panels have a best that reaches it. Minus infinity if there are fewer.
float reached_by(int64_t k, std::span<const float> logits, Sampler& sampler) {
  constexpr float kLeast = -std::numeric_limits<float>::infinity();
  std::vector<float>& largest = sampler.panel_logits;
  if (k > std::ssize(sampler.best)) return kLeast;
  largest.clear();
  for (const int32_t id : sampler.best) largest.push_back(logits[id] > kLeast ? logits[id] : kLeast);
  std::ranges::nth_element(largest, largest.begin() + (k - 1), std::greater());
  return largest[k - 1];
}

// The k likeliest tokens with their logits. A panel whose best is below the bound is skipped.
void find_top_k(Sampler& sampler, std::span<const float> logits) {
  const int32_t k = sampler.options.top_k;
  Candidates& candidates = sampler.candidates;
  const float least = reached_by(k, logits, sampler);
  for (int64_t panel = 0; panel < std::ssize(sampler.best); ++panel) {
    if (!(logits[sampler.best[panel]] >= least)) continue;
    const auto first = static_cast<int32_t>(panel * kPanelColumns);
    const auto end = static_cast<int32_t>(std::min<int64_t>(std::ssize(logits), first + kPanelColumns));
    for (int32_t id = first; id < end; ++id) {
      if (logits[id] >= least) candidates.push_back({logits[id], id});
    }
  }
  const auto kept = std::min<int64_t>(k, std::ssize(candidates));
  std::ranges::partial_sort(candidates, candidates.begin() + kept, more_likely);
  candidates.resize(static_cast<size_t>(kept));
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
  if (options.repetition_penalty != 1) {
    penalise(sampler, logits, history);
    logits = sampler.penalised;
  }
  const int32_t best = most_likely(logits, sampler.best);
  if (!(options.temperature > 0)) return best;

  sampler.candidates.clear();
  if (options.top_k > 0 && options.top_k < std::ssize(logits)) {
    find_top_k(sampler, logits);
  } else {
    for (int32_t id = 0; id < std::ssize(logits); ++id) sampler.candidates.push_back({logits[id], id});
  }
  weigh(logits[static_cast<size_t>(best)], options.temperature, sampler.candidates);
  for (const auto filter : kFilters) filter(options, sampler.candidates);
  return draw(sampler.candidates, uniform(options.seed, sampler.draws++), best);
}

}  // namespace pinion
