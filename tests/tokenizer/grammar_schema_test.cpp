// Texts that the grammars of JSON schemas take: keywords beside each other, lengths, patterns, digits.
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/tokenizer/compiled_grammar.h"

namespace pinion {
namespace {

TEST(Grammar, AcceptsJsonOfTheSchema) {
  Compiled g;
  g.compile(GrammarKind::kJsonSchema,
            R"({"type":"object","properties":{"name":{"type":"string"},"age":{"type":"integer",
      "minimum":18,"maximum":99},"when":{"format":"date"},"tags":{"type":"array","items":{"enum":["x","y\n"]}}},
      "required":["name","age","tags"]})");
  EXPECT_TRUE(g.takes(R"({"name": "", "age": 18, "tags": []})"));
  EXPECT_TRUE(g.takes(R"({"name": "Jürgen \"x\" \u00e4", "age": 99, "when": "2024-02-29", "tags": ["x", "y\n"]})"));
  EXPECT_FALSE(g.takes(R"({"name": "", "age": 17, "tags": []})"));
  EXPECT_FALSE(g.takes(R"({"name": "", "age": 18, "when": "2023-02-29", "tags": []})"));
  EXPECT_FALSE(g.takes(R"({"name": "", "tags": []})"));
  EXPECT_FALSE(g.takes(R"({"age": 18, "name": "", "tags": []})"));  // the order is the schema's
  EXPECT_FALSE(g.takes(R"({"name": "", "age": 18, "tags": [], "more": 1})"));
  EXPECT_FALSE(g.takes(R"({"name": "", "age": 18, "tags": ["z"]})"));
  EXPECT_FALSE(g.takes(R"({"name": "", "age": 18, "tags": [])"));
  EXPECT_EQ(g.jump_after("{"), "\"name\": \"");
}

TEST(Grammar, LengthsCountJsonCharacters) {
  Compiled g;
  g.compile(GrammarKind::kJsonSchema, R"({"type":"string","minLength":2,"maxLength":3})");
  EXPECT_TRUE(g.takes(R"("ä€")"));
  EXPECT_FALSE(g.takes(R"("€")"));
  EXPECT_FALSE(g.takes("\"a\t\""));
  EXPECT_FALSE(g.takes(R"("abcd")"));
  EXPECT_TRUE(g.takes(R"("\n\"")"));
  EXPECT_TRUE(g.takes(R"("a\\b")")) << "an escape is one character";
  EXPECT_FALSE(g.takes(R"("\n")"));
  EXPECT_FALSE(g.takes(R"("ab\")")) << "half an escape is none";
}

TEST(Grammar, TokensFitTheRemainingLength) {
  Compiled g;
  g.compile(GrammarKind::kJsonSchema,
            R"({"type":"object","properties":{"a":{"type":"string","minLength":1,"maxLength":9},"b":{"type":"string",)"
            R"("maxLength":300}},"required":["a","b"],"additionalProperties":false})");
  const std::string long_text(300, 'x');
  EXPECT_TRUE(g.takes(R"({"a": "straße\n€", "b": ""})"));
  EXPECT_TRUE(g.takes(R"({"a": "123456789", "b": ")" + long_text + "\"}"));
  EXPECT_FALSE(g.takes(R"({"a": "1234567890", "b": ""})"));
  EXPECT_FALSE(g.takes(R"({"a": "", "b": ""})"));
  EXPECT_FALSE(g.takes(R"({"a": "1", "b": ")" + long_text + "x\"}"));
  EXPECT_FALSE(g.takes_bytes("{\"a\": \"12345678\xE2\x82\xAC\xE2\x82\xAC\", \"b\": \"\"}")) << "ten characters";
  const auto characters = [](std::string_view text) {  // before a quote
    return std::ranges::count_if(text.substr(0, text.find('"', 1)), [](char c) { return (c & 0xC0) != 0x80; });
  };
  for (const std::string& next : g.next_after(R"({"a": "1234567)")) EXPECT_LE(characters(next), 2) << next;
  for (const std::string& next : g.next_after(R"({"a": "123456789)")) EXPECT_EQ(next[0], '"') << next;
  for (const std::string& next : g.next_after(R"({"a": "12345678\)")) EXPECT_EQ(characters(next), 1) << next;
  EXPECT_FALSE(g.next_after(R"({"a": "12345678\)").empty());
}

TEST(Grammar, SchemaPatternsMatchSubstrings) {
  const struct {
    const char *pattern, *taken, *also, *refused;
  } cases[] = {
      {"^https?://", R"("https://x.org/\"a\"")", R"("http://")", R"(" http://")"},
      {"[0-9]", R"("a1\n")", R"("1")", R"("a")"},
      {"b$", R"("\\b")", R"("b")", R"("ba")"},
      {"^a|b$", R"("ax")", R"("xb")", R"("xax")"},
      {"^.$", R"("\t")", R"("\"")", R"("\n")"},
      {"^$", R"("")", R"("")", R"("a")"},
  };
  for (const auto& one : cases) {
    Compiled g;
    g.compile(GrammarKind::kJsonSchema, std::string(R"({"type":"string","pattern":")") + one.pattern + "\"}");
    EXPECT_TRUE(g.takes(one.taken)) << one.pattern;
    EXPECT_TRUE(g.takes(one.also)) << one.pattern;
    EXPECT_FALSE(g.takes(one.refused)) << one.pattern;
  }
  Compiled g;
  g.compile(GrammarKind::kJsonSchema,
            R"({"type":"object","patternProperties":{"^S_":{"type":"integer"}},"additionalProperties":false})");
  EXPECT_TRUE(g.takes(R"({"S_name": 1})"));
  EXPECT_FALSE(g.takes(R"({"name": 1})"));
}

TEST(Grammar, OneOfWithDisjointReferences) {
  Compiled g;
  g.compile(
      GrammarKind::kJsonSchema,
      R"({"oneOf":[{"$ref":"#/$defs/C"},{"$ref":"#/$defs/D"}],"discriminator":{"propertyName":"kind"},"$defs":{)"
      R"("C":{"type":"object","properties":{"kind":{"const":"cat"},"x":{"type":"integer"}},"required":["kind","x"]},)"
      R"("D":{"type":"object","properties":{"kind":{"const":"dog"},"x":{"type":"string"}},"required":["kind","x"]}}})");
  EXPECT_TRUE(g.takes(R"({"kind": "cat", "x": 1})"));
  EXPECT_TRUE(g.takes(R"({"kind": "dog", "x": "1"})"));
  EXPECT_FALSE(g.takes(R"({"kind": "cat", "x": "1"})"));
}

// Patterns, formats, lengths and lookaheads of one string.
TEST(Grammar, LimitsOfAStringApplyTogether) {
  const std::string email = R"("format":"email","pattern":"^(?!\\.)(?!.*\\.\\.)([A-Za-z0-9_'+\\-\\.]*)[A-Za-z0-9_+-]@)"
                            R"(([A-Za-z0-9][A-Za-z0-9\\-]*\\.)+[A-Za-z]{2,}$")";
  const struct {
    std::string schema;
    std::vector<std::string> taken, refused;
  } cases[] = {
      {R"("pattern":"^[a-z]+$","minLength":1,"maxLength":8)", {"a", "abcdefgh"}, {"", "abcdefghi", "A"}},
      {R"("pattern":"^[a-z]*$","minLength":2)", {"ab", "abc"}, {"", "a"}},
      {R"("pattern":"^[^a]*$","maxLength":3)", {"\\n\\\"€", "bcd"}, {"bcde", "ab"}},
      {R"("pattern":"^[a-z]","allOf":[{"pattern":"\\d$"},{"maxLength":4}])", {"a1", "abc1"}, {"a", "1", "abcd1"}},
      {R"("pattern":"^[a-z]+@[a-z]+\\.com$","maxLength":200)",
       {"a@b.com", std::string(190, 'a') + "@abcde.com"},
       {std::string(191, 'a') + "@abcde.com", "a@b.de"}},
      {email, {"a.b@c.de", "x@y-z.org"}, {".a@b.de", "a..b@c.de", "a.@c.de", "a@b", "a'@b.de"}},
      {email + R"(,"maxLength":90)",
       {"a.b@c.de", std::string(83, 'x') + "@yz.org"},
       {std::string(84, 'x') + "@yz.org"}},
      {R"("format":"uri","minLength":1,"maxLength":2083)",
       {"https://x.org/a?b=1"},
       {"", "x", "https://x.org/" + std::string(2083, 'a')}},
      {R"("format":"date","pattern":"^20")", {"2024-02-29"}, {"1999-01-01", "2023-02-29"}},
      {R"("format":"uuid","maxLength":36)", {"01234567-89ab-cdef-0123-456789abcdef"}, {"0"}},
      {R"("format":"phone","pattern":"^[0-9]{2}$")", {"12"}, {"1", "a"}},
      {R"("format":"ipv4","pattern":"^[a-z]$")", {"a"}, {"1.2.3.4"}},  // the format is an annotation
      {R"("pattern":"^(?=.*[A-Z])(?=.*\\d)[A-Za-z\\d]{4,}$")", {"Abc1", "aB12x"}, {"abc1", "ABCD", "A1"}},
      {R"("pattern":"^(?!^[-+.]*$)[+-]?0*\\d*\\.?\\d*$")", {"-1.5", "0"}, {"-", ".", "1.2.3"}},
  };
  for (const auto& one : cases) {
    Compiled g;
    g.compile(GrammarKind::kJsonSchema, R"({"type":"string",)" + one.schema + "}");
    for (const std::string& text : one.taken) EXPECT_TRUE(g.takes('"' + text + '"')) << one.schema << text;
    for (const std::string& text : one.refused) EXPECT_FALSE(g.takes('"' + text + '"')) << one.schema << text;
  }
}

TEST(Grammar, KeywordsBesideEachOtherApply) {
  const struct {
    const char* schema;
    std::vector<std::string> taken, refused;
  } cases[] = {
      {R"({"type":"object","properties":{"a":{"type":"boolean"},"b":{"type":"boolean"}},)"
       R"("anyOf":[{"required":["a"]},{"required":["b"]}],"additionalProperties":false})",
       {R"({"a": true})", R"({"b": true})", R"({"a": true, "b": false})"},
       {"{}", R"({"c": 1, "a": true})"}},
      {R"({"type":"array","items":[{"type":"boolean"},{"type":"null"}],"additionalItems":false,"minItems":2})",
       {"[true, null]"},
       {"[true]", "[true, null, 1]", "[null, true]"}},
      {R"({"type":"object","propertyNames":{"enum":["k","l"]},"additionalProperties":{"type":"boolean"},)"
       R"("required":["k","l"]})",
       {R"({"k": true, "l": false})"},
       {R"({"k": true})", R"({"k": true, "l": false, "m": true})"}},
      {R"({"type":"object","propertyNames":{"pattern":"^x-"},"additionalProperties":{"type":"integer"}})",
       {"{}", R"({"x-a": 1, "x-b": 2})"},
       {R"({"a": 1})", R"({"x-a": "1"})"}},
      {R"({"type":"object","propertyNames":{"allOf":[{"pattern":"^a"},{"maxLength":2}]},)"
       R"("additionalProperties":{"type":"null"}})",
       {R"({"a": null, "ab": null})"},
       {R"({"abc": null})", R"({"b": null})"}},
      {R"({"type":"object","propertyNames":{"maxLength":2},"properties":{"ab":{"type":"null"}},)"
       R"("additionalProperties":{"type":"integer"}})",
       {R"({"ab": null, "c": 1})", R"({"": 1})"},
       {R"({"ab": 1})", R"({"abc": 1})", "{\"\t\": 1}", R"({""": 1})"}},
      {R"({"type":"object","properties":{"a":false,"b":{"type":"null"}},"additionalProperties":{"type":"null"}})",
       {R"({"b": null, "c": null})"},
       {R"({"a": null})"}},
      {R"({"type":"array","items":{"$ref":"#"},"uniqueItems":true})", {"[]", "[[]]"}, {"[1]"}},
      {R"({"type":"object","properties":{"ab":{"type":"null"}},"patternProperties":{"^a":{"type":["null","integer"]}},)"
       R"("additionalProperties":{"type":"string"}})",
       {R"({"ab": null, "ac": 1, "b": "x"})"},
       {R"({"ab": 1})", R"({"ac": "x"})", R"({"b": 1})"}},
      {R"({"type":"array","items":{"enum":["a","b","c"]},"uniqueItems":true})",
       {"[]", R"(["c","a"])", R"(["a","b","c"])"},
       {R"(["a","a"])", R"(["a","b","a"])"}},
      {R"({"type":"object","properties":{"next":{"anyOf":[{"$ref":"#"},{"type":"null"}]},"v":{"type":"null"}},)"
       R"("allOf":[{"required":["v"]}]})",
       {R"({"next": {"v": null}, "v": null})", R"({"next": null, "v": null})"},
       {R"({"next": {}, "v": null})"}},
      {R"({"type":"integer","minimum":9223372036854775806,"maximum":9223372036854775807})",
       {"9223372036854775806", "9223372036854775807"},
       {"9223372036854775805", "1"}},
  };
  for (const auto& one : cases) {
    Compiled g;
    g.compile(GrammarKind::kJsonSchema, one.schema);
    for (const std::string& text : one.taken) EXPECT_TRUE(g.takes(text)) << one.schema << text;
    for (const std::string& text : one.refused) EXPECT_FALSE(g.takes(text)) << one.schema << text;
  }
}

// A number ends after some digits, unless its bounds need more; strings and other grammars do not count digits.
TEST(Grammar, DigitsAreCapped) {
  const std::string digits = "12345678901234567890";
  Compiled g;
  for (const char* schema : {R"({"type":"integer"})", R"({"type":"number"})", "{}"}) {
    g.compile(GrammarKind::kJsonSchema, schema);
    EXPECT_TRUE(g.takes(digits)) << schema;
    EXPECT_TRUE(g.takes("-" + digits)) << schema;
    EXPECT_FALSE(g.takes(digits + "1")) << schema;
  }
  EXPECT_TRUE(g.takes("[" + digits + ", 0." + digits + "e-99, \"" + digits + digits + "\"]"));
  EXPECT_FALSE(g.takes("[0." + digits + "1]"));
  EXPECT_FALSE(g.takes("[1e100]"));
  EXPECT_TRUE(g.takes(R"({"a\\": 1, "1234567890123456789012345": 2})"));
  g.compile(GrammarKind::kJsonSchema, R"({"type":"number","minimum":1e24,"maximum":2e24})");
  EXPECT_TRUE(g.takes("999999999999999983222784"));  // the double 1e24
  g.compile(GrammarKind::kJsonSchema, R"({"const":1234567890123456789012})");
  EXPECT_FALSE(g.next_after("").empty());
  g.compile(GrammarKind::kRegex, "[0-9]+");
  EXPECT_TRUE(g.takes(digits + digits));
}

}  // namespace
}  // namespace pinion
