// The longest suffix of a text that occurred before, against a naive search.
#include "engine/session/drafts.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace pinion {
namespace {

int64_t longest_suffix(std::span<const int32_t> text) {
  const int64_t size = std::ssize(text);
  for (int64_t length = size - 1; length > 0; --length) {
    for (int64_t begin = 0; begin + length < size; ++begin) {
      if (std::equal(text.end() - length, text.end(), text.begin() + begin)) return length;
    }
  }
  return 0;
}

TEST(SuffixAutomaton, HandWorked) {
  SuffixAutomaton a;
  const int32_t text[] = {7, 8, 9, 1, 7, 8, 9, 2, 8, 9};
  const int64_t lengths[] = {0, 0, 0, 0, 1, 2, 3, 0, 1, 2};
  const int64_t ends[] = {0, 0, 0, 0, 1, 2, 3, 0, 6, 7};  // the later of two occurrences
  for (size_t i = 0; i < std::size(text); ++i) {
    append(a, text[i]);
    EXPECT_EQ(a.match_length, lengths[i]) << i;
    EXPECT_EQ(a.match_length > 0 ? a.match_end : 0, ends[i]) << i;
  }
}

TEST(SuffixAutomaton, MatchesNaiveSearch) {
  std::mt19937 random(1);
  for (const int32_t letters : {1, 2, 3, 20}) {
    SuffixAutomaton a;
    for (int i = 0; i < 150; ++i) {
      append(a, static_cast<int32_t>(random() % static_cast<uint32_t>(letters)));
      ASSERT_EQ(a.match_length, longest_suffix(a.text)) << letters << " letters, " << i;
      ASSERT_LT(a.match_end, std::ssize(a.text));
      EXPECT_TRUE(
          std::equal(a.text.end() - a.match_length, a.text.end(), a.text.begin() + a.match_end - a.match_length));
    }
    EXPECT_LE(a.states.size(), 2 * a.text.size());
  }
}

}  // namespace
}  // namespace pinion
