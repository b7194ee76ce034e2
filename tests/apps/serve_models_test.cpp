// Several models in one server: choice, loading on request, dropping, taking turns, status.
#include <map>

#include "tests/apps/models.h"

namespace pinion {
namespace {

TEST(ServeModels, EachAnswersAsAlone) {
  const ModelFolders folders;
  std::map<std::string, std::vector<std::string>> alone;
  for (const std::string& name : kNames) {
    const Server server(folders / name);
    for (int seed = 0; seed < 4; ++seed) alone[name].push_back(completed(server, request(name, seed)));
  }
  EXPECT_NE(alone["demo"], alone["other"]);
  for (const Names& options : {Names{}, Names{"--max-loaded", "1"}, Names{"--max-loaded", "2"}}) {
    Names arguments = {"--model", folders / "stories260k", "--model", folders / "other"};
    arguments.insert(arguments.end(), options.begin(), options.end());
    const Server server(folders / "demo", arguments);
    std::vector<std::thread> clients;
    for (int i = 0; i < 12; ++i) {
      clients.emplace_back([&, i] {
        for (int round = 0; round < 4; ++round) {
          const std::string& name = kNames[(i + round) % kNames.size()];
          EXPECT_EQ(completed(server, request(name, round)), alone[name][round]) << name;
        }
      });
    }
    for (std::thread& client : clients) client.join();
    EXPECT_LE(loaded(server).size(), options.empty() ? 3 : std::stoul(options[1]));
  }
}

TEST(ServeModels, LoadsOnRequestAndDropsTheLeastRecentlyUsed) {
  const ModelFolders folders;
  const Server server(folders / "demo",
                      {"--model", folders / "stories260k", "--model", folders / "other", "--max-loaded", "2"});
  EXPECT_NE(server.ready_line().find("serving 3 models at http://"), std::string::npos) << server.ready_line();
  EXPECT_EQ(loaded(server), Names());
  json body = request("demo");
  body.erase("model");
  EXPECT_EQ(server.post("/v1/completions", body)["model"], "demo");  // the first one is the default
  EXPECT_EQ(loaded(server), Names{"demo"});
  completed(server, request("other"));
  EXPECT_EQ(loaded(server), (Names{"demo", "other"}));
  completed(server, request("demo"));
  completed(server, request("stories260k"));
  EXPECT_EQ(loaded(server), (Names{"demo", "stories260k"}));
}

TEST(ServeModels, IdleModelsAreDropped) {
  const ModelFolders folders;
  for (const Names& options : {Names{"--idle", "0.3"}, Names{"--idle", "0.3", "--model", folders / "other"}}) {
    const Server server(folders / "demo", options);
    const std::string first = completed(server, request("demo"));
    const json long_text = {{"model", "demo"}, {"prompt", "A"}, {"max_tokens", 2000}, {"ignore_eos", true}};
    server.post("/v1/completions", long_text);  // the model is not dropped meanwhile
    while (!json::parse(server.get("/api/ps"))["models"].empty()) {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    EXPECT_EQ(completed(server, request("demo")), first);
  }
}

TEST(ServeModels, UnknownModelsAreNamed) {
  const ModelFolders folders;
  const Server server(folders / "demo", {"--model", folders / "other"});
  const std::string message = "model not found; this server has demo, other";
  json body = request("third");
  const json failure = server.post("/v1/completions", body, 404)["error"];
  EXPECT_EQ(failure["message"], message);
  EXPECT_EQ(failure["code"], "model_not_found");
  body = {{"model", "third"}, {"messages", kOwlStory}, {"max_tokens", 9}};
  EXPECT_EQ(server.post("/v1/messages", body, 404)["error"]["type"], "not_found_error");
  EXPECT_EQ(server.post("/api/chat", body, 404)["error"], message);
  EXPECT_EQ(server.post("/api/show", {{"name", "third"}}, 404)["error"], message);
  EXPECT_EQ(server.post("/models/load", {{"model", "third"}}, 404)["error"]["message"], message);
  EXPECT_EQ(server.post("/models/unload", {{"model", "third"}}, 404)["error"]["message"], message);
  server.get("/props?model=third", 404);
  server.get("/v1/models/third", 404);
  EXPECT_EQ(server.post("/v1/completions", {{"model", 5}, {"prompt", "a"}}, 400)["error"]["param"], "model");
  EXPECT_EQ(loaded(server), Names());
  for (const char* path : {"/props", "/slots", "/v1/fingerprint"}) {
    const json reason = json::parse(server.get(std::string(path) + "?model=other", 400))["error"];
    EXPECT_EQ(reason["message"], "other is not loaded (POST /models/load loads it)") << path;
  }
  EXPECT_EQ(loaded(server), Names());
  server.post("/models/load", {{"model", "other"}});
  EXPECT_EQ(json::parse(server.get("/props?model=other"))["model_alias"], "other");
  EXPECT_EQ(server.post("/api/show", {{"name", "other:latest"}})["details"]["family"], "llama");
}

TEST(ServeModels, AFailingModelHarmsNoOther) {
  const ModelFolders folders;
  const std::string whole = read_file(folders / "other/model.safetensors");
  write_file(folders / "other/model.safetensors", whole.substr(0, whole.size() / 2));
  const Server server(folders / "demo", {"--model", folders / "other"});
  const std::string good = completed(server, request("demo"));
  for (int i = 0; i < 2; ++i) {
    const std::string message = server.post("/v1/completions", request("other"), 500)["error"]["message"];
    EXPECT_TRUE(message.starts_with("other cannot be loaded: model.safetensors: ")) << message;
    EXPECT_EQ(message.find(folders.path.string()), std::string::npos) << message;
  }
  EXPECT_NE(server.errors().find(folders / "other/model.safetensors"), std::string::npos);
  EXPECT_EQ(status(server, "other"), "failed");
  EXPECT_EQ(completed(server, request("demo")), good);
  const json health = json::parse(server.get("/health"));
  EXPECT_EQ(health["models"], json({{"loaded", 1}, {"failed", 1}}));
  write_file(folders / "other/model.safetensors", whole);
  completed(server, request("other"));
  EXPECT_EQ(status(server, "other"), "loaded");
}

// Blanks and commas in the names of folders are no ends of paths.
TEST(ServeModels, ReasonsNameNoFoldersOfTheServer) {
  const ModelFolders folders;
  const fs::path hidden = folders.path / "my models, new: (all)";
  fs::create_directory(hidden);
  fs::copy(kStories, hidden / "other");
  write_file(hidden / "other/model.safetensors", "no tensors");
  const Server server(folders / "demo", {"--model", (hidden / "other").string()});
  std::string message = server.post("/v1/completions", request("other"), 500)["error"]["message"];
  EXPECT_TRUE(message.starts_with("other cannot be loaded: model.safetensors: ")) << message;
  const std::string adapter = fs::relative(hidden / "adapter");
  const Server adapted(folders / "demo", {"--model", folders / "other", "--lora", adapter + "=0.5"});
  message = adapted.post("/v1/completions", request("other"), 500)["error"]["message"];
  EXPECT_NE(message.find("adapter_config.json"), std::string::npos) << message;
  for (const char* part : {"my models", "new", "tmp", ".."})
    EXPECT_EQ(message.find(part), std::string::npos) << message;
}

TEST(ServeModels, AliasesAndEqualNames) {
  const ModelFolders folders;
  fs::create_directory(folders.path / "b");
  fs::copy(kStories, folders.path / "b/demo");
  const Server server(folders / "demo", {"--model", folders / "b/demo", "--alias", "gpt-4o=demo-2", "--alias",
                                         "small=" + folders / "demo"});
  const json models = json::parse(server.get("/v1/models"))["data"];
  EXPECT_EQ(models[0]["id"], "demo");
  EXPECT_EQ(models[0]["aliases"], json({"small"}));
  EXPECT_EQ(models[1]["id"], "demo-2");
  json body = request("gpt-4o");
  EXPECT_EQ(server.post("/v1/completions", body)["model"], "demo-2");
  EXPECT_EQ(loaded(server), Names{"demo-2"});
  for (const auto& [alias, cause] :
       {std::pair("gpt=third", "model not found; this server has demo, demo-2"), {"demo=demo-2", "has this name"}}) {
    const Names arguments = {"serve",   "--model", folders / "demo", "--model", folders / "b/demo",
                             "--alias", alias,     "--port",         "0"};
    expect_failure(run_pinion(arguments), 1, cause);
  }
}

TEST(ServeModels, LoadAndUnload) {
  const ModelFolders folders;
  const Server server(folders / "demo", {"--model", folders / "other"});
  EXPECT_EQ(server.post("/models/load", {{"model", "other"}}), json({{"success", true}}));
  EXPECT_EQ(loaded(server), Names{"other"});
  server.post("/models/load", {{"model", "demo"}});
  completed(server, request("demo"));
  const std::string metrics = server.get("/metrics");
  EXPECT_NE(metrics.find("\npinion_texts_total{model=\"demo\"} 1\n"), std::string::npos) << metrics;
  EXPECT_NE(metrics.find("\npinion_texts_total{model=\"other\"} 0\n"), std::string::npos) << metrics;
  EXPECT_NE(metrics.find("\npinion_token_seconds_bucket{model=\"demo\",le=\"+Inf\"} "), std::string::npos) << metrics;
  EXPECT_NE(metrics.find("\npinion_model_loaded{model=\"other\"} 1\n"), std::string::npos) << metrics;
  EXPECT_GT(server.metric("free_memory_bytes"), 0);
  EXPECT_EQ(server.post("/models/unload", {{"model", "other"}}), json({{"success", true}}));
  EXPECT_EQ(loaded(server), Names{"demo"});
  EXPECT_EQ(json::parse(server.get("/api/ps"))["models"].size(), 1);
  EXPECT_EQ(json::parse(server.get("/api/tags"))["models"].size(), 2);
  EXPECT_NE(server.get("/metrics").find("\npinion_model_loaded{model=\"other\"} 0\n"), std::string::npos);
  const Server single(kDemo);
  single.post("/models/unload", {{"model", "demo"}});
  EXPECT_EQ(json::parse(single.get("/api/ps"))["models"].size(), 0);
  EXPECT_EQ(single.post("/v1/completions", request("any"))["model"], "demo");
}

TEST(ServeModels, NamesAreUtf8) {
  const ModelFolders folders;
  const std::string odd = folders / "b\xff\"d";
  fs::copy(kStories, odd);
  const Server server(folders / "demo", {"--model", odd});
  EXPECT_NE(server.get("/metrics").find("pinion_model_loaded{model=\"b\uFFFD\\\"d\"} 0\n"), std::string::npos);
  completed(server, request("b\uFFFD\"d"));
}

// A folder of models is looked through again; requests of a model that is gone still end.
TEST(ServeModels, HangUpReadsTheListAgain) {
  const ModelFolders folders;
  const Folder empty;
  write_file(folders / "notes.txt", "no model");
  fs::create_directory(folders.path / "unfinished");
  const Names arguments = {"serve", "--models", empty.path, "--port", "0"};
  expect_failure(run_pinion(arguments), 1, "not a model's folder");
  const Server server(folders / "demo", {"--models", folders.path});
  const auto ids = [&] {
    Names names;
    const json models = json::parse(server.get("/v1/models"))["data"];
    for (const json& model : models) names.push_back(model["id"]);
    return names;
  };
  EXPECT_EQ(ids(), (Names{"demo", "other", "stories260k"}));
  completed(server, request("other"));
  fs::copy(kDemo, folders.path / "a");
  for (const char* name : {"g.gguf", "mmproj-g.gguf", "h-00001-of-00002.gguf", "h-00002-of-00002.gguf"}) {
    fs::copy(PINION_TEST_DATA "/gguf/stories260k.gguf", folders.path / name);
  }
  fs::remove_all(folders.path / "other");
  server.signal(SIGHUP);
  const Names expected = {"demo", "stories260k", "a", "g.gguf", "h-00001-of-00002.gguf"};
  while (ids() != expected) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  server.post("/v1/completions", request("other"), 404);
  completed(server, request("a"));
  completed(server, request("g.gguf"));
}

TEST(ServeModels, HangUpDropsNamedFoldersThatAreGone) {
  const ModelFolders folders;
  const Server server(folders / "demo", {"--model", folders / "other"});
  completed(server, request("other"));
  fs::remove_all(folders.path / "other");
  server.signal(SIGHUP);
  while (loaded(server) == Names{"other"}) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  server.post("/v1/completions", request("other"), 404);
  EXPECT_EQ(json::parse(server.get("/v1/models"))["data"].size(), 1);
}

// Sends a request and disconnects before the reply.
void abandon(const Server& server, const json& body) {
  httplib::Client impatient = server.client();
  impatient.set_read_timeout(0, 300'000);
  EXPECT_FALSE(impatient.Post("/v1/completions", body.dump(), "application/json"));
}

// A request of a model that runs until stop().
class LongRequest {
 public:
  LongRequest(const Server& server, const std::string& model) {
    httplib::Request request;
    request.method = "POST";
    request.path = "/v1/completions";
    const json body = {{"model", model},     {"prompt", "A"}, {"max_tokens", 8000},
                       {"ignore_eos", true}, {"n", 2},        {"stream", true}};
    request.body = body.dump();
    request.content_receiver = [this](const char*, size_t, uint64_t, uint64_t) {
      is_running_ = true;
      return !is_stopping_;
    };
    client_ = std::thread([&server, request] { std::ignore = server.client().send(request); });
    while (!is_running_) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  ~LongRequest() { stop(); }
  LongRequest(const LongRequest&) = delete;
  LongRequest& operator=(const LongRequest&) = delete;

  void stop() {
    is_stopping_ = true;
    if (client_.joinable()) client_.join();
  }

 private:
  std::atomic<bool> is_running_{false}, is_stopping_{false};
  std::thread client_;
};

// While a model with requests must make room, new requests for it wait; they go on when nobody waits for the room.
TEST(ServeModels, BusyModelsAreNotDropped) {
  const ModelFolders folders;
  const Server server(folders / "demo", {"--model", folders / "other", "--max-loaded", "1"});
  LongRequest busy(server, "demo");
  abandon(server, request("other"));
  completed(server, request("demo"));
  EXPECT_EQ(loaded(server), Names{"demo"});
  EXPECT_EQ(status(server, "other"), "unloaded");
  std::atomic<bool> is_answered = false;
  std::thread waiting([&] {
    completed(server, request("other"));
    is_answered = true;
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  EXPECT_FALSE(is_answered);
  busy.stop();
  waiting.join();
  EXPECT_EQ(loaded(server), Names{"other"});
}

TEST(ServeModels, ModelsWithoutMtpLayersGoWithout) {
  const ModelFolders folders;
  expect_failure(run_pinion({"serve", "--model", kDemo, "--speculate", "mtp", "--port", "0"}), 1, "MTP layer");
  const Server server(folders / "demo", {"--model", folders / "other", "--speculate", "mtp"});
  completed(server, request("demo"));
  completed(server, request("other"));
  EXPECT_EQ(loaded(server), (Names{"demo", "other"}));
}

TEST(ServeModels, OneModelOnlyForSomeOptions) {
  const Names both = {"serve", "--model", kDemo, "--model", kStories, "--port", "0"};
  Names arguments = both;
  arguments.insert(arguments.end(), {"--speculate", kStories});
  expect_failure(run_pinion(arguments), 2, "a draft model needs a single --model");
  expect_failure(run_pinion({"serve", "--port", "0"}), 2, "--model is required");
  arguments = {"serve", "--model", kDemo, "--model", "/none", "--port", "0"};
  expect_failure(run_pinion(arguments), 1, "/none");
}

TEST(ServeModels, TerminationEndsWaitingRequests) {
  const ModelFolders folders;
  Server server(folders / "demo", {"--model", folders / "other", "--max-loaded", "1"});
  LongRequest busy(server, "demo");
  std::thread waiting([&] {
    const json failure = server.post("/v1/completions", request("other"), 503)["error"];
    EXPECT_EQ(failure["code"], "draining");
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  server.signal(SIGTERM);
  waiting.join();
  busy.stop();
  EXPECT_EQ(server.wait(), 0);
}

}  // namespace
}  // namespace pinion
