// Many concurrent connections, some of them hostile: every reply equals that of a lone request.
// A longer run against another build of the program:
//   PINION_SOAK_SECONDS=600 PINION_SOAK_CLIENTS=200 PINION_PROGRAM=build/sanitize/pinion apps_tests serve_soak
#include <random>

#include "tests/apps/server.h"

namespace pinion {
namespace {

using Clock = std::chrono::steady_clock;

int64_t number_of(const char* name, int64_t absent) {
  const char* text = std::getenv(name);
  return text ? std::atoll(text) : absent;
}

// Some prompts share a prefix; some exceed the rows that a decoding pass has for prompts.
json request_of(size_t i) {
  std::string prompt = i % 3 == 0 ? "Once upon a time" : "Lily and Tom went to the park. They saw";
  for (size_t word = 0; word < i * 4; ++word) prompt += word % 2 == 0 ? " a big dog and" : " a red ball";
  return {{"prompt", prompt}, {"max_tokens", 5 + i * 5}, {"seed", i}, {"temperature", i % 2}, {"top_k", 40}};
}

struct Counts {
  std::atomic<int64_t> answers{0}, wrong{0}, refused{0}, left{0}, broken{0}, slow{0}, failed{0};
};

class SoakClient {
 public:
  SoakClient(const Server& server, const std::vector<std::string>& alone, Counts& counts, uint32_t seed)
      : server_(server), alone_(alone), counts_(counts), random_(seed) {}

  void act() {
    switch (random_() % 10) {
      case 0: return leave();
      case 1: return send_nonsense();
      case 2: return read_slowly();
      case 3: return stop_in_the_headers();
      default: return ask();
    }
  }

 private:
  void ask() {
    const size_t i = random_() % alone_.size();
    const httplib::Result result = server_.client().Post("/v1/completions", request_of(i).dump(), "application/json");
    if (!result) {
      ++counts_.failed;
      std::printf("%s\n", httplib::to_string(result.error()).c_str());
    } else if (result->status == 429) {
      ++counts_.refused;
      std::this_thread::sleep_for(std::chrono::milliseconds(random_() % 50));
    } else {
      ++counts_.answers;
      counts_.wrong += json::parse(result->body, nullptr, false)["choices"].dump() != alone_[i];
    }
  }

  void leave() {
    json body = request_of(random_() % alone_.size());
    body["stream"] = true;
    httplib::Request request;
    request.method = "POST";
    request.path = "/v1/completions";
    request.body = body.dump();
    request.set_header("Content-Type", "application/json");
    size_t left = random_() % 3000;
    request.content_receiver = [&](const char*, size_t bytes, uint64_t, uint64_t) {
      left -= std::min(left, bytes);
      return left > 0;
    };
    server_.client().send(request);
    ++counts_.left;
  }

  void send_nonsense() {
    std::string body = request_of(random_() % alone_.size()).dump();
    body.resize(random_() % body.size());
    const httplib::Result result = server_.client().Post("/v1/completions", body, "application/json");
    counts_.wrong += result && result->status != 400;
    ++counts_.broken;
  }

  // A plain socket, to misbehave as no HTTP client does.
  int connect_plainly() const {
    const int socket = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(server_.port()));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    connect(socket, reinterpret_cast<sockaddr*>(&address), sizeof address);
    return socket;
  }

  void read_slowly() {
    const int socket = connect_plainly();
    json body = request_of(random_() % alone_.size());
    body["stream"] = true;
    const std::string text = body.dump();
    const std::string request =
        "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: " + std::to_string(text.size()) +
        "\r\n\r\n" + text;
    send(socket, request.data(), request.size(), MSG_NOSIGNAL);
    char c;
    for (int i = 0; i < 20 && recv(socket, &c, 1, 0) == 1; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    close(socket);
    ++counts_.slow;
  }

  void stop_in_the_headers() {
    const int socket = connect_plainly();
    const std::string request = "POST /v1/completions HTTP/1.1\r\nContent-Length: 100\r\n\r\n{\"prompt\"";
    send(socket, request.data(), random_() % request.size(), MSG_NOSIGNAL);
    close(socket);
    ++counts_.broken;
  }

  const Server& server_;
  const std::vector<std::string>& alone_;
  Counts& counts_;
  std::mt19937 random_;
};

TEST(ServeSoak, RepliesEqualThoseOfLoneRequests) {
  const auto end = Clock::now() + std::chrono::seconds(number_of("PINION_SOAK_SECONDS", 3));
  const int64_t clients = number_of("PINION_SOAK_CLIENTS", 16);
  Server server(kStories, {"--parallel", "4", "--queue", "8", "--speculate", "ngram"});
  std::vector<std::string> alone;
  for (size_t i = 0; i < 12; ++i) alone.push_back(server.post("/v1/completions", request_of(i))["choices"].dump());
  Counts counts;
  std::vector<std::thread> threads;
  for (int64_t i = 0; i < clients; ++i) {
    threads.emplace_back([&, i] {
      SoakClient client(server, alone, counts, static_cast<uint32_t>(i));
      while (Clock::now() < end) client.act();
    });
  }
  for (std::thread& thread : threads) thread.join();
  while (server.metric("texts_running") + server.metric("texts_waiting") > 0) {
  }
  std::printf("%lld answers, %lld refused, %lld left, %lld broken, %lld slow, %lld failed\n",
              static_cast<long long>(counts.answers), static_cast<long long>(counts.refused),
              static_cast<long long>(counts.left), static_cast<long long>(counts.broken),
              static_cast<long long>(counts.slow), static_cast<long long>(counts.failed));
  EXPECT_GT(counts.answers, 0);
  EXPECT_EQ(counts.wrong, 0);
  EXPECT_EQ(counts.failed, 0);
  EXPECT_EQ(server.end(), 0);
  EXPECT_EQ(server.errors(), "");
}

}  // namespace
}  // namespace pinion
