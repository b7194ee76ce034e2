// OpenAI's Responses API: what requests become, the request of a client, mistakes.
#include "tests/apps/responses.h"

namespace pinion {
namespace {

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
