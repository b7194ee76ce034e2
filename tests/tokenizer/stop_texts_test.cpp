#include "tokenizer/answers/stop_texts.h"

#include <gtest/gtest.h>

#include <random>

namespace pinion {
namespace {

// What is shown of a text that comes in pieces of so many bytes.
std::string shown(const std::string& text, const std::vector<std::string>& stops, size_t piece_bytes) {
  StopTexts stop_texts(stops);
  std::string result;
  for (size_t i = 0; i < text.size(); i += piece_bytes) result += stop_texts.put(text.substr(i, piece_bytes));
  return result + stop_texts.finish();
}

TEST(StopTexts, EndTheTextHoweverItComes) {
  for (const size_t bytes : {1, 2, 3, 5, 100}) {
    EXPECT_EQ(shown("one two three", {"two"}, bytes), "one ");
    EXPECT_EQ(shown("one two three", {"three", "two"}, bytes), "one ");
    EXPECT_EQ(shown("one twtwo", {"two"}, bytes), "one tw");
    EXPECT_EQ(shown("aaab", {"aab"}, bytes), "a");
    EXPECT_EQ(shown("one two thr", {"three"}, bytes), "one two thr") << "only begun";
    EXPECT_EQ(shown("one\n\ntwo", {"\n\n"}, bytes), "one");
    EXPECT_EQ(shown("two", {"two"}, bytes), "");
    EXPECT_EQ(shown("one", {}, bytes), "one");
    EXPECT_EQ(shown("abcd", {"abcd", "bc"}, bytes), "a") << "the first that is complete";
    EXPECT_EQ(shown("abcd", {"bc", "abc"}, bytes), "") << "of two that end together the longer";
    EXPECT_EQ(shown("gr\xC3\xBC\xC3\x9F dich", {"\xC3\x9F"}, bytes), "gr\xC3\xBC");
  }
}

TEST(StopTexts, HoldBackOnlyWhatMayBeTheBeginning) {
  StopTexts stop_texts({"User:", "ser"});
  EXPECT_EQ(stop_texts.put("a Us"), "a ");
  EXPECT_EQ(stop_texts.put("a"), "Usa");
  EXPECT_FALSE(stop_texts.found());
  EXPECT_EQ(stop_texts.put("b U"), "b ");
  EXPECT_EQ(stop_texts.put("ser"), "U");
  EXPECT_TRUE(stop_texts.found());
  EXPECT_EQ(stop_texts.put("more"), "");
  EXPECT_EQ(stop_texts.finish("still more"), "");
  StopTexts begun({"User:"});
  EXPECT_EQ(begun.put("a Us"), "a ");
  EXPECT_EQ(begun.finish("er"), "User");
}

TEST(StopTexts, AnyTextCutAnywhere) {
  std::mt19937 random(1);
  const auto word = [&](size_t most) {
    std::string text(1 + random() % most, 'a');
    for (char& c : text) c = static_cast<char>('a' + random() % 2);
    return text;
  };
  for (int i = 0; i < 2000; ++i) {
    const std::string text = word(30);
    const std::vector<std::string> stops = {word(4), word(6)};
    const std::string whole = shown(text, stops, text.size());
    for (const size_t bytes : {1, 2, 3}) EXPECT_EQ(shown(text, stops, bytes), whole) << text << " " << stops[0];
    EXPECT_TRUE(text.starts_with(whole));
    for (const std::string& stop : stops) EXPECT_EQ(whole.find(stop), std::string::npos) << text << " " << stop;
  }
}

}  // namespace
}  // namespace pinion
