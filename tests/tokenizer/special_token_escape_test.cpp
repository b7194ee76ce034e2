// Escapes of special tokens that users type.
#include "tokenizer/templates/chat_template.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace pinion {
namespace {

using OrderedJson = nlohmann::ordered_json;

const std::vector<AddedToken> kTokens = {
    {.content = "<|end|>", .special = true},  {.content = "<|end|><b>", .special = true},
    {.content = "<b>", .special = true},      {.content = "[x]", .special = true},
    {.content = "</think>", .special = true}, {.content = "[/THINK]", .special = true}};

// The content of a message after escaping, with '?' for each escape.
std::string shown(const OrderedJson& content, const char* role = "user") {
  OrderedJson messages = {{{"role", role}, {"content", content}}}, tools;
  std::vector<Escape> escapes;
  EXPECT_EQ(escape_special_tokens(kTokens, messages.dump(), &messages, &tools, &escapes).message(), "");
  const std::string text = messages[0]["content"].dump();
  EXPECT_EQ(unescaped(text, escapes), content.dump());
  for (Escape& pair : escapes) pair.original = "?";
  return unescaped(text, escapes);
}

TEST(SpecialTokenEscape, ReplacesFirstCharacters) {
  EXPECT_EQ(shown("a <|end|> b"), "\"a ?|end|> b\"");
  EXPECT_EQ(shown("<|end|><b>"), "\"?|end|>?b>\"");  // unescaped, <b> would match
  EXPECT_EQ(shown("<think> [y] < |end|> \u00e9"), "\"<think> [y] < |end|> \u00e9\"");
  EXPECT_EQ(shown({{{"text", "[x]"}, {"<b>", {"<b>"}}}}), R"([{"text":"?x]","?b>":["?b>"]}])");
}

TEST(SpecialTokenEscape, ReplacesTokenPrefixesAtTheEnd) {
  EXPECT_EQ(shown("a <|en"), "\"a ?|en\"");
  EXPECT_EQ(shown("a <|en \n"), "\"a ?|en \\n\"");  // a template may trim the newline
  EXPECT_EQ(shown("a <|en\x1c"), "\"a ?|en\\u001c\"");
  EXPECT_EQ(shown("[y] <"), "\"[y] ?\"");
}

// A template may remove text from the middle.
TEST(SpecialTokenEscape, ReplacesPrefixesOfTwoCharacters) {
  EXPECT_EQ(shown("<|en/thinkd|> [ x] <c>"), "\"?|en/thinkd|> [ x] <c>\"");
  EXPECT_EQ(shown("<br> </s>"), "\"?br> ?/s>\"");
  EXPECT_EQ(shown("<think>a</think></s>", "assistant"), "\"<think>a</think></s>\"");
}

TEST(SpecialTokenEscape, KeepsThinkingMarksAndRoles) {
  EXPECT_EQ(shown("a</think><b>", "assistant"), "\"a</think>?b>\"");
  EXPECT_EQ(shown("a</think><b>"), "\"a?/think>?b>\"");
  EXPECT_EQ(shown("[THINK]a[/THINK]<b>", "assistant"), "\"[THINK]a[/THINK]?b>\"");
  EXPECT_EQ(shown("a[/THINK]<b>"), "\"a?/THINK]?b>\"");
  OrderedJson messages = {{{"role", "user[x]<|en"}}, {{"role", "user"}}}, tools = {{{"name", "[x]"}}};
  std::vector<Escape> escapes;
  std::vector<AddedToken> tokens = kTokens;
  tokens.push_back({.content = "user"});
  EXPECT_EQ(escape_special_tokens(tokens, "", &messages, &tools, &escapes).message(), "");
  EXPECT_TRUE(messages[0]["role"].get<std::string>().starts_with("user\U00100000x]<|en")) << messages;
  EXPECT_EQ(messages[1]["role"], "user");
  EXPECT_NE(tools[0]["name"], "[x]");
}

TEST(SpecialTokenEscape, KeepsToolCallMarksInAnswers) {
  const std::vector<AddedToken> tokens = {{.content = "<tool_call>"}, {.content = "<tool_response>"}};
  OrderedJson messages = {{{"role", "assistant"}, {"content", "<tool_call><tool_response>"}},
                          {{"role", "user"}, {"content", "<tool_call>"}}};
  OrderedJson tools;
  std::vector<Escape> escapes;
  EXPECT_EQ(escape_special_tokens(tokens, "", &messages, &tools, &escapes).message(), "");
  EXPECT_EQ(messages[0]["content"], "<tool_call>\U00100000tool_response>");
  EXPECT_EQ(messages[1]["content"], "\U00100000tool_call>");
}

TEST(SpecialTokenEscape, SkipsTakenCharacters) {
  OrderedJson messages = {{{"role", "user"}, {"content", "\U00100000[x]\U00100001"}}}, tools;
  std::vector<Escape> escapes;
  EXPECT_EQ(escape_special_tokens(kTokens, messages.dump(), &messages, &tools, &escapes).message(), "");
  ASSERT_EQ(escapes.size(), 1u);
  EXPECT_EQ(escapes[0].escaped, "\U00100002");
  EXPECT_EQ(unescaped(messages[0]["content"].get<std::string>(), escapes), "\U00100000[x]\U00100001");
}

}  // namespace
}  // namespace pinion
