// OpenAI's Responses API: requests, replies, streams, stored responses.
#include "apps/serve/responses.h"

#include "tests/apps/server.h"

namespace pinion {
namespace {

const json kWeather = {{"name", "weather"},
                       {"description", "Tells it."},
                       {"parameters", {{"type", "object"}, {"properties", {{"city", {{"type", "string"}}}}}}}};

json with(json object, const json& more) {
  object.update(more);
  return object;
}

json function_tool(const json& function) { return {{"type", "function"}, {"function", function}}; }

// A GBNF grammar of one text: the model generates it.
json text_only(const std::string& text) { return {{"grammar", "root ::= " + json(text).dump()}}; }

std::string call_text(const std::string& name, const std::string& arguments) {
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

json responses(const Server& server, const json& body, int status = 200) {
  return server.post("/v1/responses", with({{"temperature", 0}}, body), status);
}

std::vector<json> events(const Server& server, json body) {
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

// Without the ids, which differ between two replies.
json without_ids(json value) {
  for (const char* name : {"id", "call_id", "created_at", "completed_at"}) {
    if (value.is_object()) value.erase(name);
  }
  if (value.is_structured()) {
    for (json& each : value) each = without_ids(each);
  }
  return value;
}

struct Pair {
  const char* name;
  json request, chat;
};

// The prompts are equal: that of the chat API is in the cache when the other is read.
TEST(ServeResponses, PromptsEqualChatPrompts) {
  const ToolModel model;
  const Server server(model.path);
  const json user = {{"role", "user"}, {"content", "Who are you, and where do you live?"}};
  const auto answer = [](const json& more) { return with({{"role", "assistant"}, {"content", ""}}, more); };
  const auto call = [](const std::string& id, const std::string& name, const json& arguments) {
    return json{{"id", id}, {"type", "function"}, {"function", {{"name", name}, {"arguments", arguments}}}};
  };
  const json rome = {{"city", "Rome"}};
  const json text_argument = {{"type", "object"},
                              {"properties", {{"input", {{"type", "string"}, {"pattern", "^(?:[ab]+)$"}}}}},
                              {"required", {"input"}},
                              {"additionalProperties", false}};
  const Pair pairs[] = {
      {"text", {{"input", user["content"]}}, {{"messages", {user}}}},
      {"instructions and roles",
       {{"instructions", "Be brief."}, {"input", {{{"role", "developer"}, {"content", "Be kind."}}, user}}},
       {{"messages",
         {{{"role", "system"}, {"content", "Be brief."}}, {{"role", "developer"}, {"content", "Be kind."}}, user}}}},
      {"parts",
       {{"input",
         {{{"type", "message"},
           {"role", "user"},
           {"content",
            {{{"type", "input_text"}, {"text", "Who are you, "}},
             {{"type", "text"}, {"text", "and where do you live?"}}}}}}}},
       {{"messages", {user}}}},
      {"one turn of the assistant",
       {{"input",
         {user,
          {{"type", "reasoning"},
           {"summary", json::array()},
           {"content", {{{"type", "reasoning_text"}, {"text", "Hm."}}}}},
          {{"role", "assistant"}, {"content", {{{"type", "output_text"}, {"text", "I look."}}}}},
          {{"type", "function_call"}, {"call_id", "a"}, {"name", "weather"}, {"arguments", rome.dump()}},
          {{"type", "custom_tool_call"}, {"call_id", "b"}, {"name", "shell"}, {"input", "ls"}},
          {{"type", "function_call_output"}, {"call_id", "a"}, {"output", "sunny"}},
          {{"type", "custom_tool_call_output"},
           {"call_id", "b"},
           {"output", {{{"type", "input_text"}, {"text", "x"}}}}},
          {{"type", "web_search_call"}, {"id", "ws_1"}},
          {{"role", "assistant"}, {"content", "Sunny."}},
          {{"role", "user"}, {"content", "Thanks."}}}}},
       {{"messages",
         {user,
          answer({{"content", "I look."},
                  {"reasoning_content", "Hm."},
                  {"tool_calls", {call("a", "weather", rome), call("b", "shell", {{"input", "ls"}})}}}),
          {{"role", "tool"}, {"tool_call_id", "a"}, {"content", "sunny"}},
          {{"role", "tool"}, {"tool_call_id", "b"}, {"content", "x"}},
          answer({{"content", "Sunny."}}),
          {{"role", "user"}, {"content", "Thanks."}}}}}},
      {"thoughts of a summary, and returned",
       {{"input",
         {user,
          {{"type", "reasoning"}, {"summary", {{{"type", "summary_text"}, {"text", "Hm."}}}}},
          {{"role", "assistant"}, {"content", "I."}},
          user,
          {{"type", "reasoning"}, {"summary", json::array()}, {"encrypted_content", "pinion:So."}},
          {{"role", "assistant"}, {"content", "You."}},
          {{"type", "reasoning"}, {"summary", json::array()}, {"encrypted_content", "another server's"}},
          user}}},
       {{"messages",
         {user, answer({{"content", "I."}, {"reasoning_content", "Hm."}}), user,
          answer({{"content", "You."}, {"reasoning_content", "So."}}), user}}}},
      {"tools",
       {{"input", user["content"]},
        {"tools",
         {with(kWeather, {{"type", "function"}}),
          {{"type", "namespace"}, {"name", "home"}, {"tools", {with(kWeather, {{"type", "function"}})}}},
          {{"type", "custom"},
           {"name", "letters"},
           {"format", {{"type", "grammar"}, {"syntax", "regex"}, {"definition", "[ab]+"}}}},
          {{"type", "web_search"}}}}},
       {{"messages", {user}},
        {"tools",
         {function_tool(kWeather), function_tool(with(kWeather, {{"name", "home__weather"}})),
          function_tool({{"name", "letters"}, {"parameters", text_argument}})}}}},
      {"allowed tools",
       {{"input", user["content"]},
        {"tools", {with(kWeather, {{"type", "function"}}), {{"type", "custom"}, {"name", "letters"}}}},
        {"tool_choice",
         {{"type", "allowed_tools"},
          {"mode", "auto"},
          {"tools", {{{"type", "function"}, {"name", "weather"}}, {{"type", "web_search"}}}}}}},
       {{"messages", {user}}, {"tools", {function_tool(kWeather)}}}},
      {"no tools",
       {{"input", user["content"]}, {"tools", {with(kWeather, {{"type", "function"}})}}, {"tool_choice", "none"}},
       {{"messages", {user}}}},
      {"named tool",
       {{"input", user["content"]},
        {"tools", {{{"type", "namespace"}, {"name", "home"}, {"tools", {with(kWeather, {{"type", "function"}})}}}}},
        {"tool_choice", {{"type", "function"}, {"namespace", "home"}, {"name", "weather"}}}},
       {{"messages", {user}},
        {"tools", {function_tool(with(kWeather, {{"name", "home__weather"}}))}},
        {"tool_choice", {{"type", "function"}, {"function", {{"name", "home__weather"}}}}}}},
      {"effort",
       {{"input", user["content"]}, {"reasoning", {{"effort", "high"}}}},
       {{"messages", {user}}, {"reasoning_effort", "high"}}},
  };
  for (const Pair& pair : pairs) {
    SCOPED_TRACE(pair.name);
    const json expected = server.post("/v1/chat/completions", with(pair.chat, {{"max_tokens", 1}, {"temperature", 0}}));
    while (server.metric("texts_running") > 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    const json usage = responses(server, with(pair.request, {{"max_output_tokens", 1}}))["usage"];
    EXPECT_EQ(usage["input_tokens"], expected["usage"]["prompt_tokens"]);
    EXPECT_EQ(usage["input_tokens_details"]["cached_tokens"].get<int>() + 1, usage["input_tokens"].get<int>());
  }
}

struct Output {
  const char* name;
  json request;
  std::string text;
  json output;                      // without ids
  std::vector<std::string> events;  // repeated ones once
};

json message(const std::string& text, const char* status = "completed") {
  return {{"type", "message"},
          {"status", status},
          {"role", "assistant"},
          {"content",
           {{{"type", "output_text"}, {"text", text}, {"annotations", json::array()}, {"logprobs", json::array()}}}}};
}

json called(const std::string& name, const std::string& arguments) {
  return {{"type", "function_call"}, {"status", "completed"}, {"name", name}, {"arguments", arguments}};
}

const std::vector<std::string> kMessageEvents = {"output_item.added", "content_part.added", "output_text.delta",
                                                 "output_text.done",  "content_part.done",  "output_item.done"};
const std::vector<std::string> kCallEvents = {"output_item.added", "function_call_arguments.delta",
                                              "function_call_arguments.done", "output_item.done"};

std::vector<std::string> joined_lists(const std::vector<std::vector<std::string>>& lists) {
  std::vector<std::string> all = {"created", "in_progress"};
  for (const auto& list : lists) all.insert(all.end(), list.begin(), list.end());
  return all;
}

// Joins the deltas of each item.
std::map<std::string, std::string> joined_deltas(const std::vector<json>& stream) {
  std::map<std::string, std::string> texts;
  for (const json& event : stream) {
    if (event["type"].get<std::string>().ends_with(".delta")) {
      texts[event["item_id"]] += event["delta"].get<std::string>();
    }
  }
  return texts;
}

std::string text_of_item(const json& item) {
  for (const char* name : {"arguments", "input"}) {
    if (item.contains(name)) return item[name];
  }
  const json& parts = item["content"].empty() ? item["summary"] : item["content"];
  return parts[0]["text"];
}

TEST(ServeResponses, OutputsAndStreams) {
  const ToolModel model;
  const Server server(model.path);
  const json tools = {with(kWeather, {{"type", "function"}}),
                      {{"type", "namespace"}, {"name", "home_"}, {"tools", {with(kWeather, {{"type", "function"}})}}},
                      {{"type", "custom"}, {"name", "shell"}}};
  const json thoughts = {{{"type", "reasoning_text"}, {"text", "Hm."}}};
  const json thought = {{"type", "reasoning"},
                        {"status", "completed"},
                        {"summary", json::array()},
                        {"content", thoughts},
                        {"encrypted_content", "pinion:Hm."}};
  const json summary = {{{"type", "summary_text"}, {"text", "Hm."}}};
  const json in_rome = {{"type", "function_call"}};
  const std::string rome = "{\"city\": \"Rome\"}";
  const Output outputs[] = {
      {"text", {}, "Hello.", json::array({message("Hello.")}), joined_lists({kMessageEvents, {"completed"}})},
      {"cut text",
       {{"max_output_tokens", 2}},
       "a b c d e f g h",
       json::array({message("a ", "incomplete")}),
       joined_lists({kMessageEvents, {"incomplete"}})},
      {"thoughts",
       {{"include", {"reasoning.encrypted_content"}}},
       "<think>Hm.</think>Hello.",
       {thought, message("Hello.")},
       joined_lists({{"output_item.added", "content_part.added", "reasoning_text.delta", "reasoning_text.done",
                      "content_part.done", "output_item.done"},
                     kMessageEvents,
                     {"completed"}})},
      {"summary",
       {{"reasoning", {{"summary", "auto"}}}},
       "<think>Hm.</think>Hello.",
       {with(thought, {{"summary", summary}, {"content", json::array()}}), message("Hello.")},
       joined_lists({{"output_item.added", "reasoning_summary_part.added", "reasoning_summary_text.delta",
                      "reasoning_summary_text.done", "reasoning_summary_part.done", "output_item.done"},
                     kMessageEvents,
                     {"completed"}})},
      {"two calls",
       {{"tools", tools}},
       "I look." + call_text("weather", rome) + call_text("home_weather", "{}"),
       {message("I look."), called("weather", rome), with(called("weather", "{}"), {{"namespace", "home_"}})},
       joined_lists({kMessageEvents, kCallEvents, kCallEvents, {"completed"}})},
      {"one call",
       {{"tools", tools}, {"parallel_tool_calls", false}},
       call_text("weather", rome) + call_text("weather", "{}"),
       json::array({called("weather", rome)}),
       joined_lists({kCallEvents, {"completed"}})},
      {"custom call",
       {{"tools", tools}},
       call_text("shell", "{\"input\": \"ls\\n\"}"),
       {{{"type", "custom_tool_call"}, {"status", "completed"}, {"name", "shell"}, {"input", "ls\n"}}},
       joined_lists(
           {{"output_item.added", "custom_tool_call_input.delta", "custom_tool_call_input.done", "output_item.done"},
            {"completed"}})},
  };
  for (const Output& each : outputs) {
    SCOPED_TRACE(each.name);
    const json request = with(with(each.request, text_only(each.text)), {{"input", "Weather?"}});
    const json whole = responses(server, request);
    EXPECT_EQ(without_ids(whole["output"]), each.output);
    EXPECT_EQ(whole["error"], nullptr);
    const std::vector<json> stream = events(server, request);
    std::vector<std::string> names;
    for (const json& event : stream) {
      const std::string name = event["type"].get<std::string>().substr(9);
      if (names.empty() || names.back() != name || name.ends_with("added")) names.push_back(name);
    }
    EXPECT_EQ(names, each.events);
    const json& last = stream.back()["response"];
    EXPECT_EQ(stream.front()["response"]["id"], last["id"]);
    EXPECT_EQ(stream.front()["response"]["output"], json::array());
    json expected = without_ids(whole), found = without_ids(last);
    expected["usage"].erase("input_tokens_details");
    found["usage"].erase("input_tokens_details");
    EXPECT_EQ(found, expected) << "streamed and whole";
    std::map<std::string, std::string> texts;
    for (const json& item : last["output"]) texts[item["id"]] = text_of_item(item);
    EXPECT_EQ(joined_deltas(stream), texts);
    for (const json& event : stream) {
      if (event.contains("item_id")) {
        EXPECT_EQ(event["item_id"], last["output"][event["output_index"].get<size_t>()]["id"]) << event;
      }
    }
  }
  const json usage = responses(server, with(text_only("<think>Hm. Hm. Hm.</think>Hello."), {{"input", "a"}}))["usage"];
  EXPECT_GT(usage["output_tokens_details"]["reasoning_tokens"], 2);
  EXPECT_EQ(usage["total_tokens"], usage["input_tokens"].get<int>() + usage["output_tokens"].get<int>());
}

TEST(ServeResponses, ConstraintsAndLogprobsAreThoseOfChat) {
  const Server server(kDemo);
  const json schema = {{"type", "object"}, {"properties", {{"a", {{"enum", {"x", "y"}}}}}}, {"required", {"a"}}};
  const json format = {{"type", "json_schema"}, {"name", "answer"}, {"strict", true}, {"schema", schema}};
  const json parsed = responses(server, {{"input", "Who?"}, {"text", {{"format", format}}}});
  EXPECT_EQ(parsed["text"]["format"], format);
  EXPECT_TRUE(json::parse(parsed["output"][0]["content"][0]["text"].get<std::string>()).contains("a")) << parsed;
  const json object = responses(
      server, {{"input", "Who?"}, {"max_output_tokens", 1}, {"text", {{"format", {{"type", "json_object"}}}}}});
  EXPECT_EQ(object["output"][0]["content"][0]["text"], "{");

  json request = {{"input", "Who are you?"},
                  {"max_output_tokens", 4},
                  {"top_logprobs", 2},
                  {"include", {"message.output_text.logprobs", "web_search_call.action.sources"}}};
  const json expected =
      server.post("/v1/chat/completions", {{"messages", {{{"role", "user"}, {"content", "Who are you?"}}}},
                                           {"max_tokens", 4},
                                           {"temperature", 0},
                                           {"logprobs", true},
                                           {"top_logprobs", 2}})["choices"][0]["logprobs"]["content"];
  EXPECT_EQ(responses(server, request)["output"][0]["content"][0]["logprobs"], expected);
  json streamed = json::array();
  for (const json& event : events(server, request)) {
    if (event["type"] != "response.output_text.delta") continue;
    for (const json& each : event["logprobs"]) streamed.push_back(each);
  }
  EXPECT_EQ(streamed, expected);
  const httplib::Result result = server.client().Post("/v1/responses", request.dump(), "application/json");
  EXPECT_EQ(result->get_header_value("X-Pinion-Ignored"), "include: web_search_call.action.sources");
}

TEST(ServeResponses, StoredResponsesGoOn) {
  const ToolModel model;
  const Server server(model.path);
  const json first = responses(
      server, with(text_only(call_text("weather", "{}")), {{"input", "Weather?"},
                                                           {"instructions", "Be brief."},
                                                           {"tools", {with(kWeather, {{"type", "function"}})}}}));
  const json& call = first["output"][0];
  const json result = {{"type", "function_call_output"}, {"call_id", call["call_id"]}, {"output", "sunny"}};
  const json second =
      responses(server, with(text_only("Sunny."), {{"previous_response_id", first["id"]}, {"input", {result}}}));
  EXPECT_EQ(second["previous_response_id"], first["id"]);
  const auto tokens = [](const json& response) { return response["usage"]["input_tokens"]; };
  EXPECT_EQ(tokens(second),
            tokens(responses(server, {{"input", {{{"role", "user"}, {"content", "Weather?"}}, call, result}},
                                      {"max_output_tokens", 1}})))
      << "without the previous instructions";
  const json reference = {{"type", "item_reference"}, {"id", call["id"]}};
  EXPECT_EQ(tokens(second),
            tokens(responses(server, {{"input", {{{"role", "user"}, {"content", "Weather?"}}, reference, result}},
                                      {"max_output_tokens", 1}})));

  const std::string path = "/v1/responses/" + second["id"].get<std::string>();
  EXPECT_EQ(json::parse(server.get(path)), second);
  const auto erase = [&] { return server.client().Delete(path); };
  const httplib::Result erased = erase();
  EXPECT_EQ(erased->status, 200) << erased->body;
  EXPECT_EQ(json::parse(erased->body), json({{"id", second["id"]}, {"object", "response"}, {"deleted", true}}));
  EXPECT_EQ(erase()->status, 404);
  EXPECT_TRUE(json::parse(server.get(path, 404))["error"]["message"].is_string());
  EXPECT_EQ(responses(server, {{"previous_response_id", second["id"]}, {"input", "a"}}, 400)["error"]["param"],
            "previous_response_id");
  const json unstored = responses(server, with(text_only("a"), {{"input", "a"}, {"store", false}}));
  server.get("/v1/responses/" + unstored["id"].get<std::string>(), 404);
  EXPECT_EQ(server.client().Delete("/v1/models/demo")->status, 404);
}

TEST(ServeResponses, StoreDropsTheLeastRecentlyUsed) {
  ResponseStore store(4500);
  const auto add = [&](const std::string& id, size_t bytes) {
    store.add({.id = id,
               .response = R"({"output": [{"id": ")" + id + std::string(bytes, 'x') + R"("}]})",
               .items = R"([{"id": "sent"}])"});
  };
  for (const char* id : {"a", "b", "c"}) add(id, 1000);
  EXPECT_TRUE(store.find("a"));
  add("d", 1500);
  EXPECT_FALSE(store.find("b"));
  for (const char* id : {"a", "c", "d"}) EXPECT_TRUE(store.find(id)) << id;
  EXPECT_FALSE(store.find_item("d" + std::string(1500, 'x')).is_null());
  for (const char* id : {"", "xx", "sent"}) EXPECT_TRUE(store.find_item(id).is_null()) << id;
  add("e", 6000);
  for (const char* id : {"a", "c", "d", "e"}) EXPECT_FALSE(store.find(id)) << id;
  for (int i = 0; i < 100; ++i) {
    add("f", 1000);
    EXPECT_TRUE(store.find("f", true));
  }
  EXPECT_FALSE(store.find("f"));
  for (const char* id : {"g", "h", "i"}) add(id, 1000);
  EXPECT_TRUE(store.find("g")) << "erased ones count no more";
}

// The request that `codex exec` sends, with fewer and shorter texts.
constexpr const char* kCodexRequest = R"json({"model": "model", "stream": true, "store": false, "tool_choice": "auto",
  "parallel_tool_calls": true, "reasoning": {"summary": "auto"}, "include": ["reasoning.encrypted_content"],
  "prompt_cache_key": "01a2", "client_metadata": {"turn_id": "01a2"},
  "input": [
    {"type": "message", "id": "msg_1", "role": "developer",
     "content": [{"type": "input_text", "text": "You are a coding agent running in the Codex CLI."}]},
    {"type": "message", "id": "msg_2", "role": "user",
     "content": [{"type": "input_text", "text": "<environment_context><cwd>/tmp</cwd></environment_context>"}]},
    {"type": "message", "id": "msg_3", "role": "user", "content": [{"type": "input_text", "text": "Say hello."}]},
    {"type": "reasoning", "summary": [{"type": "summary_text", "text": "Hm."}], "encrypted_content": "pinion:Hm."},
    {"type": "function_call", "status": "completed", "id": "fc_1", "name": "exec_command",
     "arguments": "{\"cmd\": \"echo hello\"}", "call_id": "d00972962"},
    {"type": "function_call_output", "id": "fco_1", "call_id": "d00972962", "output": "Output:\nhello\n"},
    {"type": "function_call", "status": "completed", "id": "fc_2", "name": "close_agent", "namespace": "multi_agent_v1",
     "arguments": "{\"target\": \"x\"}", "call_id": "99c7d475b"},
    {"type": "function_call_output", "id": "fco_2", "call_id": "99c7d475b", "output": "invalid agent id"}],
  "tools": [
    {"type": "function", "name": "exec_command", "description": "Runs a command in a PTY.", "strict": false,
     "parameters": {"type": "object", "properties": {"cmd": {"type": "string"}}, "required": ["cmd"],
                    "additionalProperties": false}},
    {"type": "namespace", "name": "multi_agent_v1", "description": "Tools for spawning and managing sub-agents.",
     "tools": [{"type": "function", "name": "close_agent", "description": "Close an agent.", "strict": false,
                "parameters": {"type": "object", "properties": {"target": {"type": "string"}}, "required": ["target"],
                               "additionalProperties": false}}]},
    {"type": "web_search", "external_web_access": false}]})json";

TEST(ServeResponses, CodexIsServed) {
  const ToolModel model;
  const Server server(model.path);
  const json request =
      with(json::parse(kCodexRequest),
           text_only("<think>So.</think>" + call_text("multi_agent_v1__close_agent", "{\"target\": \"y\"}")));
  const json last = events(server, request).back()["response"];
  ASSERT_EQ(last["output"].size(), 2) << last;
  EXPECT_EQ(last["output"][0]["encrypted_content"], "pinion:So.");
  EXPECT_EQ(last["output"][0]["summary"][0]["text"], "So.");
  EXPECT_EQ(last["output"][1]["name"], "close_agent");
  EXPECT_EQ(last["output"][1]["namespace"], "multi_agent_v1");
  EXPECT_EQ(last["output"][1]["arguments"], "{\"target\": \"y\"}");
  const httplib::Result result = server.client().Post("/v1/responses", request.dump(), "application/json");
  EXPECT_EQ(result->get_header_value("X-Pinion-Ignored"), "tools: web_search");
}

TEST(ServeResponses, MistakesNameTheirField) {
  const Server server(kDemo);
  const json tool = with(kWeather, {{"type", "function"}});
  const auto item = [](const json& each) { return json{{"input", {each}}}; };
  const std::pair<json, const char*> mistakes[] = {
      {json::object(), "input"},
      {{{"input", 5}}, "input"},
      {{{"input", json::array()}}, "input"},
      {item("a"), "input[0]: type"},
      {item(json::object()), "input[0]: type"},
      {item({{"role", "owner"}, {"content", "a"}}), "input[0]: role"},
      {item({{"role", "user"}}), "input[0]: content"},
      {item({{"role", "user"}, {"content", {"a"}}}), "input[0]: content[0]: type"},
      {item({{"role", "user"}, {"content", {{{"type", "input_image"}}}}}), "input[0]"},
      {item({{"type", "function_call"}, {"name", "a"}}), "input[0]: call_id"},
      {item({{"type", "function_call"}, {"call_id", "a"}}), "input[0]: name"},
      {item({{"type", "function_call"}, {"call_id", "a"}, {"name", "a"}}), "input[0]: arguments"},
      {item({{"type", "function_call_output"}, {"call_id", "a"}}), "input[0]: output"},
      {item({{"type", "item_reference"}, {"id", "a"}}), "input[0]: id"},
      {item({{"type", "item_reference"}}), "input[0]: id"},
      {item({{"type", "web_search_call"}}), "input"},
      {{{"input", "a"}, {"instructions", 5}}, "instructions"},
      {{{"input", "a"}, {"previous_response_id", 5}}, "previous_response_id"},
      {{{"input", "a"}, {"previous_response_id", "resp_a"}}, "previous_response_id"},
      {{{"input", "a"}, {"tools", "a"}}, "tools"},
      {{{"input", "a"}, {"tools", {"a"}}}, "tools[0]: type"},
      {{{"input", "a"}, {"tools", {{{"type", "function"}}}}}, "tools[0]: name"},
      {{{"input", "a"}, {"tools", {tool, tool}}}, "tools[1]: name"},
      {{{"input", "a"}, {"tools", {{{"type", "namespace"}, {"name", "a"}, {"tools", 5}}}}}, "tools[0]: tools"},
      {{{"input", "a"}, {"tools", {{{"type", "namespace"}, {"name", "a"}, {"tools", {{{"type", "custom"}}}}}}}},
       "tools[0]: tools[0]: name"},
      {{{"input", "a"}, {"tool_choice", "all"}}, "tool_choice"},
      {{{"input", "a"}, {"tool_choice", "required"}}, "tool_choice"},
      {{{"input", "a"}, {"tools", {tool}}, {"tool_choice", {{"type", "custom"}, {"name", "b"}}}}, "tool_choice"},
      {{{"input", "a"}, {"text", "json"}}, "text"},
      {{{"input", "a"}, {"text", {{"format", {{"type", "xml"}}}}}}, "text.format"},
      {{{"input", "a"}, {"text", {{"format", {{"type", "json_schema"}}}}}}, "text.format"},
      {{{"input", "a"}, {"reasoning", "high"}}, "reasoning"},
      {{{"input", "a"}, {"reasoning", {{"effort", 5}}}}, "reasoning: effort"},
      {{{"input", "a"}, {"max_output_tokens", 0}}, "max_output_tokens"},
      {{{"input", "a"}, {"store", "yes"}}, "store"},
      {{{"input", "a"}, {"metadata", "a"}}, "metadata"},
      {{{"input", "a"}, {"truncation", "some"}}, "truncation"},
      {{{"input", "a"}, {"include", {5}}}, "include"},
      {{{"input", "a"}, {"top_logprobs", 1000}}, "top_logprobs"},
      {{{"input", "a"}, {"background", true}}, "background"},
      {{{"input", "a"}, {"conversation", "conv_a"}}, "conversation"},
      {{{"prompt", {{"id", "pmpt_a"}}}}, "input"},
  };
  for (const auto& [request, field] : mistakes) {
    const json failure = server.post("/v1/responses", request, 400)["error"];
    const std::string words = failure["message"];
    EXPECT_EQ(failure["param"], field) << words;
    EXPECT_EQ(failure["type"], "invalid_request_error") << words;
    EXPECT_NE(words.find(field), std::string::npos) << words;
    EXPECT_EQ(words.find('\n'), std::string::npos) << words;
  }
  std::string words;
  for (int i = 0; i < 600; ++i) words += "owl ";
  const json failure = responses(server, {{"input", words}}, 400)["error"];
  EXPECT_EQ(failure["param"], "input");
  EXPECT_EQ(failure["code"], "context_length_exceeded");
  const json turns = {{{"role", "user"}, {"content", words}},
                      {{"role", "assistant"}, {"content", "I."}},
                      {{"role", "user"}, {"content", "Who are you?"}}};
  responses(server, {{"input", turns}, {"truncation", "auto"}, {"max_output_tokens", 2}});
}

}  // namespace
}  // namespace pinion
