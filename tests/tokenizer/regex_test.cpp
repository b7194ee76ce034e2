// Distant matches, and patterns of exponential time.
#include "tokenizer/tokens/regex.h"

#include <gtest/gtest.h>

#include <vector>

namespace pinion {
namespace {

Regex compiled(const std::string& pattern, bool literal = false) {
  Regex regex;
  const Error e = compile_regex(pattern, literal, "p", &regex);
  EXPECT_FALSE(e) << e.message();
  return regex;
}

// The matches, separated by bars.
std::string matches(const std::string& pattern, const std::string& text, bool literal = false) {
  RegexFinder finder(text.size());
  std::string result;
  const Error e = finder.find(compiled(pattern, literal), text, [&](const Span& span) {
    if (span.match) result += (result.empty() ? "" : "|") + text.substr(span.begin, span.end - span.begin);
    return Error{};
  });
  return e ? "error: " + e.message() : result;
}

TEST(Regex, FindsDistantMatches) {
  for (const size_t distance : {254, 255, 256, 257, 258, 511, 512, 513, 100'000}) {
    const std::string gap(distance, '.');
    EXPECT_EQ(matches("[ab]", gap + "a" + gap + "b"), "a|b") << distance;
    EXPECT_EQ(matches("b", gap + "ab", true), "b") << distance;
    EXPECT_EQ(matches("(?<=a)b$", gap + "b\n" + gap + "ab"), "b") << distance;
    std::string wide;
    for (size_t i = 0; i < distance; ++i) wide += "\u20ac";
    EXPECT_EQ(matches("[äö]", wide + "ä" + wide + "ö"), "ä|ö") << distance;
  }
  EXPECT_EQ(matches("x*", std::string(300, '.') + "xx"), "xx");
}

TEST(Regex, TimesOutAtOnePosition) {
  EXPECT_EQ(matches("(a+)+$", std::string(60, 'a') + "b"),
            "error: a regular expression of the tokenizer: takes too much time for this text");
}

// Each part takes thousands of steps, below PCRE2's limit; the sum is limited. (PCRE2 rejects at once a part shorter
// than the shortest match, or one without a required last letter.)
TEST(Regex, TimesOutOverAllParts) {
  const Regex slow = compiled("(?:a?){12}a{12}[bc]");
  const std::string part(24, 'a');
  RegexFinder finder(part.size(), 0.1);
  Error e;
  int parts = 0;
  for (; !e && parts < 1'000'000; ++parts) e = finder.find(slow, part, [](const Span&) { return Error{}; });
  EXPECT_NE(e.message().find("too much time"), std::string::npos) << e.message();
  EXPECT_GT(parts, 1);
}

TEST(Regex, ErrorsEndTheSearch) {
  RegexFinder finder(4);
  int spans = 0;
  const Error e =
      finder.find(compiled("a"), "abab", [&](const Span&) { return ++spans < 3 ? Error{} : error("x", ""); });
  EXPECT_EQ(e.message(), "x");
  EXPECT_EQ(spans, 3);
}

}  // namespace
}  // namespace pinion
