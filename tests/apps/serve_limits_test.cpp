// Limits on the resources of one request and of all together.
#include "apps/serve/api.h"
#include "tests/apps/server.h"

namespace pinion {
namespace {

TEST(ServeLimits, SlotsLimitConcurrency) {
  Slots slots(2);
  std::atomic<int> running{0}, max_running{0}, total{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&] {
      for (int round = 0; round < 20; ++round) {
        const Slot slot(slots);
        const int here = ++running;
        for (int seen = max_running.load(); seen < here && !max_running.compare_exchange_weak(seen, here);) {
        }
        std::this_thread::sleep_for(std::chrono::microseconds(100));
        ++total;
        --running;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(max_running, 2);
  EXPECT_EQ(total, 160);
}

// A prompt of 2 MB is refused before all of it is encoded.
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
