// Completed schemas, translated patterns, and errors.
#include "tokenizer/grammar/sources.h"

#include <gtest/gtest.h>

#include "tokenizer/grammar/sources.h"

namespace pinion {
namespace {

std::string completed(std::string_view text) {
  std::string out;
  const Error e = complete_schema(text, "s", &out);
  return e ? "error: " + e.message() : out;
}

TEST(JsonSchema, DefaultsBecomeExplicit) {
  const char* const cases[][2] = {
      {R"({"type":"object"})", R"({"type":"object","additionalProperties":true})"},
      {R"({"type":"array"})", R"({"type":"array","items":{}})"},
      {R"({"type":["null","array"]})", R"({"type":["null","array"],"items":{}})"},
      {R"({"type":"object","properties":{"b":{"type":"array"},"a":true}})",
       R"({"type":"object","properties":{"b":{"type":"array","items":{}},"a":true}})"},
      {R"({"minimum":3})", R"({"minimum":3,"type":"number"})"},
      {R"({"required":["a"]})", R"({"required":["a"],"type":"object","properties":{"a":true}})"},
      {R"({"type":"object","required":["a"],"additionalProperties":{"type":"null"}})",
       R"({"type":"object","required":["a"],"additionalProperties":{"type":"null"},"properties":{"a":{"type":"null"}}})"},
      {R"({"type":"string","format":"time"})",
       R"({"type":"string","pattern":"^([01]\\d|2[0-3]):[0-5]\\d:[0-5]\\d(\\.\\d{1,9})?(Z|[+-]([01]\\d|2[0-3]):[0-5]\\d)$"})"},
      {R"({"type":"string","format":"uuid"})", R"({"type":"string","format":"uuid"})"},
      {R"({"properties":{"not":{"enum":[1]}},"$defs":{"if":{"const":null}}})",
       R"({"properties":{"not":{"enum":[1]}},"$defs":{"if":{"const":null}},"type":"object"})"},
      {R"({"patternProperties":{"^a$":true}})", R"({"patternProperties":{"^(a)$":true},"type":"object"})"},
      {R"({"minProperties":2,"required":["a"],"additionalProperties":true})",
       R"({"minProperties":2,"required":["a"],"additionalProperties":true,"type":"object","properties":{"a":true}})"},
      {R"({"maxLength":9223372036854775807})", R"({"type":"string"})"},
      {R"({"maxLength":3})", R"({"type":"string","pattern":"^([^\"\\\\\\x00-\\x1F]|\\\\[\"\\\\ntrfb]){0,3}$"})"},
      {R"({"type":"string","format":"uri","minLength":1})", R"({"type":"string","format":"uri"})"},
      {R"({"oneOf":[{"type":"null"},{"const":1}]})", R"({"anyOf":[{"type":"null"},{"const":1}]})"},
      {R"({"minProperties":2,"properties":{"a":true,"b":true}})",
       R"({"minProperties":2,"properties":{"a":true,"b":true},"type":"object"})"},
      {R"({"minimum":0.1,"exclusiveMaximum":0.1000001})",
       R"({"minimum":0.1,"exclusiveMaximum":0.1000001,"type":"number"})"},
      {R"({"$defs":{"a":{"items":{"const":1}}},"items":{"$ref":"#/$defs/a/items"}})",
       R"({"$defs":{"a":{"items":{"const":1},"type":"array"}},"items":{"$ref":"#/$defs/a/items"},"type":"array"})"},
      {"true", "true"},
      {"{}", "{}"},
  };
  for (const auto& [given, wanted] : cases) EXPECT_EQ(completed(given), wanted) << given;
}

std::string escaped(const std::string& pattern) {
  std::string out;
  const Error e = escape_pattern(pattern, "p", &out);
  return e ? "error: " + e.message() : out;
}

// A pattern of a string becomes one of its JSON spelling.
TEST(JsonSchema, PatternsAreEscapedForJson) {
  const char* const cases[][2] = {
      {R"((a|ä)+\d{2}\.\/)", R"((a|ä)+\d{2}\.\/)"},
      {R"(a"+)", R"(a(\\["])+)"},
      {R"(a\"\\)", R"(a(\\["])(\\[\\]))"},
      {R"(\n?\x22)", R"((\\[n])?(\\["]))"},
      {R"(.\s\D)", R"(([^"\\\x00-\x1F\u2028\u2029]|\\["\\tfb])([ ]|\\[ntrf])([^\d"\\\x00-\x1F]|\\["\\ntrfb]))"},
      {R"(\ud83d\ude00\u00e4)", R"(😀\u00e4)"},
      {R"([\ud83d\ude00])", R"([😀])"},
      {R"([^a-c"\]])", R"(([^\x61-\x63\x22\x5D"\\\x00-\x1F]|\\[\\ntrfb]))"},
      {R"([^\s"\\])",
       "([^\\s\u00A0\u1680\u2000-\u200A\u2028\u2029\u202F\u205F\u3000\uFEFF"
       R"(\x22\x5C"\\\x00-\x1F]|\\[b]))"},
      {R"([a"\\\n])", R"(([\x61]|\\["\\n]))"},
      {R"(["\\])", R"((\\["\\]))"},
      {R"([ -~])", R"(([\x20-\x21\x23-\x5B\x5D-\x7E]|\\["\\]))"},
      {R"(\cJ\u{4E2D}\u{22})", R"((\\[n])\u{4E2D}(\\["]))"},
      {R"([\s\S]*)", R"(([^"\\\x00-\x1F]|\\["\\ntrfb])*)"},
      {R"([\x00-ü\d])", R"(([\x20-\x21\x23-\x5B\x5D-ü\d]|\\["\\ntrfb]))"},
      {R"([\s\-_-])", R"(([ \x2D\x5F\x2D]|\\[ntrf]))"},
      {R"(\^\$\|\()", R"(\^\$\|\()"},
      {R"([\€\$]\é)", R"([€\x24]é)"},
  };
  for (const auto& [given, wanted] : cases) {
    EXPECT_EQ(escaped("^" + std::string(given) + "$"), "^(" + std::string(wanted) + ")$") << given;
  }
}

// A schema's pattern may match a substring.
TEST(JsonSchema, PatternsMatchSubstrings) {
  const std::string any = R"(([^"\\\x00-\x1F]|\\["\\ntrfb])*)";
  const std::pair<const char*, std::string> cases[] = {
      {"a", any + "a" + any},
      {"^a", "a" + any},
      {"a$", any + "a"},
      {"^a$|b|^(c|d)", "a|" + any + "b" + any + "|(c|d)" + any},
      {"", any},
      {"^", any},
      {"^$", "(|)"},
      {"$", any},
  };
  for (const auto& [given, wanted] : cases) EXPECT_EQ(escaped(given), "^(" + wanted + ")$") << given;
}

TEST(JsonSchema, RejectsUnsupportedPatterns) {
  for (const char* given : {R"(\ud83d)", R"(\ud83da)", R"(\ude00)", R"(\u{})",   R"(\u{110000})", R"(\c1)", R"([\0-ü])",
                            R"([\S])",   R"(\cA)",     R"(\x01)",   R"([\x01])", R"(\u12)",       R"(\)",   "[a",
                            "[z-a]",     "(^a)",       "(a$)",      "a^",        "a$b",           "(a",     "a)",
                            "a)(b",      "*a",         "a|?",       "^{2}"}) {
    EXPECT_TRUE(escaped(given).starts_with("error: p: ")) << given << ": " << escaped(given);
  }
}

TEST(JsonSchema, PlainPatternsMatchWholeTexts) {
  const char* const cases[][2] = {
      {R"(a.\s[^\d"]+)", R"(a[^\n]\s[^\d\x22]+)"},
      {R"([\s"-$])", R"([\s\x22-\x24])"},
      {R"("\n)", R"("\n)"},
      {R"([\s\S]*[^\S\n]\cJ)", R"([\s\S]*[^\S\x0A]\cJ)"},
      {R"(\Aa)", nullptr},
      {R"(a\Z)", nullptr},
      {R"(\h)", nullptr},
      {R"(\Qa\E)", nullptr},
      {R"(\p{L})", nullptr},
      {R"([\h])", nullptr},
  };
  for (const auto& [given, wanted] : cases) {
    std::string out;
    const Error e = plain_pattern(given, "p", &out);
    EXPECT_EQ(static_cast<bool>(e), wanted == nullptr) << given << ": " << e.message();
    EXPECT_EQ(e ? "" : out, wanted ? wanted : "") << given;
  }
}

// With disjoint branches oneOf equals anyOf.
TEST(JsonSchema, OneOfNeedsDisjointBranches) {
  const std::string animals =
      R"("$defs":{"cat":{"type":"object","properties":{"kind":{"const":"cat"}},"required":["kind"]},)"
      R"("dog":{"properties":{"kind":{"enum":["dog","wolf"]}},"required":["kind"],"type":"object"},)"
      R"("any":{"type":"object","properties":{"kind":{"type":"string"}},"required":["kind"]},"shy":{"properties":{"kind":{"const":"x"}}},)"
      R"("pet":{"oneOf":[{"$ref":"#/$defs/cat"},{"$ref":"#/$defs/dog"}]}})";
  const std::pair<const char*, bool> cases[] = {
      {R"({"type":"integer"},{"type":"string"},{"type":["null","boolean"]})", true},
      {R"({"type":"integer"},{"type":"number"})", false},
      {R"({"const":1},{"const":1.0})", false},
      {R"({"const":1},{"enum":["1",true,null,2]})", true},
      {R"({"const":[1]},{"const":[2]})", false},
      {R"({"const":"a"},{"type":"number"})", true},
      {R"({"const":"a"},{"type":["string","null"]})", false},
      {R"({"const":"a"},{"minLength":2})", false},
      {R"({"$ref":"#/$defs/cat"},{"$ref":"#/$defs/dog"})", true},
      {R"({"$ref":"#/$defs/cat"},{"$ref":"#/$defs/any"})", false},
      {R"({"$ref":"#/$defs/cat"},{"$ref":"#/$defs/shy"})", false},
      {R"({"$ref":"#/$defs/pet"},{"type":"string"})", true},
      {R"({"$ref":"#/$defs/pet"},{"$ref":"#/$defs/cat"})", false},
      {R"({"anyOf":[{"type":"null"},{"type":"array"}]},{"$ref":"#/$defs/pet"})", true},
      {R"({"type":"string"},false)", true},
      {R"({"type":"string"},true)", false},
      {R"({"type":"string"})", true},
      {R"({"type":"string"},{"properties":{"a":{"const":1}},"required":["a"]})", false},
      {R"({"$ref":"#"},{"type":"null"})", false},
      {R"({"type":5},{"type":"string"})", false},
      {R"({"type":[[5],true]},{"type":"string"})", false},
  };
  for (const auto& [branches, wanted] : cases) {
    const std::string text = R"({"oneOf":[)" + std::string(branches) + "]," + animals + "}";
    const std::string found = completed(text);
    EXPECT_EQ(!found.starts_with("error"), wanted) << branches << ": " << found;
  }
  EXPECT_EQ(completed(R"({"items":{"oneOf":[{"type":"integer"},{"type":"number"}]}})"),
            "error: s: #/items/oneOf: not supported if a value may match two branches: want branches of different "
            "types, or objects that require a property with different values");
}

TEST(JsonSchema, RejectsUnsupportedKeywords) {
  const char* const cases[][2] = {
      {R"({"not":{}})", "s: #/not: not supported"},
      {R"({"items":{"uniqueItems":true}})", "s: #/items/uniqueItems: not supported"},
      {R"({"anyOf":[{"if":true}]})", "s: #/anyOf/0/if: not supported"},
      {R"({"$defs":{"a":{"contains":{}}}})", "s: #/$defs/a/contains: not supported"},
      {R"({"anyOf":[true],"properties":{}})", "s: #/properties: not supported beside anyOf"},
      {R"({"anyOf":[true],"oneOf":[true]})", "s: #/oneOf: not supported beside anyOf"},
      {R"({"$ref":"#","type":"object"})", "s: #/type: not supported beside $ref"},
      {R"({"type":"integer","enum":[1,1.5]})", R"(s: #: value does not match the type: want "integer", have 1.5)"},
      {R"({"type":["string","null"],"const":0})", "s: #: value does not match the type: want an array of 2, have 0"},
      {R"({"propertyNames":{"pattern":"^a"},"properties":{"b":true}})",
       "s: #/propertyNames: not supported beside properties and required"},
      {R"({"type":"object","patternProperties":{"^a":true},"required":["ab"]})",
       "s: #/patternProperties: not supported beside properties and required"},
      {R"({"propertyNames":{"pattern":"^a"},"additionalProperties":false})",
       "s: #/propertyNames: not supported beside additionalProperties false"},
      {R"({"propertyNames":{"pattern":"^a"},"patternProperties":{"a":true}})",
       "s: #/propertyNames: not supported beside patternProperties"},
      {R"({"patternProperties":{"a":true,"b":true}})",
       "s: #/patternProperties: not supported: want one pattern, have 2"},
      {R"({"minProperties":2})", "s: #/minProperties: not supported with arbitrary property names"},
      {R"({"minProperties":3,"required":["a","a"],"additionalProperties":true})",
       "s: #/minProperties: not supported with arbitrary property names"},
      {R"({"minItems":4294967297})", "s: #/minItems: out of range: want at most 2147483647, have 4294967297"},
      {R"({"minLength":1e300})", "s: #/minLength: out of range: want at most 2147483647, have 1e+300"},
      {R"({"minimum":0.1234567,"maximum":0.1234568})", "s: #: no number with six decimals fits the bounds"},
      {R"({"exclusiveMinimum":0.1,"exclusiveMaximum":0.100001})", "s: #: no number with six decimals fits the bounds"},
      {R"({"$ref":"#"})", "s: #/$ref: references form a cycle"},
      {R"({"$ref":"#/components/a","components":{"a":true}})",
       R"(s: #/$ref: no such schema: want # or #/$defs/NAME, have "#/components/a")"},
      {R"({"$ref":"#/$defs"})", R"(s: #/$ref: no such schema: want # or #/$defs/NAME, have "#/$defs")"},
      {R"({"$ref":"a.json"})", R"(s: #/$ref: no such schema: want # or #/$defs/NAME, have "a.json")"},
      {R"({"$ref":1})", "s: #/$ref: wrong type: want a string"},
      {R"({"items":{"$ref":"#/$defs/a"},"$defs":{"a":{"$ref":"#/$defs/b"},"b":{"$ref":"#/$defs/a"}}})",
       "s: #/items/$ref: references form a cycle"},
      {R"({"format":"date","pattern":"a"})", "s: #/format: not supported beside pattern"},
      {R"({"pattern":"a","minLength":2})", "s: #/minLength: not supported beside pattern"},
      {R"({"format":"uri","maxLength":2})", "s: #/maxLength: not supported beside format"},
      {R"({"format":"uri-reference","minLength":1})", "s: #/minLength: not supported beside format"},
      {R"({"items":{"type":"number","multipleOf":0.5}})", "s: #/items/multipleOf: supported for integers only"},
      {R"({"oneOf":{}})", "s: #/oneOf: wrong type: want a list of schemas"},
      {R"({"format":"uuid","pattern":"a"})", "s: #/format: not supported beside pattern"},
      {R"({"required":["a"],"unevaluatedProperties":false})", R"(s: #/required: property is not allowed: "a")"},
      {R"({"type":[]})", "s: #/type: is empty"},
      {R"({"items":{"$id":"/x"}})", "s: #/items/$id: not supported"},
      {R"({"$ref":"#/$defs/a~1b","$defs":{"a~1b":true}})",
       R"(s: #/$ref: no such schema: want # or #/$defs/NAME, have "#/$defs/a~1b")"},
      {R"({"minimum":1,"minLength":1})", "s: #: assertions about more than one type: want a type"},
      {R"({"required":["a"],"additionalProperties":false})", R"(s: #/required: property is not allowed: "a")"},
      {R"({"required":[1]})", "s: #/required: wrong type: want a list of strings, have 1"},
      {R"({"required":{}})", "s: #/required: wrong type: want a list of strings"},
      {R"({"pattern":1})", "s: #/pattern: wrong type: want a string"},
      {R"({"pattern":"\\c1"})", R"(s: #/pattern: not supported in a pattern: "\\c1")"},
      {R"({"anyOf":{}})", "s: #/anyOf: wrong type: want a list of schemas"},
      {R"({"anyOf":[]})", "s: #/anyOf: is empty"},
      {R"({"properties":[],"required":["a"]})", "s: #/properties: wrong type: want an object of schemas"},
      {R"({"properties":[]})", "s: #/properties: wrong type: want an object of schemas"},
      {R"({"items":3})", "s: #/items: wrong type: want an object, true or false, have 3"},
      {"[]", "s: #: wrong type: want an object, true or false, have an array of 0"},
  };
  for (const auto& [given, wanted] : cases) EXPECT_EQ(completed(given), "error: " + std::string(wanted)) << given;
  EXPECT_TRUE(completed("{").starts_with("error: s: ")) << completed("{");
  EXPECT_TRUE(completed(R"({"format":"x"})").ends_with("have \"x\""));
  EXPECT_TRUE(completed(std::string(5000, '[')).starts_with("error: s: "));
}

}  // namespace
}  // namespace pinion
