// Endpoints of the server: replies equal those of `generate`, byte for byte, beside any other request.
#include "tests/apps/server.h"

namespace pinion {
namespace {

const std::string kOnce = "Once upon a time";

std::string generated(const std::vector<std::string>& options, const std::string& model = kStories) {
  return run_json(generate(model, [&] {
    std::vector<std::string> all = {"--prompt", kOnce, "--json"};
    all.insert(all.end(), options.begin(), options.end());
    return all;
  }()))["text"];
}

TEST(Serve, ReadyLineAndModels) {
  Server server(kStories);
  EXPECT_EQ(server.ready_line(), "serving stories260k at http://127.0.0.1:" + std::to_string(server.port()));
  EXPECT_EQ(json::parse(server.get("/health")), json({{"status", "ok"}}));
  const json models = json::parse(server.get("/v1/models"));
  EXPECT_EQ(models["data"][0]["id"], "stories260k");
  EXPECT_EQ(models["data"][0]["max_model_len"], 512);
  EXPECT_EQ(json::parse(server.get("/v1/models/stories260k")), models["data"][0]);
  for (const std::string& name :
       std::vector<std::string>{"other", "ORG/NAME", "stories260k/", std::string(8000, 'x')}) {
    EXPECT_EQ(json::parse(server.get("/v1/models/" + name, 404))["error"]["code"], "model_not_found") << name;
  }
  EXPECT_EQ(server.end(), 0) << server.errors();
  EXPECT_EQ(server.errors(), "");
}

TEST(Serve, CompletionsEqualGenerate) {
  Server server(kStories);
  const json greedy = server.post("/v1/completions", {{"prompt", kOnce}, {"max_tokens", 30}, {"temperature", 0}});
  EXPECT_EQ(greedy["object"], "text_completion");
  EXPECT_EQ(greedy["choices"][0]["text"], generated({"--max-tokens", "30", "--temperature", "0"}));
  EXPECT_EQ(greedy["choices"][0]["finish_reason"], "length");
  EXPECT_EQ(greedy["usage"]["completion_tokens"], 30);
  // Choices have consecutive seeds.
  const json drawn = server.post(
      "/v1/completions", {{"prompt", {kOnce, kOnce}}, {"max_tokens", 20}, {"temperature", 1}, {"seed", 7}, {"n", 2}});
  ASSERT_EQ(drawn["choices"].size(), 4);
  for (size_t i = 0; i < 4; ++i) {
    const std::string seed = std::to_string(7 + i % 2);
    EXPECT_EQ(drawn["choices"][i]["index"], i);
    EXPECT_EQ(drawn["choices"][i]["text"], generated({"--max-tokens", "20", "--temperature", "1", "--seed", seed}))
        << i;
  }
  // A prompt counts once, not once per choice.
  EXPECT_EQ(drawn["usage"]["prompt_tokens"], 2 * greedy["usage"]["prompt_tokens"].get<int>());
  const json by_ids = server.post("/tokenize", {{"content", kOnce}, {"add_special", true}});
  const json same = server.post("/v1/completions",
                                {{"prompt", by_ids["tokens"]}, {"max_tokens", 30}, {"temperature", 0}, {"echo", true}});
  EXPECT_EQ(same["choices"][0]["text"], kOnce + greedy["choices"][0]["text"].get<std::string>());
}

TEST(Serve, StopStringsAndDefaults) {
  Server server(kStories);
  const json once = server.post("/v1/completions", {{"prompt", kOnce}, {"temperature", 0}});
  EXPECT_EQ(once["usage"]["completion_tokens"], 16);
  const json stopped =
      server.post("/v1/completions", {{"prompt", kOnce}, {"temperature", 0}, {"max_tokens", 99}, {"stop", "."}});
  EXPECT_EQ(stopped["choices"][0]["text"], generated({"--temperature", "0", "--max-tokens", "99", "--stop", "."}));
  EXPECT_EQ(stopped["choices"][0]["finish_reason"], "stop");
}

TEST(Serve, ConcurrentRepliesEqualLoneOnes) {
  Server server(kStories, {"--parallel", "3"});
  const auto ask = [&](size_t seed) {
    return server.post("/v1/completions", {{"prompt", kOnce + std::string(seed % 5, '!')},
                                           {"max_tokens", 20 + seed},
                                           {"temperature", 1},
                                           {"seed", seed}})["choices"][0]["text"];
  };
  std::vector<json> together(12), alone(12);
  std::vector<std::thread> clients;
  for (size_t i = 0; i < together.size(); ++i) clients.emplace_back([&, i] { together[i] = ask(i); });
  for (std::thread& client : clients) client.join();
  for (size_t i = 0; i < alone.size(); ++i) alone[i] = ask(i);
  EXPECT_EQ(together, alone);
}

TEST(Serve, StreamEqualsWholeReply) {
  Server server(kDemo);
  const json request = {{"messages", {{{"role", "user"}, {"content", "Tell me a story about an owl."}}}},
                        {"max_tokens", 40},
                        {"seed", 3},
                        {"n", 2},
                        {"stream_options", {{"include_usage", true}}}};
  const json whole = server.post("/v1/chat/completions", request);
  const std::vector<json> chunks = server.stream("/v1/chat/completions", request);
  ASSERT_GT(chunks.size(), 8);
  std::vector<std::string> texts(2);
  std::vector<json> finish(2);
  for (size_t i = 0; i < chunks.size(); ++i) {
    EXPECT_EQ(chunks[i]["object"], "chat.completion.chunk");
    if (i + 1 == chunks.size()) {
      EXPECT_EQ(chunks[i]["choices"], json::array());
      EXPECT_EQ(chunks[i]["usage"]["completion_tokens"], whole["usage"]["completion_tokens"]);
      break;
    }
    const json& choice = chunks[i]["choices"][0];
    const auto index = choice["index"].get<size_t>();
    EXPECT_EQ(choice["delta"].contains("role"), i < 2);
    texts[index] += choice["delta"].value("content", "");
    if (!choice["finish_reason"].is_null()) finish[index] = choice["finish_reason"];
  }
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(texts[i], whole["choices"][i]["message"]["content"].get<std::string>());
    EXPECT_EQ(finish[i], whole["choices"][i]["finish_reason"].get<std::string>());
  }
  EXPECT_EQ(whole["choices"][0]["message"]["role"], "assistant");
}

TEST(Serve, ChatEqualsChatCommand) {
  Server server(kDemo);
  const json parts = {{{"type", "text"}, {"text", "Who are "}}, {{"type", "text"}, {"text", "you?"}}};
  const json answer = server.post(
      "/v1/chat/completions",
      {{"messages", {{{"role", "user"}, {"content", parts}}}}, {"temperature", 0}, {"max_completion_tokens", 30}});
  const Outcome said =
      run_pinion({"chat", "--model", kDemo, "--temperature", "0", "--max-tokens", "30", "--quiet"}, "Who are you?\n");
  EXPECT_EQ(answer["choices"][0]["message"]["content"].get<std::string>() + "\n", said.out);
  const json old = {{"messages", {{{"role", "user"}, {"content", "Hi"}}}}, {"functions", json::array()}};
  EXPECT_EQ(server.post("/v1/chat/completions", old, 400)["error"]["param"], "functions");
}

// The stories model with a template that has tool calls. It was not trained on them; logit_bias chooses its tokens.
struct CallingModel : Folder {
  CallingModel() {
    copy_stories(*this);
    write_file(path / "chat_template.jinja",
               "{% if tools %}{{ tools|length }} tools: <tool_call>\n{\"name\": ..., \"arguments\": ...}\n</tool_call>"
               "{% endif %}{% for m in messages %}{{ m.content }}\n{% endfor %}");
    json tokenizer = read_json(path / "tokenizer.json");
    json& vocabulary = tokenizer["model"]["vocab"];
    end_of_call = vocabulary["é"];
    vocabulary.erase("é");
    vocabulary["{\"a\": 1}}"] = end_of_call;
    write_file(path / "tokenizer.json", tokenizer.dump());
  }
  int32_t end_of_call;
};

TEST(Serve, ToolChoiceForcesCalls) {
  const CallingModel model;
  Server server(model.path);
  const json tool = {{"type", "function"}, {"function", {{"name", "weather"}, {"parameters", {{"type", "object"}}}}}};
  json request = {{"messages", {{{"role", "user"}, {"content", "How is it?"}}}},
                  {"tools", {tool}},
                  {"tool_choice", {{"type", "function"}, {"function", {{"name", "weather"}}}}},
                  {"temperature", 0},
                  {"max_tokens", 1},
                  {"logit_bias", {{std::to_string(model.end_of_call), 100}}}};
  const json choice = server.post("/v1/chat/completions", request)["choices"][0];
  EXPECT_TRUE(choice["message"]["content"].is_null()) << choice;
  ASSERT_EQ(choice["message"]["tool_calls"].size(), 1);
  const json& call = choice["message"]["tool_calls"][0];
  EXPECT_EQ(call["function"]["name"], "weather");
  EXPECT_EQ(call["function"]["arguments"], "{\"a\": 1}");
  EXPECT_EQ(call["id"].get<std::string>().size(), 9);
  std::string name, arguments;
  for (const json& chunk : server.stream("/v1/chat/completions", request)) {
    for (const json& one : chunk["choices"][0]["delta"].value("tool_calls", json::array())) {
      EXPECT_EQ(one["index"], 0);
      name += one["function"].value("name", "");
      arguments += one["function"].value("arguments", "");
    }
  }
  EXPECT_EQ(name, "weather");
  EXPECT_EQ(arguments, "{\"a\": 1}");
  // Half a call is none.
  json half = request;
  const int32_t brace = server.post("/tokenize", {{"content", "{"}})["tokens"].back();
  half["logit_bias"] = {{std::to_string(brace), 100}};
  const json cut = server.post("/v1/chat/completions", half)["choices"][0];
  EXPECT_EQ(cut["message"].count("tool_calls"), 0);
  EXPECT_EQ(cut["message"]["content"], "{\"name\": \"weather\", \"arguments\":{");
  EXPECT_EQ(cut["finish_reason"], "length");
  request["tool_choice"]["function"]["name"] = "clock";
  EXPECT_EQ(server.post("/v1/chat/completions", request, 400)["error"]["param"], "tool_choice");
  request["tool_choice"] = "required";
  EXPECT_EQ(server.post("/v1/chat/completions", request)["choices"][0]["message"].count("tool_calls"),
            0);  // the call has no name yet
  // tool_choice "none" leaves the tools out of the prompt.
  const json prompt_tokens = server.post("/v1/chat/completions", request)["usage"]["prompt_tokens"];
  request["tool_choice"] = "none";
  EXPECT_LT(server.post("/v1/chat/completions", request)["usage"]["prompt_tokens"], prompt_tokens);
}

TEST(Serve, NotesUnknownToolCalls) {
  const Folder model;
  copy_stories(model);
  const auto errors = [&](const std::string& chat_template) {
    write_file(model.path / "chat_template.jinja", chat_template);
    const Server server(model.path);
    // The port is in use, so this one ends.
    return run_pinion({"serve", "--model", model.path, "--port", std::to_string(server.port())}).err;
  };
  EXPECT_NE(errors("{{ tools }}").find("have an unknown format"), std::string::npos);
  EXPECT_EQ(errors("{{ messages }}").find("unknown format"), std::string::npos);
  EXPECT_EQ(errors("{{ tools }}<tool_call>{'arguments': x}").find("unknown format"), std::string::npos);
}

TEST(Serve, UsageReportsCachedTokens) {
  Server server(kStories);
  const std::string prompt =
      "Once upon a time there was a small dog who liked to play with a big red ball in the park.";
  const json request = {{"prompt", prompt}, {"max_tokens", 5}, {"temperature", 0}};
  const json cold = server.post("/v1/completions", request), warm = server.post("/v1/completions", request);
  EXPECT_EQ(cold["usage"]["prompt_tokens_details"]["cached_tokens"], 0);
  const int tokens = warm["usage"]["prompt_tokens"];
  EXPECT_EQ(warm["usage"]["prompt_tokens_details"]["cached_tokens"], tokens - 1);
  EXPECT_EQ(cold["choices"], warm["choices"]);
}

TEST(Serve, RepliesHaveFingerprintAndSeed) {
  Server server(kStories);
  const httplib::Result result =
      server.client().Post("/v1/completions", R"({"prompt": "A", "max_tokens": 1, "seed": 11})", "application/json");
  ASSERT_TRUE(result);
  EXPECT_EQ(result->get_header_value("X-Pinion-Seed"), "11");
  const std::string weights = result->get_header_value("X-Pinion-Weights");
  EXPECT_EQ(weights.size(), 16);
  const std::string fingerprint = json::parse(result->body)["system_fingerprint"];
  EXPECT_EQ(fingerprint, result->get_header_value("X-Pinion-Fingerprint") + "-seed-11");
  EXPECT_TRUE(fingerprint.ends_with("-w8a8-" + weights + "-seed-11")) << fingerprint;
}

struct Mistake {
  std::string path;
  std::string body;
  int status;
  std::string words;
};

TEST(Serve, ErrorsNameTheMistake) {
  Server server(kStories);
  std::string long_prompt;
  for (int i = 0; i < 600; ++i) long_prompt += "dog ";
  const std::vector<Mistake> mistakes = {
      {"/v1/completions", "{", 400, "invalid JSON"},
      {"/v1/completions", "[]", 400, "an object"},
      {"/v1/completions", "{}", 400, "prompt"},
      {"/v1/completions", R"({"prompt": 5})", 400, "prompt"},
      {"/v1/completions", R"({"prompt": []})", 400, "empty"},
      {"/v1/completions", R"({"prompt": [1, -1]})", 400, "token ids"},
      {"/v1/completions", R"({"prompt": [1, 70000]})", 400, "vocabulary"},
      {"/v1/completions", R"({"prompt": "a", "temperature": "warm"})", 400, "temperature"},
      {"/v1/completions", R"({"prompt": "a", "temperature": -1})", 400, "temperature"},
      {"/v1/completions", R"({"prompt": "a", "n": 1000})", 400, "n: out of range"},
      {"/v1/completions", R"({"prompt": "a", "stop": ""})", 400, "stop"},
      {"/v1/completions", R"({"prompt": "a", "stream_options": 1})", 400, "stream_options"},
      {"/v1/completions", R"({"prompt": "a", "suffix": "b"})", 400, "fill-in-the-middle"},
      {"/v1/completions", R"({"prompt": "a", "suffix": "b", "echo": true})", 400, "echo"},
      {"/v1/completions", R"({"prompt": [1], "suffix": "b"})", 400, "prompt"},
      {"/v1/completions", R"({"prompt": "a", "logit_bias": {"x": 1}})", 400, "logit_bias"},
      {"/v1/completions", R"({"prompt": "a", "logit_bias": {"1": 101}})", 400, "logit_bias"},
      {"/v1/completions", R"({"prompt": "a", "logit_bias": {"70000": 1}})", 400, "vocabulary"},
      {"/v1/completions", json({{"prompt", long_prompt}}).dump(), 400, "512"},
      {"/v1/chat/completions", R"({"messages": []})", 400, "no chat template"},
      {"/tokenize", R"({"content": 1})", 400, "content"},
      {"/detokenize", R"({"tokens": ["a"]})", 400, "tokens"},
      {"/v1/nothing", "{}", 404, "no such path"},
      {"/v1/completions", std::string(200, '['), 400, "nest"},
  };
  for (const Mistake& mistake : mistakes) {
    const httplib::Result result = server.client().Post(mistake.path, mistake.body, "application/json");
    ASSERT_TRUE(result) << mistake.body;
    EXPECT_EQ(result->status, mistake.status) << mistake.body.substr(0, 80);
    const json failure = json::parse(result->body, nullptr, false);
    ASSERT_TRUE(failure.contains("error")) << result->body;
    EXPECT_NE(failure["error"]["message"].get<std::string>().find(mistake.words), std::string::npos) << result->body;
  }
  EXPECT_EQ(server.post("/v1/completions", {{"prompt", long_prompt}}, 400)["error"]["code"], "context_length_exceeded");
  EXPECT_EQ(server.post("/v1/completions", {{"prompt", "a"}, {"top_p", 2}}, 400)["error"]["param"], "top_p");
}

TEST(Serve, KeysAreChecked) {
  const Folder folder;
  write_file(folder / "keys", "\xEF\xBB\xBFsecret\r\n other \n\n");
  Server server(kStories, {"--api-key-file", folder / "keys"});
  const std::string body = R"({"prompt": "a", "max_tokens": 1})";
  const auto status = [&](const httplib::Headers& headers) {
    const httplib::Result result = server.client().Post("/v1/completions", headers, body, "application/json");
    return result ? result->status : -1;
  };
  EXPECT_EQ(status({}), 401);
  EXPECT_EQ(status({{"Authorization", "Bearer secre"}}), 401);
  EXPECT_EQ(status({{"Authorization", "Bearer secret"}}), 200);
  EXPECT_EQ(status({{"x-api-key", "other"}}), 200);
  EXPECT_EQ(server.client().Get("/health")->status, 200);
  EXPECT_EQ(server.client().Get("/metrics")->status, 401);
  EXPECT_EQ(server.client().Get("/nothing")->status, 401);
}

// A page of another site must not use the model of its visitor.
TEST(Serve, RefusesPagesOfOtherSites) {
  Server server(kStories);
  const auto status = [&](const httplib::Headers& headers) {
    return server.client().Get("/v1/models", headers)->status;
  };
  const std::string own = "127.0.0.1:" + std::to_string(server.port());
  EXPECT_EQ(status({{"Origin", "http://" + own}}), 200);
  EXPECT_EQ(status({{"Origin", "http://evil.example"}}), 403);
  EXPECT_EQ(status({{"Origin", "null"}}), 403);
  EXPECT_EQ(status({{"Host", "evil.example"}}), 403);
  const std::string words = server.client().Get("/v1/models", {{"Host", "evil.example"}})->body;
  EXPECT_NE(words.find("the Host header"), std::string::npos) << words;
  EXPECT_EQ(status({{"Host", "localhost:" + std::to_string(server.port())}}), 200);
}

TEST(Serve, AllowedPagesGetCorsHeaders) {
  Server server(kStories, {"--allow-origin", "app://obsidian.md", "--allow-origin", "http://localhost:3000"});
  const auto headers = [&](const char* method, const httplib::Headers& sent) {
    httplib::Request request;
    request.method = method;
    request.path = "/v1/models";
    request.headers = sent;
    return server.client().send(request);
  };
  const httplib::Result models = headers("GET", {{"Origin", "app://obsidian.md"}});
  EXPECT_EQ(models->status, 200);
  EXPECT_EQ(models->get_header_value("Access-Control-Allow-Origin"), "app://obsidian.md");
  EXPECT_EQ(models->get_header_value("Vary"), "Origin");
  const httplib::Result preflight = headers(
      "OPTIONS", {{"Origin", "http://localhost:3000"}, {"Access-Control-Request-Headers", "authorization, x-a"}});
  EXPECT_EQ(preflight->status, 200);
  EXPECT_EQ(preflight->get_header_value("Access-Control-Allow-Headers"), "authorization, x-a");
  EXPECT_NE(preflight->get_header_value("Access-Control-Allow-Methods").find("POST"), std::string::npos);
  for (const char* other : {"http://localhost:3001", "https://localhost:3000", "http://evil.example", "null"}) {
    const httplib::Result refused = headers("GET", {{"Origin", other}});
    EXPECT_EQ(refused->status, 403) << other;
    EXPECT_FALSE(refused->has_header("Access-Control-Allow-Origin")) << other;
    EXPECT_NE(refused->body.find("--allow-origin"), std::string::npos) << refused->body;
    EXPECT_EQ(headers("OPTIONS", {{"Origin", other}})->status, 403) << other;
  }
  EXPECT_NE(headers("OPTIONS", {})->status, 200);
  Server any(kStories, {"--allow-origin", "*"});
  EXPECT_EQ(any.client().Get("/v1/models", {{"Origin", "null"}})->status, 200);
  EXPECT_EQ(any.client().Get("/v1/models", {{"Origin", "http://a.b"}, {"Host", "evil.example"}})->status, 403);
  for (const char* wrong : {"obsidian.md", "http://localhost/", "http://a/b", "://a", ""}) {
    expect_failure(run_pinion({"serve", "--model", kStories, "--allow-origin", wrong}), 2, "SCHEME://HOST");
  }
}

TEST(Serve, ModelsAnswerHead) {
  Server server(kStories);
  const std::string name = json::parse(server.get("/v1/models"))["data"][0]["id"];
  EXPECT_EQ(server.client().Head("/v1/models/" + name)->status, 200);
  EXPECT_EQ(server.client().Head("/v1/models/other")->status, 404);
}

// The body of a refused request must not be parsed as a request.
TEST(Serve, RefusedBodyClosesConnection) {
  Server server(kStories);
  const std::string hidden =
      "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: "
      "32\r\n\r\n{\"prompt\":\"Once\",\"max_tokens\":2}";
  const std::string body = std::string(4096, 'x') + hidden;
  const httplib::Headers other = {{"Origin", "http://evil.example"}};
  httplib::Client client = server.client();
  client.set_keep_alive(true);
  const httplib::Result refused = client.Post("/v1/completions", other, body, "application/json");
  ASSERT_TRUE(refused);
  EXPECT_EQ(refused->status, 403);
  EXPECT_EQ(refused->get_header_value("Connection"), "close");
  EXPECT_EQ(server.metric("texts_total"), 0);
}

TEST(Serve, StartErrorsAreOneLine) {
  Server server(kStories);
  const std::string port = std::to_string(server.port());
  expect_failure(run_pinion({"serve", "--model", kStories, "--port", port}), 1, "in use");
  expect_failure(run_pinion({"serve", "--model", kStories, "--host", "0.0.0.0"}), 2, "--api-key-file");
  const Folder folder;
  write_file(folder / "keys", " \t\n\n");
  expect_failure(run_pinion({"serve", "--model", kStories, "--api-key-file", folder / "keys"}), 1, "no keys");
  expect_failure(run_pinion({"serve", "--model", kStories, "--api-key-file", folder / "keys", "--no-key"}), 2,
                 "excludes");
  expect_failure(run_pinion({"serve", "--model", folder.path}), 1, "config.json");
}

// More work than any test waits for.
const json kLong = {{"prompt", kOnce}, {"max_tokens", 400}, {"ignore_eos", true}, {"n", 64}, {"stream", true}};

TEST(Serve, DisconnectCancelsStream) {
  Server server(kStories, {"--parallel", "2"});
  int64_t bytes = 0;
  const auto leave = [&](const char*, size_t count) { return (bytes += static_cast<int64_t>(count)) < 2000; };
  httplib::Request request;
  request.method = "POST";
  request.path = "/v1/completions";
  request.body = kLong.dump();
  request.set_header("Content-Type", "application/json");
  request.content_receiver = [&](const char* data, size_t count, uint64_t, uint64_t) { return leave(data, count); };
  EXPECT_FALSE(server.client().send(request));
  server.await("texts_cancelled_total", 1);
  while (server.metric("texts_running") + server.metric("texts_waiting") > 0) {
  }
  EXPECT_LT(server.metric("texts_total"), 64);
}

TEST(Serve, FullQueueReturns429) {
  Server server(kStories, {"--parallel", "1", "--queue", "63"});
  std::thread busy([&] { std::ignore = server.client().Post("/v1/completions", kLong.dump(), "application/json"); });
  server.await("texts_waiting", 50);
  json many = kLong;
  const httplib::Result result = server.client().Post("/v1/completions", many.dump(), "application/json");
  ASSERT_TRUE(result);
  EXPECT_EQ(result->status, 429) << result->body;
  EXPECT_EQ(result->get_header_value("Retry-After"), "1");
  EXPECT_EQ(json::parse(result->body)["error"]["code"], "queue_full");
  EXPECT_GE(server.metric("requests_refused_total"), 1);
  // The second signal ends running requests. Two pending ones count as one.
  std::atomic<bool> is_over{false};
  std::thread impatient([&] {
    for (; !is_over; std::this_thread::sleep_for(std::chrono::milliseconds(20))) server.signal(SIGTERM);
  });
  busy.join();
  is_over = true;
  impatient.join();
  EXPECT_EQ(server.wait(), 0);
}

TEST(Serve, SignalDrainsRequests) {
  Server server(kStories, {"--parallel", "1"});
  std::string body;
  const json request = {{"prompt", kOnce}, {"max_tokens", 300}, {"ignore_eos", true}, {"n", 4}, {"seed", 1}};
  std::thread client([&] { body = server.client().Post("/v1/completions", request.dump(), "application/json")->body; });
  server.await("texts_running", 1);
  server.signal(SIGTERM);
  client.join();
  const json answer = json::parse(body, nullptr, false);
  ASSERT_TRUE(answer.contains("choices")) << body;
  for (const json& choice : answer["choices"]) EXPECT_EQ(choice["finish_reason"], "length");
  EXPECT_EQ(server.wait(), 0);
}

}  // namespace
}  // namespace pinion
