// Top-k of a row's logits, over all panels or some.
#include "engine/forward/candidates.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <utility>

#include "kernels/layout.h"
#include "tests/engine/ids.h"

namespace pinion {
namespace {

std::vector<int32_t> ids_of(std::span<const Candidate> candidates) {
  std::vector<int32_t> ids;
  for (const Candidate& one : candidates) ids.push_back(one.id);
  return ids;
}

std::vector<int32_t> likeliest(int64_t k, const std::vector<float>& logits, const std::vector<int32_t>& best) {
  std::vector<float> panel_logits;
  std::vector<Candidate> found = {{1, 1}};  // result of a previous row
  find_likeliest(k, logits, best, panel_logits, found);
  for (const Candidate& one : found) EXPECT_EQ(one.weight, logits[static_cast<size_t>(one.id)]);
  return ids_of(found);
}

// Panels of 64 columns with the best ids 3, 70 and 129; the third panel has two columns.
TEST(Candidates, LargestLogitsOfAnyPanels) {
  std::vector<float> logits(130, -1.0f);
  logits[3] = 2, logits[4] = 1, logits[70] = 2, logits[71] = 1.5f, logits[129] = 3;
  const Ids best = {3, 70, 129};
  EXPECT_EQ(likeliest(1, logits, best), Ids({129}));
  EXPECT_EQ(likeliest(3, logits, best), Ids({129, 3, 70})) << "ties by id";
  EXPECT_EQ(likeliest(5, logits, best), Ids({129, 3, 70, 71, 4})) << "k above the number of panels";
  EXPECT_EQ(likeliest(7, logits, best), Ids({129, 3, 70, 71, 4, 0, 1}));
}

TEST(Candidates, LargestLogitsOfSomePanels) {
  std::vector<float> logits(130, 9.0f);
  for (int32_t id = 64; id < 130; ++id) logits[static_cast<size_t>(id)] = -static_cast<float>(id);
  EXPECT_EQ(likeliest(2, logits, {64, 128}), Ids({64, 65}));
  EXPECT_EQ(likeliest(4, logits, {128}), Ids({128, 129})) << "fewer logits than k";
  EXPECT_EQ(likeliest(1, logits, {}), Ids());
}

// The top k of all logits are among the top k of two disjoint sets of panels.
TEST(Candidates, TopKOfPartsContainsTopKOfAll) {
  std::mt19937 random(5);
  for (int round = 0; round < 500; ++round) {
    std::vector<float> logits(1 + random() % 700);
    for (float& logit : logits) logit = static_cast<float>(random() % 50);  // many ties
    std::vector<int32_t> all(logits.size()), best;
    std::iota(all.begin(), all.end(), 0);
    std::ranges::sort(all, {}, [&](int32_t id) { return std::pair(-logits[static_cast<size_t>(id)], id); });
    for (auto first = logits.begin(); first < logits.end();) {
      const auto end = first + std::min<int64_t>(kPanelColumns, logits.end() - first);
      best.push_back(static_cast<int32_t>(std::max_element(first, end) - logits.begin()));
      first = end;
    }
    const auto k = static_cast<int64_t>(1 + random() % 80);
    all.resize(std::min(all.size(), static_cast<size_t>(k)));
    EXPECT_EQ(likeliest(k, logits, best), all);
    const auto cut = best.begin() + static_cast<std::ptrdiff_t>(random() % best.size());
    Ids parts = likeliest(k, logits, {best.begin(), cut});
    const Ids others = likeliest(k, logits, {cut, best.end()});
    parts.insert(parts.end(), others.begin(), others.end());
    for (const int32_t id : all) EXPECT_EQ(std::ranges::count(parts, id), 1) << id;
  }
}

}  // namespace
}  // namespace pinion
