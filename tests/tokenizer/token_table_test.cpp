// The tables against std::map, and hand-worked vocabularies with duplicate texts, duplicate ids and holes.
#include "tokenizer/tokens/bpe.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <string>
#include <utility>

namespace pinion {
namespace {

TEST(TokenTable, EmptyTableFindsNothing) {
  TokenTable table;
  EXPECT_EQ(table.find(""), -1);
  EXPECT_EQ(table.find("a"), -1);
  table.index_by_id();
  EXPECT_EQ(table.highest_id(), -1);
  EXPECT_EQ(table.text(0), "");
  EXPECT_EQ(table.text(-1), "");
}

TEST(TokenTable, FindsTextsAndIds) {
  TokenTable table;
  EXPECT_TRUE(table.set("ab", 3));
  EXPECT_TRUE(table.set("a", 0));
  EXPECT_TRUE(table.set("", 5));
  EXPECT_TRUE(table.set(std::string_view("a\0b", 3), 4));
  table.index_by_id();
  EXPECT_EQ(table.size(), 4u);
  EXPECT_EQ(table.highest_id(), 5);
  EXPECT_EQ(table.find("ab"), 3);
  EXPECT_EQ(table.find("a"), 0);
  EXPECT_EQ(table.find(""), 5);
  EXPECT_EQ(table.find("b"), -1);
  EXPECT_EQ(table.find("abc"), -1);
  EXPECT_EQ(table.find(std::string_view("a\0b", 3)), 4);
  EXPECT_EQ(table.text(3), "ab");
  EXPECT_EQ(table.text(4), std::string_view("a\0b", 3));
  EXPECT_EQ(table.text(5), "");
  EXPECT_EQ(table.text(1), "");
  EXPECT_EQ(table.text(6), "");
}

TEST(TokenTable, LastIdOfATextCounts) {
  TokenTable table;
  EXPECT_TRUE(table.set("a", 9));
  EXPECT_FALSE(table.set("a", 1));
  table.index_by_id();
  EXPECT_EQ(table.size(), 1u);
  EXPECT_EQ(table.find("a"), 1);
  EXPECT_EQ(table.text(1), "a");
  EXPECT_EQ(table.text(9), "");
  EXPECT_EQ(table.highest_id(), 1);
}

TEST(TokenTable, RepeatedIds) {
  TokenTable table;
  for (const char* text : {"b", "\xC3\xA9", "a"}) table.set(text, 2);
  table.index_by_id();
  EXPECT_EQ(table.text(2), "\xC3\xA9");  // bytes compare as unsigned
  for (const char* text : {"b", "\xC3\xA9", "a"}) EXPECT_EQ(table.find(text), 2);
}

// Small ranges give duplicates, unreserved tables grow, and full tables have long probe sequences.
TEST(TokenTable, EqualsStdMap) {
  std::mt19937 random(1);
  for (const size_t reserved : {size_t{0}, size_t{3}, size_t{20'000}}) {
    TokenTable table;
    table.reserve(reserved, 0);
    std::map<std::string, int32_t> ids;
    for (int i = 0; i < 20'000; ++i) {
      const std::string text = std::to_string(random() % 15'000);
      const auto id = static_cast<int32_t>(random() % 5'000);
      EXPECT_EQ(table.set(text, id), ids.insert_or_assign(text, id).second);
    }
    table.index_by_id();
    EXPECT_EQ(table.size(), ids.size());
    std::map<int32_t, std::string> texts;
    for (const auto& [text, id] : ids) texts[id] = text;
    for (int32_t id = 0; id < 5'000; ++id) EXPECT_EQ(table.text(id), texts.contains(id) ? texts[id] : "");
    for (int i = 0; i < 16'000; ++i) {
      const auto found = ids.find(std::to_string(i));
      EXPECT_EQ(table.find(std::to_string(i)), found == ids.end() ? -1 : found->second);
    }
  }
}

TEST(MergeTable, EmptyTableFindsNothing) { EXPECT_EQ(MergeTable().find(0, 0), nullptr); }

TEST(MergeTable, InsertKeepsTheFirstMerge) {
  MergeTable table;
  EXPECT_EQ(table.insert(1, 2, {10, 3})->rank, 10);
  EXPECT_EQ(table.insert(2, 1, {11, 4})->rank, 11);
  EXPECT_EQ(table.insert(1, 2, {12, 5})->rank, 10);
  EXPECT_EQ(table.size(), 2u);
  EXPECT_EQ(table.find(1, 2)->id, 3);
  EXPECT_EQ(table.find(2, 1)->id, 4);
  EXPECT_EQ(table.find(1, 1), nullptr);
  *table.insert(1, 2, {}) = {13, 6};
  EXPECT_EQ(table.find(1, 2)->rank, 13);
  EXPECT_EQ(table.find(1, 2)->id, 6);
}

TEST(MergeTable, EqualsStdMap) {
  std::mt19937 random(2);
  for (const size_t reserved : {size_t{0}, size_t{3}, size_t{20'000}}) {
    MergeTable table;
    table.reserve(reserved);
    std::map<std::pair<int32_t, int32_t>, int32_t> ranks;
    for (int32_t i = 0; i < 20'000; ++i) {
      const auto left = static_cast<int32_t>(random() % 150), right = static_cast<int32_t>(random() % 120);
      const auto [entry, fresh] = ranks.emplace(std::pair(left, right), i);
      EXPECT_EQ(table.insert(left, right, {i, left})->rank, entry->second);
      EXPECT_EQ(table.size(), ranks.size());
    }
    for (int32_t left = 0; left < 151; ++left) {
      for (int32_t right = 0; right < 121; ++right) {
        const auto found = ranks.find({left, right});
        const Merge* merge = table.find(left, right);
        ASSERT_EQ(merge != nullptr, found != ranks.end());
        if (merge) {
          EXPECT_EQ(merge->rank, found->second);
        }
      }
    }
  }
}

}  // namespace
}  // namespace pinion
