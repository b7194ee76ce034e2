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

std::string refusal(const std::string& pattern) {
  Regex regex;
  return compile_regex(pattern, false, "p", &regex).message();
}

// All results are those of Python's tokenizers 0.23.3.
TEST(Regex, ClassesOfClasses) {
  EXPECT_EQ(matches("[a-z&&[^aeiou]]+", "education"), "d|c|t|n");
  EXPECT_EQ(matches("[a-c&&b-d&&c]", "abcd"), "c");
  EXPECT_EQ(matches("[^a-c&&b-d]", "abcd"), "a|d");
  EXPECT_EQ(matches("[a[c-d]f]+", "abcdef"), "a|cd|f");
  EXPECT_EQ(matches("[\\p{L}&&[^\\p{Han}]]+", "ab漢cд。"), "ab|cд");
  EXPECT_EQ(matches("[^\\W\\d_]+", "a_1é!b"), "a|é|b");
  EXPECT_EQ(matches("[a\\W]+", "ab!? c"), "a|!? ");
  EXPECT_EQ(matches("[]a]+", "]a[b"), "]a");
  EXPECT_EQ(matches("[^]a]+", "]a[b"), "[b");
  EXPECT_EQ(matches("[]&&[^a]]", "]a"), "]");
  EXPECT_EQ(matches("[^a&&b]", "\n"), "\n");
  EXPECT_EQ(refusal("[&&a]"), "p: regular expression uses an empty set in [ ], which is not supported");
  EXPECT_EQ(refusal("[a"), "p: regular expression uses [ without ], which is not supported");
  EXPECT_NE(refusal(std::string(1000, '[')), "");
}

TEST(Regex, PosixSetsAndNames) {
  EXPECT_EQ(matches("[[:alpha:]]+", "aé1漢\u0345_"), "aé|漢\u0345");
  EXPECT_EQ(matches("[[:punct:]]+", "a+b€c、d"), "+|€|、");
  EXPECT_EQ(matches("\\p{Punct}+", "a+b€c、d"), "、");
  EXPECT_EQ(matches("[^[:space:][:alnum:]]+", "a !\u200d1"), "!\u200d");
  EXPECT_EQ(matches("[[:^digit:]]+", "1a٣b"), "a|b");
  EXPECT_EQ(matches("[[:graph:]]+", "a \u200db\u00a0"), "a|\u200db");
  EXPECT_EQ(matches("[[:print:]]+", "a \u2028b\n"), "a |b");
  EXPECT_EQ(matches("\\p{Letter}\\p{^Letter}\\h", "aé!f"), "é!f");
  EXPECT_EQ(refusal("[[:nothing:]]"), "p: regular expression uses [: or too many [ inside [ ], which is not supported");
}

TEST(Regex, ScriptsExcludeSharedCharacters) {
  EXPECT_EQ(matches("\\p{Han}+", "漢、字。"), "漢|字");
  EXPECT_EQ(matches("[\\p{Katakana}]+", "カー・"), "カ");
  EXPECT_EQ(matches("\\P{Han}+", "漢、a"), "、a");
}

TEST(Regex, WordBoundaries) {
  EXPECT_EQ(matches("\\b\\w", "ab cd_e é1"), "a|c|é");
  EXPECT_EQ(matches("\\w\\b.", "a b\u200dc\u0301!"), "a |b\u200d|\u0301!");
  EXPECT_EQ(matches("a\\Bb|c\\B!", "ab c!"), "ab");
  EXPECT_EQ(matches("\\w+", "x²½\u200dy"), "x²½|y");
  EXPECT_EQ(matches("[\\w]+", "x²½y"), "x|y") << "Oniguruma's classes have no digits of Latin-1";
}

TEST(Regex, CaseOfSetsIsRefused) {
  EXPECT_EQ(refusal("(?i:'s)|[\\p{Lu}a]"), "");
  EXPECT_EQ(refusal("(?i)[\\p{Lu}]"), "p: regular expression uses sets of one case in (?i, which is not supported");
  EXPECT_EQ(refusal("a(?i:b(c)[[:upper:]])"),
            "p: regular expression uses sets of one case in (?i, which is not supported");
  EXPECT_EQ(refusal("((?i)b)[[:upper:]]"), "");
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
