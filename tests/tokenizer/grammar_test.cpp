// Hand-worked masks, accepted and rejected texts, harmful sources.
#include "tokenizer/grammar/grammar.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "tests/tokenizer/encoded.h"

namespace pinion {
namespace {

std::shared_ptr<const Tokenizer> load(const std::string& name) {
  std::shared_ptr<const Tokenizer> tokenizer;
  const Error e = load_tokenizer(PINION_TEST_DATA "/tokenizers/" + name, &tokenizer);
  EXPECT_FALSE(e) << e.message();
  return tokenizer;
}

using Kind = GrammarSource::Kind;

class Compiled {
 public:
  explicit Compiled(const std::string& tokenizer = "qwen2") : tokenizer_(load(tokenizer)), compiler_(tokenizer_) {}

  std::string error_of(Kind kind, const std::string& source, bool is_trusted = true) {
    return compiler_.compile({.kind = kind, .text = source}, "g", is_trusted, &grammar_).message();
  }
  void compile(Kind kind, const std::string& source) { EXPECT_EQ(error_of(kind, source), ""); }

  // True if the grammar accepts the whole text, both in the tokens of encode() and byte by byte.
  bool takes(const std::string& text) {
    const bool whole = takes_ids(encoded(*tokenizer_, text, {.add_special = false, .parse_special = false}));
    const bool bytes = takes_ids(bytes_of(text));
    EXPECT_EQ(whole, bytes) << text;
    return whole && bytes;
  }
  bool takes_bytes(const std::string& text) { return takes_ids(bytes_of(text)); }
  // The tokens that may follow a text.
  std::vector<std::string> next_after(const std::string& text) {
    GrammarMatcher matcher(*grammar_, {});
    std::vector<uint32_t> bits(words());
    EXPECT_FALSE(matcher.fill_mask(bits));
    for (const int32_t id : bytes_of(text)) EXPECT_FALSE(matcher.accept(id));
    std::vector<std::string> tokens;
    if (Error e = matcher.fill_mask(bits)) return {"error: " + e.message()};
    for (int32_t id = 0; id < vocab_size(*tokenizer_); ++id) {
      if (has(bits, id)) tokens.push_back(token_bytes(*tokenizer_, id));
    }
    return tokens;
  }
  std::string jump_after(const std::string& text) {
    GrammarMatcher matcher(*grammar_, {});
    for (const int32_t id : bytes_of(text)) EXPECT_FALSE(matcher.accept(id));
    return matcher.jump_forward();
  }

  const std::shared_ptr<const Grammar>& grammar() const { return grammar_; }
  size_t words() const { return static_cast<size_t>((vocab_size(*tokenizer_) + 31) / 32); }

 private:
  static bool has(const std::vector<uint32_t>& bits, int32_t id) {
    return (bits[static_cast<size_t>(id) / 32] >> (id % 32) & 1) != 0;
  }

  std::vector<int32_t> bytes_of(const std::string& text) const {
    std::vector<int32_t> ids;
    for (const char byte : text) {
      int32_t id = 0;
      while (token_bytes(*tokenizer_, id) != std::string{byte}) ++id;
      ids.push_back(id);
    }
    return ids;
  }

  bool takes_ids(const std::vector<int32_t>& ids) {
    constexpr int32_t kEnd = 7;  // a token that no grammar here allows
    GrammarMatcher matcher(*grammar_, std::vector<int32_t>{kEnd});
    std::vector<uint32_t> bits(words());
    for (const int32_t id : ids) {
      if (matcher.fill_mask(bits) || !has(bits, id)) return false;
      EXPECT_FALSE(matcher.accept(id));
    }
    return !matcher.fill_mask(bits) && has(bits, kEnd);
  }

  std::shared_ptr<const Tokenizer> tokenizer_;
  GrammarCompiler compiler_;
  std::shared_ptr<const Grammar> grammar_;
};

TEST(Grammar, HandWorkedMasks) {
  Compiled g;
  g.compile(Kind::kRegex, "(ab|ac)d");
  EXPECT_EQ(g.next_after("ac"), std::vector<std::string>{"d"});
  const std::vector<std::string> first = g.next_after("");
  for (const std::string& token : first) EXPECT_TRUE(token == "a" || token == "ab" || token == "ac") << token;
  EXPECT_FALSE(first.empty());
  EXPECT_EQ(g.jump_after(""), "a");
  EXPECT_EQ(g.jump_after("ab"), "d");
  EXPECT_EQ(g.next_after("abd"), std::vector<std::string>());
  g.compile(Kind::kRegex, "a.c");
  EXPECT_TRUE(g.takes("abc"));
  EXPECT_FALSE(g.takes("a\nc"));
}

TEST(Grammar, AcceptsJsonOfTheSchema) {
  Compiled g;
  g.compile(Kind::kJsonSchema, R"({"type":"object","properties":{"name":{"type":"string"},"age":{"type":"integer",
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
  g.compile(Kind::kJsonSchema, R"({"type":"string","minLength":2,"maxLength":3})");
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
  g.compile(Kind::kJsonSchema,
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
    g.compile(Kind::kJsonSchema, std::string(R"({"type":"string","pattern":")") + one.pattern + "\"}");
    EXPECT_TRUE(g.takes(one.taken)) << one.pattern;
    EXPECT_TRUE(g.takes(one.also)) << one.pattern;
    EXPECT_FALSE(g.takes(one.refused)) << one.pattern;
  }
  Compiled g;
  g.compile(Kind::kJsonSchema,
            R"({"type":"object","patternProperties":{"^S_":{"type":"integer"}},"additionalProperties":false})");
  EXPECT_TRUE(g.takes(R"({"S_name": 1})"));
  EXPECT_FALSE(g.takes(R"({"name": 1})"));
}

TEST(Grammar, OneOfWithDisjointReferences) {
  Compiled g;
  g.compile(
      Kind::kJsonSchema,
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
    g.compile(Kind::kJsonSchema, R"({"type":"string",)" + one.schema + "}");
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
    g.compile(Kind::kJsonSchema, one.schema);
    for (const std::string& text : one.taken) EXPECT_TRUE(g.takes(text)) << one.schema << text;
    for (const std::string& text : one.refused) EXPECT_FALSE(g.takes(text)) << one.schema << text;
  }
}

// A number ends after some digits, unless its bounds need more; strings and other grammars do not count digits.
TEST(Grammar, DigitsAreCapped) {
  const std::string digits = "12345678901234567890";
  Compiled g;
  for (const char* schema : {R"({"type":"integer"})", R"({"type":"number"})", "{}"}) {
    g.compile(Kind::kJsonSchema, schema);
    EXPECT_TRUE(g.takes(digits)) << schema;
    EXPECT_TRUE(g.takes("-" + digits)) << schema;
    EXPECT_FALSE(g.takes(digits + "1")) << schema;
  }
  EXPECT_TRUE(g.takes("[" + digits + ", 0." + digits + "e-99, \"" + digits + digits + "\"]"));
  EXPECT_FALSE(g.takes("[0." + digits + "1]"));
  EXPECT_FALSE(g.takes("[1e100]"));
  EXPECT_TRUE(g.takes(R"({"a\\": 1, "1234567890123456789012345": 2})"));
  g.compile(Kind::kJsonSchema, R"({"type":"number","minimum":1e24,"maximum":2e24})");
  EXPECT_TRUE(g.takes("999999999999999983222784"));  // the double 1e24
  g.compile(Kind::kJsonSchema, R"({"const":1234567890123456789012})");
  EXPECT_FALSE(g.next_after("").empty());
  g.compile(Kind::kRegex, "[0-9]+");
  EXPECT_TRUE(g.takes(digits + digits));
}

// Surrogates have no UTF-8.
TEST(Grammar, RejectsSurrogates) {
  const std::string half = "\xED\xA0\xBD", before = "\xED\x9F\xBF", behind = "\xEE\x80\x80", far = "\U0010FFFF";
  Compiled g;
  for (const auto& [kind, source] : std::vector<std::pair<Kind, std::string>>{
           {Kind::kJsonSchema, R"({"type":"string","minLength":1,"maxLength":2})"},
           {Kind::kJsonSchema, R"({"type":"string","pattern":"^[^a]{1,2}$"})"},
           {Kind::kJsonSchema, R"({"type":"string"})"},
           {Kind::kGbnf, R"(root ::= "\"" [^a] [^a]* "\"")"},
           {Kind::kGbnf, R"(root ::= "\"" [\x20-\U0010FFFF] "\"")"}}) {
    g.compile(kind, source);
    EXPECT_FALSE(g.takes_bytes('"' + half + '"')) << source;
    for (const std::string& fine : {before, behind, far}) EXPECT_TRUE(g.takes('"' + fine + '"')) << source;
  }
  g.compile(Kind::kJsonSchema, R"({"type":"string","pattern":"^\\ud83d\\ude00$"})");
  EXPECT_TRUE(g.takes("\"\U0001F600\""));
}

TEST(Grammar, BlanksIncludeUnicode) {
  Compiled g;
  for (const char* pattern : {"^\\\\S$", "^[^\\\\s]$"}) {
    g.compile(Kind::kJsonSchema, std::string(R"({"type":"string","pattern":")") + pattern + "\"}");
    EXPECT_TRUE(g.takes("\"a\""));
    for (const char* blank : {" ", "\u00A0", "\u2003", "\u3000"})
      EXPECT_FALSE(g.takes(std::string("\"") + blank + '"'));
  }
}

TEST(Grammar, EscapedPropertyNames) {
  Compiled g;
  g.compile(Kind::kJsonSchema,
            R"({"type":"object","properties":{"ab":{"const":1}},"additionalProperties":{"const":2}})");
  EXPECT_TRUE(g.takes(R"({"ab": 1, "ax": 2, "b\u0062": 2})"));
  EXPECT_FALSE(g.takes(R"({"\u0061b": 2})"));
  EXPECT_FALSE(g.takes(R"({"a\u0062": 2})"));
}

TEST(Grammar, AmbiguousGrammarsTimeOut) {
  Compiled g;
  g.compile(Kind::kRegex, "([a-z ]?){1,2000}x");
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
  g.compile(Kind::kJsonSchema, endless);
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
    g.compile(Kind::kJsonSchema, std::string(R"({"type":"string","pattern":")") + one.pattern + "\"}");
    EXPECT_TRUE(g.takes('"' + std::string(one.taken) + '"')) << one.pattern;
    EXPECT_FALSE(g.takes('"' + std::string(one.refused) + '"')) << one.pattern;
  }
  Compiled g;
  g.compile(Kind::kJsonSchema, R"({"type":"string","pattern":"^a\"\\\\\\n?[^x]$"})");
  EXPECT_TRUE(g.takes(R"("a\"\\y")"));
  EXPECT_TRUE(g.takes(R"("a\"\\\ny")"));
  EXPECT_FALSE(g.takes(R"("a"\y")"));
  EXPECT_FALSE(g.takes(R"("a\"\\"")"));
}

TEST(Grammar, AcceptsTextOfAGbnfGrammar) {
  Compiled g;
  g.compile(Kind::kGbnf, "root ::= \"<\" (word \" \")* word \">\"\nword ::= [a-zäö]+ | \"1\"{2,3}\n");
  EXPECT_TRUE(g.takes("<ab ä>"));
  EXPECT_TRUE(g.takes("<111 11 x>"));
  EXPECT_FALSE(g.takes("<1>"));
  EXPECT_FALSE(g.takes("<>"));
}

TEST(Grammar, TokenBytesSpellTheText) {
  for (const char* name : {"deepseek", "gemma", "gpt2", "llama2", "llama3", "llama3_ranks", "mistral", "o200k", "phi3",
                           "qwen2", "qwen35", "sentencepiece_bpe", "tekken", "tekken_ranks"}) {
    const auto tokenizer = load(name);
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
  EXPECT_EQ(g.error_of(Kind::kGbnf, "root ::= other"),
            "g: EBNF parser error at line 1, column 10: Rule \"other\" is not defined");
  EXPECT_TRUE(g.error_of(Kind::kGbnf, "").starts_with("g: ")) << g.error_of(Kind::kGbnf, "");
  EXPECT_TRUE(g.error_of(Kind::kRegex, "(a").starts_with("g: ")) << g.error_of(Kind::kRegex, "(a");
  EXPECT_TRUE(g.error_of(Kind::kRegex, "a(?=b)").find("not supported") != std::string::npos);
  EXPECT_EQ(g.error_of(Kind::kJsonSchema, R"({"type":"strin"})"), R"(g: #/type: not a type of JSON schema: "strin")");
  EXPECT_EQ(g.error_of(Kind::kJsonSchema, R"({"$ref":"#/x"})"),
            R"(g: #/$ref: no such schema: want # or #/$defs/NAME, have "#/x")");
  EXPECT_EQ(g.error_of(Kind::kJsonSchema, R"({"type":"integer","minimum":2,"maximum":1})"),
            "g: #: no integer matches all limits");
  EXPECT_EQ(g.error_of(Kind::kRegex, std::string(2 << 20, 'a')), "g: too long: want at most 1 MB");
}

TEST(Grammar, RecentSourcesAreCached) {
  GrammarCompiler compiler(load("qwen2"));
  std::shared_ptr<const Grammar> first, second, other, tried;
  const GrammarSource source{.kind = Kind::kRegex, .text = "a+"};
  ASSERT_FALSE(compiler.compile(source, "g", true, &first));
  ASSERT_FALSE(compiler.compile({.kind = Kind::kGbnf, .text = "root ::= \"b\""}, "g", true, &other));
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
  EXPECT_EQ(g.error_of(Kind::kJsonSchema, R"({"type":"object"})", false), "");
  EXPECT_TRUE(g.takes(R"({"a": [{"b": null}]})"));
  EXPECT_EQ(g.error_of(Kind::kGbnf, "root ::= other", false),
            "g: EBNF parser error at line 1, column 10: Rule \"other\" is not defined");
  std::string deep_regex(100000, '('), wide = "root ::= a0\n";
  deep_regex += "a" + std::string(100000, ')');
  for (int i = 0; i < 22; ++i) {
    const std::string next = "a" + std::to_string(i + 1);
    wide += "a" + std::to_string(i) + " ::= " + next + " " + next + " | " + next + "\n";
  }
  wide += "a22 ::= \"x\"\n";
  for (const auto& [kind, source] : std::initializer_list<std::pair<Kind, std::string>>{
           {Kind::kRegex, deep_regex},
           {Kind::kRegex, "((((a{1,200}){1,200}){1,200}){1,200})b"},
           {Kind::kGbnf, wide},
           {Kind::kGbnf, "root ::= root root | root | \"\""},
           {Kind::kGbnf, "root ::= " + std::string(50000, '(') + "\"a\"" + std::string(50000, ')')},
           {Kind::kJsonSchema, R"({"type":"array","items":{"type":"string","maxLength":2000000000}})"}}) {
    const std::string message = g.error_of(kind, source, false);
    EXPECT_EQ(message.find('\n'), std::string::npos) << message;
  }
}

}  // namespace
}  // namespace pinion
