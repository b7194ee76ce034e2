// Structured outputs: JSON schema, regex, grammar and choice, in the fields of each API.
#include <regex>

#include "tests/apps/server.h"

namespace pinion {
namespace {

const json kStory = {{{"role", "user"}, {"content", "Tell me a story about an owl."}}};
const json kSchema = json::parse(R"({"type": "object", "properties": {
    "title": {"type": "string", "maxLength": 30}, "age": {"type": "integer", "minimum": 1, "maximum": 99}},
    "required": ["title", "age"], "additionalProperties": false})");

void expect_kept(const std::string& text) {
  const json answer = json::parse(text, nullptr, false);
  ASSERT_TRUE(answer.is_object()) << text;
  EXPECT_EQ(answer.size(), 2) << text;
  EXPECT_LE(answer["title"].get<std::string>().size(), 30u) << text;
  EXPECT_EQ(std::clamp<int64_t>(answer["age"].get<int64_t>(), 1, 99), answer["age"]) << text;
}

json chat(json more) {
  json body = {{"messages", kStory}, {"max_tokens", 80}, {"seed", 3}, {"temperature", 1.5}};
  body.update(more);
  return body;
}

std::string content(const Server& server, const json& more) {
  return server.post("/v1/chat/completions", chat(more))["choices"][0]["message"]["content"];
}

TEST(ServeStructuredOutput, JsonSchemaInEachApi) {
  Server server(kDemo);
  const json form = {{"type", "json_schema"},
                     {"json_schema", {{"name", "story"}, {"strict", true}, {"schema", kSchema}}}};
  const std::string text = content(server, {{"response_format", form}});
  expect_kept(text);
  EXPECT_EQ(content(server, {{"structured_outputs", {{"json", kSchema}}}}), text);
  EXPECT_EQ(content(server, {{"guided_json", kSchema}}), text);
  EXPECT_EQ(content(server, {{"json_schema", kSchema}}), text);
  EXPECT_EQ(content(server, {{"response_format", {{"type", "json_object"}, {"schema", kSchema}}}}), text);
  const json anthropic = {{"type", "json_schema"}, {"schema", kSchema}};
  EXPECT_EQ(server.post("/v1/messages", chat({{"output_config", {{"format", anthropic}}}}))["content"][0]["text"],
            text);
  EXPECT_EQ(server.post("/v1/messages", chat({{"output_format", anthropic}}))["content"][0]["text"], text);
  const json options = {{"seed", 3}, {"temperature", 1.5}, {"num_predict", 80}};
  const json ollama = {{"messages", kStory}, {"stream", false}, {"format", kSchema}, {"options", options}};
  EXPECT_EQ(server.post("/api/chat", ollama)["message"]["content"], text);
  std::string streamed;
  json last;
  for (const json& chunk : server.stream("/v1/chat/completions", chat({{"response_format", form}}))) {
    streamed += chunk["choices"][0]["delta"].value("content", "");
    last = chunk;
  }
  EXPECT_EQ(streamed, text);
  EXPECT_EQ(last["choices"][0]["finish_reason"], "stop");
  // A text cut at max_tokens is a prefix of a valid one, with finish_reason "length".
  const json cut = server.post("/v1/chat/completions", chat({{"response_format", form}, {"max_tokens", 5}}));
  EXPECT_EQ(cut["choices"][0]["finish_reason"], "length");
  EXPECT_TRUE(text.starts_with(cut["choices"][0]["message"]["content"].get<std::string>()));
}

TEST(ServeStructuredOutput, PropertiesKeepSchemaOrder) {
  Server server(kDemo);
  const std::string body = R"({"prompt": "Once", "max_tokens": 60, "json_schema": {"type": "object",
      "properties": {"b": {"type": "null"}, "a": {"type": "null"}}, "required": ["a", "b"]}})";
  const httplib::Result result = server.client().Post("/v1/completions", body, "application/json");
  ASSERT_TRUE(result);
  EXPECT_EQ(json::parse(result->body)["choices"][0]["text"], "{\"b\": null, \"a\": null}");
}

// Schemas as generators write them: keywords beside each other, older drafts, formats.
TEST(ServeStructuredOutput, SchemasOfGenerators) {
  Server server(kDemo);
  const std::pair<const char*, const char*> cases[] = {
      // a property's schema, and a regex of its answers
      {R"({"type":"string","format":"email","pattern":"^[a-z]{1,8}@[a-z]{1,8}\\.[a-z]{2,3}$"})",
       R"("[a-z]{1,8}@[a-z]{1,8}\.[a-z]{2,3}")"},
      {R"({"type":"string","pattern":"^[a-z]+$","minLength":1,"maxLength":8})", R"("[a-z]{1,8}")"},
      {R"({"type":"integer","format":"int32","minimum":0,"maximum":9})", R"([0-9])"},
      {R"({"type":"string","format":"password","maxLength":9})", R"(".{0,9}")"},
      {R"({"type":"object","properties":{"b":{"type":"boolean"},"c":{"type":"boolean"}},)"
       R"("anyOf":[{"required":["b"]},{"required":["c"]}],"additionalProperties":false})",
       R"(\{("b": (true|false)|"c": (true|false)|"b": (true|false), "c": (true|false))\})"},
      {R"({"type":"array","items":[{"type":"boolean"},{"type":"boolean"}],"additionalItems":false,"minItems":2})",
       R"(\[(true|false), (true|false)\])"},
      {R"({"type":"object","propertyNames":{"type":"string","enum":["k","l"]},"required":["k","l"],)"
       R"("additionalProperties":{"type":"boolean"}})",
       R"(\{"k": (true|false), "l": (true|false)\})"},
      {R"({"type":"array","items":{"enum":["a","b"]},"uniqueItems":true,"maxItems":2})",
       R"(\[("a"|"b"|"a","b"|"b","a")?\])"},
      {R"({"$ref":"#/$defs/my~1type%20x"})", "true|false"},
      {R"({"type":"string","nullable":true,"enum":["x",null]})", R"("x")"},
      {R"({"type":"integer","minimum":0,"exclusiveMinimum":true,"maximum":5})", "[1-5]"},
      {R"({"type":"integer"})", "-?[0-9]{1,20}"},
      {R"({"type":"number"})", "-?[0-9]{1,20}(\\.[0-9]{1,20})?([eE][-+]?[0-9]{1,2})?"},
  };
  for (const auto& [schema, pattern] : cases) {
    const json whole = {{"type", "object"},
                        {"properties", {{"a", json::parse(schema)}}},
                        {"required", {"a"}},
                        {"additionalProperties", false},
                        {"$defs", {{"my/type x", {{"type", "boolean"}}}}}};
    const json form = {{"type", "json_schema"}, {"json_schema", {{"name", "x"}, {"schema", whole}}}};
    const json fields = {{"response_format", form}, {"max_tokens", 120}, {"temperature", 1}, {"seed", 1}};
    const std::string text = content(server, fields);
    EXPECT_TRUE(std::regex_match(text, std::regex(R"(\{"a": ()" + std::string(pattern) + R"()\})"))) << schema << text;
  }
}

TEST(ServeStructuredOutput, RegexGrammarAndChoice) {
  Server server(kDemo);
  EXPECT_EQ(content(server, {{"response_format", {{"type", "json_object"}}}})[0], '{');
  EXPECT_EQ(content(server, {{"structured_outputs", {{"json_object", true}}}})[0], '{');
  const std::string choice = content(server, {{"structured_outputs", {{"choice", {"an \"owl\"\n", "eine Äule"}}}}});
  EXPECT_EQ(content(server, {{"structured_outputs", {{"choice", {"one", "one"}}}}}), "one");
  EXPECT_TRUE(choice == "an \"owl\"\n" || choice == "eine Äule") << choice;
  const json regex = {{"prompt", "Once"},
                      {"seed", 1},
                      {"n", 5},
                      {"temperature", 2},
                      {"structured_outputs", {{"regex", "[a-c]{3,6}!"}}}};
  const json answer = server.post("/v1/completions", regex);
  for (const json& one : answer["choices"]) {
    const auto text = one["text"].get<std::string>();
    EXPECT_EQ(text.find_first_not_of("abc"), text.size() - 1) << text;
    EXPECT_EQ(text.back(), '!');
  }
  // Concurrent choices equal lone requests.
  json alone = regex;
  alone["n"] = 1, alone["seed"] = 4;
  EXPECT_EQ(server.post("/v1/completions", alone)["choices"][0]["text"], answer["choices"][3]["text"]);
  EXPECT_EQ(content(server, {{"grammar", "root ::= \"a\" b\nb ::= \"bc\""}}), "abc");
  EXPECT_EQ(content(server, {{"response_format", {{"type", "text"}}}, {"grammar", nullptr}}),
            content(server, json::object()));
  const json generate = {{"prompt", "Hi"}, {"stream", false}, {"format", "json"}, {"options", {{"seed", 5}}}};
  EXPECT_EQ(server.post("/api/generate", generate)["response"].get<std::string>()[0], '{');
}

TEST(ServeStructuredOutput, ConstrainsBegunAnswers) {
  Server server(kDemo);
  const auto rest = [&](const std::string& begun, const json& schema) {
    const json messages = {kStory[0], {{"role", "assistant"}, {"content", begun}}};
    const json more = {{"messages", messages}, {"continue_final_message", true}, {"json_schema", schema}};
    return content(server, more);
  };
  EXPECT_EQ(rest("{\"a\":", {{"properties", {{"a", {{"const", "owl"}}}}}, {"additionalProperties", false}}),
            " \"owl\"}");
  for (const std::string begun :
       {R"({"age": 9, "title": "An o)", R"({"age": 9, "title": "Twenty-eight characters! 28,)",
        R"({"age": 9, "title": "\\)", "{"}) {  // json sorts properties
    expect_kept(begun + rest(begun, kSchema));
  }
  expect_kept("{" + rest("<think>It is short.</think>{", kSchema));
  EXPECT_EQ(rest(R"({"age": 9, "title": ""})", kSchema), "");
  const json messages = {kStory[0], {{"role", "assistant"}, {"content", "Well"}}};
  const json failure =
      server.post("/v1/messages", chat({{"messages", messages}, {"output_format", {{"type", "json_object"}}}}), 400);
  EXPECT_NE(failure["error"]["message"].get<std::string>().find("beginning of the answer"), std::string::npos);
}

// Functionary's prompts end in a mark that begins a call or an answer.
TEST(ServeStructuredOutput, BehindAMarkOfThePrompt) {
  const Folder model;
  copy_stories(model);
  write_file(model.path / "chat_template.jinja",
             "{% set all = '>>>all\\n' %}{{ tools }}{% for m in messages %}{{ m.content }}{% endfor %}>>>");
  Server server(model.path);
  const json tool = {{"type", "function"}, {"function", {{"name", "f"}, {"parameters", {{"type", "object"}}}}}};
  const auto message = [&](const char* grammar) {
    const json body = chat({{"tools", {tool}}, {"grammar", grammar}});
    return server.post("/v1/chat/completions", body)["choices"][0]["message"];
  };
  EXPECT_EQ(message(R"(root ::= "all\nHi.")")["content"], "Hi.");
  const json both = message(R"(root ::= "all\nNow.>>>f\n{\"a\": 1}>>>f\n{}")");
  EXPECT_EQ(both["content"], "Now.");
  ASSERT_EQ(both["tool_calls"].size(), 2);
  EXPECT_EQ(both["tool_calls"][0]["function"]["arguments"], "{\"a\": 1}");
  EXPECT_EQ(message(R"(root ::= "f\n{}")")["tool_calls"].size(), 1);
}

TEST(ServeStructuredOutput, ErrorsNameTheField) {
  Server server(kDemo);
  const std::pair<json, std::string> cases[] = {
      {{{"response_format", {{"type", "yaml"}}}}, "response_format: unknown value"},
      {{{"response_format", {{"type", "json_schema"}}}}, "response_format: missing field: want a JSON schema"},
      {{{"json_schema", {{"contains", json::object()}}}}, "json_schema: #/contains: not supported"},
      {{{"grammar", 3}}, "grammar: wrong type: want a string"},
      {{{"grammar", "root ::= x"}}, "grammar: EBNF parser error"},
      {{{"grammar", "root ::= \"a\""}, {"json_schema", true}},
       "grammar: a second output constraint: want one; json_schema is given"},
      {{{"structured_outputs", {{"choice", json::array()}}}}, "structured_outputs: wrong type: want a list of strings"},
      {{{"guided_choice", json::array()}}, "guided_choice: wrong type: want a list of strings"},
      {{{"structured_outputs", {{"yaml", 1}}}}, "structured_outputs: yaml: unknown value"},
  };
  for (const auto& [fields, message] : cases) {
    const json failure = server.post("/v1/chat/completions", chat(fields), 400)["error"];
    EXPECT_EQ(failure["type"], "invalid_request_error");
    EXPECT_NE(failure["message"].get<std::string>().find(message), std::string::npos) << failure;
  }
  EXPECT_TRUE(server.post("/api/chat", {{"messages", kStory}, {"format", "yaml"}}, 400)["error"].is_string());
  // A grammar that is too slow fails its own request only.
  const json slow = {{"prompt", "a"},
                     {"max_tokens", 2000},
                     {"seed", 1},
                     {"temperature", 1},
                     {"grammar", "root ::= s \"#\"\ns ::= s s | \"a\" | \"b\""}};
  const json failure = server.post("/v1/completions", slow, 400)["error"];
  EXPECT_NE(failure["message"].get<std::string>().find("takes too long"), std::string::npos) << failure;
  EXPECT_EQ(content(server, {{"grammar", "root ::= \"a\""}}), "a");
}

}  // namespace
}  // namespace pinion
