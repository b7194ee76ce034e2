#include "loader/files/json.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

namespace pinion {
namespace {

std::string parse_message(const std::string& text, JsonLimits limits = {}) {
  Json json;
  return parse_json(text, "file", &json, limits).message();
}

TEST(Json, ReadsEveryKindOfValue) {
  Json json;
  ASSERT_EQ(
      parse_json(R"({"a": [1, -2, 2.5, true, null, "x\u00e9", {"b": {}}], "big": 18446744073709551615})", "file", &json)
          .message(),
      "");
  EXPECT_EQ(json, Json::parse(R"({"a": [1, -2, 2.5, true, null, "xé", {"b": {}}], "big": 18446744073709551615})"));
}

TEST(Json, InvalidTextsAreErrors) {
  EXPECT_EQ(parse_message(""), "file: invalid JSON at byte 1");
  EXPECT_EQ(parse_message("{\"a\": 1"), "file: invalid JSON at byte 8");
  for (const char* text : {"{} {}", "{\"a\"}", "[1,]", "nul", "\"\xff\"", "\"\xed\xa0\x80\"", "\"\\ud800\"", "\"a\nb\"",
                           "1e999", "NaN", "/**/1", "'a'", "01", "[\"a\", \"\xc3\"]"}) {
    EXPECT_NE(parse_message(text).find("invalid JSON at byte"), std::string::npos) << text;
  }
}

TEST(Json, LimitsDepth) {
  const std::string deep = std::string(64, '[') + std::string(64, ']');
  EXPECT_EQ(parse_message(deep), "");
  EXPECT_EQ(parse_message("[" + deep + "]"), "file: JSON nested too deep: want at most 64 levels");
  EXPECT_NE(parse_message(std::string(1'000'000, '[')), "");
  EXPECT_EQ(parse_message("[{\"a\": 1}]", {.depth = 1}), "file: JSON nested too deep: want at most 1 levels");
}

TEST(Json, LimitsTheNumberOfValues) {
  EXPECT_EQ(parse_message("[1, [2], {\"a\": null}]", {.values = 6}), "");
  EXPECT_EQ(parse_message("[1, [2], {\"a\": null}]", {.values = 5}), "file: JSON too large: want at most 5 values");
  EXPECT_EQ(parse_message("[[[]]]", {.values = 2}), "file: JSON too large: want at most 2 values");
}

TEST(Json, LimitsTheKeysOfOneObject) {
  EXPECT_EQ(parse_message(R"([{"a": 1, "b": 2}, {"c": 3}])", {.keys = 2}), "");
  EXPECT_EQ(parse_message(R"({"a": 1, "b": 2})", {.keys = 1}), "file: JSON object too large: want at most 1 keys");
  std::string text = "{";
  for (int i = 0; i < 4097; ++i) text += (i > 0 ? ",\"" : "\"") + std::to_string(i) + "\":0";
  nlohmann::ordered_json json;
  EXPECT_NE(parse_ordered_json(text + "}", "file", &json).message(), "");
}

TEST(Json, RefusesDuplicateKeysUnlessAllowed) {
  EXPECT_EQ(parse_message(R"({"a": 1, "b": {"c": 1, "c": 2}})"), "file: JSON key given twice: \"c\"");
  Json json;
  ASSERT_FALSE(parse_json(R"({"a": [1], "a": 2})", "file", &json, {.duplicate_keys = true}));
  EXPECT_EQ(json["a"], 2);
}

// The nodes of the member {"in": {"flat": ...}} as text.
std::string flat_nodes(const std::string& text, Json* json, FlatJson* flat) {
  const FlatMember members[] = {{"in", "flat", flat}};
  if (Error e = parse_json(text, "file", json, {.depth = 5, .values = 20, .duplicate_keys = true}, members)) {
    return e.message();
  }
  std::string result;
  for (size_t node = 0; node < flat->nodes.size(); ++node) {
    const auto& [kind, size, at] = flat->nodes[node];
    result += (node == 0 ? "" : " ") + std::string(1, "tcolm"[static_cast<int>(kind)]);
    if (kind == FlatJson::Kind::kText) result += std::string(flat->text(node));
    if (kind == FlatJson::Kind::kCount) result += std::to_string(at);
    if (kind == FlatJson::Kind::kOther) result += brief(flat->others[at]);
    if (kind >= FlatJson::Kind::kList) result += std::to_string(size) + ">" + std::to_string(flat->next(node));
  }
  return result;
}

TEST(FlatJson, NodesFollowTheText) {
  Json json;
  FlatJson flat;
  EXPECT_EQ(flat_nodes(R"({"a": [1], "in": {"flat": {"x": 1, "": "\u00e9", "x": [2, ["y"], {}]}, "b": 3}, "c": 4})",
                       &json, &flat),
            "m3>11 tx c1 t t\u00e9 tx l3>11 c2 l1>10 ty m0>11");
  EXPECT_EQ(json, Json::parse(R"({"a": [1], "in": {"flat": {}, "b": 3}, "c": 4})"));
  EXPECT_EQ(brief(flat, 0), "an object");
  EXPECT_EQ(brief(flat, 2), "1");
  EXPECT_EQ(brief(flat, 4), "\"\\u00e9\"");
  EXPECT_EQ(brief(flat, 6), "an array of 3");
  EXPECT_EQ(flat_nodes(R"({"in": {"flat": [-0, -1, 0.5, null, true, 18446744073709551615]}})", &json, &flat),
            "l6>7 c0 o-1 o0.5 onull otrue c18446744073709551615");
  EXPECT_EQ(brief(flat, 3), "0.5");
  EXPECT_EQ(json, Json::parse(R"({"in": {"flat": []}})"));
}

TEST(FlatJson, LastDuplicateWins) {
  Json json;
  FlatJson flat;
  EXPECT_EQ(flat_nodes(R"({"in": {"flat": [1]}, "in": {"flat": {"a": 1}, "flat": [2]}})", &json, &flat), "l1>2 c2");
  EXPECT_EQ(json, Json::parse(R"({"in": {"flat": []}})"));
  flat_nodes(R"({"in": {"flat": [1], "flat": 7}})", &json, &flat);
  EXPECT_EQ(json, Json::parse(R"({"in": {"flat": 7}})"));
}

TEST(FlatJson, OtherMembersStayInTheJson) {
  for (const char* text : {R"({"flat": [1]})", R"([{"flat": [1]}])", R"({"in": [{"flat": [1]}]})",
                           R"({"on": {"flat": [1]}})", R"({"on": {"in": {"flat": [1]}}})", R"({"in": {"flat": "x"}})",
                           R"({"in": {"flat": null, "x": [1]}})", R"({"in": {"x": {"flat": [1]}}})"}) {
    Json json;
    FlatJson flat;
    EXPECT_EQ(flat_nodes(text, &json, &flat), "") << text;
    EXPECT_EQ(json, Json::parse(text));
  }
}

TEST(FlatJson, HasTheSameLimits) {
  Json json;
  FlatJson flat;
  EXPECT_EQ(flat_nodes(R"({"in": {"flat": [[[1]]]}})", &json, &flat), "l1>4 l1>4 l1>4 c1");
  EXPECT_EQ(flat_nodes(R"({"in": {"flat": [[[[1]]]]}})", &json, &flat),
            "file: JSON nested too deep: want at most 5 levels");
  EXPECT_EQ(flat_nodes(R"({"in": {"flat": [0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,[]]}})", &json, &flat).substr(0, 6),
            "l17>18");
  for (const char* last : {"0", "\"\"", "[]", "{}", "null"}) {
    EXPECT_EQ(
        flat_nodes(R"({"in": {"flat": [0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,)" + std::string(last) + "]}}", &json, &flat),
        "file: JSON too large: want at most 20 values");
  }
  EXPECT_EQ(flat_nodes(R"({"in": {"flat": [1)", &json, &flat), "file: invalid JSON at byte 19");
}

TEST(JsonFields, ReadsTypedValues) {
  const Json json =
      Json::parse(R"({"i": 7, "f": 2.5, "b": true, "s": "x", "n": null, "list": [1, 2], "in": {"i": 8}})");
  JsonFields fields{json, "file"};
  EXPECT_EQ(fields.integer("i"), 7);
  EXPECT_EQ(fields.integer("n", 3), 3);
  EXPECT_EQ(fields.number("f"), 2.5);
  EXPECT_EQ(fields.number("i"), 7.0);
  EXPECT_TRUE(fields.boolean("b"));
  EXPECT_FALSE(fields.boolean("absent", false));
  EXPECT_EQ(fields.text("s"), "x");
  EXPECT_EQ(fields.integers("list"), (std::vector<int64_t>{1, 2}));
  EXPECT_EQ(fields.integers("i"), (std::vector<int64_t>{7}));
  EXPECT_TRUE(fields.integers("n").empty());
  EXPECT_EQ(fields.numbers("list"), (std::vector<double>{1, 2}));
  EXPECT_EQ(fields.numbers("f"), (std::vector<double>{2.5}));
  EXPECT_EQ(fields.texts("s"), (std::vector<std::string>{"x"}));
  EXPECT_EQ(fields.unread(), (std::vector<std::string>{"in"}));
  EXPECT_EQ(fields.fields("in").integer("i"), 8);
  EXPECT_FALSE(fields.has("n"));
  EXPECT_TRUE(fields.unread().empty());
  EXPECT_EQ(fields.error.message(), "");
}

// JavaScript writes such escapes where it cuts a text inside a character beyond U+FFFF.
TEST(Json, LoneSurrogatesBecomeReplacements) {
  const std::pair<const char*, const char*> texts[] = {
      {R"("a\\ud83d")", "a\\ud83d"},
      {R"("a\ud83db")", "a\uFFFDb"},
      {R"("\ude00")", "\uFFFD"},
      {R"("\uD83D\uDE00")", "\U0001F600"},
      {R"("\ud83d\ud83d\ude00")", "\uFFFD\U0001F600"},
      {R"("\\\ud83d")", "\\\uFFFD"},
      {R"("\ud83d\u0041\\")", "\uFFFDA\\"},
      {R"("\ud83d")", "\uFFFD"},
  };
  for (const auto& [text, expected] : texts) {
    Json json;
    EXPECT_EQ(parse_json(text, "body", &json, {.lone_surrogates = true}).message(), "") << text;
    EXPECT_EQ(json, expected) << text;
    if (std::string_view(expected).find("\uFFFD") == std::string_view::npos) continue;
    EXPECT_NE(parse_json(text, "file", &json).message(), "") << text;
  }
  for (const char* broken : {R"("\ud83)", R"("\ud83d)", R"("\ud83d\)", R"("\ud83d\u")", R"("\ud83x")", "\\"}) {
    Json json;
    EXPECT_NE(parse_json(broken, "body", &json, {.lone_surrogates = true}).message(), "") << broken;
  }
}

std::string field_message(const char* text, void (*read)(JsonFields&)) {
  const Json json = Json::parse(text);
  JsonFields fields{json, "file"};
  read(fields);
  return fields.error.message();
}

TEST(JsonFields, ErrorsNameFieldExpectedAndActual) {
  EXPECT_EQ(field_message("{}", [](JsonFields& f) { f.integer("a"); }), "file: a: missing field");
  EXPECT_EQ(field_message("[]", [](JsonFields& f) { f.integer("a", 1); }),
            "file: wrong type: want an object, have an array of 0");
  EXPECT_EQ(field_message(R"({"a": 9})", [](JsonFields& f) { f.integer("a", {}, 1, 8); }),
            "file: a: out of range: want an integer from 1 to 8, have 9");
  EXPECT_EQ(field_message(R"({"a": 18446744073709551615})", [](JsonFields& f) { f.integer("a"); }),
            "file: a: out of range: want an integer, have 18446744073709551615");
  EXPECT_EQ(field_message(R"({"a": null})", [](JsonFields& f) { f.boolean("a"); }),
            "file: a: null, but the field is required");
  EXPECT_EQ(field_message(R"({"a": 1.0})", [](JsonFields& f) { f.integer("a"); }),
            "file: a: wrong type: want an integer, have 1.0");
  EXPECT_EQ(field_message(R"({"a": "1"})", [](JsonFields& f) { f.number("a", 0.0, 0.0, 1.0); }),
            "file: a: wrong type: want a number from 0 to 1, have \"1\"");
  EXPECT_EQ(field_message(R"({"a": 0})", [](JsonFields& f) { f.boolean("a"); }),
            "file: a: wrong type: want true or false, have 0");
  EXPECT_EQ(field_message(R"({"a": [1, "x"]})", [](JsonFields& f) { f.integers("a"); }),
            "file: a: wrong type: want an integer, have \"x\"");
  EXPECT_EQ(field_message(R"({"a": [1, 7.5]})", [](JsonFields& f) { f.numbers("a", 0.0, 7.0); }),
            "file: a: out of range: want a number from 0 to 7, have 7.5");
  EXPECT_EQ(field_message(R"({"a": 1, "b": {}})", [](JsonFields& f) { f.text("a"), f.text("b"); }),
            "file: a: wrong type: want a string, have 1");
}

TEST(JsonFields, ErrorsAreOneShortLine) {
  const Json json = {{"a", "line\nbreak \x7f \xff" + std::string(1000, 'x')}};
  JsonFields fields{json, "file"};
  fields.integer("a");
  EXPECT_EQ(fields.error.message().find('\n'), std::string::npos);
  EXPECT_LT(fields.error.message().size(), 200u);
}

}  // namespace
}  // namespace pinion
