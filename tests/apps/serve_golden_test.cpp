// `pinion golden --url`: files recorded locally pass at a server and the reverse, bit by bit; other servers and wrong
// replies are errors of one line.
#include "tests/apps/server.h"

namespace pinion {
namespace {

Outcome golden(const std::string& command, const std::vector<std::string>& options) {
  setenv("no_proxy", "127.0.0.1", 1);
  std::vector<std::string> arguments = {"golden", command};
  arguments.insert(arguments.end(), options.begin(), options.end());
  return run_pinion(arguments);
}

std::string url_of(int port) { return "http://127.0.0.1:" + std::to_string(port); }
std::string url_of(const Server& server) { return url_of(server.port()); }

Outcome check_at(const std::string& url, const std::string& file) {
  return golden("check", {"--url", url, "--golden", file});
}

constexpr const char* kPrompts =
    R"(["Once upon a time", {"prompt": "Tom had a", "max_tokens": 5}, {"prompt_ids": [1, 403], "max_tokens": 0}])";

TEST(ServeGolden, FileOfAnotherMachinePasses) {
  const Server server(kDemo, {"--quant", "w8a8", "--kv", "bf16"});
  const std::string file = PINION_TEST_DATA "/golden/demo_w8a8.json";
  server.post("/models/unload", {{"model", "demo"}});  // it is loaded again
  const Outcome same = check_at(url_of(server), file);
  EXPECT_EQ(same.status, 0) << same.err;
  EXPECT_EQ(std::ranges::count(same.out, '\n'), read_json(file)["prompts"].size());
}

// Greedy and sampled, beside other requests, whatever the server's own sampling defaults.
TEST(ServeGolden, RecordsFromServerEqualLocalOnes) {
  const Server server(kStories, {"--speculate", "ngram", "--temperature", "0.7", "--seed", "9", "--parallel", "4"});
  std::atomic<bool> is_over{false};
  std::thread other([&] {
    while (!is_over) server.post("/v1/completions", {{"prompt", "Once upon"}, {"max_tokens", 30}});
  });
  const Folder folder;
  write_file(folder / "prompts.json", kPrompts);
  for (const std::vector<std::string>& sampling :
       {std::vector<std::string>{},
        {"--temperature", "0.9", "--top-p", "0.95", "--min-p", "0.02", "--repetition-penalty", "1.1", "--seed", "11"},
        {"--dry-multiplier", "0.8"},
        {"--dry-multiplier", "0.8", "--dry-sequence-breaker", ".", "--dry-sequence-breaker", "a"},
        {"--dry-multiplier", "0.8", "--dry-sequence-breaker", "none"}}) {
    std::vector<std::string> options = {"--prompts", folder / "prompts.json", "--max-tokens", "24"};
    options.insert(options.end(), sampling.begin(), sampling.end());
    std::vector<std::string> here = options, there = options;
    here.insert(here.end(), {"--model", kStories, "--out", folder / "here.json"});
    there.insert(there.end(), {"--url", url_of(server) + "/v1/", "--out", folder / "there.json"});
    const Outcome recorded = golden("record", there);
    ASSERT_EQ(recorded.status, 0) << recorded.err;
    ASSERT_EQ(golden("record", here).status, 0);
    EXPECT_EQ(read_file(folder / "there.json"), read_file(folder / "here.json"));
    EXPECT_EQ(read_json(folder / "there.json")["prompts"][0]["ids"].size(), 24u);
    const Outcome checked = golden("check", {"--model", kStories, "--golden", folder / "there.json"});
    EXPECT_EQ(checked.status, 0) << checked.err;
    const Outcome at_server = check_at(url_of(server), folder / "here.json");
    EXPECT_EQ(at_server.status, 0) << at_server.err;
  }
  is_over = true;
  other.join();
}

TEST(ServeGolden, DifferentSettingsAreNamed) {
  const Server server(kStories, {"--kv", "bf16"});
  const Folder folder;
  write_file(folder / "prompts.json", kPrompts);
  const auto record = [&](const std::vector<std::string>& mode) {
    std::vector<std::string> options = {"--model", kStories,          "--prompts",    folder / "prompts.json",
                                        "--out",   folder / "G.json", "--max-tokens", "4"};
    options.insert(options.end(), mode.begin(), mode.end());
    EXPECT_EQ(golden("record", options).status, 0);
    return read_json(folder / "G.json");
  };
  const std::string served = json::parse(server.get("/v1/fingerprint"))["weights_hash"];
  const json w4 = record({"--quant", "w4a8", "--kv", "bf16"});
  expect_failure(check_at(url_of(server), folder / "G.json"), 1,
                 "not the recorded weights: want " + w4["weights_hash"].get<std::string>() + ", have " + served);
  record({"--kv", "q8"});
  expect_failure(check_at(url_of(server), folder / "G.json"), 1, "kv: not the recorded setting: want \"q8\"");
  json before = w4;  // a file without a hash of the weights
  before.erase("weights_hash");
  write_file(folder / "G.json", before.dump());
  expect_failure(check_at(url_of(server), folder / "G.json"), 1, "quant: not the recorded setting: want \"w4a8\"");
}

TEST(ServeGolden, ShowsFirstDifferentToken) {
  const Server server(kStories, {"--context", "40"});
  const Folder folder;
  write_file(folder / "prompts.json", kPrompts);
  const std::vector<std::string> record = {"--url", url_of(server),    "--prompts",   folder / "prompts.json",
                                           "--out", folder / "G.json", "--max-tokens"};
  const auto record_tokens = [&](const std::string& tokens) {
    std::vector<std::string> options = record;
    options.push_back(tokens);
    return golden("record", options);
  };
  expect_failure(record_tokens("40"), 1, "may be longer than the server's context: want at most 40 tokens, have 4");
  EXPECT_FALSE(fs::exists(folder / "G.json"));
  ASSERT_EQ(record_tokens("20").status, 0);
  json changed = read_json(folder / "G.json");
  changed["prompts"][0]["ids"][3] = 17;
  changed["prompts"][1]["logits_hash"] = "0000000000000000";
  changed["prompts"][2]["ids"] = std::vector<int>(60, 17);
  write_file(folder / "G.json", changed.dump());
  const Outcome outcome =
      golden("check", {"--url", url_of(server), "--golden", folder / "G.json", "--junit", folder / "J.xml"});
  expect_failure(outcome, 1, "3 of 3 prompts differ");
  for (const char* line : {"prompt 0, \"Once upon a time\": token 3 differs\n", "    token 3 recorded: 17 \"",
                           "    token 3 now:      ", "same tokens, but the bits of the logits differ\n",
                           "longer than the server's context: want at most 40 tokens, have 62\n"}) {
    EXPECT_NE(outcome.out.find(line), std::string::npos) << line << outcome.out;
  }
  const std::string xml = read_file(folder / "J.xml");
  EXPECT_NE(xml.find("<testcase classname=\"" + url_of(server) + "\" name=\"prompt 2\""), std::string::npos) << xml;
}

TEST(ServeGolden, KeysAreSent) {
  const Folder folder;
  write_file(folder / "keys", "first-key\nsecond-key\n");
  write_file(folder / "own", "second-key\n");
  write_file(folder / "wrong", "third-key\n");
  write_file(folder / "hostile", "a\tb: c\n");
  write_file(folder / "prompts.json", R"([{"prompt_ids": [1, 403], "max_tokens": 2}])");
  const Server server(kStories, {"--api-key-file", folder / "keys"});
  const auto record = [&](const std::vector<std::string>& key) {
    std::vector<std::string> options = {"--url", url_of(server),   "--prompts", folder / "prompts.json",
                                        "--out", folder / "G.json"};
    options.insert(options.end(), key.begin(), key.end());
    return golden("record", options);
  };
  expect_failure(record({}), 1, "/v1/fingerprint: needs a key: want --api-key-file, have HTTP 401");
  expect_failure(record({"--api-key-file", folder / "wrong"}), 1, "refuses the key");
  expect_failure(record({"--api-key-file", folder / "hostile"}), 1, "hostile: not a token");
  expect_failure(record({"--api-key-file", folder / "none"}), 1, "none: ");
  EXPECT_FALSE(fs::exists(folder / "G.json"));
  const Outcome outcome = record({"--api-key-file", folder / "own"});
  EXPECT_EQ(outcome.status, 0) << outcome.err;
}

// Returns the replies that the test sets.
class Impostor {
 public:
  Impostor() {
    port_ = server_.bind_to_any_port("127.0.0.1");
    const auto say = [this](const httplib::Request& request, httplib::Response& response) {
      if (full_times > 0) {
        --full_times;
        response.status = 429;
        return response.set_header("Retry-After", "1");
      }
      const auto answer = answers.find(request.path);
      response.status = answer == answers.end() ? 404 : answer->second.first;
      if (response.status == 307) response.set_header("Location", "/elsewhere");
      if (answer != answers.end()) response.set_content(answer->second.second, "application/json");
    };
    server_.Get(".*", say);
    server_.Post(".*", say);
    thread_ = std::thread([this] { server_.listen_after_bind(); });
    while (!server_.is_running()) std::this_thread::yield();
  }
  ~Impostor() {
    server_.stop();
    thread_.join();
  }
  std::string url() const { return url_of(port_); }

  std::map<std::string, std::pair<int, std::string>> answers;
  std::atomic<int> full_times = 0;  // number of replies with status 429

 private:
  httplib::Server server_;
  int port_ = 0;
  std::thread thread_;
};

TEST(ServeGolden, WrongServerIsOneLine) {
  const std::string file = PINION_TEST_DATA "/golden/stories260k_w8a8.json";
  Impostor impostor;
  const struct {
    int status;
    const char *body, *cause;
  } kCases[] = {
      {404, "no", "/v1/fingerprint: not a pinion server: want `pinion serve` of this version or newer, have"},
      {404, R"({"error": {"message": "no such path"}})", "not a pinion server"},
      {307, "", "not a pinion server"},
      {500, "<html>", "not a pinion server"},
      {503, R"({"error": {"message": "the model is being\nloaded"}})", R"(HTTP 503, "the model is being\nloaded")"},
      {200, "<html>", "/v1/fingerprint: "},
      {200, "{}", "system_fingerprint"},
      {200, "[]", "/v1/fingerprint: "},
      {200, R"({"system_fingerprint": "x", "max_model_len": 9, "settings": {"quant": "w9"}})", "w9"},
      {200, R"({"system_fingerprint": "x", "max_model_len": -9})", "max_model_len"},
  };
  for (const auto& test : kCases) {
    impostor.answers["/v1/fingerprint"] = {test.status, test.body};
    expect_failure(check_at(impostor.url(), file), 1, test.cause);
  }
  Server gone(kStories);
  gone.end();
  expect_failure(check_at(url_of(gone), file), 1, url_of(gone) + "/v1/fingerprint: ");
}

TEST(ServeGolden, DamagedRepliesAreRefused) {
  Impostor impostor;
  const Folder folder;
  write_file(folder / "prompts.json", R"([{"prompt_ids": [1, 403], "max_tokens": 9}])");
  std::string good;
  {
    const Server server(kStories);
    impostor.answers["/v1/fingerprint"] = {200, server.get("/v1/fingerprint")};
    good = server
               .post("/v1/completions", {{"prompt", {1, 403}},
                                         {"max_tokens", 9},
                                         {"temperature", 0},
                                         {"return_token_ids", true},
                                         {"return_logits_hash", true}})
               .dump();
  }
  const auto record = [&](const std::string& answer, int status = 200) {
    impostor.answers["/v1/completions"] = {status, answer};
    return golden("record",
                  {"--url", impostor.url(), "--prompts", folder / "prompts.json", "--out", folder / "G.json"});
  };
  const auto changed = [&](const std::function<void(json&)>& change) {
    json answer = json::parse(good);
    change(answer);
    return answer.dump();
  };
  const auto in_choice = [&](const char* name, const json& value) {
    return changed([&](json& answer) { answer["choices"][0][name] = value; });
  };
  const std::pair<std::string, std::string> kCases[] = {
      {good.substr(0, good.size() / 2), "/v1/completions: "},
      {"", "/v1/completions: "},
      {changed([](json& answer) { answer["choices"][0].erase("token_ids"); }), "token_ids: missing field"},
      {changed([](json& answer) { answer["choices"][0].erase("logits_hash"); }), "logits_hash: missing field"},
      {changed([](json& answer) { answer["choices"].push_back(answer["choices"][0]); }), "choices: not one text"},
      {changed([](json& answer) { answer.erase("choices"); }), "choices: not one text"},
      {changed([](json& answer) { answer["system_fingerprint"] = "another"; }), "the server has changed"},
      {in_choice("token_ids", {-1}), "token_ids"},
      {in_choice("token_ids", "many"), "token_ids"},
      {in_choice("text", 3), "text"},
      {in_choice("logits_hash", "short"), "invalid hashes of the logits"},
      {in_choice("logits_hash_by_8", json::array()), "invalid hashes of the logits"},
      {in_choice("logits_hash_by_8", {"0123456789ABCDEF"}), "invalid hashes of the logits"},
  };
  for (const auto& [answer, cause] : kCases) expect_failure(record(answer), 1, cause);
  expect_failure(record("", 307), 1, "have HTTP 307");
  expect_failure(record(R"({"error": {"message": "too many requests are waiting"}})", 429), 1,
                 R"(HTTP 429, "too many requests are waiting")");
  EXPECT_FALSE(fs::exists(folder / "G.json"));
  impostor.full_times = 2;
  EXPECT_EQ(record(good).status, 0);
  EXPECT_EQ(impostor.full_times, 0);
  EXPECT_EQ(golden("check", {"--model", kStories, "--golden", folder / "G.json"}).status, 0);
}

// Every client may use the fields of `golden`, whole and streamed.
TEST(ServeGolden, ReturnsIdsAndHashesOnRequest) {
  const Server server(kStories);
  json asked = {{"prompt", "Once upon a time"}, {"max_tokens", 12}, {"seed", 2}, {"temperature", 0.8}};
  const json plain = server.post("/v1/completions", asked)["choices"][0];
  EXPECT_FALSE(plain.contains("token_ids") || plain.contains("logits_hash"));
  asked["return_token_ids"] = asked["return_logits_hash"] = true;
  const json whole = server.post("/v1/completions", asked)["choices"][0];
  const json here = run_json(generate(kStories, {"--prompt", "Once upon a time", "--max-tokens", "12", "--seed", "2",
                                                 "--temperature", "0.8", "--json"}));
  EXPECT_EQ(whole["text"], plain["text"]);
  EXPECT_EQ(whole["token_ids"], here["ids"]);
  EXPECT_EQ(whole["logits_hash"], here["stats"]["logits_hash"]);
  EXPECT_EQ(whole["logits_hash_by_8"].size(), 1u);
  json ids = json::array(), last;
  for (const json& chunk : server.stream("/v1/completions", asked)) {
    last = chunk["choices"][0];
    ids.insert(ids.end(), last["token_ids"].begin(), last["token_ids"].end());
  }
  EXPECT_EQ(ids, whole["token_ids"]);
  EXPECT_EQ(last["logits_hash"], whole["logits_hash"]);
  for (const json& wrong : {json{-1}, json{"."}, json(std::vector<int>(65, 3))}) {
    EXPECT_EQ(server.post("/v1/completions", {{"prompt", "a"}, {"dry_breakers", wrong}}, 400)["error"]["param"],
              "dry_breakers");
  }
}

}  // namespace
}  // namespace pinion
