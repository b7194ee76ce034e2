// Requests, replies and streams of the Responses API.
#pragma once

#include "tests/apps/server.h"

namespace pinion {

inline const json kWeather = {{"name", "weather"},
                              {"description", "Tells it."},
                              {"parameters", {{"type", "object"}, {"properties", {{"city", {{"type", "string"}}}}}}}};

inline json with(json object, const json& more) {
  object.update(more);
  return object;
}

inline json function_tool(const json& function) { return {{"type", "function"}, {"function", function}}; }

// A GBNF grammar of one text: the model generates it.
inline json text_only(const std::string& text) { return {{"grammar", "root ::= " + json(text).dump()}}; }

inline std::string call_text(const std::string& name, const std::string& arguments) {
  return "<tool_call>\n{\"name\": \"" + name + "\", \"arguments\": " + arguments + "}\n</tool_call>";
}

// The demo model with a template for tools and thoughts.
struct ToolModel : Folder {
  ToolModel() {
    fs::copy(kDemo, path);
    json config = read_json(path / "config.json");
    config["max_position_embeddings"] = 4096;
    write_file(path / "config.json", config.dump());
    // The order of a test's keys has no effect.
    write_file(path / "chat_template.jinja", R"({# <tool_call>
{"name": 1, "arguments": 1}
</tool_call> #}{{ reasoning_effort }}
{%- for t in tools or [] %}{{ t.type }} {{ t.function.name }} {{ t.function.description }}
{%- for n, p in t.function.parameters.properties.items() %}{{ n }} {{ p.type }} {{ p.pattern }}{% endfor %}
{{ t.function.parameters.required }} {{ t.function.parameters.additionalProperties }}
{%- endfor %}
{%- for m in messages %}{{ m.role }} {{ m.tool_call_id }} {{ m.reasoning_content }}: {{ m.content }}
{%- for c in m.tool_calls or [] %}{{ c.id }} {{ c.function.name }} {{ c.function.arguments | tojson }}{% endfor %}
{%- endfor %})");
  }
};

inline json responses(const Server& server, const json& body, int status = 200) {
  return server.post("/v1/responses", with({{"temperature", 0}}, body), status);
}

inline std::vector<json> events(const Server& server, json body) {
  body.update({{"stream", true}, {"temperature", 0}});
  const httplib::Result result = server.client().Post("/v1/responses", body.dump(), "application/json");
  EXPECT_EQ(result->get_header_value("Content-Type"), "text/event-stream") << result->body;
  const std::string& text = result->body;
  std::vector<json> list;
  for (size_t at = 0; at < text.size();) {
    const size_t end = text.find("\n\n", at), line = text.find('\n', at);
    list.push_back(json::parse(text.substr(line + 7, end - line - 7), nullptr, false));
    EXPECT_EQ(text.substr(at, line - at), "event: " + list.back().value("type", ""));
    EXPECT_EQ(list.back()["sequence_number"], list.size() - 1);
    at = end + 2;
  }
  return list;
}

}  // namespace pinion
