// Special tokens that people type: what stands for them, and the ids that come of it.
#include "tokenizer/stand_ins.h"

#include <gtest/gtest.h>

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
  EXPECT_EQ(shown("<think> [y] <|end |> < |end|> \u00e9"), "\"<think> [y] <|end |> < |end|> \u00e9\"");
  EXPECT_EQ(shown({{{"text", "[x]"}, {"<b>", {"<b>"}}}}), R"([{"text":"?x]","?b>":["?b>"]}])");
}

TEST(StandIns, StandForTheBeginningOfATokenAtTheEnd) {
  EXPECT_EQ(shown("a <|en"), "\"a ?|en\"");
  EXPECT_EQ(shown("a <|en \n"), "\"a ?|en \\n\"");  // templates trim
  EXPECT_EQ(shown("<|en d <"), "\"<|en d ?\"");
}

TEST(StandIns, LeaveRolesAndTheMarksOfThoughtsInAnswers) {
  EXPECT_EQ(shown("a</think><b>", "assistant"), "\"a</think>?b>\"");
  EXPECT_EQ(shown("a</think><b>"), "\"a?/think>?b>\"");
  OrderedJson messages = {{{"role", "[x]"}}}, tools = {{{"name", "[x]"}}};
  std::vector<StandIn> stand_ins;
  EXPECT_EQ(replace_special_tokens(kTokens, "", &messages, &tools, &stand_ins).message(), "");
  EXPECT_EQ(messages[0]["role"], "[x]");
  EXPECT_NE(tools[0]["name"], "[x]");
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
