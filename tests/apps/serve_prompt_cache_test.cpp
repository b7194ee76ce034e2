// --prompt-cache and --warm: what an earlier process has read is not read again, and every text stays the same.
#include "tests/apps/chat.h"
#include "tests/apps/server.h"

namespace pinion {
namespace {

namespace fs = std::filesystem;

std::string long_prompt() {
  std::string text;
  for (int i = 0; i < 30; ++i) text += "Once there was a cat number " + std::to_string(i) + ". ";
  return text;
}

json generated(const std::string& prompt, const std::vector<std::string>& options = {}) {
  std::vector<std::string> all = {"--prompt", prompt, "--max-tokens", "8", "--json"};
  all.insert(all.end(), options.begin(), options.end());
  return run_json(generate(kStories, all));
}

TEST(PromptCache, GenerateContinuesAnEarlierRun) {
  const Folder folder;
  const std::vector<std::string> cached = {"--prompt-cache", folder / "cache"};
  const json plain = generated(long_prompt());
  const auto tokens = plain["stats"]["prompt_tokens"].get<int64_t>();
  ASSERT_GT(tokens, 200);
  EXPECT_EQ(generated(long_prompt(), cached)["stats"]["tokens_from_disk"], 0);
  const json again = generated(long_prompt(), cached);
  EXPECT_EQ(again["stats"]["tokens_from_disk"], tokens - 1);
  EXPECT_EQ(again["ids"], plain["ids"]);
  EXPECT_EQ(again["stats"]["logits_hash"], plain["stats"]["logits_hash"]);
  EXPECT_GE(generated(long_prompt() + "Then", cached)["stats"]["tokens_from_disk"].get<int64_t>(), tokens - 1);
  write_file(folder / "prompts", json({{"prompt", long_prompt()}}).dump() + "\n");
  const Outcome many = run_pinion(
      generate(kStories, {"--prompts", folder / "prompts", "--prompt-cache", folder / "cache", "--max-tokens", "8"}));
  EXPECT_EQ(many.status, 0) << many.err;
  EXPECT_EQ(json::parse(many.out, nullptr, false)["ids"], plain["ids"]);
  EXPECT_EQ(json::parse(many.out, nullptr, false)["reused_tokens"], tokens - 1);
}

TEST(PromptCache, MistakesAreOneLine) {
  const Folder folder;
  for (const std::string size : {"0", "-1", "8X", "8GB", "", "nan"}) {
    const Outcome wrong =
        run_pinion(generate(kStories, {"--prompt", "A", "--prompt-cache", (folder / "cache") + "," + size}));
    EXPECT_NE(wrong.status, 0) << size;
    EXPECT_NE(wrong.err.find("SIZE"), std::string::npos) << wrong.err;
  }
  write_file(folder / "file", "x");
  const Outcome file = run_pinion(generate(kStories, {"--prompt", "A", "--prompt-cache", folder / "file"}));
  EXPECT_EQ(file.status, 1);
  EXPECT_EQ(std::ranges::count(file.err, '\n'), 1) << file.err;
  // Smaller than one file: nothing is kept, and nothing fails.
  const std::string tiny = (folder / "tiny") + ",1K";
  generated(long_prompt(), {"--prompt-cache", tiny});
  EXPECT_EQ(generated(long_prompt(), {"--prompt-cache", tiny})["stats"]["tokens_from_disk"], 0);
}

TEST(PromptCache, FullDiskIsNoted) {
  const Folder folder;
  std::vector<std::string> options = {"--prompt", long_prompt(), "--json", "--max-tokens", "8", "--no-cache"};
  options.insert(options.end(), {"--prompt-cache", folder / "cache"});
  const std::string command = "ulimit -f 64; " + command_line(generate(kStories, options)) + " >" +
                              quoted(folder / "out") + " 2>" + quoted(folder / "err");
  const int status = std::system(command.c_str());
  const Outcome limited = {WIFEXITED(status) ? WEXITSTATUS(status) : 128, read_file(folder / "out"),
                           read_file(folder / "err")};
  EXPECT_EQ(limited.status, 0) << limited.err;
  EXPECT_NE(limited.err.find("the prompt cache keeps no more"), std::string::npos) << limited.err;
  EXPECT_EQ(json::parse(limited.out, nullptr, false)["ids"], generated(long_prompt())["ids"]);
}

TEST(PromptCache, ServerContinuesAfterARestart) {
  const Folder folder;
  const json request = {{"prompt", long_prompt()}, {"max_tokens", 8}, {"temperature", 0}};
  const std::vector<std::string> options = {"--prompt-cache", (folder / "cache") + ",1G"};
  std::string text;
  for (const bool is_restarted : {false, true}) {
    Server server(kStories, options);
    const json reply = server.post("/v1/completions", request);
    const auto tokens = reply["usage"]["prompt_tokens"].get<int64_t>();
    EXPECT_EQ(reply["usage"]["prompt_tokens_details"]["cached_tokens"], is_restarted ? tokens - 1 : 0);
    EXPECT_EQ(reply["usage"]["prompt_tokens_details"]["cached_on_disk"], is_restarted ? tokens - 1 : 0);
    EXPECT_EQ(server.metric("prompt_cache_tokens_total"), is_restarted ? static_cast<double>(tokens - 1) : 0);
    if (is_restarted) {
      EXPECT_EQ(reply["choices"][0]["text"], text);
    }
    text = reply["choices"][0]["text"];
    EXPECT_GT(server.metric("prompt_cache_bytes"), 0);
    EXPECT_EQ(server.end(), 0) << server.errors();
  }
}

TEST(PromptCache, WarmMessagesAreReadBeforeTheFirstRequest) {
  const Folder folder;
  const ChatModel model;
  const json system = {{"role", "system"}, {"content", long_prompt()}};
  write_file(folder / "warm.json", json({{"messages", {system, {{"role", "user"}, {"content", "Hi"}}}}}).dump());
  Server server(model.path, {"--warm", folder / "warm.json"});
  server.await("texts_total", 1);
  const json reply =
      server.post("/v1/chat/completions",
                  {{"messages", {system, {{"role", "user"}, {"content", "Who are you?"}}}}, {"max_tokens", 4}});
  EXPECT_GT(reply["usage"]["prompt_tokens_details"]["cached_tokens"].get<int64_t>(), 200) << reply;
  EXPECT_EQ(server.end(), 0);
  Server plain(kStories, {"--warm", folder / "warm.json"});  // a model without a chat template reads no messages
  plain.post("/v1/completions", {{"prompt", "Once"}, {"max_tokens", 1}});
  EXPECT_EQ(plain.end(), 0);
  write_file(folder / "wrong.json", R"({"messages": 1})");
  const Outcome wrong = run_pinion({"serve", "--model", model.path, "--port", "0", "--warm", folder / "wrong.json"});
  EXPECT_EQ(wrong.status, 1);
  EXPECT_NE(wrong.err.find("--warm"), std::string::npos) << wrong.err;
}

}  // namespace
}  // namespace pinion
