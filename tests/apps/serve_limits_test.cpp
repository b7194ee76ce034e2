// What one request may take of the machine, and all of them together.
#include "apps/serve/api.h"
#include "tests/apps/server.h"

namespace pinion {
namespace {

TEST(ServeLimits, FewReadAtOnce) {
  Readers readers(2);
  std::atomic<int> now{0}, most{0}, all{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&] {
      for (int round = 0; round < 20; ++round) {
        const Reading reading(readers);
        const int here = ++now;
        for (int seen = most.load(); seen < here && !most.compare_exchange_weak(seen, here);) {
        }
        std::this_thread::sleep_for(std::chrono::microseconds(100));
        ++all;
        --now;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(most, 2);
  EXPECT_EQ(all, 160);
}

// Before all of it is encoded: this one is 2 MB.
TEST(ServeLimits, LongPromptsAreRefusedEarly) {
  Server server(kDemo);
  std::string text;
  while (text.size() < (2 << 20)) text += "owl and fox ";
  const json messages = {{{"role", "user"}, {"content", text}}};
  for (const auto& [path, body] : {std::pair<const char*, json>{"/v1/completions", {{"prompt", text}}},
                                   {"/v1/chat/completions", {{"messages", messages}}},
                                   {"/tokenize", {{"content", text}}}}) {
    const json failure = server.post(path, body, 400)["error"];
    EXPECT_EQ(failure["code"], "context_length_exceeded") << path;
    EXPECT_NE(failure["message"].get<std::string>().find("(the context)"), std::string::npos) << failure;
  }
  EXPECT_NE(server.post("/v1/messages", {{"messages", messages}, {"max_tokens", 1}}, 400)["error"]["message"]
                .get<std::string>()
                .find("(the context)"),
            std::string::npos);
}

TEST(ServeLimits, BodiesHaveFewerValuesThanFiles) {
  Server server(kStories);
  json body = {{"prompt", "a"}, {"other", json(300'000, 1)}};
  for (const char* path : {"/v1/completions", "/tokenize", "/detokenize", "/api/generate"}) {
    EXPECT_NE(server.post(path, body, 400).dump().find("200000"), std::string::npos) << path;
  }
}

}  // namespace
}  // namespace pinion
