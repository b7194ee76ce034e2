// The API of Ollama.
#include "tests/apps/server.h"

namespace pinion {
namespace {

TEST(ServeOllama, ChatAndGenerate) {
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
  const json whole = server.post("/api/chat", {{"messages", kOwlStory}, {"options", options}, {"stream", false}});
  const std::string said = whole["message"]["content"];
  EXPECT_EQ(said, chatted(server, kOwlStory));
  EXPECT_EQ(whole["done"], true);
  EXPECT_EQ(server.post("/api/generate",
                        {{"prompt", kOwlStory[0]["content"]}, {"options", options}, {"stream", false}})["response"],
            said);
  // Ollama streams by default.
  const std::string lines =
      server.client()
          .Post("/api/chat", json({{"messages", kOwlStory}, {"options", options}}).dump(), "application/json")
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

TEST(ServeOllama, PreloadAndUnsupported) {
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
        {"/api/chat", {{"messages", kOwlStory}, {"think", 1}}, "think"}}) {
    const std::string words = server.post(path, body, 400)["error"];
    EXPECT_NE(words.find(field), std::string::npos) << words;
  }
}

TEST(ServeOllama, Models) {
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

TEST(ServeOllama, LogprobsEqualOpenais) {
  Server server(kDemo);
  json body = {{"messages", kOwlStory}, {"logprobs", true}, {"top_logprobs", 2}, {"max_tokens", 5}, {"seed", 3}};
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
  EXPECT_FALSE(server.post("/api/chat", {{"messages", kOwlStory}, {"stream", false}}).contains("logprobs"));
  server.post("/api/chat", {{"messages", kOwlStory}, {"logprobs", true}, {"top_logprobs", 101}}, 400);
}

// The oldest turns make room; the system message and the last turn stay.
TEST(ServeOllama, TruncatesConversations) {
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

}  // namespace
}  // namespace pinion
