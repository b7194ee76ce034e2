// The APIs of Anthropic and Ollama, and the official clients.
#include "tests/apps/server.h"

namespace pinion {
namespace {

const json kStory = {{{"role", "user"}, {"content", "Tell me a story about an owl."}}};

std::string chatted(const Server& server, const json& messages) {
  return server.post("/v1/chat/completions",
                     {{"messages", messages}, {"max_tokens", 40}, {"seed", 3}})["choices"][0]["message"]["content"];
}

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
  const json request = {{"messages", kStory}, {"max_tokens", 40}, {"seed", 3}};
  const json whole = server.post("/v1/messages", request);
  EXPECT_EQ(whole["type"], "message");
  ASSERT_EQ(whole["content"].size(), 1);
  EXPECT_EQ(whole["content"][0], json({{"type", "text"}, {"text", chatted(server, kStory)}}));
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
  EXPECT_EQ(server.post("/v1/messages/count_tokens", {{"messages", kStory}})["input_tokens"],
            server.post("/v1/chat/completions", {{"messages", kStory}, {"max_tokens", 1}})["usage"]["prompt_tokens"]);
}

TEST(ServeApis, AnthropicErrors) {
  Server server(kDemo);
  const std::pair<json, std::string> mistakes[] = {
      {{{"messages", kStory}}, "max_tokens"},
      {{{"messages", json::array()}, {"max_tokens", 1}}, "messages"},
      {{{"messages", {{{"role", "tool"}, {"content", "a"}}}}, {"max_tokens", 1}}, "role"},
      {{{"messages", {{{"role", "user"}, {"content", {{{"type", "image"}}}}}}}, {"max_tokens", 1}}, "image"},
      {{{"messages", kStory}, {"max_tokens", 1}, {"tool_choice", {{"type", "any"}}}}, "tools"},
      {{{"messages", kStory}, {"max_tokens", 1}, {"tools", {{"name", "a"}}}}, "tools"},
      {{{"messages", kStory}, {"max_tokens", 1}, {"thinking", {{"type", "much"}}}}, "thinking"},
      {{{"messages", kStory}, {"max_tokens", 1}, {"thinking", true}}, "thinking"},
  };
  for (const auto& [request, words] : mistakes) {
    const json answer = server.post("/v1/messages", request, 400);
    EXPECT_EQ(answer["type"], "error");
    EXPECT_EQ(answer["error"]["type"], "invalid_request_error");
    EXPECT_NE(answer["error"]["message"].get<std::string>().find(words), std::string::npos) << answer;
  }
}

TEST(ServeApis, OllamaChatAndGenerate) {
  Server server(kDemo);
  int major = 0, minor = 0, patch = 0;
  const json version = json::parse(server.get("/api/version"));
  const std::string spoken = version["version"];
  EXPECT_EQ(std::sscanf(spoken.c_str(), "%d.%d.%d", &major, &minor, &patch), 3);
  EXPECT_GE(std::tuple(major, minor, patch), std::tuple(0, 6, 4)) << "clients refuse older ones";
  EXPECT_TRUE(version["pinion"].is_string());
  EXPECT_EQ(json::parse(server.get("/api/tags"))["models"][0]["name"], "demo");
  EXPECT_EQ(server.post("/api/show", {{"model", "demo"}})["capabilities"][0], "completion");
  const json options = {{"seed", 3}, {"num_predict", 40}};
  const json whole = server.post("/api/chat", {{"messages", kStory}, {"options", options}, {"stream", false}});
  const std::string said = whole["message"]["content"];
  EXPECT_EQ(said, chatted(server, kStory));
  EXPECT_EQ(whole["done"], true);
  EXPECT_EQ(server.post("/api/generate",
                        {{"prompt", kStory[0]["content"]}, {"options", options}, {"stream", false}})["response"],
            said);
  // Ollama streams by default.
  const std::string lines =
      server.client()
          .Post("/api/chat", json({{"messages", kStory}, {"options", options}}).dump(), "application/json")
          ->body;
  std::string joined;
  for (size_t at = 0, end; at < lines.size(); at = end + 1) {
    end = lines.find('\n', at);
    const json line = json::parse(lines.substr(at, end - at));
    joined += line["message"]["content"];
    EXPECT_EQ(line["done"], end + 1 == lines.size());
  }
  EXPECT_EQ(joined, said);
  EXPECT_TRUE(server.post("/api/nothing", json::object(), 404)["error"].is_string());
}

TEST(ServeApis, OllamaPreloadAndUnsupported) {
  Server server(kDemo);
  for (const json& nothing : {json::object(), json({{"messages", json::array()}, {"prompt", ""}, {"stream", false}})}) {
    const json chat = server.post("/api/chat", nothing), generate = server.post("/api/generate", nothing);
    EXPECT_EQ(chat["message"], json({{"role", "assistant"}, {"content", ""}}));
    EXPECT_EQ(generate["response"], "");
    for (const json& answer : {chat, generate}) {
      EXPECT_EQ(answer["done"], true);
      EXPECT_EQ(answer["done_reason"], "load");
    }
  }
  const json running = json::parse(server.get("/api/ps"))["models"];
  EXPECT_EQ(running[0]["name"], "demo");
  EXPECT_GT(running[0]["context_length"], 0);
  EXPECT_TRUE(server.post("/api/embed", {{"input", "a"}}, 501)["error"].is_string());
  const json picture = json::array({"iVBORw0KGgo="});
  const json messages = {{{"role", "user"}, {"content", "What is it?"}, {"images", picture}}};
  for (const auto& [path, body, field] :
       {std::tuple<const char*, json, const char*>{"/api/chat", {{"messages", messages}}, "images"},
        {"/api/generate", {{"prompt", "What?"}, {"images", picture}}, "images"},
        {"/api/generate", {{"prompt", "What?"}, {"think", "much"}}, "think"},
        {"/api/chat", {{"messages", kStory}, {"think", 1}}, "think"}}) {
    const std::string words = server.post(path, body, 400)["error"];
    EXPECT_NE(words.find(field), std::string::npos) << words;
  }
}

TEST(ServeApis, OllamaModels) {
  const Folder model;
  copy_stories(model);
  write_file(model.path / "chat_template.jinja",
             "{% if tools %}<tool_call>\n{\"name\": ..., \"arguments\": ...}\n</tool_call>{% endif %}{% if "
             "enable_thinking %}a{% endif %}");
  Server server(model.path);
  const json tags = json::parse(server.get("/api/tags"))["models"][0];
  EXPECT_EQ(tags["capabilities"], json({"completion", "tools", "thinking"}));
  EXPECT_EQ(server.post("/api/show", {{"model", "x"}})["capabilities"], tags["capabilities"]);
  const std::string name = tags["name"];
  EXPECT_EQ(server.post("/api/pull", {{"model", name}, {"stream", false}}), json({{"status", "success"}}));
  EXPECT_EQ(server.post("/api/pull", {{"name", name + ":latest"}, {"stream", false}}), json({{"status", "success"}}));
  const httplib::Result streamed =
      server.client().Post("/api/pull", json({{"model", name}}).dump(), "application/json");
  EXPECT_EQ(streamed->get_header_value("Content-Type"), "application/x-ndjson");
  EXPECT_TRUE(streamed->body.ends_with("\n{\"status\":\"success\"}\n")) << streamed->body;
  EXPECT_NE(server.post("/api/pull", {{"model", "other"}}, 404)["error"].get<std::string>().find(name),
            std::string::npos);
  server.post("/api/pull", json::object(), 400);
}

TEST(ServeApis, OllamaLogprobsEqualOpenais) {
  Server server(kDemo);
  json body = {{"messages", kStory}, {"logprobs", true}, {"top_logprobs", 2}, {"max_tokens", 5}, {"seed", 3}};
  const json expected = server.post("/v1/chat/completions", body)["choices"][0]["logprobs"]["content"];
  ASSERT_EQ(expected.size(), 5);
  body.update({{"stream", false}, {"options", {{"num_predict", 5}, {"seed", 3}}}});
  body.erase("max_tokens");
  EXPECT_EQ(server.post("/api/chat", body)["logprobs"], expected);
  body["stream"] = true;
  const std::string lines = server.client().Post("/api/chat", body.dump(), "application/json")->body;
  json all = json::array();
  for (size_t at = 0, end; at < lines.size(); at = end + 1) {
    end = lines.find('\n', at);
    const json line = json::parse(lines.substr(at, end - at));
    for (const json& each : line.value("logprobs", json::array())) all.push_back(each);
  }
  EXPECT_EQ(all, expected);
  EXPECT_FALSE(server.post("/api/chat", {{"messages", kStory}, {"stream", false}}).contains("logprobs"));
  server.post("/api/chat", {{"messages", kStory}, {"logprobs", true}, {"top_logprobs", 101}}, 400);
}

// The oldest turns make room; the system message and the last turn stay.
TEST(ServeApis, OllamaTruncatesConversations) {
  Server server(kDemo, {"--context", "256"});
  std::string words;
  for (int i = 0; i < 150; ++i) words += "word ";
  const json system = {{"role", "system"}, {"content", "Be brief."}}, old = {{"role", "user"}, {"content", words}};
  const json answer = {{"role", "assistant"}, {"content", words}},
             last = {{"role", "user"}, {"content", "Who are you?"}};
  const json options = {{"num_predict", 4}, {"temperature", 0}};
  const auto request = [&](const json& messages) {
    return json({{"messages", messages}, {"options", options}, {"stream", false}});
  };
  json body = request({system, old, answer, old, last});
  const httplib::Result result = server.client().Post("/api/chat", body.dump(), "application/json");
  ASSERT_EQ(result->status, 200) << result->body;
  EXPECT_EQ(result->get_header_value("X-Pinion-Ignored"), "messages: oldest turns (1)");
  const json found = json::parse(result->body), expected = server.post("/api/chat", request({system, old, last}));
  EXPECT_EQ(found["message"], expected["message"]);
  EXPECT_EQ(found["prompt_eval_count"], expected["prompt_eval_count"]);
  json many = json::array({system});
  for (int i = 0; i < 500; ++i) many.push_back(i % 2 ? answer : old);
  many.push_back(last);
  EXPECT_LE(server.post("/api/chat", request(many))["prompt_eval_count"].get<int64_t>(), 252);
  body["truncate"] = false;
  EXPECT_NE(server.post("/api/chat", body, 400)["error"].get<std::string>().find("too long"), std::string::npos);
  EXPECT_NE(
      server.post("/api/chat", request({{{"role", "user"}, {"content", words + words}}}), 400).dump().find("too long"),
      std::string::npos);
}

// "think" sets variables of the template.
TEST(ServeApis, ThinkSetsTemplateVariables) {
  const Folder model;
  copy_stories(model);
  write_file(model.path / "chat_template.jinja", "{{ reasoning_effort }}/{{ enable_thinking }}");
  Server server(model.path);
  const auto prompt_tokens = [&](const json& think) {
    return server
        .post("/api/chat", {{"messages", kStory},
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
  const json effort = {{"messages", kStory}, {"max_tokens", 1}, {"output_config", {{"effort", "medium"}}}};
  EXPECT_EQ(server.post("/v1/messages", effort)["usage"]["input_tokens"], tokens_of("medium/"));
  for (const auto& [level, text] : {std::pair("high", "high/"), {"none", "none/False"}}) {
    const json body = {{"messages", kStory}, {"max_tokens", 1}, {"reasoning_effort", level}};
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
  json request = {{"messages", kStory},
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
  json request = {{"messages", kStory}, {"max_tokens", 9}, {"seed", 1}, {"thinking", {{"type", "disabled"}}}};
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
  Server server(kDemo);
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
