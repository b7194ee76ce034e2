// Stop texts and thoughts, in chunks of all sizes.
#include "tokenizer/answers/answer_text.h"

#include <gtest/gtest.h>

#include <random>

namespace pinion {
namespace {

// The text that StopTexts returns for chunks of `chunk_bytes`.
std::string shown(const std::string& text, const std::vector<std::string>& stops, size_t chunk_bytes) {
  StopTexts stop_texts(stops);
  std::string result;
  for (size_t i = 0; i < text.size(); i += chunk_bytes) result += stop_texts.put(text.substr(i, chunk_bytes));
  return result + stop_texts.finish();
}

TEST(StopTexts, AnyChunks) {
  for (const size_t bytes : {1, 2, 3, 5, 100}) {
    EXPECT_EQ(shown("one two three", {"two"}, bytes), "one ");
    EXPECT_EQ(shown("one two three", {"three", "two"}, bytes), "one ");
    EXPECT_EQ(shown("one twtwo", {"two"}, bytes), "one tw");
    EXPECT_EQ(shown("aaab", {"aab"}, bytes), "a");
    EXPECT_EQ(shown("one two thr", {"three"}, bytes), "one two thr") << "incomplete";
    EXPECT_EQ(shown("one\n\ntwo", {"\n\n"}, bytes), "one");
    EXPECT_EQ(shown("two", {"two"}, bytes), "");
    EXPECT_EQ(shown("one", {}, bytes), "one");
    EXPECT_EQ(shown("abcd", {"abcd", "bc"}, bytes), "a") << "the first complete one counts";
    EXPECT_EQ(shown("abcd", {"bc", "abc"}, bytes), "") << "of two that end together the longer one counts";
    EXPECT_EQ(shown("gr\xC3\xBC\xC3\x9F dich", {"\xC3\x9F"}, bytes), "gr\xC3\xBC");
  }
}

TEST(StopTexts, HoldsPartialMatches) {
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

TEST(StopTexts, RandomTextsAndChunks) {
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

// The text with thoughts in brackets, for chunks of `chunk_bytes`.
std::string marked(const std::string& text, bool inside = false, size_t chunk_bytes = 1) {
  ThinkingSplitter splitter(inside);
  std::string result;
  bool in_thought = false;
  const auto take = [&](const std::vector<ThinkingText>& texts) {
    for (const auto& [chunk, is_thought] : texts) {
      if (is_thought != in_thought) result += is_thought ? "[" : "]";
      in_thought = is_thought;
      result += chunk;
    }
  };
  for (size_t i = 0; i < text.size(); i += chunk_bytes) take(splitter.put(text.substr(i, chunk_bytes)));
  take(splitter.finish());
  return result + (in_thought ? "]" : "");
}

TEST(Thinking, AnyChunks) {
  for (const size_t bytes : {1, 2, 3, 7, 100}) {
    EXPECT_EQ(marked("<think>\nWhy\n\nnot?\n</think>\n\nSo.\n", false, bytes), "[Why\n\nnot?]So.\n");
    EXPECT_EQ(marked("Why?\n</think>\n\nSo.", true, bytes), "[Why?]So.");
    EXPECT_EQ(marked("\n a </think> <b> <thin", false, bytes), "\n a </think> <b> <thin");
    EXPECT_EQ(marked("<think>\n\n</think>\n\nSo.", false, bytes), "So.");
    EXPECT_EQ(marked("a<think>b</think>c<think>d", false, bytes), "a[b]c[d]");
    EXPECT_EQ(marked("b </thi nk></think", true, bytes), "[b </thi nk></think]");
    EXPECT_EQ(marked("[THINK]Why?[/THINK]So.", false, bytes), "[Why?]So.");
    EXPECT_EQ(marked("Why?[/THINK]\n\nSo.", true, bytes), "[Why?]So.");
    for (const auto& [open, close] : thinking_marks()) {
      EXPECT_EQ(marked("A" + std::string(open) + "\nWhy?\n" + std::string(close) + "\nSo.", false, bytes),
                "A[Why?]So.");
    }
    // Other marks inside a thought are text.
    EXPECT_EQ(marked("[THINK]a</think>b<think>[/THINK]c", false, bytes), "[a</think>b<think>]c");
    EXPECT_EQ(marked("<think>a[/THINK]b[THINK]</think>c[/THINK]", false, bytes), "[a[/THINK]b[THINK]]c[/THINK]");
    EXPECT_EQ(marked("a[THI<think>b</think>[TH", false, bytes), "a[THI[b][TH");
  }
}

TEST(Thinking, OpenedByThePrompt) {
  EXPECT_EQ(opening_mark("<|im_start|>assistant\n<think>\n"), "<think>");
  EXPECT_EQ(opening_mark("<think>\n\n</think>\n\n"), "");
  EXPECT_EQ(opening_mark("<think> a"), "");
  EXPECT_EQ(opening_mark("[/INST][THINK]"), "[THINK]");
  EXPECT_EQ(opening_mark(""), "");
}

TEST(Thinking, MarksMatch) {
  ThinkingSplitter splitter(true);
  EXPECT_EQ(splitter.close_mark(), "</think>");
  std::ignore = splitter.put("a</think>[THINK]b");
  EXPECT_EQ(splitter.close_mark(), "[/THINK]");
  for (const auto& [open, close] : thinking_marks()) {
    EXPECT_TRUE(is_thinking_mark(open) && is_thinking_mark(close));
    EXPECT_NE(kThinkingMarkEnds.find(close.back()), std::string_view::npos) << close;
  }
}

}  // namespace
}  // namespace pinion
