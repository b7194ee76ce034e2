#include "tokenizer/answers/thinking.h"

#include <gtest/gtest.h>

namespace pinion {
namespace {

// Thoughts in brackets; the text comes in pieces of so many bytes.
std::string marked(const std::string& text, bool inside = false, size_t piece_bytes = 1) {
  ThinkingSplitter splitter(inside);
  std::string result;
  bool in_thought = false;
  const auto take = [&](const std::vector<ThinkingPart>& parts) {
    for (const ThinkingPart& part : parts) {
      if (part.is_thought != in_thought) result += part.is_thought ? "[" : "]";
      in_thought = part.is_thought;
      result += part.text;
    }
  };
  for (size_t i = 0; i < text.size(); i += piece_bytes) take(splitter.put(text.substr(i, piece_bytes)));
  take(splitter.finish());
  return result + (in_thought ? "]" : "");
}

TEST(Thinking, PartsAreTheSameHoweverTheTextComes) {
  for (const size_t bytes : {1, 2, 3, 7, 100}) {
    EXPECT_EQ(marked("<think>\nWhy\n\nnot?\n</think>\n\nSo.\n", false, bytes), "[Why\n\nnot?]So.\n");
    EXPECT_EQ(marked("Why?\n</think>\n\nSo.", true, bytes), "[Why?]So.");
    EXPECT_EQ(marked("\n a </think> <b> <thin", false, bytes), "\n a </think> <b> <thin");
    EXPECT_EQ(marked("<think>\n\n</think>\n\nSo.", false, bytes), "So.");
    EXPECT_EQ(marked("a<think>b</think>c<think>d", false, bytes), "a[b]c[d]");
    EXPECT_EQ(marked("b </thi nk></think", true, bytes), "[b </thi nk></think]");
    EXPECT_EQ(marked("[THINK]Why?[/THINK]So.", false, bytes), "[Why?]So.");
    EXPECT_EQ(marked("Why?[/THINK]\n\nSo.", true, bytes), "[Why?]So.");
    // Others are text inside.
    EXPECT_EQ(marked("[THINK]a</think>b<think>[/THINK]c", false, bytes), "[a</think>b<think>]c");
    EXPECT_EQ(marked("<think>a[/THINK]b[THINK]</think>c[/THINK]", false, bytes), "[a[/THINK]b[THINK]]c[/THINK]");
    EXPECT_EQ(marked("a[THI<think>b</think>[TH", false, bytes), "a[THI[b][TH");
  }
}

TEST(Thinking, IsOpenedByThePrompt) {
  EXPECT_TRUE(ends_in_thought("<|im_start|>assistant\n<think>\n"));
  EXPECT_FALSE(ends_in_thought("<think>\n\n</think>\n\n"));
  EXPECT_FALSE(ends_in_thought("<think> a"));
  EXPECT_TRUE(ends_in_thought("[/INST][THINK]"));
  EXPECT_FALSE(ends_in_thought(""));
}

TEST(Thinking, KnowsWhatEndsTheOpenThought) {
  ThinkingSplitter splitter(true);
  EXPECT_EQ(splitter.close_mark(), "</think>");
  std::ignore = splitter.put("a</think>[THINK]b");
  EXPECT_EQ(splitter.close_mark(), "[/THINK]");
  for (const auto& [open, close] : thinking_marks()) {
    EXPECT_TRUE(is_thinking_mark(open) && is_thinking_mark(close));
    EXPECT_NE(kLastOfThinkingMarks.find(close.back()), std::string_view::npos) << close;
  }
}

}  // namespace
}  // namespace pinion
