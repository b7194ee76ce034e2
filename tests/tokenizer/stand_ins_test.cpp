// Special tokens that people type: what stands for them, and the ids that come of it.
#include "tokenizer/stand_ins.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace pinion {
namespace {

using OrderedJson = nlohmann::ordered_json;

const std::vector<AddedToken> kTokens = {{.content = "<|end|>", .special = true},
                                         {.content = "<|end|><b>", .special = true},
                                         {.content = "<b>", .special = true},
                                         {.content = "[x]", .special = true},
                                         {.content = "</think>", .special = true}};

// The content of one message, stand-ins shown as '?'.
std::string shown(const OrderedJson& content, const char* role = "user") {
  OrderedJson messages = {{{"role", role}, {"content", content}}}, tools;
  std::vector<StandIn> stand_ins;
  EXPECT_EQ(replace_special_tokens(kTokens, messages.dump(), &messages, &tools, &stand_ins).message(), "");
  const std::string text = messages[0]["content"].dump();
  EXPECT_EQ(put_back(text, stand_ins), content.dump());
  for (StandIn& pair : stand_ins) pair.original = "?";
  return put_back(text, stand_ins);
}

TEST(StandIns, StandForTheFirstCharacterOfATypedToken) {
  EXPECT_EQ(shown("a <|end|> b"), "\"a ?|end|> b\"");
  EXPECT_EQ(shown("<|end|><b>"), "\"?|end|>?b>\"");  // else the second would be found once the first is not
  EXPECT_EQ(shown("<think> [y] < |end|> \u00e9"), "\"<think> [y] < |end|> \u00e9\"");
  EXPECT_EQ(shown({{{"text", "[x]"}, {"<b>", {"<b>"}}}}), R"([{"text":"?x]","?b>":["?b>"]}])");
}

TEST(StandIns, StandForTheBeginningOfATokenAtTheEnd) {
  EXPECT_EQ(shown("a <|en"), "\"a ?|en\"");
  EXPECT_EQ(shown("a <|en \n"), "\"a ?|en \\n\"");  // templates trim
  EXPECT_EQ(shown("a <|en\x1c"), "\"a ?|en\\u001c\"");
  EXPECT_EQ(shown("[y] <"), "\"[y] ?\"");
}

// A template may take text out of the middle.
TEST(StandIns, StandWhereTwoCharactersAreThoseOfAToken) {
  EXPECT_EQ(shown("<|en/thinkd|> [ x] <c>"), "\"?|en/thinkd|> [ x] <c>\"");
  EXPECT_EQ(shown("<br> </s>"), "\"?br> ?/s>\"");
  EXPECT_EQ(shown("<think>a</think></s>", "assistant"), "\"<think>a</think></s>\"");
}

TEST(StandIns, LeaveTheMarksOfThoughtsInAnswersAndWordsInRoles) {
  EXPECT_EQ(shown("a</think><b>", "assistant"), "\"a</think>?b>\"");
  EXPECT_EQ(shown("a</think><b>"), "\"a?/think>?b>\"");
  OrderedJson messages = {{{"role", "user[x]<|en"}}, {{"role", "user"}}}, tools = {{{"name", "[x]"}}};
  std::vector<StandIn> stand_ins;
  std::vector<AddedToken> tokens = kTokens;
  tokens.push_back({.content = "user"});
  EXPECT_EQ(replace_special_tokens(tokens, "", &messages, &tools, &stand_ins).message(), "");
  EXPECT_TRUE(messages[0]["role"].get<std::string>().starts_with("user\U00100000x]<|en")) << messages;
  EXPECT_EQ(messages[1]["role"], "user");
  EXPECT_NE(tools[0]["name"], "[x]");
}

TEST(StandIns, LeaveTheMarksOfToolCallsInAnswers) {
  const std::vector<AddedToken> tokens = {{.content = "<tool_call>"}, {.content = "<tool_response>"}};
  OrderedJson messages = {{{"role", "assistant"}, {"content", "<tool_call><tool_response>"}},
                          {{"role", "user"}, {"content", "<tool_call>"}}};
  OrderedJson tools;
  std::vector<StandIn> stand_ins;
  EXPECT_EQ(replace_special_tokens(tokens, "", &messages, &tools, &stand_ins).message(), "");
  EXPECT_EQ(messages[0]["content"], "<tool_call>\U00100000tool_response>");
  EXPECT_EQ(messages[1]["content"], "\U00100000tool_call>");
}

TEST(StandIns, AreCharactersThatOccurNowhere) {
  OrderedJson messages = {{{"role", "user"}, {"content", "\U00100000[x]\U00100001"}}}, tools;
  std::vector<StandIn> stand_ins;
  EXPECT_EQ(replace_special_tokens(kTokens, messages.dump(), &messages, &tools, &stand_ins).message(), "");
  ASSERT_EQ(stand_ins.size(), 1u);
  EXPECT_EQ(stand_ins[0].stand_in, "\U00100002");
  EXPECT_EQ(put_back(messages[0]["content"].get<std::string>(), stand_ins), "\U00100000[x]\U00100001");
}

}  // namespace
}  // namespace pinion
