#include "engine/forward/routing.h"

#include <algorithm>

#include "kernels/math.h"

namespace pinion {

float sigmoid(float x) { return static_cast<float>(1.0 / (1.0 + portable_exp(-double{x}))); }

namespace {

// The best so far, largest key first, with their keys in `weights`. NaN is larger than nothing and nothing larger than
// NaN: the indices stay distinct, and weights of NaN show the damage.
void choose_largest(std::span<const float> logits, const float* correction, std::span<int32_t> experts,
                    float* weights) {
  size_t chosen = 0;
  for (size_t i = 0; i < logits.size(); ++i) {
    const float key = correction ? sigmoid(logits[i]) + correction[i] : logits[i];
    if (chosen == experts.size() && !(key > weights[chosen - 1])) continue;
    size_t rank = chosen < experts.size() ? chosen++ : chosen - 1;
    for (; rank > 0 && key > weights[rank - 1]; --rank) {
      experts[rank] = experts[rank - 1];
      weights[rank] = weights[rank - 1];
    }
    experts[rank] = static_cast<int32_t>(i);
    weights[rank] = key;
  }
}

}  // namespace

void choose_experts(std::span<const float> logits, const RoutingRule& rule, std::span<int32_t> experts,
                    float* weights) {
  choose_largest(logits, rule.correction, experts, weights);
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
