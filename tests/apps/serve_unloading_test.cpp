// Several models in one server: dropping them, memory, counters.
#include <sys/stat.h>

#include <fstream>
#include <map>
#include <sstream>

#include "tests/apps/models.h"

namespace pinion {
namespace {

TEST(ServeUnloading, CountersAndTheRoofOutliveTheModel) {
  const ModelFolders folders;
  const Folder prompts;
  const Server server(folders / "demo", {"--model", folders / "other", "--prompt-cache", prompts / "c"});
  const auto values = [&] {
    std::map<std::string, double> all;
    std::istringstream lines(server.get("/metrics"));
    for (std::string line; std::getline(lines, line);) {
      const size_t blank = line.rfind(' ');
      const bool counts = line.find("_total{") != line.npos || line.find("_count{") != line.npos ||
                          line.find("roof_bytes_per_second{") != line.npos;
      if (counts && line.find("demo") != line.npos) all[line.substr(0, blank)] = std::stod(line.substr(blank));
    }
    return all;
  };
  const std::string roof = "pinion_roof_bytes_per_second{model=\"demo\"}", texts = "pinion_texts_total{model=\"demo\"}";
  completed(server, request("demo"));
  while (values().count(roof) == 0) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  const std::map<std::string, double> before = values();
  EXPECT_EQ(before.at(texts), 1);
  EXPECT_GT(before.at("pinion_passes_total{model=\"demo\"}"), 20);
  server.post("/models/unload", {{"model", "demo"}});
  EXPECT_EQ(values(), before);
  server.post("/models/load", {{"model", "demo"}});
  EXPECT_EQ(values(), before);
  completed(server, request("demo"));
  std::map<std::string, double> after = values();
  EXPECT_EQ(after.at(texts), 2);
  for (const auto& [name, value] : before) EXPECT_GE(after.at(name), value) << name;
  EXPECT_EQ(after.at(roof), before.at(roof)) << "measured once";
}

// A load that waits for its --warm file, a pipe, must not keep another model in memory.
TEST(ServeUnloading, UnloadDoesNotWaitForALoad) {
  const ModelFolders folders;
  const std::string pipe = folders / "warm.json";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  const auto send_messages = [&] { write_file(pipe, json({{"messages", kOwlStory}}).dump()); };
  fs::copy(kDemo, folders.path / "second");
  const Server server(folders / "demo", {"--model", folders / "second", "--warm", pipe});
  std::thread writer(send_messages);
  server.post("/models/load", {{"model", "demo"}});
  writer.join();
  std::atomic<bool> is_loaded = false;
  std::thread slow([&] {
    server.post("/models/load", {{"model", "second"}});
    is_loaded = true;
  });
  while (status(server, "second") != "loading") std::this_thread::sleep_for(std::chrono::milliseconds(5));
  httplib::Client impatient = server.client();
  impatient.set_read_timeout(20);
  EXPECT_TRUE(impatient.Post("/models/unload", R"({"model": "demo"})", "application/json"));
  EXPECT_EQ(status(server, "demo"), "unloaded");
  EXPECT_FALSE(is_loaded);
  send_messages();
  slow.join();
  EXPECT_EQ(loaded(server), Names{"second"});
}

int64_t free_bytes() {
  std::ifstream file("/proc/meminfo");
  std::string word;
  for (int64_t value = 0; file >> word;) {
    if (word == "MemAvailable:" && file >> value) return value * 1024;
  }
  return 0;
}

void set_context(const fs::path& folder, int64_t tokens) {
  json config = read_json(folder / "config.json");
  config["max_position_embeddings"] = tokens;
  write_file(folder / "config.json", config.dump());
}

// Bytes of a token's keys and values in int8.
int64_t token_bytes(const fs::path& folder) {
  const json config = read_json(folder / "config.json");
  const int64_t layers = config["num_hidden_layers"], heads = config["num_key_value_heads"];
  const int64_t width = config["hidden_size"], query_heads = config["num_attention_heads"];
  return 2 * layers * heads * (config.value("head_dim", width / query_heads) + 4);
}

// Each context takes most of the free memory, although the kernel counts its untouched pages as free.
TEST(ServeUnloading, LackOfMemoryDropsOthers) {
  const ModelFolders folders;
  for (const char* name : {"demo", "other"}) set_context(folders.path / name, 1 << 30);
  const int64_t context = std::min<int64_t>(1 << 30, free_bytes() * 6 / 10 / token_bytes(folders / "demo"));
  const Server server(folders / "demo", {"--model", folders / "other", "--context", std::to_string(context)});
  completed(server, request("demo"));
  EXPECT_EQ(loaded(server), Names{"demo"});
  completed(server, request("other"));
  EXPECT_EQ(loaded(server), Names{"other"}) << server.errors();
}

TEST(ServeUnloading, ModelThatNeverFitsDropsNoOther) {
  const ModelFolders folders;
  set_context(folders / "other", 1 << 30);
  const int64_t context = std::min<int64_t>(1 << 30, free_bytes() * 3 / token_bytes(folders / "other"));
  const Server server(folders / "demo", {"--model", folders / "other", "--context", std::to_string(context)});
  completed(server, request("demo"));
  const std::string message = server.post("/v1/completions", request("other"), 503)["error"]["message"];
  EXPECT_TRUE(message.starts_with("other cannot be loaded: session: too little memory")) << message;
  EXPECT_EQ(loaded(server), Names{"demo"});
}

// The kernel has taken the blocks that a text has touched from the free memory, so they are not counted as reserved.
TEST(ServeUnloading, TouchedMemoryIsCountedOnce) {
  const ModelFolders folders;
  const Server server(folders / "demo", {"--model", folders / "other", "--kv", "f32"});
  const auto reserved = [&] {
    std::vector<int64_t> samples(31);  // the median: other processes take memory, too
    for (int64_t& sample : samples) {
      const int64_t before = free_bytes();
      sample = before - json::parse(server.get("/health"))["free_memory_bytes"].get<int64_t>();
    }
    std::ranges::nth_element(samples, samples.begin() + 15);
    return samples[15];
  };
  completed(server, request("demo"));
  const int64_t before = reserved();
  json long_text = request("demo");
  long_text["prompt"] = std::vector<int>(8000, 300);
  completed(server, long_text);
  constexpr int64_t kTouched = int64_t{8000} * 2 * 5 * 2 * 48 * 4;
  const int64_t difference = before - reserved();
  EXPECT_GT(difference, kTouched * 3 / 4);
  EXPECT_LT(difference, kTouched * 5 / 4);
}

}  // namespace
}  // namespace pinion
