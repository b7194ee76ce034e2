// The API of Anthropic, features that all APIs share, and the official clients.
#include "tests/apps/server.h"

namespace pinion {
namespace {

// Events of a stream by name.
std::vector<json> events(const Server& server, json body) {
  body["stream"] = true;
  const std::string text = server.client().Post("/v1/messages", body.dump(), "application/json")->body;
  std::vector<json> list;
  for (size_t at = 0; at < text.size();) {
    const size_t end = text.find("\n\n", at), line = text.find('\n', at);
    const json event = json::parse(text.substr(line + 7, end - line - 7), nullptr, false);
    EXPECT_EQ(text.substr(at, line - at), "event: " + event.value("type", "")) << text.substr(at, end - at);
    list.push_back(event);
    at = end + 2;
  }
  return list;
}

TEST(ServeApis, AnthropicMessages) {
  Server server(kDemo);
  const json request = {{"messages", kOwlStory}, {"max_tokens", 40}, {"seed", 3}};
  const json whole = server.post("/v1/messages", request);
  EXPECT_EQ(whole["type"], "message");
  ASSERT_EQ(whole["content"].size(), 1);
  EXPECT_EQ(whole["content"][0], json({{"type", "text"}, {"text", chatted(server, kOwlStory)}}));
  std::vector<std::string> names;
  std::string text;
  json last;
  for (const json& event : events(server, request)) {
    if (names.empty() || event["type"] != names.back()) names.push_back(event["type"]);
    if (event["type"] == "content_block_delta") text += event["delta"]["text"];
    if (event["type"] == "message_delta") last = event;
  }
  EXPECT_EQ(names, (std::vector<std::string>{"message_start", "content_block_start", "content_block_delta",
                                             "content_block_stop", "message_delta", "message_stop"}));
  EXPECT_EQ(text, whole["content"][0]["text"].get<std::string>());
  EXPECT_EQ(last["delta"]["stop_reason"], whole["stop_reason"]);
  EXPECT_EQ(last["usage"]["output_tokens"], whole["usage"]["output_tokens"]);
  // Blocks, a system message and tool results give the same prompt as OpenAI's format.
  const json blocks = {
      {{"role", "user"}, {"content", {{{"type", "text"}, {"text", "Tell me a story about an owl."}}}}}};
  EXPECT_EQ(server.post("/v1/messages", {{"messages", blocks}, {"max_tokens", 40}, {"seed", 3}})["content"],
            whole["content"]);
  EXPECT_EQ(
      server.post("/v1/messages/count_tokens", {{"messages", kOwlStory}})["input_tokens"],
      server.post("/v1/chat/completions", {{"messages", kOwlStory}, {"max_tokens", 1}})["usage"]["prompt_tokens"]);
}

TEST(ServeApis, AnthropicErrors) {
  Server server(kDemo);
  const std::pair<json, std::string> mistakes[] = {
      {{{"messages", kOwlStory}}, "max_tokens"},
      {{{"messages", json::array()}, {"max_tokens", 1}}, "messages"},
      {{{"messages", {{{"role", "tool"}, {"content", "a"}}}}, {"max_tokens", 1}}, "role"},
      {{{"messages", {{{"role", "user"}, {"content", {{{"type", "image"}}}}}}}, {"max_tokens", 1}}, "image"},
      {{{"messages", kOwlStory}, {"max_tokens", 1}, {"tool_choice", {{"type", "any"}}}}, "tools"},
      {{{"messages", kOwlStory}, {"max_tokens", 1}, {"tools", {{"name", "a"}}}}, "tools"},
      {{{"messages", kOwlStory}, {"max_tokens", 1}, {"thinking", {{"type", "much"}}}}, "thinking"},
      {{{"messages", kOwlStory}, {"max_tokens", 1}, {"thinking", true}}, "thinking"},
  };
  for (const auto& [request, words] : mistakes) {
    const json answer = server.post("/v1/messages", request, 400);
    EXPECT_EQ(answer["type"], "error");
    EXPECT_EQ(answer["error"]["type"], "invalid_request_error");
    EXPECT_NE(answer["error"]["message"].get<std::string>().find(words), std::string::npos) << answer;
  }
}

// "think" sets variables of the template.
TEST(ServeApis, ThinkSetsTemplateVariables) {
  const Folder model;
  copy_stories(model);
  write_file(model.path / "chat_template.jinja", "{{ reasoning_effort }}/{{ enable_thinking }}");
  Server server(model.path);
  const auto prompt_tokens = [&](const json& think) {
    return server
        .post("/api/chat", {{"messages", kOwlStory},
                            {"think", think},
                            {"stream", false},
                            {"options", {{"num_predict", 1}}}})["prompt_eval_count"]
        .get<size_t>();
  };
  const auto tokens_of = [&](const std::string& text) {
    return server.post("/tokenize", {{"content", text}})["count"].get<size_t>();
  };
  EXPECT_EQ(prompt_tokens("medium"), tokens_of("medium/True"));
  EXPECT_EQ(prompt_tokens(false), tokens_of("/False"));
  const json effort = {{"messages", kOwlStory}, {"max_tokens", 1}, {"output_config", {{"effort", "medium"}}}};
  EXPECT_EQ(server.post("/v1/messages", effort)["usage"]["input_tokens"], tokens_of("medium/"));
  for (const auto& [level, text] : {std::pair("high", "high/"), {"none", "none/False"}}) {
    const json body = {{"messages", kOwlStory}, {"max_tokens", 1}, {"reasoning_effort", level}};
    EXPECT_EQ(server.post("/v1/chat/completions", body)["usage"]["prompt_tokens"], tokens_of(text));
  }
  EXPECT_NE(tokens_of("medium/True"), tokens_of("/False"));
}

// The stories model, which generates one token only: a complete tool call.
struct Caller : Folder {
  Caller() {
    copy_stories(*this);
    write_file(path / "chat_template.jinja",
               "{% if tools %}<tool_call>\n{\"name\": ..., \"arguments\": ...}\n</tool_call>{% endif %}"
               "{% for m in messages %}{{ m.content }}\n{% endfor %}");
    json tokenizer = read_json(path / "tokenizer.json");
    json& vocabulary = tokenizer["model"]["vocab"];
    token = vocabulary["é"];
    vocabulary.erase("é");
    vocabulary["<tool_call>{\"name\":\"weather\",\"arguments\":{}}</tool_call>"] = token;
    write_file(path / "tokenizer.json", tokenizer.dump());
  }
  int32_t token;
};

TEST(ServeApis, SingleToolCallEndsReply) {
  const Caller model;
  Server server(model.path);
  const json schema = {{"name", "weather"}, {"parameters", {{"type", "object"}}}};
  json request = {{"messages", kOwlStory},
                  {"tools", {{{"type", "function"}, {"function", schema}}}},
                  {"max_tokens", 4},
                  {"n", 2},
                  {"logit_bias", {{std::to_string(model.token), 100}}}};
  const json all = server.post("/v1/chat/completions", request);
  EXPECT_EQ(all["choices"][0]["message"]["tool_calls"].size(), 4);
  EXPECT_EQ(all["usage"]["completion_tokens"], 8);
  request["parallel_tool_calls"] = false;
  const json one = server.post("/v1/chat/completions", request);
  for (const json& choice : one["choices"]) {
    EXPECT_EQ(choice["message"]["tool_calls"].size(), 1);
    EXPECT_EQ(choice["finish_reason"], "tool_calls");
  }
  EXPECT_EQ(one["usage"]["completion_tokens"], 2);
  request["tools"] = json::array({schema});
  request["tool_choice"] = {{"type", "auto"}};
  EXPECT_EQ(server.post("/v1/messages", request)["content"].size(), 4);
  request["tool_choice"]["disable_parallel_tool_use"] = true;
  const json message = server.post("/v1/messages", request);
  EXPECT_EQ(message["content"].size(), 1);
  EXPECT_EQ(message["content"][0]["name"], "weather");
  EXPECT_EQ(message["stop_reason"], "tool_use");
  EXPECT_EQ(message["usage"]["output_tokens"], 1);
}

// Anthropic's own tools have no schema; fields of Claude Code that change nothing or are left out.
TEST(ServeApis, AnthropicToolsOfTheServerAreLeftOut) {
  const Caller model;
  Server server(model.path);
  const json own = {{"name", "weather"}, {"input_schema", {{"type", "object"}}}};
  const json cached = {{"type", "text"}, {"text", "Who?"}, {"cache_control", {{"type", "ephemeral"}}}};
  const json request = {{"messages", {{{"role", "user"}, {"content", {cached}}}}}, {"max_tokens", 1}, {"tools", {own}}};
  json more = request;
  more["tools"].push_back({{"type", "web_search_20250305"}, {"name", "web_search"}, {"max_uses", 3}});
  more["tools"].push_back({{"type", "bash_20250124"}, {"name", "bash"}});
  more["tools"][0]["type"] = "custom";
  more["tools"][0]["cache_control"] = {{"type", "ephemeral"}};
  more.update({{"thinking", {{"type", "adaptive"}}},
               {"output_config", {{"effort", "high"}}},
               {"metadata", {{"user_id", "a"}}},
               {"context_management", {{"edits", json::array()}}}});
  const auto post = [&](const char* path, const json& body) {
    return server.client().Post(path, body.dump(), "application/json");
  };
  const httplib::Result found = post("/v1/messages?beta=true", more), expected = post("/v1/messages", request);
  ASSERT_EQ(found->status, 200) << found->body;
  const auto tokens = [](const httplib::Result& result) {
    const json usage = json::parse(result->body)["usage"];
    return usage["input_tokens"].get<int>() + usage["cache_read_input_tokens"].get<int>();
  };
  EXPECT_EQ(tokens(found), tokens(expected));
  EXPECT_EQ(found->get_header_value("X-Pinion-Ignored"),
            "tools: web_search_20250305, tools: bash_20250124, context_management");
}

TEST(ServeApis, AnthropicThinkingBlocks) {
  const Folder model;
  copy_stories(model);
  write_file(model.path / "chat_template.jinja", "{% if enable_thinking %}<think>\n{% else %}No.{% endif %}");
  Server server(model.path);
  json request = {{"messages", kOwlStory}, {"max_tokens", 9}, {"seed", 1}, {"thinking", {{"type", "disabled"}}}};
  EXPECT_EQ(server.post("/v1/messages", request)["content"][0]["type"], "text");
  request["thinking"] = {{"type", "enabled"}, {"budget_tokens", 1024}};
  const json block = server.post("/v1/messages", request)["content"][0];
  EXPECT_EQ(block["type"], "thinking");
  EXPECT_EQ(block["signature"].get<std::string>().size(), 16);
  std::string thought, signature;
  for (const json& event : events(server, request)) {
    if (event["type"] == "content_block_start") {
      EXPECT_EQ(event["content_block"]["signature"], "");
    }
    if (event["type"] != "content_block_delta") continue;
    EXPECT_EQ(signature, "") << "after it " << event;
    thought += event["delta"].value("thinking", "");
    signature += event["delta"].value("signature", "");
  }
  EXPECT_EQ(thought, block["thinking"].get<std::string>());
  EXPECT_EQ(signature, block["signature"].get<std::string>());
}

json begun(const json& answer) { return {{{"role", "user"}, {"content", "Who are you?"}}, answer}; }

json assistant(const json& content) { return {{"role", "assistant"}, {"content", content}}; }

// The reply is the rest of the answer only, with its leading blank.
TEST(ServeApis, BegunAnswersGoOn) {
  Server server(kDemo);
  const std::string rest = " small demo model.";
  const json who = begun(assistant("I am Pinion's"));
  const auto openai = [&](const json& messages, json more) {
    more.update({{"messages", messages}, {"max_tokens", 12}, {"temperature", 0}});
    return server.post("/v1/chat/completions", more);
  };
  const auto content = [](const json& reply) -> std::string { return reply["choices"][0]["message"]["content"]; };
  const json both = {{"continue_final_message", true}, {"add_generation_prompt", false}};
  const json whole = openai(who, both);
  EXPECT_EQ(content(whole), rest);
  const json tokens = server.post(
      "/tokenize", {{"content", "<|user|>Who are you?<|end|><|assistant|>I am Pinion's"}, {"add_special", true}});
  EXPECT_EQ(whole["usage"]["prompt_tokens"], tokens["tokens"].size()) << "with the beginning";
  EXPECT_EQ(content(openai(who, {{"continue_final_message", true}})), rest);
  json prefix = who,
       parts = begun(assistant({{{"type", "text"}, {"text", "I am"}}, {{"type", "text"}, {"text", " Pinion's"}}}));
  prefix[1]["prefix"] = true;
  EXPECT_EQ(content(openai(prefix, json::object())), rest);
  EXPECT_EQ(content(openai(parts, both)), rest);
  EXPECT_EQ(content(openai(begun(assistant("I am Pinion's \n")), both)), rest) << "the template trims";
  json streamed = both, logprobs = both;
  streamed.update({{"messages", who}, {"max_tokens", 12}, {"temperature", 0}});
  std::string text;
  for (const json& chunk : server.stream("/v1/chat/completions", streamed)) {
    text += chunk["choices"][0]["delta"].value("content", "");
  }
  EXPECT_EQ(text, rest);
  logprobs["logprobs"] = true;
  EXPECT_EQ(openai(who, logprobs)["choices"][0]["logprobs"]["content"][0]["token"], " small");
  // Without the fields a new turn begins, or with add_generation_prompt false none.
  EXPECT_NE(content(openai(who, json::object())), rest);
  const json no_turn = openai(who, {{"add_generation_prompt", false}});
  EXPECT_EQ(no_turn["usage"]["prompt_tokens"].get<int>() + 1,
            openai(who, json::object())["usage"]["prompt_tokens"].get<int>());

  const json anthropic = {{"messages", who}, {"max_tokens", 12}, {"temperature", 0}};
  EXPECT_EQ(server.post("/v1/messages", anthropic)["content"][0]["text"], rest);
  EXPECT_EQ(server.post("/v1/messages/count_tokens", anthropic)["input_tokens"], whole["usage"]["prompt_tokens"]);
  text.clear();
  for (const json& event : events(server, anthropic)) {
    if (event["type"] == "content_block_delta") text += event["delta"]["text"];
  }
  EXPECT_EQ(text, rest);
  const json tool = {{"name", "find"}, {"input_schema", {{"type", "object"}}}};
  EXPECT_EQ(
      server.post("/v1/messages",
                  {{"messages", who}, {"max_tokens", 12}, {"temperature", 0}, {"tools", {tool}}})["content"][0]["text"],
      rest);
  const json ollama = {{"messages", who}, {"stream", false}, {"options", {{"temperature", 0}, {"num_predict", 12}}}};
  EXPECT_EQ(server.post("/api/chat", ollama)["message"]["content"], rest);
}

TEST(ServeApis, BegunAnswersThatCannotGoOn) {
  Server server(kDemo);
  json calls = assistant(nullptr);
  calls["tool_calls"] = {{{"id", "a"}, {"type", "function"}, {"function", {{"name", "f"}, {"arguments", "{}"}}}}};
  const json block = {{"type", "tool_use"}, {"id", "a"}, {"name", "f"}, {"input", json::object()}};
  const std::tuple<const char*, json, const char*> cases[] = {
      {"/v1/chat/completions",
       {{"messages", begun(assistant("I"))}, {"continue_final_message", true}, {"add_generation_prompt", true}},
       "add_generation_prompt"},
      {"/v1/chat/completions", {{"messages", begun(assistant("I"))}, {"continue_final_message", "yes"}}, "wrong type"},
      {"/v1/chat/completions", {{"messages", begun(calls)}, {"continue_final_message", true}}, "tool calls"},
      {"/v1/chat/completions", {{"messages", begun(assistant(nullptr))}, {"continue_final_message", true}}, "no text"},
      {"/v1/chat/completions",
       {{"messages", begun({{"role", "assistant"}, {"reasoning_content", "I"}})}, {"continue_final_message", true}},
       "changes the text"},
      {"/v1/messages", {{"messages", begun(assistant("I "))}, {"max_tokens", 1}}, "white space"},
      {"/v1/messages", {{"messages", begun(assistant(json::array({block})))}, {"max_tokens", 1}}, "tool calls"},
      {"/api/chat", {{"messages", begun(calls)}, {"stream", false}}, "tool calls"},
  };
  for (const auto& [path, request, words] : cases) {
    const std::string failure = server.post(path, request, 400)["error"].dump();
    EXPECT_NE(failure.find(words), std::string::npos) << failure;
    EXPECT_EQ(failure.find(kDemo), std::string::npos) << "a path of this machine: " << failure;
  }
}

// The beginning may open a thought or be one.
TEST(ServeApis, BegunThoughtsGoOn) {
  const Folder model;
  copy_stories(model);
  write_file(model.path / "chat_template.jinja",
             "{% for m in messages %}{% if m.reasoning_content %}<think>\n{{ m.reasoning_content }}\n</think>\n\n"
             "{% endif %}{{ m.content }}\n{% endfor %}");
  Server server(model.path);
  const auto message = [&](json answer) {
    answer["role"] = "assistant";
    return server.post("/v1/chat/completions", {{"messages", begun(answer)},
                                                {"continue_final_message", true},
                                                {"max_tokens", 6},
                                                {"temperature", 0}})["choices"][0]["message"];
  };
  const std::string text = message({{"content", "Once upon a"}})["content"];
  EXPECT_TRUE(text.starts_with(" ")) << text;
  for (const json& answer : {json{{"content", "<think>\nOnce upon a"}}, json{{"reasoning_content", "Once upon a"}}}) {
    const json thought = message(answer);
    EXPECT_TRUE(thought["reasoning_content"].get<std::string>().starts_with(" ")) << thought;
    EXPECT_EQ(thought["content"], "");
  }
  EXPECT_FALSE(message({{"reasoning_content", "hm"}, {"content", ""}}).contains("reasoning_content"));
  EXPECT_FALSE(message({{"content", "<think>hm</think>Once"}}).contains("reasoning_content"));
  const json thinking = {{{"type", "thinking"}, {"thinking", "hm"}}, {{"type", "text"}, {"text", "Once upon a"}}};
  EXPECT_EQ(
      server.post("/v1/messages", {{"messages", begun(assistant(thinking))}, {"max_tokens", 6}})["content"][0]["type"],
      "text");
}

// The clients from PyPI, if installed: `pip install openai anthropic ollama`.
TEST(ServeApis, OfficialClientsWork) {
  Server server(kDemo, {"--pooling", "mean"});
  const Folder folder;
  const std::string url = "http://127.0.0.1:" + std::to_string(server.port());
  const std::string command = "PATH=" PINION_SOURCE_DIR "/build/deps/clients/bin:$PATH python3 " PINION_SOURCE_DIR
                              "/tests/apps/clients.py " +
                              url + " >" + quoted(folder / "out") + " 2>&1";
  const int status = std::system(command.c_str());
  if (WEXITSTATUS(status) == 77 || WEXITSTATUS(status) == 127) {
    GTEST_SKIP() << read_file(folder / "out") << "`tools/setup clients` installs them";
  }
  EXPECT_EQ(status, 0) << read_file(folder / "out") << server.errors();
}

}  // namespace
}  // namespace pinion
