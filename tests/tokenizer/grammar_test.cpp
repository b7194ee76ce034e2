// Hand-worked masks, accepted and rejected texts, harmful sources.
#include "tokenizer/grammar/grammar.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "tests/tokenizer/compiled_grammar.h"

namespace pinion {
namespace {

TEST(Grammar, HandWorkedMasks) {
  Compiled g;
  g.compile(GrammarKind::kRegex, "(ab|ac)d");
  EXPECT_EQ(g.next_after("ac"), std::vector<std::string>{"d"});
  const std::vector<std::string> first = g.next_after("");
  for (const std::string& token : first) EXPECT_TRUE(token == "a" || token == "ab" || token == "ac") << token;
  EXPECT_FALSE(first.empty());
  EXPECT_EQ(g.jump_after(""), "a");
  EXPECT_EQ(g.jump_after("ab"), "d");
  EXPECT_EQ(g.next_after("abd"), std::vector<std::string>());
  g.compile(GrammarKind::kRegex, "a.c");
  EXPECT_TRUE(g.takes("abc"));
  EXPECT_FALSE(g.takes("a\nc"));
}

// Surrogates have no UTF-8.
TEST(Grammar, RejectsSurrogates) {
  const std::string half = "\xED\xA0\xBD", before = "\xED\x9F\xBF", behind = "\xEE\x80\x80", far = "\U0010FFFF";
  Compiled g;
  for (const auto& [kind, source] : std::vector<std::pair<GrammarKind, std::string>>{
           {GrammarKind::kJsonSchema, R"({"type":"string","minLength":1,"maxLength":2})"},
           {GrammarKind::kJsonSchema, R"({"type":"string","pattern":"^[^a]{1,2}$"})"},
           {GrammarKind::kJsonSchema, R"({"type":"string"})"},
           {GrammarKind::kGbnf, R"(root ::= "\"" [^a] [^a]* "\"")"},
           {GrammarKind::kGbnf, R"(root ::= "\"" [\x20-\U0010FFFF] "\"")"}}) {
    g.compile(kind, source);
    EXPECT_FALSE(g.takes_bytes('"' + half + '"')) << source;
    for (const std::string& fine : {before, behind, far}) EXPECT_TRUE(g.takes('"' + fine + '"')) << source;
  }
  g.compile(GrammarKind::kJsonSchema, R"({"type":"string","pattern":"^\\ud83d\\ude00$"})");
  EXPECT_TRUE(g.takes("\"\U0001F600\""));
}

TEST(Grammar, BlanksIncludeUnicode) {
  Compiled g;
  for (const char* pattern : {"^\\\\S$", "^[^\\\\s]$"}) {
    g.compile(GrammarKind::kJsonSchema, std::string(R"({"type":"string","pattern":")") + pattern + "\"}");
    EXPECT_TRUE(g.takes("\"a\""));
    for (const char* blank : {" ", "\u00A0", "\u2003", "\u3000"})
      EXPECT_FALSE(g.takes(std::string("\"") + blank + '"'));
  }
}

TEST(Grammar, EscapedPropertyNames) {
  Compiled g;
  g.compile(GrammarKind::kJsonSchema,
            R"({"type":"object","properties":{"ab":{"const":1}},"additionalProperties":{"const":2}})");
  EXPECT_TRUE(g.takes(R"({"ab": 1, "ax": 2, "b\u0062": 2})"));
  EXPECT_FALSE(g.takes(R"({"\u0061b": 2})"));
  EXPECT_FALSE(g.takes(R"({"a\u0062": 2})"));
}

TEST(Grammar, AmbiguousGrammarsTimeOut) {
  Compiled g;
  g.compile(GrammarKind::kRegex, "([a-z ]?){1,2000}x");
  GrammarMatcher matcher(*g.grammar(), {});
  std::vector<uint32_t> bits(g.words());
  Error e;
  for (int i = 0; i < 1000 && !e; ++i) e = matcher.fill_mask(bits, 0);
  EXPECT_NE(e.message().find("too ambiguous"), std::string::npos) << e.message();
  EXPECT_EQ(matcher.accept(0).message(), e.message());  // the failure persists
}

TEST(Grammar, JumpForwardIsBounded) {
  const char* endless = R"({"type": "object", "properties": {"a": {"$ref": "#"}}, "required": ["a"]})";
  Compiled g;
  g.compile(GrammarKind::kJsonSchema, endless);
  const std::string jump = g.jump_after("");
  EXPECT_TRUE(jump.starts_with(R"({"a": {"a": {"a": )")) << jump;
  EXPECT_EQ(jump.size(), 256u);
}

// XGrammar 0.2.8 without the patches of tools/setup accepts too much here.
TEST(Grammar, OptionalAndRepeatedParts) {
  const struct {
    const char *pattern, *taken, *refused;
  } cases[] = {
      {"^(ab*)?$", "ab", "bb"},           {"^(a|a{1,2})$", "aa", "aaa"},      {"^(a*b)?$", "aab", "aa"},
      {"^a(\\\\.\\\\d+)?$", "a.1", "a1"}, {"^a(b|(b){0,2})$", "abb", "abbb"}, {"^[^a-z]{2}$", "A1", "a1"},
  };
  for (const auto& one : cases) {
    Compiled g;
    g.compile(GrammarKind::kJsonSchema, std::string(R"({"type":"string","pattern":")") + one.pattern + "\"}");
    EXPECT_TRUE(g.takes('"' + std::string(one.taken) + '"')) << one.pattern;
    EXPECT_FALSE(g.takes('"' + std::string(one.refused) + '"')) << one.pattern;
  }
  Compiled g;
  g.compile(GrammarKind::kJsonSchema, R"({"type":"string","pattern":"^a\"\\\\\\n?[^x]$"})");
  EXPECT_TRUE(g.takes(R"("a\"\\y")"));
  EXPECT_TRUE(g.takes(R"("a\"\\\ny")"));
  EXPECT_FALSE(g.takes(R"("a"\y")"));
  EXPECT_FALSE(g.takes(R"("a\"\\"")"));
}

TEST(Grammar, AcceptsTextOfAGbnfGrammar) {
  Compiled g;
  g.compile(GrammarKind::kGbnf, "root ::= \"<\" (word \" \")* word \">\"\nword ::= [a-zäö]+ | \"1\"{2,3}\n");
  EXPECT_TRUE(g.takes("<ab ä>"));
  EXPECT_TRUE(g.takes("<111 11 x>"));
  EXPECT_FALSE(g.takes("<1>"));
  EXPECT_FALSE(g.takes("<>"));
}

TEST(Grammar, TokenBytesSpellTheText) {
  for (const char* name : {"deepseek", "gemma", "gpt2", "llama2", "llama3", "llama3_ranks", "mistral", "o200k", "phi3",
                           "qwen2", "qwen35", "sentencepiece_bpe", "tekken", "tekken_ranks"}) {
    const auto tokenizer = load_named(name);
    const std::string text = "x{\"a\": [1, -2.5e3], \"ü\\n\": \"€ 😀\"}";
    std::string spelled;
    for (const int32_t id : encoded(*tokenizer, text, {.add_special = false, .parse_special = false})) {
      spelled += token_bytes(*tokenizer, id);
    }
    EXPECT_EQ(spelled.starts_with(' ') ? spelled.substr(1) : spelled, text) << name;  // some models add a leading blank
  }
}

TEST(Grammar, ErrorsNameTheProblem) {
  Compiled g;
  EXPECT_EQ(g.error_of(GrammarKind::kGbnf, "root ::= other"),
            "g: EBNF parser error at line 1, column 10: Rule \"other\" is not defined");
  EXPECT_TRUE(g.error_of(GrammarKind::kGbnf, "").starts_with("g: ")) << g.error_of(GrammarKind::kGbnf, "");
  EXPECT_TRUE(g.error_of(GrammarKind::kRegex, "(a").starts_with("g: ")) << g.error_of(GrammarKind::kRegex, "(a");
  EXPECT_TRUE(g.error_of(GrammarKind::kRegex, "a(?=b)").find("not supported") != std::string::npos);
  EXPECT_EQ(g.error_of(GrammarKind::kJsonSchema, R"({"type":"strin"})"),
            R"(g: #/type: not a type of JSON schema: "strin")");
  EXPECT_EQ(g.error_of(GrammarKind::kJsonSchema, R"({"$ref":"#/x"})"),
            R"(g: #/$ref: no such schema: want # or #/$defs/NAME, have "#/x")");
  EXPECT_EQ(g.error_of(GrammarKind::kJsonSchema, R"({"type":"integer","minimum":2,"maximum":1})"),
            "g: #: no integer matches all limits");
  EXPECT_EQ(g.error_of(GrammarKind::kRegex, std::string(2 << 20, 'a')), "g: too long: want at most 1 MB");
}

TEST(Grammar, RecentSourcesAreCached) {
  GrammarCompiler compiler(load_named("qwen2"));
  std::shared_ptr<const Grammar> first, second, other, tried;
  const GrammarSource source{.kind = GrammarKind::kRegex, .text = "a+"};
  ASSERT_FALSE(compiler.compile(source, "g", true, &first));
  ASSERT_FALSE(compiler.compile({.kind = GrammarKind::kGbnf, .text = "root ::= \"b\""}, "g", true, &other));
  ASSERT_FALSE(compiler.compile(source, "g", true, &second));
  EXPECT_EQ(first, second);
  EXPECT_NE(first, other);
  ASSERT_FALSE(compiler.compile(source, "g", false, &tried));  // an untrusted source needs a trial
  EXPECT_NE(first, tried);
  ASSERT_FALSE(compiler.compile(source, "g", false, &second));
  EXPECT_EQ(tried, second);
}

// An untrusted source is compiled in a child process first.
TEST(Grammar, SurvivesHarmfulSources) {
  Compiled g;
  EXPECT_EQ(g.error_of(GrammarKind::kJsonSchema, R"({"type":"object"})", false), "");
  EXPECT_TRUE(g.takes(R"({"a": [{"b": null}]})"));
  EXPECT_EQ(g.error_of(GrammarKind::kGbnf, "root ::= other", false),
            "g: EBNF parser error at line 1, column 10: Rule \"other\" is not defined");
  std::string deep_regex(100000, '('), wide = "root ::= a0\n";
  deep_regex += "a" + std::string(100000, ')');
  for (int i = 0; i < 22; ++i) {
    const std::string next = "a" + std::to_string(i + 1);
    wide += "a" + std::to_string(i) + " ::= " + next + " " + next + " | " + next + "\n";
  }
  wide += "a22 ::= \"x\"\n";
  for (const auto& [kind, source] : std::initializer_list<std::pair<GrammarKind, std::string>>{
           {GrammarKind::kRegex, deep_regex},
           {GrammarKind::kRegex, "((((a{1,200}){1,200}){1,200}){1,200})b"},
           {GrammarKind::kGbnf, wide},
           {GrammarKind::kGbnf, "root ::= root root | root | \"\""},
           {GrammarKind::kGbnf, "root ::= " + std::string(50000, '(') + "\"a\"" + std::string(50000, ')')},
           {GrammarKind::kJsonSchema, R"({"type":"array","items":{"type":"string","maxLength":2000000000}})"}}) {
    const std::string message = g.error_of(kind, source, false);
    EXPECT_EQ(message.find('\n'), std::string::npos) << message;
  }
}

}  // namespace
}  // namespace pinion
