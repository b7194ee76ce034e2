// pinion get from servers on 127.0.0.1: interrupted downloads continue, wrong answers are refused, and the token is
// sent to no other host.
#include <fcntl.h>
#include <sys/file.h>

#include <atomic>

#include "tests/apps/hub.h"
#include "tests/apps/program.h"

namespace pinion {
namespace {

// Environment variables precede the command, because they differ between runs.
Outcome get(const std::string& endpoint, const Folder& home, const std::vector<std::string>& more = {},
            const std::string& token = "") {
  std::vector<std::string> arguments = {"get", "tiny/stories", "--retries", "1"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  setenv("HF_ENDPOINT", endpoint.c_str(), 1);
  setenv("HF_TOKEN", token.c_str(), 1);
  setenv("no_proxy", "127.0.0.1", 1);
  return run_pinion(arguments, "", home.path);
}

// The default folder of downloads.
fs::path hub_of(const Folder& home) { return home.path / "huggingface/hub"; }

Outcome get_from(const Hub& hub, const Folder& home, const std::vector<std::string>& more = {}) {
  FakeServer server([&](const FakeRequest& request) { return hub.answer(request); });
  return get(server.url(), home, more);
}

// Lists the files below a folder, and links as links.
std::vector<std::string> files_below(const fs::path& folder) {
  std::vector<std::string> names;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    if (!entry.is_directory() || entry.is_symlink()) names.push_back(entry.path().lexically_relative(folder));
  }
  std::ranges::sort(names);
  return names;
}

TEST(Get, SharedCacheIsFilled) {
  Hub hub;
  hub.add("README.md", "not needed");
  hub.add("pytorch_model.bin", "not needed");
  hub.add("consolidated.safetensors", "the same weights once more");
  const Folder home;
  const Outcome outcome = get_from(hub, home);
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  const fs::path repository = hub_of(home) / "models--tiny--stories", snapshot = repository / "snapshots" / kCommit;
  EXPECT_EQ(outcome.out, snapshot.string() + "\n");
  EXPECT_NE(outcome.err.find("to download"), std::string::npos) << outcome.err;
  EXPECT_NE(outcome.err.find("in memory"), std::string::npos) << outcome.err;
  EXPECT_EQ(read_file(repository / "refs/main"), kCommit);
  EXPECT_EQ(files_below(snapshot),
            std::vector<std::string>({"config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"}));
  const std::string weights = hub.entry("model.safetensors")["lfs"]["sha256"];
  EXPECT_EQ(fs::read_symlink(snapshot / "model.safetensors"), fs::path("../../blobs") / weights);
  for (const std::string& name : files_below(snapshot)) EXPECT_TRUE(read_file(snapshot / name) == hub.files[name]);
  EXPECT_EQ(run_pinion({"generate", "--model", snapshot, "--prompt", "Once", "--max-tokens", "2"}).status, 0);
  // A second run requests only the list.
  FakeServer server([&](const FakeRequest& request) { return hub.answer(request); });
  EXPECT_EQ(get(server.url(), home).status, 0);
  EXPECT_EQ(server.requests().size(), 1u);
}

TEST(Get, ModulesOfSentenceTransformersAreFetched) {
  Hub hub;
  for (const char* name :
       {"modules.json", "1_Pooling/config.json", "2_Dense/config.json", "2_Dense/model.safetensors"}) {
    hub.add(name, "{}");
  }
  for (const char* name : {"onnx/model.safetensors", "1_/../config.json", "1_a/b/config.json", "1_\n/config.json"}) {
    hub.add(name, "not needed");
  }
  const Folder home;
  EXPECT_EQ(get_from(hub, home, {"--to", home / "to"}).status, 0);
  EXPECT_EQ(files_below(home.path / "to"),
            std::vector<std::string>({"1_Pooling/config.json", "2_Dense/config.json", "2_Dense/model.safetensors",
                                      "config.json", "model.safetensors", "modules.json", "tokenizer.json",
                                      "tokenizer_config.json"}));
}

// A repository of GGUF files has no other files of a model.
TEST(Get, OneGgufFileOfARepository) {
  Hub hub;
  const std::string contents = read_file(fs::path(PINION_TEST_DATA "/gguf/families/qwen3.gguf"));
  hub.files.clear();
  hub.siblings.clear();
  hub.add("config.json", "{}");  // some repositories have one beside the GGUF files
  for (const char* name : {"Tiny-Q8_0.gguf", "mmproj-Q4_0.gguf", "Q4_0/Tiny-Q4_0-00001-of-00002.gguf",
                           "Q4_0/Tiny-Q4_0-00002-of-00002.gguf"}) {
    hub.add(name, contents);
  }
  const Folder home;
  FakeServer server([&](const FakeRequest& request) { return hub.answer(request); });
  setenv("HF_ENDPOINT", server.url().c_str(), 1);
  const auto get_tag = [&](const std::string& name) { return run_pinion({"get", name}, "", home.path); };
  const fs::path snapshot = hub_of(home) / "models--tiny--stories/snapshots" / kCommit;
  const Outcome eight = get_tag("tiny/stories:q8_0");
  EXPECT_EQ(eight.out, (snapshot / "Tiny-Q8_0.gguf").string() + "\n") << eight.err;
  EXPECT_EQ(files_below(snapshot), std::vector<std::string>({"Tiny-Q8_0.gguf"}));
  EXPECT_EQ(run_pinion({"inspect", "--model", "tiny/stories:Q8_0"}, "", home.path).status, 0);
  EXPECT_EQ(get_tag("tiny/stories:Q4_0").status, 0);
  EXPECT_EQ(files_below(snapshot / "Q4_0").size(), 2u);
  EXPECT_EQ(read_file(snapshot / "Q4_0/Tiny-Q4_0-00002-of-00002.gguf"), contents);
  EXPECT_EQ(run_pinion({"get", "tiny/stories:Q4_0", "--to", home / "plain"}, "", home.path).status, 0);
  EXPECT_EQ(read_file(home / "plain/Q4_0/Tiny-Q4_0-00001-of-00002.gguf"), contents);
  expect_failure(get_tag("tiny/stories:Q6_K"), 1,
                 "no GGUF file with this tag: want the end of one of Tiny-Q4_0, Tiny-Q8_0, have Q6_K");
  expect_failure(get_tag("tiny/stories"), 1, "several GGUF files: give one as NAME:TAG");
  expect_failure(get_tag("tiny/stories:"), 2, "want a tag as in ORG/NAME:Q4_K_M");
}

TEST(Get, PackedModelsOpen) {
  const Folder home;
  ASSERT_EQ(
      run_pinion({"pack", "--model", kStories, "--quant", "w4a8", "--out", home / "packed"}, "", home.path).status, 0);
  Hub hub;
  hub.files.clear();
  hub.siblings.clear();
  for (const auto& entry : fs::directory_iterator(home / "packed")) {
    hub.add(entry.path().filename().string(), read_file(entry.path()));
  }
  const Outcome outcome = get_from(hub, home);
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  const std::vector<std::string> tail = {"--prompt", "Once", "--max-tokens", "8", "--json"};
  const std::string fetched = outcome.out.substr(0, outcome.out.size() - 1);
  EXPECT_EQ(run_json(generate(fetched, tail))["ids"], run_json(generate(home / "packed", tail))["ids"]);
}

// Another tool may have reserved space for a file without writing it.
TEST(Get, UnwrittenCacheFilesAreDownloaded) {
  const Hub hub;
  const Folder home;
  ASSERT_EQ(get_from(hub, home).status, 0);
  const fs::path file = hub_of(home) / "models--tiny--stories/snapshots" / kCommit / "model.safetensors";
  if (!leave_unwritten(file, 1000)) GTEST_SKIP() << "the file system knows of none";
  EXPECT_EQ(get_from(hub, home).status, 0);
  EXPECT_TRUE(read_file(file) == hub.files.at("model.safetensors"));
}

TEST(Get, FolderIsFilled) {
  Hub hub;
  const Folder home, folder;
  const std::string to = folder / "deep/inside";
  EXPECT_EQ(get_from(hub, home, {"--to", to}).status, 0);
  EXPECT_EQ(files_below(to),
            std::vector<std::string>({"config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"}));
  EXPECT_TRUE(fs::is_empty(home.path));
  write_file(to + "/tokenizer.json", std::string(hub.files["tokenizer.json"].size(), 'x'));  // damaged
  EXPECT_EQ(get_from(hub, home, {"--to", to}).status, 0);
  EXPECT_TRUE(read_file(to + "/tokenizer.json") == hub.files["tokenizer.json"]);
}

TEST(Get, IndexSelectsShards) {
  Hub hub;
  hub.siblings.erase(3);  // model.safetensors
  hub.add("model-00001-of-00002.safetensors", "first");
  hub.add("model-00002-of-00002.safetensors", "second");
  hub.add("other.safetensors", "not in the index");
  hub.add("model.safetensors.index.json",
          R"({"weight_map": {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}})");
  const Folder home, folder;
  const Outcome outcome = get_from(hub, home, {"--to", folder.string()});
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_EQ(read_file(folder / "model-00002-of-00002.safetensors"), "second");
  EXPECT_FALSE(fs::exists(folder / "other.safetensors"));
  hub.entry("model-00002-of-00002.safetensors")["rfilename"] = "elsewhere.safetensors";
  const Folder empty;
  EXPECT_EQ(get_from(hub, home, {"--to", empty.string()}).status, 1);
}

TEST(Get, CutConnectionContinues) {
  const Hub hub;
  const Folder home, folder;
  std::atomic<int> cuts = 0;
  FakeServer server([&](const FakeRequest& request) {
    FakeResponse response = hub.answer(request);
    if (request.path.ends_with(".safetensors") && cuts < 3) {
      ++cuts;
      response.cut_after = 100'000;
    }
    return response;
  });
  const Outcome outcome = get(server.url(), home, {"--to", folder.string()});
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_TRUE(read_file(folder / "model.safetensors") == hub.files.at("model.safetensors"));
  EXPECT_EQ(server.requests().back().headers.at("range"), "bytes=300000-");
}

TEST(Get, PartialFileOfOtherRunContinues) {
  const Hub hub;
  const Folder home, folder;
  const std::string& whole = hub.files.at("model.safetensors");
  const std::string partial = folder / "model.safetensors.incomplete";
  const auto last_range = [&] {
    FakeServer server([&](const FakeRequest& request) { return hub.answer(request); });
    const Outcome outcome = get(server.url(), home, {"--to", folder.string()});
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    EXPECT_TRUE(read_file(folder / "model.safetensors") == whole);
    EXPECT_FALSE(fs::exists(partial));
    fs::remove(folder / "model.safetensors");
    const FakeRequest last = server.requests().back();
    return last.headers.contains("range") ? last.headers.at("range") : last.path;
  };
  write_file(partial, whole.substr(0, 5000));
  EXPECT_EQ(last_range(), "bytes=5000-");
  write_file(partial, whole);  // complete, but not renamed yet
  EXPECT_EQ(last_range(), kApi);
  write_file(partial, whole + "more");  // of another file
  EXPECT_EQ(last_range(), kResolve + "model.safetensors");
}

TEST(Get, ServerWithoutRangesStartsOver) {
  const Hub hub;
  const Folder home, folder;
  write_file(folder / "model.safetensors.incomplete", "other bytes, which must not stay");
  FakeServer server([&](FakeRequest request) {
    request.headers.erase("range");
    return hub.answer(request);
  });
  EXPECT_EQ(get(server.url(), home, {"--to", folder.string()}).status, 0);
  EXPECT_TRUE(read_file(folder / "model.safetensors") == hub.files.at("model.safetensors"));
}

// More bytes than in the previous attempt are no progress unless they exceed the maximum so far.
TEST(Get, StartingOverIsNotProgress) {
  const Hub hub;
  const Folder home, folder;
  size_t attempts = 0;
  FakeServer server([&](FakeRequest request) {
    request.headers.erase("range");
    FakeResponse response = hub.answer(request);
    if (request.path.ends_with(".safetensors")) response.cut_after = ++attempts % 2 ? 50'000 : 100'000;
    return response;
  });
  const Outcome outcome = get(server.url(), home, {"--to", folder.string()});
  EXPECT_EQ(outcome.status, 1) << outcome.err;
  EXPECT_EQ(attempts, 3u) << "two that had more than ever, and one";
}

TEST(Get, WrongSizeOrHashIsRefused) {
  const Hub right;
  const auto refused = [&](const Hub& listed, const std::string& cause) {
    const Folder home, folder;
    FakeServer server([&](const FakeRequest& request) {
      return request.path == kApi ? listed.answer(request) : right.answer(request);
    });
    const Outcome outcome = get(server.url(), home, {"--to", folder.string()});
    EXPECT_EQ(outcome.status, 1);
    EXPECT_NE(outcome.err.find(cause), std::string::npos) << outcome.err;
    EXPECT_FALSE(fs::exists(folder / "model.safetensors"));
    return fs::exists(folder / "model.safetensors.incomplete");
  };
  Hub hub;
  hub.entry("model.safetensors")["lfs"]["sha256"] = std::string(64, 'a');
  EXPECT_FALSE(refused(hub, "the hash differs"));
  hub = right;
  hub.entry("model.safetensors")["size"] = right.files.at("model.safetensors").size() - 1;
  refused(hub, "longer than the repository states");
  hub = right;
  hub.entry("model.safetensors")["size"] = right.files.at("model.safetensors").size() + 1;
  refused(hub, "HTTP 416");
  hub = right;
  hub.entry("config.json")["blobId"] = std::string(40, '0');
  refused(hub, "the hash differs");
}

TEST(Get, StatusesAreExplained) {
  const auto told = [](int status, const std::vector<std::string>& headers = {}) {
    const Folder home;
    std::atomic<int> asked = 0;
    FakeServer server([&](const FakeRequest&) -> FakeResponse {
      ++asked;
      return {.status = status, .body = "<html>", .headers = headers};
    });
    const Outcome outcome = get(server.url(), home);
    expect_failure(outcome, 1, "HTTP " + std::to_string(status));
    return std::to_string(asked) + " " + outcome.err;
  };
  EXPECT_NE(told(401).find("HF_TOKEN"), std::string::npos);
  EXPECT_NE(told(403).find("conditions"), std::string::npos);
  EXPECT_TRUE(told(404).starts_with("1 "));
  EXPECT_TRUE(told(429, {"Retry-After: 0"}).starts_with("2 "));
  EXPECT_TRUE(told(500).starts_with("2 "));
  EXPECT_TRUE(told(503).starts_with("2 "));
}

TEST(Get, TransientFailureIsRetried) {
  const Hub hub;
  const Folder home;
  std::atomic<int> asked = 0;
  FakeServer server(
      [&](const FakeRequest& request) { return ++asked % 2 == 1 ? FakeResponse{.status = 503} : hub.answer(request); });
  EXPECT_EQ(get(server.url(), home).status, 0);
}

TEST(Get, RetryAfterIsNoted) {
  const Hub hub;
  const Folder home;
  std::atomic<int> asked = 0;
  FakeServer server([&](const FakeRequest& request) {
    return ++asked == 1 ? FakeResponse{.status = 429, .headers = {"Retry-After: 1"}} : hub.answer(request);
  });
  const Outcome outcome = get(server.url(), home);
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_NE(outcome.err.find("pinion: the server asks for a pause of 1 s\n"), std::string::npos) << outcome.err;
}

TEST(Get, TokenIsSentToEndpointOnly) {
  const Hub hub;
  const Folder home;
  FakeServer other([&](const FakeRequest& request) { return hub.answer(request); });
  FakeServer server([&](const FakeRequest& request) -> FakeResponse {
    if (request.path == kApi) return hub.answer(request);
    if (!request.path.ends_with("?here")) return {.status = 307, .headers = {"Location: " + request.path + "?here"}};
    const std::string path = request.path.substr(0, request.path.find('?'));
    return {.status = 302, .headers = {"Location: " + other.url() + path}};
  });
  const Outcome outcome = get(server.url(), home, {}, "hf_secret");
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  for (const FakeRequest& request : server.requests()) {
    EXPECT_EQ(request.headers.at("authorization"), "Bearer hf_secret") << request.path;
  }
  EXPECT_EQ(other.requests().size(), 4u);
  for (const FakeRequest& request : other.requests()) EXPECT_FALSE(request.headers.contains("authorization"));
  expect_failure(get("http://127.0.0.1:1", home, {}, "two\nlines"), 1, "HF_TOKEN");
}

TEST(Get, EndlessRedirectsAndNoServer) {
  const Folder home;
  FakeServer server(
      [&](const FakeRequest&) -> FakeResponse { return {.status = 302, .headers = {"Location: /again"}}; });
  expect_failure(get(server.url(), home), 1, "too many redirects");
  FakeServer nowhere(
      [&](const FakeRequest&) -> FakeResponse { return {.status = 302, .headers = {"Location: x://y"}}; });
  expect_failure(get(nowhere.url(), home), 1, kApi + " redirected to \"x://y");
  FakeServer endless(
      [&](const FakeRequest&) -> FakeResponse { return {.status = 404, .body = std::string(2 << 20, 'x')}; });
  expect_failure(get(endless.url(), home), 1, kApi + ": too long an error page: HTTP 404");
  expect_failure(get("http://127.0.0.1:1", home), 1, "127.0.0.1:1");
  expect_failure(get("ftp://127.0.0.1", home), 1, "HF_ENDPOINT");
}

TEST(Get, HostileAnswersStayInFolder) {
  const auto outcome_of = [](Hub hub, const Folder& folder) {
    const Folder home;
    return get_from(hub, home, {"--to", folder / "to"});
  };
  for (const std::string name : {"../x.safetensors", "/tmp/x.safetensors", "a/../../config.json", "..", "",
                                 ".safetensors", "x\n.safetensors", "a\\b.safetensors"}) {
    const Folder folder;
    Hub hub;
    hub.add(name, "hostile");
    const Outcome outcome = outcome_of(hub, folder);
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    EXPECT_EQ(files_below(folder.path).size(), 4u) << name;
  }
  const auto refused = [&](const std::string& pointer, const json& value) {
    const Folder folder;
    Hub hub;
    hub.siblings[json::json_pointer(pointer)] = value;
    const Outcome outcome = outcome_of(hub, folder);
    EXPECT_EQ(outcome.status, 1) << pointer;
    EXPECT_FALSE(fs::exists(folder / "to/model.safetensors"));
  };
  refused("/3/lfs/sha256", "../../../etc/x");
  refused("/3/lfs/sha256", 7);
  refused("/0/blobId", "x");
  refused("/0/size", -1);
  refused("/0/size", 1e30);
  refused("/0/rfilename", 5);
  refused("/1/rfilename", "config.json");  // duplicate
  refused("/0", "text");
}

TEST(Get, InvalidAnswersAreRefused) {
  for (const std::string body : {"", "{", "[]", "{\"sha\": \"../..\", \"siblings\": []}", "{\"siblings\": []}",
                                 "{\"sha\": \"0123456789012345678901234567890123456789\"}"}) {
    const Folder home;
    FakeServer server([&](const FakeRequest&) -> FakeResponse { return {.body = body}; });
    expect_failure(get(server.url(), home), 1, "/api/models/tiny/stories");
    EXPECT_TRUE(fs::is_empty(home.path));
  }
}

TEST(Get, UnsupportedModelIsNotDownloaded) {
  const Folder home;
  Hub unknown;
  json config = json::parse(unknown.files["config.json"]);
  config["architectures"] = {"MambaForCausalLM"};
  unknown.siblings.erase(0);
  unknown.add("config.json", config.dump());
  expect_failure(get_from(unknown, home), 1, "MambaForCausalLM");
  Hub empty;
  empty.siblings.erase(3);
  expect_failure(get_from(empty, home), 1, "no weights that pinion reads");
  empty.siblings.erase(0);
  expect_failure(get_from(empty, home), 1, "no config.json");
}

TEST(Get, NamesAndRevisionsAreChecked) {
  for (const std::string name : {"stories", "a/b/c", "../x", "a/..", "a/", "/a", "a b/c", "a/b?x"}) {
    expect_failure(run_pinion({"get", name}), 2, "ORG/NAME");
  }
  for (const std::string revision : {"", "..", "a/../b", "/a", "a?b", "a b"}) {
    expect_failure(run_pinion({"get", "a/b", "--revision", revision}), 2, "--revision");
  }
}

TEST(Get, RevisionIsOnePathComponent) {
  const Hub hub;
  const Folder home;
  FakeServer server([&](FakeRequest request) {
    if (request.path == "/api/models/tiny/stories/revision/refs%2Fpr%2F1?blobs=true") request.path = kApi;
    return hub.answer(request);
  });
  EXPECT_EQ(get(server.url(), home, {"--revision", "refs/pr/1"}).status, 0);
  EXPECT_EQ(read_file(hub_of(home) / "models--tiny--stories/refs/refs/pr/1"), kCommit);
}

TEST(Get, ConcurrentDownloadsDoNotMix) {
  const Hub hub;
  const Folder home, folder;
  const std::string partial = folder / "model.safetensors.incomplete";
  write_file(partial, "");
  const int other = open(partial.c_str(), O_RDWR | O_CLOEXEC);
  ASSERT_EQ(flock(other, LOCK_EX), 0);
  const Outcome outcome = get_from(hub, home, {"--to", folder.string()});
  EXPECT_EQ(outcome.status, 1);
  EXPECT_NE(outcome.err.find("another process is downloading it"), std::string::npos) << outcome.err;
  close(other);
}

}  // namespace
}  // namespace pinion
