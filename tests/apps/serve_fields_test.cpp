// Fields of requests: none that changes an answer is dropped unnoticed. Values that other servers take.
#include "tests/apps/server.h"

namespace pinion {
namespace {

const json kQuestion = {{{"role", "user"}, {"content", "Who are you?"}}};

json chat_request(const json& fields = json::object()) {
  json body = {{"messages", kQuestion}, {"max_tokens", 25}, {"temperature", 0}};
  body.update(fields);
  return body;
}

json completed(const Server& server, const json& fields = json::object()) {
  json body = {{"prompt", "Once upon a time"}, {"max_tokens", 20}, {"temperature", 0}, {"return_token_ids", true}};
  body.update(fields);
  return server.post("/v1/completions", body)["choices"][0];
}

std::string ignored(const Server& server, const std::string& path, const json& body) {
  const httplib::Result result = server.client().Post(path, body.dump(), "application/json");
  EXPECT_TRUE(result);
  EXPECT_EQ(result->status, 200) << result->body;
  return result->get_header_value("X-Pinion-Ignored");
}

size_t count(const std::string& text, const std::string& word) {
  size_t found = 0;
  for (size_t at = 0; (at = text.find(word, at)) != text.npos; at += word.size()) ++found;
  return found;
}

TEST(ServeFields, AllowedAndBannedTokens) {
  Server server(kDemo);
  const json plain = completed(server);
  const std::vector<int32_t> ids = plain["token_ids"];
  const json only = completed(server, {{"allowed_token_ids", {ids[3]}}});
  EXPECT_EQ(only["token_ids"], json(std::vector<int32_t>(20, ids[3])));
  const std::string text = plain["text"], word = text.substr(0, text.find(' ', 1));
  const json without = completed(server, {{"bad_words", {word.substr(word.find_first_not_of(' '))}}});
  EXPECT_FALSE(without["text"].get<std::string>().starts_with(word)) << without;
  // All fields of the bug report at once.
  const json all = {{"min_tokens", 20},      {"stop_token_ids", {401}},       {"bad_words", {"am"}},
                    {"repeat_penalty", 5.0}, {"allowed_token_ids", {ids[3]}}, {"xtc_probability", 1.0}};
  const json message = server.post("/v1/chat/completions", chat_request(all))["choices"][0];
  const std::string piece = server.post("/detokenize", {{"tokens", {ids[3]}}})["content"];
  EXPECT_EQ(count(message["message"]["content"], piece), 25) << message;
  const json failure = server.post(
      "/v1/completions",
      {{"prompt", "a"}, {"allowed_token_ids", {ids[3]}}, {"stop_token_ids", {ids[3]}}, {"min_tokens", 2}}, 400);
  EXPECT_NE(failure["error"]["message"].get<std::string>().find("no allowed token is left"), std::string::npos);
}

TEST(ServeFields, MinimumAndStopTokens) {
  Server server(kDemo);
  const json chat = server.post("/v1/chat/completions", chat_request());
  const int64_t tokens = chat["usage"]["completion_tokens"];
  ASSERT_LT(tokens, 20);
  const json longer = server.post("/v1/chat/completions", chat_request({{"min_tokens", 20}}));
  EXPECT_GE(longer["usage"]["completion_tokens"].get<int64_t>(), 20);
  const std::vector<int32_t> ids = completed(server)["token_ids"];
  const auto first = std::ranges::find(ids, ids[5]) - ids.begin();
  const json stopped = completed(server, {{"stop_token_ids", {ids[5]}}, {"ignore_eos", true}});
  EXPECT_EQ(stopped["token_ids"], json(std::vector<int32_t>(ids.begin(), ids.begin() + first)));
  EXPECT_EQ(stopped["finish_reason"], "stop");
  const json later = completed(server, {{"stop_token_ids", {ids[5]}}, {"min_tokens", first + 1}});
  EXPECT_GT(later["token_ids"].size(), static_cast<size_t>(first));
  const json failure = server.post(
      "/v1/chat/completions", chat_request({{"min_tokens", 9}, {"response_format", {{"type", "json_object"}}}}), 400);
  EXPECT_EQ(failure["error"]["param"], "min_tokens");
}

TEST(ServeFields, StopTextsAndPromptLength) {
  Server server(kDemo);
  const std::string text = completed(server)["text"];
  const std::string stop = text.substr(10, 4);
  const std::string before = text.substr(0, text.find(stop));
  EXPECT_EQ(completed(server, {{"stop", stop}})["text"], before);
  EXPECT_EQ(completed(server, {{"stop", stop}, {"include_stop_str_in_output", true}})["text"], before + stop);
  const json chunks = server.stream(
      "/v1/completions",
      {{"prompt", "Once upon a time"}, {"temperature", 0}, {"stop", stop}, {"include_stop_str_in_output", true}});
  std::string streamed;
  for (const json& chunk : chunks) streamed += chunk["choices"][0]["text"];
  EXPECT_EQ(streamed, before + stop);
  const json ids = {1, 5, 9, 12, 40};
  const json two = {{"prompt", ids}, {"truncate_prompt_tokens", 2}, {"temperature", 0}, {"max_tokens", 4}};
  const json answer = server.post("/v1/completions", two);
  EXPECT_EQ(answer["usage"]["prompt_tokens"], 2);
  json shorter = two;
  shorter["prompt"] = {12, 40};
  EXPECT_EQ(answer["choices"], server.post("/v1/completions", shorter)["choices"]);
  shorter["prompt"] = {12.0, 40.0};
  EXPECT_EQ(answer["choices"], server.post("/v1/completions", shorter)["choices"]);
  EXPECT_EQ(
      server.post("/v1/chat/completions", chat_request({{"truncate_prompt_tokens", 3}}))["usage"]["prompt_tokens"], 3);
}

TEST(ServeFields, SamplersOfOtherServers) {
  Server server(kDemo);
  const auto sampled = [&](json fields) {
    fields.update({{"temperature", 1.5}, {"seed", 7}, {"ignore_eos", true}});
    return completed(server, fields)["token_ids"];
  };
  const json plain = sampled(json::object());
  EXPECT_EQ(sampled({{"top_k", -1}}), sampled({{"top_k", 0}}));
  EXPECT_EQ(sampled({{"typical_p", 1}, {"xtc_probability", 0}, {"top_n_sigma", -1}, {"repeat_last_n", -1}}), plain);
  EXPECT_EQ(sampled({{"top_k", 3.0}, {"max_tokens", 20.0}, {"n", 1.0}}), sampled({{"top_k", 3}}));
  EXPECT_EQ(sampled({{"repeat_penalty", 1.9}}), sampled({{"repetition_penalty", 1.9}}));
  for (const json& fields : {json({{"typical_p", 0.2}}), json({{"xtc_probability", 1}}), json({{"top_n_sigma", 0.5}}),
                             json({{"repeat_penalty", 1.9}})}) {
    EXPECT_NE(sampled(fields), plain) << fields;
    EXPECT_EQ(sampled(fields), sampled(fields)) << fields;
  }
}

TEST(ServeFields, UnknownFieldsAreNamed) {
  Server server(kDemo);
  const json harmless = {{"model", "x"},      {"user", "u"},   {"metadata", {{"a", 1}}}, {"store", true},
                         {"service_tier", 1}, {"mirostat", 0}, {"chat_template", ""},    {"lora", json::array()},
                         {"best_of", 1},      {"tfs_z", 1.0},  {"modalities", {"text"}}, {"other", nullptr},
                         {"cache_prompt", 1}};
  EXPECT_EQ(ignored(server, "/v1/chat/completions", chat_request(harmless)), "");
  json unknown = harmless;
  unknown.update({{"verbosity", "high"}, {"a\r\nX-Evil: 1", 1}});
  EXPECT_EQ(ignored(server, "/v1/chat/completions", chat_request(unknown)), "a??X-Evil:?1, verbosity");
  EXPECT_EQ(ignored(server, "/v1/messages", chat_request({{"container", "c"}})), "container");
  EXPECT_EQ(ignored(server, "/v1/completions", {{"prompt", "a"}, {"max_tokens", 1}, {"x", 1}, {"suffix", ""}}), "x");
  const json options = {{"num_predict", 1}, {"num_ctx", 2048}, {"mirostat_tau", 5}, {"num_keep", 4}};
  EXPECT_EQ(ignored(server, "/api/chat", {{"messages", kQuestion}, {"keep_alive", -1}, {"options", options}, {"y", 1}}),
            "options.num_keep, y");
  EXPECT_EQ(ignored(server, "/api/generate", {{"prompt", "a"}, {"system", "s"}, {"options", options}, {"raw", true}}),
            "options.num_keep");
  json many = chat_request();
  for (int i = 0; i < 1000; ++i) many["unknown field " + std::to_string(i)] = i;
  EXPECT_LE(ignored(server, "/v1/chat/completions", many).size(), 2000u);
}

TEST(ServeFields, UnsupportedFieldsAreRefusedByName) {
  Server server(kDemo);
  const std::pair<const char*, json> refused[] = {{"mirostat", 2},
                                                  {"chat_template", "{{ messages }}"},
                                                  {"prompt_logprobs", 0},
                                                  {"skip_special_tokens", false},
                                                  {"functions", {{{"name", "f"}}}},
                                                  {"function_call", "auto"},
                                                  {"tfs_z", 0.9},
                                                  {"no_repeat_ngram_size", 3},
                                                  {"use_beam_search", true},
                                                  {"modalities", {"text", "audio"}},
                                                  {"echo", true},
                                                  {"documents", {{{"text", "a"}}}},
                                                  {"best_of", 2},
                                                  {"logits_processors", {"a"}},
                                                  {"audio", {{"voice", "a"}}},
                                                  {"web_search_options", json::object()}};
  for (const auto& [name, value] : refused) {
    const json failure = server.post("/v1/chat/completions", chat_request({{name, value}}), 400)["error"];
    EXPECT_EQ(failure["param"], name);
    EXPECT_NE(failure["message"].get<std::string>().find("not supported"), std::string::npos) << failure;
  }
  const auto expect_named = [&](const char* path, const json& body, const std::string& name) {
    const std::string answer = server.post(path, body, 400).dump();
    EXPECT_NE(answer.find(name + ": not supported"), std::string::npos) << answer;
  };
  expect_named("/v1/completions", {{"prompt", "a"}, {"guidance_scale", 1.5}}, "guidance_scale");
  expect_named("/v1/messages", chat_request({{"mcp_servers", {{{"url", "u"}}}}}), "mcp_servers");
  expect_named("/api/chat", {{"messages", kQuestion}, {"options", {{"mirostat", 1}}}}, "mirostat");
  expect_named("/api/generate", {{"prompt", "a"}, {"template", "{{ .Prompt }}"}}, "template");
  expect_named("/api/generate", {{"prompt", "a"}, {"context", {1, 2}}}, "context");
}

TEST(ServeFields, MinusOneIsNoLimit) {
  Server server(kDemo);
  const auto reply = [&](const json& fields) {
    json body = {{"messages", kQuestion}, {"temperature", 0}};
    body.update(fields);
    const json answer = server.post("/v1/chat/completions", body);
    return std::pair(answer["choices"][0]["finish_reason"], answer["usage"]["completion_tokens"]);
  };
  const auto whole = reply(json::object());
  EXPECT_EQ(whole.first, "stop");
  for (const char* name : {"max_tokens", "max_completion_tokens", "n_predict"}) {
    EXPECT_EQ(reply({{name, -1}}), whole) << name;
    EXPECT_EQ(reply({{name, 2.0}}), std::pair(json("length"), json(2))) << name;
  }
  EXPECT_EQ(reply({{"max_tokens", 3}, {"n_predict", 9}}).second, 3);
  EXPECT_EQ(reply({{"max_tokens", 3}, {"max_completion_tokens", -1}}), whole);
  for (const json& value : {json(0), json(-3), json(2.5), json("2")}) {
    server.post("/v1/chat/completions", {{"messages", kQuestion}, {"max_tokens", value}}, 400);
  }
  for (const int limit : {-1, -2}) {
    const json options = {{"num_predict", limit}, {"temperature", 0}};
    const json answer = server.post("/api/chat", {{"messages", kQuestion}, {"options", options}, {"stream", false}});
    EXPECT_EQ(answer["eval_count"], whole.second);
  }
  json message = {{"messages", kQuestion}, {"max_tokens", -1}, {"temperature", 0}};
  EXPECT_EQ(server.post("/v1/messages", message)["stop_reason"], "end_turn");
}

TEST(ServeFields, MediaOfEarlierMessagesAreReplaced) {
  Server server(kDemo);
  const json picture = {{"type", "image_url"}, {"image_url", {{"url", "data:image/png;base64,AAAA"}}}};
  const json sound = {{"type", "input_audio"}, {"input_audio", {{"data", "AAAA"}}}};
  const json look = {{"role", "user"}, {"content", {{{"type", "text"}, {"text", "look "}}, picture, sound}}};
  const json answer = {{"role", "assistant"}, {"content", "No."}};
  const json call = {{"role", "assistant"},
                     {"content", nullptr},
                     {"tool_calls", {{{"id", "c"}, {"function", {{"name", "f"}, {"arguments", "{}"}}}}}}};
  const json result = {{"role", "tool"}, {"tool_call_id", "c"}, {"content", json::array({picture})}};
  const auto tokens = [&](const json& messages) {
    return server.post("/v1/chat/completions", {{"messages", messages}, {"max_tokens", 1}})["usage"]["prompt_tokens"];
  };
  const json text = {{"role", "user"}, {"content", "look [image][audio]"}};
  EXPECT_EQ(tokens({look, answer, kQuestion[0]}), tokens({text, answer, kQuestion[0]}));
  const std::string media = "messages: media";
  EXPECT_EQ(ignored(server, "/v1/chat/completions", {{"messages", {look, answer, kQuestion[0]}}, {"max_tokens", 1}}),
            media);
  EXPECT_EQ(ignored(server, "/v1/chat/completions", {{"messages", {look, call, result}}, {"max_tokens", 1}}), media);
  EXPECT_EQ(ignored(server, "/v1/chat/completions", {{"messages", {look, kQuestion[0]}}, {"max_tokens", 1}}), media);
  for (const json& messages : {json::array({look}), json({answer, look}), json({look, answer, look})}) {
    const json failure = server.post("/v1/chat/completions", {{"messages", messages}, {"max_tokens", 1}}, 400)["error"];
    EXPECT_EQ(failure["param"], "messages[" + std::to_string(messages.size() - 1) + "]");
    EXPECT_NE(failure["message"].get<std::string>().find("only text input"), std::string::npos);
  }
  // Ollama's format.
  const json shown = {{"role", "user"}, {"content", "look"}, {"images", {"AAAA"}}};
  EXPECT_EQ(ignored(server, "/api/chat", {{"messages", {shown, answer, kQuestion[0]}}, {"stream", false}}), media);
  server.post("/api/chat", {{"messages", json::array({shown})}}, 400);
}

TEST(ServeFields, AnthropicBlocks) {
  Server server(kDemo);
  const json image = {{"type", "image"}, {"source", {{"type", "base64"}, {"media_type", "image/png"}, {"data", "AA"}}}};
  const auto document = [](const json& source) { return json({{"type", "document"}, {"source", source}}); };
  const auto tokens = [&](const json& content, int status = 200) {
    const json messages = {{{"role", "user"}, {"content", content}}};
    return server.post("/v1/messages/count_tokens", {{"messages", messages}}, status)["input_tokens"];
  };
  const json text = {{"type", "text"}, {"text", "An owl sat in a tree."}};
  const json plain = tokens("An owl sat in a tree.");
  EXPECT_EQ(tokens(json::array({document({{"type", "text"}, {"media_type", "text/plain"}, {"data", text["text"]}})})),
            plain);
  EXPECT_EQ(tokens(json::array({document({{"type", "content"}, {"content", json::array({text})}})})), plain);
  EXPECT_EQ(tokens(json::array({document({{"type", "content"}, {"content", text["text"]}})})), plain);
  tokens(json::array({image}), 400);
  tokens(json::array({document({{"type", "base64"}, {"media_type", "application/pdf"}, {"data", "AA"}})}), 400);
  tokens(json::array({{{"text", "a block without a type"}}}), 400);
  // A client reads a picture with a tool.
  const json use = {{{"type", "tool_use"}, {"id", "t"}, {"name", "f"}, {"input", json::object()}}};
  const auto conversation = [&](const json& shown) {
    const json result = {{{"type", "tool_result"}, {"tool_use_id", "t"}, {"content", shown}}};
    return json({{"max_tokens", 1},
                 {"messages",
                  {{{"role", "user"}, {"content", "go"}},
                   {{"role", "assistant"}, {"content", use}},
                   {{"role", "user"}, {"content", result}}}}});
  };
  EXPECT_EQ(ignored(server, "/v1/messages", conversation(json::array({image}))), "messages: media");
  EXPECT_EQ(server.post("/v1/messages", conversation(json::array({image})))["usage"],
            server.post("/v1/messages", conversation("[image]"))["usage"]);
  EXPECT_EQ(
      ignored(server, "/v1/messages", conversation(json::array({{{"type", "tool_reference"}, {"tool_name", "g"}}}))),
      "messages: media");
}

TEST(ServeFields, ToolChoiceAndRefusals) {
  const Folder model;
  copy_stories(model);
  write_file(model.path / "chat_template.jinja",
             "{% if tools %}<tool_call>\n{\"name\": ..., \"arguments\": ...}\n</tool_call>"
             "{% for t in tools %}{{ t.function.name }}{% endfor %}{% endif %}"
             "{% for m in messages %}{{ m.content }}{% if m.refusal is defined %}!{% endif %}{% endfor %}");
  Server server(model.path);
  const auto tool = [](const char* name) {
    return json({{"type", "function"}, {"function", {{"name", name}, {"parameters", {{"type", "object"}}}}}});
  };
  const auto tokens = [&](const json& tools, const json& choice, int status = 200) {
    const json body = {{"messages", kQuestion}, {"max_tokens", 1}, {"tools", tools}, {"tool_choice", choice}};
    return server.post("/v1/chat/completions", body, status)["usage"]["prompt_tokens"];
  };
  const json both = {tool("alpha"), tool("beta")}, second = json::array({tool("beta")});
  const auto allowed = [](const char* mode, const json& tools) { return json({{"mode", mode}, {"tools", tools}}); };
  json flat = allowed("auto", json::array({{{"type", "function"}, {"name", "beta"}}}));
  flat["type"] = "allowed_tools";
  const json nested = {{"type", "allowed_tools"}, {"allowed_tools", allowed("auto", second)}};
  const json required = {{"type", "allowed_tools"}, {"allowed_tools", allowed("required", second)}};
  ASSERT_NE(tokens(both, "auto"), tokens(second, "auto"));
  EXPECT_EQ(tokens(both, flat), tokens(second, "auto"));
  EXPECT_EQ(tokens(both, nested), tokens(second, "auto"));
  EXPECT_EQ(tokens(both, required), tokens(second, "required"));
  EXPECT_EQ(tokens(both, {{"type", "function"}, {"name", "beta"}}),
            tokens(both, {{"type", "function"}, {"function", {{"name", "beta"}}}}));
  tokens(both, {{"type", "allowed_tools"}, {"allowed_tools", allowed("auto", json::array({tool("gamma")}))}}, 400);
  tokens(both, {{"type", "allowed_tools"}, {"allowed_tools", allowed("any", second)}}, 400);
  tokens(both, {{"type", "allowed_tools"}, {"mode", "auto"}, {"tools", json::array()}}, 400);
  tokens(nullptr, nested, 400);

  write_file(model.path / "chat_template.jinja", "{{ raise_exception('no') }}");
  const Server failing(model.path);
  const json failure = failing.post("/v1/chat/completions", {{"messages", kQuestion}}, 400)["error"];
  EXPECT_TRUE(failure["message"].get<std::string>().starts_with("messages[0]: template fails: no at row 1")) << failure;

  const auto prompt = [&](const json& message) {
    const json body = {{"messages", json::array({message})}, {"max_tokens", 1}};
    return server.post("/v1/chat/completions", body)["usage"]["prompt_tokens"];
  };
  const json plain = prompt({{"role", "assistant"}, {"content", "I cannot."}});
  EXPECT_EQ(prompt({{"role", "assistant"}, {"content", "I cannot."}, {"refusal", nullptr}}), plain);
  EXPECT_EQ(prompt({{"role", "assistant"}, {"content", nullptr}, {"refusal", "I cannot."}}), plain);
  EXPECT_EQ(prompt({{"role", "assistant"}, {"content", {{{"type", "refusal"}, {"refusal", "I cannot."}}}}}), plain);
}

TEST(ServeFields, MendedConversations) {
  const Folder model;
  copy_stories(model);
  write_file(model.path / "chat_template.jinja",
             "{% for m in messages %}{% if m.role not in ['user', 'assistant'] or (not loop.first and m.role == "
             "messages[loop.index0 - 1].role) %}{{ raise_exception('bad ' + m.role) }}{% endif %}{{ m.content }};"
             "{% endfor %}");
  const Server server(model.path);
  const json messages = {{{"role", "user"}, {"content", "Hi"}}, {{"role", "system"}, {"content", "Be brief."}}};
  const std::string changes = "late system messages as user text, messages of one role merged";
  for (const char* path : {"/v1/chat/completions", "/v1/messages?beta=true", "/api/chat"}) {
    const std::string body = json({{"messages", messages},
                                   {"max_tokens", 1},
                                   {"stream", false},
                                   {"thinking", {{"type", "enabled"}, {"budget_tokens", 9}}},
                                   {"context_management", {{"edits", json::array()}}},
                                   {"output_config", {{"effort", "high"}}}})
                                 .dump();
    const httplib::Result mended = server.client().Post(path, body, "application/json");
    EXPECT_EQ(mended->status, 200) << path << mended->body;
    EXPECT_EQ(mended->get_header_value("X-Pinion-Mended"), changes) << path;
    const httplib::Headers strict = {{"X-Pinion-Strict", "1"}};
    const httplib::Result refused = server.client().Post(path, strict, body, "application/json");
    EXPECT_EQ(refused->status, 400) << path;
    EXPECT_NE(refused->body.find("messages[1]: template fails: bad system at row 1"), std::string::npos);
    EXPECT_EQ(refused->body.find('/'), std::string::npos) << refused->body << " contains no path";
  }
  const httplib::Result plain = server.client().Post(
      "/v1/chat/completions", json({{"messages", kQuestion}, {"max_tokens", 1}}).dump(), "application/json");
  EXPECT_FALSE(plain->has_header("X-Pinion-Mended"));
}

TEST(ServeFields, LoneSurrogatesAreReplaced) {
  Server server(kDemo);
  const auto tokens = [&](const std::string& content) {
    const std::string body = R"({"messages":[{"role":"user","content":")" + content + R"("}],"max_tokens":1})";
    const httplib::Result result = server.client().Post("/v1/chat/completions", body, "application/json");
    EXPECT_EQ(result->status, 200) << result->body;
    return json::parse(result->body)["usage"]["prompt_tokens"];
  };
  EXPECT_EQ(tokens(R"(cut \ud83d)"), tokens("cut \xEF\xBF\xBD"));
  EXPECT_EQ(tokens(R"(\udc00 cut)"), tokens("\xEF\xBF\xBD cut"));
}

}  // namespace
}  // namespace pinion
