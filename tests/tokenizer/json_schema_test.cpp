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
      {R"({"type":["null","array"]})", R"({"anyOf":[{"type":"null"},{"type":"array","items":{}}]})"},
      {R"({"type":"object","properties":{"b":{"type":"array"},"a":true}})",
       R"({"type":"object","properties":{"b":{"type":"array","items":{}},"a":{}}})"},
      {R"({"type":"object","properties":{},"additionalProperties":false})",
       R"({"type":"object","additionalProperties":false})"},
      {R"({"minimum":3})", R"({"type":"number","minimum":3,"maximum":1000000000000000,"$comment":"any type"})"},
      {R"({"type":"object","required":["a"]})", R"({"type":"object","properties":{"a":{}},"required":["a"]})"},
      {R"({"type":"object","required":["a"],"additionalProperties":{"type":"null"}})",
       R"({"type":"object","properties":{"a":{"type":"null"}},"additionalProperties":{"type":"null"},"required":["a"]})"},
      {R"({"type":"string","format":"time"})",
       R"({"type":"string","pattern":"^([01]\\d|2[0-3]):[0-5]\\d:[0-5]\\d(\\.\\d{1,9})?(Z|[+-]([01]\\d|2[0-3]):[0-5]\\d)$"})"},
      {R"({"type":"string","format":"uuid"})", R"({"type":"string","format":"uuid"})"},
      {R"({"type":"object","properties":{"not":{"enum":[1]}},"$defs":{"if":{"const":null}}})",
       R"({"type":"object","properties":{"not":{"const":1}}})"},
      {R"({"type":"object","patternProperties":{"^a$":true}})",
       R"({"type":"object","patternProperties":{"^(a)$":{}}})"},
      {R"({"type":"object","minProperties":2,"required":["a"],"additionalProperties":true})",
       R"({"type":"object","properties":{"a":{}},"additionalProperties":true,"required":["a"],"minProperties":2})"},
      {R"({"type":"string","maxLength":9223372036854775807})", R"({"type":"string"})"},
      {R"({"type":"string","maxLength":3})",
       R"({"type":"string","pattern":"^(?:([^\"\\\\\\x00-\\x1F]|\\\\[\"\\\\ntrfb]){0,3})$"})"},
      {R"({"type":"string","format":"uuid","minLength":0})", R"({"type":"string","format":"uuid"})"},
      {R"({"oneOf":[{"type":"null"},{"const":1}]})", R"({"anyOf":[{"type":"null"},{"const":1}]})"},
      {R"({"type":"object","minProperties":2,"properties":{"a":true,"b":true}})",
       R"({"type":"object","properties":{"a":{},"b":{}},"minProperties":2})"},
      {R"({"type":"number","minimum":0.1,"exclusiveMaximum":0.1000001})",
       R"({"type":"number","minimum":0.1,"exclusiveMaximum":0.1000001})"},
      {R"({"type":"array","$defs":{"a":{"items":{"const":1}}},"items":{"$ref":"#/$defs/a/items"}})",
       R"({"type":"array","items":{"$ref":"#/$defs/1"},"$defs":{"1":{"const":1}}})"},
      {R"({"type":"array","items":{"$ref":"#"}})",
       R"({"$ref":"#/$defs/0","$defs":{"0":{"type":"array","items":{"$ref":"#/$defs/0"}}}})"},
      {R"({"minimum":1,"maximum":2,"minLength":1})",
       R"({"anyOf":[{"type":"number","minimum":1,"maximum":2,"$comment":"any type"},)"
       R"({"type":"string","pattern":"^([^\"\\\\\\x00-\\x1F]|\\\\[\"\\\\ntrfb]){1,}$","$comment":"any type"}]})"},
      {"true", "{}"},
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

// Keywords beside each other apply together.
TEST(JsonSchema, KeywordsAreIntersected) {
  const char* const cases[][2] = {
      {R"({"type":["string","integer","null"],"allOf":[{"type":["number","string"]},{"type":["integer","null"]}]})",
       R"({"type":"integer"})"},
      {R"({"$ref":"#/$defs/a","minimum":3,"$defs":{"a":{"type":"integer","minimum":1,"maximum":9}}})",
       R"({"type":"integer","minimum":3,"maximum":9})"},
      {R"({"allOf":[{"type":"integer","minimum":1},{"exclusiveMinimum":4},{"maximum":8},{"exclusiveMaximum":8}]})",
       R"({"type":"integer","minimum":5,"maximum":7})"},
      {R"({"type":"integer","minimum":0,"exclusiveMinimum":true,"maximum":5,"exclusiveMaximum":false})",
       R"({"type":"integer","minimum":1,"maximum":5})"},
      {R"({"type":"number","minimum":0,"exclusiveMinimum":true,"maximum":5})",
       R"({"type":"number","exclusiveMinimum":0,"maximum":5})"},
      {R"({"type":"integer","minimum":-9223372036854775808,"maximum":18446744073709551615})",
       R"({"type":"integer","minimum":-9223372036854775808,"maximum":9223372036854775807})"},
      {R"({"type":"integer","exclusiveMinimum":0.5,"maximum":9.5})", R"({"type":"integer","minimum":1,"maximum":9})"},
      {R"({"type":"number","maximum":3.4e38,"minimum":-3.4e38})",
       R"({"type":"number","minimum":-1000000000000000,"maximum":1000000000000000})"},
      {R"({"type":"number","multipleOf":0.5,"minimum":0,"exclusiveMaximum":1.5})", R"({"enum":[0,0.5,1]})"},
      {R"({"type":"integer","multipleOf":5,"minimum":3,"maximum":12})", R"({"enum":[5,10]})"},
      {R"({"type":"integer","multipleOf":5})", R"({"type":"integer","multipleOf":5})"},
      {R"({"type":"integer","format":"int32","minimum":0,"maximum":9})",
       R"({"type":"integer","minimum":0,"maximum":9})"},
      {R"({"type":"string","format":"password"})", R"({"type":"string"})"},
      {R"({"type":"string","nullable":true,"enum":["x",null]})", R"({"const":"x"})"},
      {R"({"enum":[1,"a","bb",2.5,null,5],"anyOf":[{"type":"integer","maximum":4},{"minLength":2,"type":"string"}]})",
       R"({"enum":[1,"bb"]})"},
      {R"({"enum":["a","b","c"],"not":{"const":"b"},"pattern":"[bc]"})", R"({"const":"c"})"},
      {R"({"const":2,"$ref":"#/$defs/a","$defs":{"a":{"type":"integer"}}})", R"({"const":2})"},
      {R"({"type":"object","properties":{"a":{"minimum":1}},"required":["a"],)"
       R"("allOf":[{"properties":{"a":{"type":"integer"},"b":{"type":"null"}}},{"required":["b"]}]})",
       R"({"type":"object","properties":{"a":{"type":"integer","minimum":1},"b":{"type":"null"}},"required":["a","b"]})"},
      {R"({"type":"object","properties":{"a":{"type":"null"},"b":{"type":"null"}},"additionalProperties":false,)"
       R"("anyOf":[{"required":["a"]},{"required":["b"]}]})",
       R"({"anyOf":[{"type":"object","properties":{"a":{"type":"null"},"b":{"type":"null"}},"required":["a"]},)"
       R"({"type":"object","properties":{"a":{"type":"null"},"b":{"type":"null"}},"required":["b"]}]})"},
      {R"({"type":"object","allOf":[{"properties":{"a":{"type":"null"}},"additionalProperties":false},)"
       R"({"properties":{"a":true,"b":true}}]})",
       R"({"type":"object","properties":{"a":{"type":"null"}}})"},
      {R"({"type":"object","anyOf":[{"properties":{"a":{"type":"null"}},"required":["b"],"additionalProperties":false},)"
       R"({"properties":{"c":{"type":"null"}}}]})",
       R"({"type":"object","properties":{"c":{"type":"null"}}})"},
      {R"({"type":"array","items":[{"type":"null"},{"type":"boolean"}],"additionalItems":{"type":"string"}})",
       R"({"type":"array","prefixItems":[{"type":"null"},{"type":"boolean"}],"items":{"type":"string"}})"},
      {R"({"type":"array","items":[{"type":"null"}],"additionalItems":false,"minItems":1})",
       R"({"type":"array","prefixItems":[{"type":"null"}],"items":false,"minItems":1})"},
      {R"({"type":"array","prefixItems":[{"type":"null"},{"type":"boolean"}],"maxItems":1})",
       R"({"type":"array","prefixItems":[{"type":"null"}],"items":false})"},
      {R"({"type":"array","items":{"type":"integer"},"allOf":[{"items":{"minimum":1,"maximum":2}},{"minItems":2}]})",
       R"({"type":"array","items":{"type":"integer","minimum":1,"maximum":2},"minItems":2})"},
      {R"({"type":"array","items":{"type":"boolean"},"uniqueItems":true,"minItems":1})",
       R"({"enum":[[false],[true],[false,true],[true,false]]})"},
      {R"({"type":"array","items":{"enum":["a","b"]},"uniqueItems":true,"maxItems":1})",
       R"({"enum":[[],["a"],["b"]]})"},
      {R"({"type":"object","propertyNames":{"enum":["k","l"]},"additionalProperties":{"type":"null"},"required":["l"]})",
       R"({"type":"object","properties":{"k":{"type":"null"},"l":{"type":"null"}},"required":["l"]})"},
      {R"({"type":"object","propertyNames":{"pattern":"^a"},"properties":{"b":true,"ab":{"type":"null"}}})",
       R"({"type":"object","properties":{"ab":{"type":"null"}}})"},
      {R"({"type":"object","patternProperties":{"^a$":{"type":"null"},"^[b]$":true},"additionalProperties":false})",
       R"({"type":"object","patternProperties":{"^([\\x62])$\n!^(a)$":{},"^(a)$\n!^([\\x62])$":{"type":"null"}}})"},
      {R"({"dependentRequired":{"a":["b"]},"type":"object","properties":{"a":{"type":"null"},"b":{"type":"null"}}})",
       R"({"anyOf":[{"type":"object","properties":{"b":{"type":"null"}}},)"
       R"({"type":"object","properties":{"a":{"type":"null"},"b":{"type":"null"}},"required":["b","a"]}]})"},
      {R"({"anyOf":[{"not":{}},{"type":"null"}]})", R"({"type":"null"})"},
  };
  for (const auto& [given, wanted] : cases) EXPECT_EQ(completed(given), wanted) << given;
}

// JSON pointers with escapes, to any place, and names.
TEST(JsonSchema, FollowsReferences) {
  const std::string root =
      R"({"properties":{"a":{"prefixItems":[{"const":1}]}},"components":{"x~y":{"const":2}},)"
      R"("$defs":{"my/type x":{"const":3},"n":{"$anchor":"name","const":4},"i":{"$id":"T","const":5}},)"
      R"("definitions":{"d":{"const":6}},"anyOf":[{"$ref":")";
  const std::pair<const char*, int> cases[] = {
      {"#/properties/a/prefixItems/0", 1},
      {"#/components/x~0y", 2},
      {"#/$defs/my~1type%20x", 3},
      {"#/%24defs/my~1type x", 3},
      {"#name", 4},
      {"T", 5},
      {"#/definitions/d", 6},
  };
  for (const auto& [reference, value] : cases) {
    const std::string found = completed(root + reference + "\"}]" + R"(,"type":"integer"})");
    EXPECT_NE(found.find("{\"const\":" + std::to_string(value) + "}"), std::string::npos) << reference << ": " << found;
  }
}

// Each error names the path of a keyword.
TEST(JsonSchema, RejectsUnsupportedKeywords) {
  const char* const cases[][2] = {
      {R"({"not":{"type":"null"}})", "s: #/not: not supported"},
      {R"({"anyOf":[{"if":true}]})", "s: #/anyOf/0/if: not supported"},
      {R"({"$ref":"#/$defs/a","$defs":{"a":{"contains":{}}}})", "s: #/$defs/a/contains: not supported"},
      {R"({"items":{"$dynamicRef":"#a"}})", "s: #/items/$dynamicRef: not supported"},
      {"false", "s: #: no value matches"},
      {R"({"not":{}})", "s: #/not: no value matches"},
      {R"({"$ref":"#","type":"object"})", "s: #/$ref: references form a cycle"},
      {R"({"type":"strin"})", R"(s: #/type: not a type of JSON schema: "strin")"},
      {R"({"type":"null","allOf":[{"type":"string"}]})", "s: #/allOf/0/type: no value has all these types"},
      {R"({"type":["string","null"],"const":0})", "s: #/const: no value matches the keywords beside it"},
      {R"({"properties":{"a":{"type":"string","enum":[null]}},"required":["a"]})",
       "s: #/properties/a/enum: no value matches the keywords beside it"},
      {R"({"anyOf":[{"type":"null"}],"type":"string"})", "s: #/anyOf: no branch matches the keywords beside it"},
      {R"({"enum":[]})", "s: #/enum: is empty"},
      {R"({"enum":3})", "s: #/enum: wrong type: want a list of values, have 3"},
      {R"({"type":"object","propertyNames":{"enum":["a"]},"required":["b"]})",
       "s: #/required: required name does not match propertyNames"},
      {R"({"propertyNames":{"anyOf":[{"pattern":"^a"},{"format":"uuid"}]},"type":"object"})",
       "s: #/propertyNames: not supported with branches"},
      {R"({"type":"object","patternProperties":{"a":true,"b":true,"c":true,"d":true,"e":true}})",
       "s: #/patternProperties: too many patterns: want at most 4"},
      {R"({"minProperties":2})", "s: #/minProperties: not supported with arbitrary property names"},
      {R"({"minProperties":3,"required":["a","a"],"additionalProperties":true})",
       "s: #/minProperties: not supported with arbitrary property names"},
      {R"({"minProperties":2,"properties":{"a":true}})", "s: #: no object has so many properties"},
      {R"({"minItems":3,"maxItems":2})", "s: #: no array has so many items"},
      {R"({"minItems":4294967297})", "s: #/minItems: out of range: want at most 2147483647, have 4294967297"},
      {R"({"minItems":-1})", "s: #/minItems: wrong type: want a count, have -1"},
      {R"({"minLength":"1"})", R"(s: #/minLength: wrong type: want a count, have "1")"},
      {R"({"minLength":3,"maxLength":2})", "s: #: no string matches all limits"},
      {R"({"minimum":0.1234567,"maximum":0.1234568})", "s: #/maximum: no number with six decimals fits the bounds"},
      {R"({"exclusiveMinimum":0.1,"exclusiveMaximum":0.100001})",
       "s: #/exclusiveMaximum: no number with six decimals fits the bounds"},
      {R"({"type":"integer","minimum":2,"allOf":[{"maximum":1}]})", "s: #: no integer matches all limits"},
      {R"({"properties":{"a":{"type":"integer","exclusiveMinimum":"1"}}})",
       R"(s: #/properties/a/exclusiveMinimum: wrong type: want a number, have "1")"},
      {R"({"type":"integer","minimum":1e30})", "s: #/minimum: out of range: want a bound of 64 bits"},
      {R"({"items":{"type":"number","multipleOf":0.5}})",
       "s: #/items/multipleOf: not supported with so many multiples: want bounds, and at most 2000 multiples"},
      {R"({"type":"integer","multipleOf":0})", "s: #/multipleOf: out of range: want a number above 0, have 0"},
      {R"({"type":"integer","multipleOf":2,"allOf":[{"multipleOf":3}]})",
       "s: #/allOf/0/multipleOf: not supported beside another multipleOf"},
      {R"({"items":{"$ref":"#/$defs/a"},"$defs":{"a":{"$ref":"#/$defs/b"},"b":{"$ref":"#/$defs/a"}}})",
       "s: #/$defs/b/$ref: references form a cycle"},
      {R"({"$ref":"#/components/a","components":{}})",
       R"(s: #/$ref: no such schema: want # or #/$defs/NAME, have "#/components/a")"},
      {R"({"$ref":"#/$defs/a~0b","$defs":{"a/b":true}})",
       R"(s: #/$ref: no such schema: want # or #/$defs/NAME, have "#/$defs/a~0b")"},
      {R"({"$ref":"a.json"})", R"(s: #/$ref: no such schema: want # or #/$defs/NAME, have "a.json")"},
      {R"({"$ref":1})", "s: #/$ref: wrong type: want a string"},
      {R"({"items":{"$id":"/x","properties":{"a":{"$ref":"#/$defs/b"}}}})",
       "s: #/items/$id: not supported around references"},
      {R"({"type":"string","pattern":"^a","allOf":[{"pattern":"^b"}]})", "s: #: no string matches all limits"},
      {R"({"type":"string","pattern":"(a|b)*a(a|b){14}","minLength":20})",
       "s: #/pattern: not supported beside the other limits of the string"},
      {R"-({"pattern":"^a(?=b)"})-", R"-(s: #/pattern: not supported in a pattern: "(?=b)")-"},
      {R"({"oneOf":{}})", "s: #/oneOf: wrong type: want a list of schemas"},
      {R"({"type":"object","required":["a"],"unevaluatedProperties":false})",
       R"(s: #/required: property is not allowed: "a")"},
      {R"({"type":[]})", "s: #/type: is empty"},
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
  EXPECT_TRUE(completed(std::string(5000, '[')).starts_with("error: s: "));
}

// Combinations that multiply end with an error in bounded time; shared and recursive parts become definitions.
TEST(JsonSchema, CombinationsAreBounded) {
  std::string product, chain = R"({"$ref":"#/$defs/0","$defs":{)", shared = chain;
  for (int i = 0; i < 40; ++i) {
    const std::string number = std::to_string(i), next = std::to_string(i + 1);
    product +=
        (i ? "," : "") + std::string(R"({"anyOf":[{"minLength":)") + number + "},{\"maxLength\":" + next + "0}]}";
    shared += R"(")" + number + R"(":{"properties":{"a":{"$ref":"#/$defs/)" + next +
              R"("},"b":{"allOf":[{"$ref":"#/$defs/)" + next + R"("},{"minProperties":0}]}}},)";
  }
  for (int i = 0; i < 3000; ++i) {
    chain +=
        R"(")" + std::to_string(i) + R"(":{"properties":{"a":{"$ref":"#/$defs/)" + std::to_string(i + 1) + R"("}}},)";
  }
  EXPECT_NE(completed(R"({"type":"string","allOf":[)" + product + "]}").find("too many combinations"),
            std::string::npos);
  EXPECT_NE(completed(chain + R"("3000":{}}})").find("nest too deeply"), std::string::npos);
  EXPECT_LT(completed(shared + R"("40":{"type":"object"}}})").size(), 20000u);
}

}  // namespace
}  // namespace pinion
