#include "engine/forward/routing.h"

#include <algorithm>
#include <array>
#include <numeric>

#include "kernels/base/math.h"

namespace pinion {

float sigmoid(float x) { return static_cast<float>(1.0 / (1.0 + portable_exp(-double{x}))); }

namespace {

// The best so far, largest key first. NaN is larger than nothing and nothing larger than NaN: the indices stay
// distinct, and keys of NaN show the damage.
struct Largest {
  std::span<int32_t> indices;  // the most that there can be
  float* keys;
  size_t found = 0;

  void offer(size_t index, float key) {
    if (found == indices.size() && !(key > keys[found - 1])) return;
    size_t rank = found < indices.size() ? found++ : found - 1;
    for (; rank > 0 && key > keys[rank - 1]; --rank) {
      indices[rank] = indices[rank - 1];
      keys[rank] = keys[rank - 1];
    }
    indices[rank] = static_cast<int32_t>(index);
    keys[rank] = key;
  }
};

float key_of(std::span<const float> logits, const RoutingRule& rule, size_t expert) {
  return rule.correction ? sigmoid(logits[expert]) + rule.correction[expert] : logits[expert];
}

// The best so many experts of a group.
void offer_group(std::span<const float> logits, const RoutingRule& rule, int64_t group, Largest* out) {
  const size_t size = logits.size() / static_cast<size_t>(rule.groups), first = static_cast<size_t>(group) * size;
  for (size_t i = first; i < first + size; ++i) out->offer(i, key_of(logits, rule, i));
}

void choose_largest(std::span<const float> logits, const RoutingRule& rule, Largest* out) {
  if (rule.groups == 1) return offer_group(logits, rule, 0, out);
  std::array<int32_t, kMostGroups> kept, best;
  std::array<float, kMostGroups> sums, keys;
  Largest groups = {std::span(kept).first(static_cast<size_t>(rule.groups_kept)), sums.data()};
  for (int64_t group = 0; group < rule.groups; ++group) {
    Largest largest = {std::span(best).first(static_cast<size_t>(rule.group_best)), keys.data()};
    offer_group(logits, rule, group, &largest);
    groups.offer(static_cast<size_t>(group), std::accumulate(keys.begin(), keys.begin() + rule.group_best, 0.0f));
  }
  std::ranges::sort(groups.indices);
  for (const int32_t group : groups.indices) offer_group(logits, rule, group, out);
}

}  // namespace

void choose_experts(std::span<const float> logits, const RoutingRule& rule, std::span<int32_t> experts,
                    float* weights) {
  Largest chosen = {experts, weights};
  choose_largest(logits, rule, &chosen);
  const double largest = double{logits[static_cast<size_t>(experts[0])]};
  const auto score = [&](size_t expert) {
    return rule.sigmoid ? double{sigmoid(logits[expert])} : portable_exp(double{logits[expert]} - largest);
  };
  std::ranges::sort(experts);
  double sum = 0.0;
  if (rule.normalised) {
    for (const int32_t expert : experts) sum += score(static_cast<size_t>(expert));
  } else if (rule.sigmoid) {
    sum = 1.0;
  } else {
    for (size_t i = 0; i < logits.size(); ++i) sum += score(i);
  }
  for (size_t i = 0; i < experts.size(); ++i) {
    weights[i] = static_cast<float>(score(static_cast<size_t>(experts[i])) / sum * double{rule.scale});
  }
}

void ExpertGroups::make(ScratchSizer* sizer, int64_t choices, int64_t expert_count) {
  if (sizer->takes) experts.reserve(static_cast<size_t>(expert_count));
  sizer->make(&tokens, choices);
  sizer->make(&weights, choices);
  sizer->make(&next, expert_count);
}

void group_by_expert(const Choices& choices, int64_t tokens, int64_t per_token, ExpertGroups* out) {
  const auto count = static_cast<size_t>(tokens * per_token);
  std::ranges::fill(out->next, 0);
  for (size_t i = 0; i < count; ++i) ++out->next[static_cast<size_t>(choices.experts[i])];
  out->experts.clear();
  int32_t first = 0;
  for (size_t expert = 0; expert < out->next.size(); ++expert) {
    const int32_t rows = out->next[expert];
    if (rows > 0) out->experts.push_back({static_cast<int32_t>(expert), first, rows});
    out->next[expert] = first;
    first += rows;
  }
  for (size_t i = 0; i < count; ++i) {
    const auto entry = static_cast<size_t>(out->next[static_cast<size_t>(choices.experts[i])]++);
    out->tokens[entry] = static_cast<int32_t>(static_cast<int64_t>(i) / per_token);
    out->weights[entry] = choices.weights[i];
  }
}

}  // namespace pinion
