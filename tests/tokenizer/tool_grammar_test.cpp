// Grammars of tool calls, for every form: what they generate is read as calls that fit the tools' schemas.
#include <gtest/gtest.h>

#include <random>

#include "tests/tokenizer/compiled_grammar.h"
#include "tokenizer/answers/tool_calls.h"

namespace pinion {
namespace {

using OrderedJson = nlohmann::ordered_json;

const OrderedJson kSchemas = OrderedJson::parse(R"({
  "f": {"type": "object",
        "properties": {
          "path": {"type": "string"},
          "count": {"type": "integer", "minimum": 1, "maximum": 20},
          "kind": {"enum": ["a", "b c"]},
          "flag": {"type": "boolean"},
          "note": {"type": ["string", "null"]},
          "short": {"type": "string", "maxLength": 4}, "long": {"type": "string", "maxLength": 200},
          "day": {"type": "string", "pattern": "^[0-9]{4}-[0-9]{2}$"},
          "point": {"$ref": "#/$defs/point"},
          "list": {"type": "array", "items": {"type": "string"}, "maxItems": 2}},
        "required": ["path", "count", "kind", "day", "point"],
        "$defs": {"point": {"type": "object", "properties": {"x": {"type": "number"}, "n": {"type": "string"}},
                            "required": ["x", "n"]}}},
  "g": {"type": "object", "properties": {}},
  "any": {"type": "object"}})");

OrderedJson tools_of(const OrderedJson& schemas) {
  OrderedJson tools = OrderedJson::array();
  for (const auto& [name, schema] : schemas.items()) {
    tools.push_back({{"type", "function"}, {"function", {{"name", name}, {"parameters", schema}}}});
  }
  return tools;
}

GrammarSource source_of(ToolFormat format, const OrderedJson& schemas, bool is_forced) {
  const OrderedJson source = {{"format", format}, {"is_forced", is_forced}, {"tools", schemas}};
  return {.kind = GrammarSource::Kind::kToolCalls, .text = source.dump()};
}

// What the schema of f says; empty: it holds.
std::string violation(const std::string& name, const std::string& text) {
  const OrderedJson value = OrderedJson::parse(text, nullptr, false);
  if (!value.is_object()) return "no object";
  if (name == "g") return value.empty() ? "" : "not empty";
  if (name != "f") return "";
  for (const char* required : {"path", "count", "kind", "day", "point"}) {
    if (!value.contains(required)) return std::string("no ") + required;
  }
  const auto is = [&](const char* key, auto check) { return !value.contains(key) || check(value[key]); };
  const auto is_text = [](const OrderedJson& one) { return one.is_string(); };
  if (!is_text(value["path"])) return "path";
  if (!value["count"].is_number_integer() || value["count"] < 1 || value["count"] > 20) return "count";
  if (value["kind"] != "a" && value["kind"] != "b c") return "kind";
  if (!is("flag", [](const OrderedJson& one) { return one.is_boolean(); })) return "flag";
  if (!is("note", [](const OrderedJson& one) { return one.is_string() || one.is_null(); })) return "note";
  const auto characters = [](const std::string& one) {
    return std::ranges::count_if(one, [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; });
  };
  if (!is("short", [&](const OrderedJson& one) { return one.is_string() && characters(one) <= 4; })) return "short";
  const std::string day = value["day"].is_string() ? value["day"] : "";
  if (day.size() != 7 || day[4] != '-' || day.find_first_not_of("0123456789-") != std::string::npos) return "day";
  const OrderedJson& point = value["point"];
  if (!point.is_object() || !point["x"].is_number() || !point["n"].is_string() || point.size() > 2) return "point";
  if (!is("list", [&](const OrderedJson& one) { return one.size() <= 2 && std::ranges::all_of(one, is_text); }))
    return "list";
  for (const auto& [key, one] : value.items()) {
    if (!kSchemas["f"]["properties"].contains(key)) return "other key " + key;
  }
  return "";
}

// All rows but the first, which is no format.
std::vector<ToolFormat> supported_formats() {
  std::vector<ToolFormat> names;
  for (const ToolFormatRow& row : tool_formats()) names.push_back(row.name);
  names.erase(names.begin());
  return names;
}

class ToolGrammar : public testing::TestWithParam<ToolFormat> {
 protected:
  static ToolFormat format() { return GetParam(); }
};

TEST_P(ToolGrammar, GeneratesValidCalls) {
  const ToolFormatRow& row = tool_format_row(format());
  const auto tokenizer = load_named("qwen2");
  GrammarCompiler compiler(tokenizer);
  std::vector<int32_t> byte_ids(256, -1);
  for (int32_t id = 0; id < vocab_size(*tokenizer); ++id) {
    const std::string bytes = token_bytes(*tokenizer, id);
    if (bytes.size() == 1) byte_ids[static_cast<unsigned char>(bytes[0])] = id;
  }
  std::mt19937 random(7);
  const auto draw = [&](size_t count) { return static_cast<size_t>(random() % count); };
  std::shared_ptr<const Grammar> grammar;
  const Error e = compiler.compile(source_of(format(), kSchemas, true), "tools", true, &grammar);
  ASSERT_FALSE(e) << e.message();
  EXPECT_TRUE(loose_tools(*grammar).empty()) << loose_tools(*grammar)[0];
  constexpr int32_t kEnd = 300;  // no token of one byte
  std::vector<uint32_t> bits(static_cast<size_t>(vocab_size(*tokenizer) + 31) / 32);
  const auto has = [&](int32_t id) { return id >= 0 && (bits[static_cast<size_t>(id) / 32] >> (id % 32) & 1) != 0; };
  const std::string_view closers[] = {row.tags.value_end, "\"", row.syntax, "\"", "}"};
  int calls = 0, whole = 0;
  for (int round = 0; round < 12; ++round) {
    const std::string name = round % 3 == 0 ? "f" : "";
    GrammarMatcher matcher(*grammar, std::vector<int32_t>{kEnd});
    ToolCallOptions options{.format = format(), .tools = tools_of(kSchemas)};
    options.forced_prefix = forced_call(format(), name, "");
    if (format() == "functionary32") options.forced_prefix.insert(0, ">>>");
    ToolCallParser parser(options);
    std::string text, closer;
    const std::string begun(parser.open_call().empty() ? options.forced_prefix : parser.open_call());
    const Error failure = matcher.begin_with(begun);
    ASSERT_FALSE(failure) << failure.message() << begun;
    bool is_over = false;
    while (text.size() < 3000 && !is_over) {
      const Error filled = matcher.fill_mask(bits);
      ASSERT_FALSE(filled) << filled.message() << text;
      if (closer.empty() && draw(8) == 0) closer = closers[draw(std::size(closers))];
      int32_t id = closer.empty() ? -1 : byte_ids[static_cast<unsigned char>(closer[0])];
      closer.erase(0, 1);
      if (!has(id)) closer.clear();
      if (!has(id) && has(kEnd) && draw(2) == 0) is_over = true;
      std::vector<int32_t> allowed;
      for (const int32_t byte_id : byte_ids) {
        if (has(byte_id)) allowed.push_back(byte_id);
      }
      if (!has(id) && allowed.empty()) is_over = true;
      if (is_over) break;
      if (!has(id)) id = allowed[draw(allowed.size())];
      const Error accepted = matcher.accept(id);
      ASSERT_FALSE(accepted) << accepted.message() << text;
      text += token_bytes(*tokenizer, id);
    }
    std::vector<ToolEvent> events = parser.put(text);
    for (ToolEvent& event : parser.finish()) events.push_back(std::move(event));
    std::string arguments, tool;
    for (const ToolEvent& event : events) {
      if (event.kind == ToolEvent::Kind::kCallBegun) arguments.clear(), tool = event.text;
      if (event.kind == ToolEvent::Kind::kArguments) arguments += event.text;
      if (event.kind == ToolEvent::Kind::kContent && is_over) {
        EXPECT_EQ(event.text.find_first_not_of(" \n"), std::string::npos) << options.forced_prefix << text;
      }
      if (event.kind != ToolEvent::Kind::kCallEnded || !event.is_complete) continue;
      ++calls;
      EXPECT_EQ(violation(tool, arguments), "") << arguments << "\n" << options.forced_prefix << text;
    }
    whole += is_over;
    EXPECT_TRUE(!is_over || !tool.empty()) << options.forced_prefix << text;
  }
  EXPECT_GT(calls, 3);
  EXPECT_GT(whole, 1);
}

// Texts behind the opening of a call, "!": not allowed.
TEST(ToolGrammars, TakeCallsOfTheirForm) {
  const OrderedJson schemas = {{"f", OrderedJson::parse(R"({"type": "object", "properties": {"s": {"type": "string"},
      "i": {"type": "integer"}, "k": {"enum": ["x", "y"]}}, "required": ["s"]})")}};
  const struct {
    ToolFormat format;
    const char *taken, *refused;
  } cases[] = {
      {"hermes", R"(f", "arguments": {"s": "a\"\u00e9\ud83d\ude00\n", "i": -3}})",
       R"(f", "arguments": {"s": "a\ud83d"})"},  // half a character
      {"hermes", R"(f", "arguments": {"s": "<tool_call>"}})", R"(g", )"},
      {"hermes", R"(f", "arguments": {"s": "", "k": "x"}})", R"(f", "arguments": {"k": "x")"},
      {"hermes", "f\", \"arguments\": {\"s\": \"\"}}\n</tool_call>\n<tool_call>\n{\"name\": \"f", R"(f", "x")"},
      {"llama", R"(f", "parameters": {"s": "b"}})", R"(f", "parameters": {"s": "b"}} and)"},
      {"mistral_args", R"(f[ARGS]{"s": "b"})", R"(f[ARGS]["s"])"},
      {"deepseek_r1", "f\n```json\n{\"s\": \"`\"}\n```<｜tool▁call▁end｜>", "f\n```json\n{}"},
      {"qwen_xml", "f>\n<parameter=s>\na \"b\" </p>\n</parameter>\n</function>\n</tool_call>", "f>\n<parameter=i>"},
      {"qwen_xml", "f>\n<parameter=s>\n{1}\n</parameter>\n<parameter=i>\n12\n</parameter>\n</function>",
       "f>\n<parameter=s>\n\n</parameter>\n<parameter=i>\nx"},
      {"glm", "f\n<arg_key>s</arg_key>\n<arg_value>a\\</arg_value>\n</tool_call>", "f\n</tool_call>"},
      {"deepseek_v4", "f\">\n<｜DSML｜parameter name=\"s\" string=\"true\">1</｜DSML｜parameter>",
       "f\">\n<｜DSML｜parameter name=\"s\" string=\"false\">"},
      {"lfm2", R"(f(s="a\"", i=1, k="x")]<|tool_call_end|>)", "f(s=a"},
      {"gemma4", "f{s:<|\"|>a\"b\n<|\"|>,i:1,k:<|\"|>x<|\"|>}<tool_call|>", "f{s:\"a\""},
      {"harmony", R"(f <|constrain|>json<|message|>{"s": "b"})", R"(f<|message|>{"t")"},
  };
  const auto tokenizer = load_named("qwen2");
  GrammarCompiler compiler(tokenizer);
  for (const auto& [format, taken, refused] : cases) {
    std::shared_ptr<const Grammar> grammar;
    EXPECT_FALSE(compiler.compile(source_of(format, schemas, true), "tools", true, &grammar));
    const auto takes = [&](const std::string& text) {
      ToolCallOptions options{.format = format, .tools = tools_of(schemas)};
      options.forced_prefix = forced_call(format, "", "");
      const ToolCallParser parser(options);
      return !GrammarMatcher(*grammar, {}).begin_with(std::string(parser.open_call()) + text);
    };
    EXPECT_TRUE(takes(taken)) << taken;
    EXPECT_FALSE(takes(refused)) << refused;
  }
}

TEST(ToolGrammars, AllowNoSpecialTokensInStrings) {
  const auto tokenizer = load_named("qwen2");
  const int32_t special = token_id(*tokenizer, "<|im_end|>");
  ASSERT_GE(special, 0);
  GrammarCompiler compiler(tokenizer);
  for (const auto& [format, begun] : {std::pair{"hermes", R"(<tool_call>{"name": "any", "arguments": {"a": "b)"},
                                      {"qwen_xml", "<tool_call><function=any><parameter=a>b"},
                                      {"gemma4", "<|tool_call>call:any{a:<|\"|>b"}}) {
    std::shared_ptr<const Grammar> grammar;
    EXPECT_FALSE(compiler.compile(source_of(format, kSchemas, false), "tools", false, &grammar));
    GrammarMatcher matcher(*grammar, {});
    EXPECT_FALSE(matcher.begin_with(begun)) << begun;
    std::vector<uint32_t> bits(static_cast<size_t>(vocab_size(*tokenizer) + 31) / 32);
    EXPECT_FALSE(matcher.fill_mask(bits));
    EXPECT_EQ(bits[static_cast<size_t>(special) / 32] >> (special % 32) & 1, 0u) << begun;
  }
}

TEST(ToolGrammars, LooseToolsTakeAnyObject) {
  const OrderedJson schemas = {{"odd", {{"contains", 1}}}, {"f", kSchemas["f"]}};
  GrammarCompiler compiler(load_named("qwen2"));
  std::shared_ptr<const Grammar> grammar;
  EXPECT_FALSE(compiler.compile(source_of("hermes", schemas, false), "tools", true, &grammar));
  EXPECT_EQ(loose_tools(*grammar), std::vector<std::string>{"odd"});
  EXPECT_FALSE(GrammarMatcher(*grammar, {}).begin_with(R"(<tool_call>{"name": "odd", "arguments": {"x": [1]}})"));
  EXPECT_TRUE(GrammarMatcher(*grammar, {}).begin_with(R"(<tool_call>{"name": "f", "arguments": {"x")"));
}

INSTANTIATE_TEST_SUITE_P(All, ToolGrammar, testing::ValuesIn(supported_formats()));

}  // namespace
}  // namespace pinion
