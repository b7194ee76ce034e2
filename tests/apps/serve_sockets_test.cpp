// Connections that mean harm: heads without end, bytes that trickle, ranges, and clients that hold up the end.
#include <netinet/in.h>
#include <sys/socket.h>

#include <chrono>

#include "tests/apps/server.h"

namespace pinion {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

class Client {
 public:
  explicit Client(const Server& server) : socket_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(server.port()));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(connect(socket_, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  }
  ~Client() { close(socket_); }
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  bool send(const std::string& text) const {
    return ::send(socket_, text.data(), text.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(text.size());
  }
  // All that comes until the other side closes, or nothing for some seconds.
  std::string receive() const {
    std::string text;
    pollfd one = {.fd = socket_, .events = POLLIN, .revents = 0};
    for (char c[4096]; poll(&one, 1, 8000) > 0;) {
      const ssize_t bytes = recv(socket_, c, sizeof c, 0);
      if (bytes <= 0) break;
      text.append(c, static_cast<size_t>(bytes));
    }
    return text;
  }

 private:
  int socket_;
};

const std::string kBegun = "GET /health HTTP/1.1\r\nHost: localhost\r\nX: ";

TEST(ServeSockets, AHeadHasAnEnd) {
  Server server(kDemo);
  for (const std::string& begin : {kBegun, std::string("GET /")}) {
    const Client client(server);
    EXPECT_TRUE(client.send(begin));
    const std::string much(1 << 16, 'a');
    int sent = 0;
    while (sent < 400 && client.send(much)) ++sent;
    EXPECT_LT(sent, 200) << "of 64 kB, most of it in the sockets' buffers";
  }
  const Client many(server);
  EXPECT_TRUE(many.send("GET /health HTTP/1.1\r\nHost: localhost\r\n"));
  int sent = 0;
  while (sent < 100'000 && many.send("Header: of many\r\n")) ++sent;
  many.send("\r\n");
  EXPECT_EQ(many.receive().find("{\"status\":\"ok\"}"), std::string::npos);
  EXPECT_EQ(server.get("/health"), "{\"status\":\"ok\"}\n");
}

TEST(ServeSockets, RangesAreNotHeeded) {
  Server server(kDemo);
  const std::string whole = server.get("/app.js");
  std::string many = "bytes=0-,";
  for (int i = 0; i < 500; ++i) many += "0-,";
  many += "0-";
  for (const std::string& range : {std::string("bytes=0-10"), many}) {
    const httplib::Result result = server.client().Get("/app.js", {{"Range", range}});
    ASSERT_TRUE(result);
    EXPECT_EQ(result->status, 200);
    EXPECT_EQ(result->body, whole);
  }
}

TEST(ServeSockets, ManyThatTrickleLockNobodyOut) {
  Server server(kDemo);
  std::vector<std::unique_ptr<Client>> slow;
  for (int i = 0; i < 300; ++i) {
    slow.push_back(std::make_unique<Client>(server));
    slow.back()->send(kBegun);
  }
  for (int i = 0; i < 5; ++i) EXPECT_EQ(server.get("/health"), "{\"status\":\"ok\"}\n");
}

TEST(ServeSockets, OneThatTricklesDoesNotHoldUpTheEnd) {
  Server server(kDemo);
  const Client head(server), body(server), idle(server);
  EXPECT_TRUE(head.send(kBegun));
  EXPECT_TRUE(body.send("POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n{"));
  EXPECT_TRUE(idle.send("GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"));
  EXPECT_EQ(server.get("/health"), "{\"status\":\"ok\"}\n");
  const Clock::time_point start = Clock::now();
  EXPECT_EQ(server.end(), 0);
  EXPECT_LT(seconds_since(start), 4);  // less than any of them may be silent
}

TEST(ServeSockets, AReaderThatIsSlowEndsWithTheSecondSignal) {
  Server server(kDemo);
  const Client client(server);
  const std::string request =
      json(
          {{"prompt", "Once"}, {"max_tokens", 8000}, {"ignore_eos", true}, {"stream", true}, {"n", 8}, {"logprobs", 5}})
          .dump();
  EXPECT_TRUE(client.send("POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: " +
                          std::to_string(request.size()) + "\r\n\r\n" + request));
  while (server.metric("tokens_total") < 50) std::this_thread::sleep_for(std::chrono::milliseconds(20));
  server.signal(SIGTERM);
  std::this_thread::sleep_for(std::chrono::milliseconds(300));  // two that come at once count as one
  const Clock::time_point start = Clock::now();
  EXPECT_EQ(server.end(), 0);
  EXPECT_LT(seconds_since(start), 4);
}

TEST(ServeSockets, LogProbabilitiesHaveALimit) {
  Server server(kDemo);
  const json body = {
      {"prompt", std::vector<int>(400, 5)}, {"max_tokens", 0}, {"echo", true}, {"logprobs", 100}, {"n", 60}};
  const json failure = server.post("/v1/completions", body, 400)["error"];
  EXPECT_EQ(failure["param"], "logprobs");
  json fewer = body;
  fewer["n"] = 1;
  EXPECT_EQ(server.post("/v1/completions", fewer)["choices"][0]["logprobs"]["tokens"].size(), 400);
}

}  // namespace
}  // namespace pinion
