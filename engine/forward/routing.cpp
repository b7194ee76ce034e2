#include "engine/forward/routing.h"

#include <algorithm>

#include "kernels/math.h"

namespace pinion {

void choose_experts(std::span<const float> logits, bool normalised, std::span<int32_t> experts, float* weights) {
  // `experts` holds the best so far, largest first. NaN is larger than nothing and nothing larger than NaN: the indices
  // stay distinct, and weights of NaN show the damage.
  size_t chosen = 0;
  for (size_t i = 0; i < logits.size(); ++i) {
    const auto logit_of = [&](size_t rank) { return logits[static_cast<size_t>(experts[rank])]; };
    if (chosen == experts.size() && !(logits[i] > logit_of(chosen - 1))) continue;
    size_t rank = chosen < experts.size() ? chosen++ : chosen - 1;
    for (; rank > 0 && logits[i] > logit_of(rank - 1); --rank) experts[rank] = experts[rank - 1];
    experts[rank] = static_cast<int32_t>(i);
  }

  const double largest = double{logits[static_cast<size_t>(experts[0])]};
  const auto exponential = [&](size_t expert) { return portable_exp(double{logits[expert]} - largest); };
  std::ranges::sort(experts);
  double sum = 0.0;
  if (normalised) {
    for (const int32_t expert : experts) sum += exponential(static_cast<size_t>(expert));
  } else {
    for (size_t i = 0; i < logits.size(); ++i) sum += exponential(i);
  }
  for (size_t i = 0; i < experts.size(); ++i) {
    weights[i] = static_cast<float>(exponential(static_cast<size_t>(experts[i])) / sum);
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
