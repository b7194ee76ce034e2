// Hostile connections: endless heads, ambiguous heads, slow senders and readers, many at once, at shutdown too.
#include <netinet/in.h>
#include <sys/socket.h>

#include <cerrno>
#include <chrono>
#include <thread>

#include "tests/apps/server.h"

namespace pinion {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

class Client {
 public:
  explicit Client(const Server& server, int receive_bytes = 0)
      : socket_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    if (receive_bytes > 0) setsockopt(socket_, SOL_SOCKET, SO_RCVBUF, &receive_bytes, sizeof receive_bytes);
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
  // Discards received bytes. False: the server has closed the connection.
  bool drop() const {
    char c[4096];
    ssize_t bytes = 0;
    while ((bytes = recv(socket_, c, sizeof c, MSG_DONTWAIT)) > 0) {
    }
    return bytes < 0 && errno == EAGAIN;
  }
  // Receives until the server closes the connection or is silent for `most_ms`.
  std::string receive(int most_ms = 8'000) const {
    std::string text;
    pollfd one = {.fd = socket_, .events = POLLIN, .revents = 0};
    for (char c[4096]; poll(&one, 1, most_ms) > 0;) {
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
const std::string kBegunBody = "POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n{";

TEST(ServeSockets, HeadSizeIsLimited) {
  Server server(kDemo);
  for (const std::string& begin : {kBegun, std::string("GET /")}) {
    const Client client(server);
    EXPECT_TRUE(client.send(begin));
    const std::string much(1 << 16, 'a');
    int sent = 0;
    while (sent < 400 && client.send(much)) ++sent;
    EXPECT_LT(sent, 200) << "blocks of 64 kB, most of them in socket buffers";
  }
  const Client many(server);
  EXPECT_TRUE(many.send("GET /health HTTP/1.1\r\nHost: localhost\r\n"));
  int sent = 0;
  while (sent < 100'000 && many.send("Header: of many\r\n")) ++sent;
  many.send("\r\n");
  EXPECT_EQ(many.receive().find("{\"status\":\"ok\"}"), std::string::npos);
  EXPECT_EQ(server.get("/health"), "{\"status\":\"ok\"}\n");
}

size_t answers_in(const std::string& text) {
  size_t count = 0;
  for (size_t at = 0; (at = text.find("HTTP/1.1 ", at)) != text.npos; ++at) ++count;
  return count;
}

// Sends `text` and returns all replies, until the server closes the connection.
std::string conversation(const Server& server, const std::string& text) {
  const Client client(server);
  EXPECT_TRUE(client.send(text));
  return client.receive();
}

const std::string kInner = "GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n";

std::string with_inner_body(const std::string& line, const std::string& headers = {}) {
  return line + " HTTP/1.1\r\nHost: localhost\r\n" + headers + "Content-Length: " + std::to_string(kInner.size()) +
         "\r\n\r\n" + kInner;
}

TEST(ServeSockets, UnreadBodyIsNoRequest) {
  Server server(kDemo);
  const std::string long_path = "/" + std::string(9000, 'a');
  for (const auto& [text, status] : std::vector<std::pair<std::string, std::string>>{
           {with_inner_body("POST " + long_path), "414"},
           {with_inner_body("POST /v1/models and more"), "400"},
           {with_inner_body("BREW /v1/models"), "400"},
           {with_inner_body("POST /v1/completions", "Range: of nothing\r\n"), "416"},
           {with_inner_body("POST /v1/completions", "Origin: http://elsewhere\r\n"), "403"},
           {with_inner_body("POST /nowhere"), "404"},
           {with_inner_body("GET /v1/models"), "200"},
           {with_inner_body("GET /v1/models/demo"), "200"},
           {with_inner_body("HEAD /v1/models"), "200"},
           {with_inner_body("OPTIONS /v1/models"), "404"},
           {"GET / HTTP/9\r\n\r\n" + kInner, "400"}}) {
    const std::string answers = conversation(server, text);
    EXPECT_TRUE(answers.starts_with("HTTP/1.1 " + status)) << text << answers;
    EXPECT_EQ(answers_in(answers), 1) << text << answers;
    EXPECT_NE(answers.find("Connection: close"), answers.npos) << answers;
  }
}

TEST(ServeSockets, LargeRefusedBodyStillGetsReply) {
  Server server(kDemo);
  const std::string much(20 << 20, ' ');
  for (int i = 0; i < 3; ++i) {
    const httplib::Result result =
        server.client().Post("/tokenize", {{"Origin", "http://elsewhere"}}, much, "application/json");
    ASSERT_TRUE(result) << httplib::to_string(result.error());
    EXPECT_EQ(result->status, 403);
  }
}

TEST(ServeSockets, CompleteRequestKeepsConnection) {
  Server server(kDemo);
  const std::string body = "{\"content\": \"Once\"}";
  const std::string post =
      "POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Length: " + std::to_string(body.size()) + "\r\n\r\n" +
      body;
  const std::string empty = "GET /health HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n";
  const std::string last = "GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
  const std::string answers = conversation(server, post + kInner + empty + post + last);
  EXPECT_EQ(answers_in(answers), 5) << answers;
}

TEST(ServeSockets, AmbiguousHeadsAreRefused) {
  Server server(kDemo);
  const std::string body = "{\"content\": \"Once\"}", size = std::to_string(body.size());
  const std::string fine = "Content-Length: " + size + "\r\n", other = "Content-Length: 3\r\n";
  const std::string chunked = "Transfer-Encoding: chunked\r\n";
  const std::vector<std::string> twofold = {
      other + fine,
      fine + other,
      fine + fine,
      fine + chunked,
      chunked + fine,
      chunked + chunked,
      "Content-Length: +" + size + "\r\n",
      "Content-Length: -1\r\n",
      "Content-Length: abc\r\n",
      "Content-Length: " + size + "x\r\n",
      "Content-Length: " + size + ", " + size + "\r\n",
      "Content-Length: %31%39\r\n",  // cpp-httplib decodes it
      "Content-Length:\r\n",
      "Transfer-Encoding: identity\r\n",
      "Transfer-Encoding: gzip, chunked\r\n",
      fine + "Transfer-Encoding : chunked\r\n",
      fine + "Transfer-Encoding\t: chunked\r\n",
      fine + "X: y\r\n Transfer-Encoding: chunked\r\n",
      fine + "X: y\rTransfer-Encoding: chunked\r\n",
      fine + "X: y\nTransfer-Encoding: chunked\r\n",
      fine + std::string("X: a\0b\r\n", 8),
      fine + "X\r\n",
      fine + ": y\r\n",
      fine + "Host: elsewhere\r\n",
  };
  for (const std::string& headers : twofold) {
    const std::string text = "POST /tokenize HTTP/1.1\r\nHost: localhost\r\n" + headers + "\r\n" + body + kInner;
    const std::string answers = conversation(server, text);
    EXPECT_TRUE(answers.starts_with("HTTP/1.1 400")) << text << answers;
    EXPECT_EQ(answers_in(answers), 1) << text << answers;
  }
  const std::string plain = "POST /tokenize HTTP/1.1\r\nhost:localhost\r\nX:\r\nCONTENT-LENGTH: \t" + size +
                            " \r\nConnection: close\r\n\r\n" + body;
  EXPECT_TRUE(conversation(server, plain).starts_with("HTTP/1.1 200"));
}

std::string chunked(const std::string& chunks, const std::string& headers = {}) {
  return "POST /tokenize HTTP/1.1\r\nHost: localhost\r\n" + headers + "Transfer-Encoding: chunked\r\n\r\n" + chunks;
}

TEST(ServeSockets, ChunkedBodiesAreRead) {
  Server server(kDemo);
  const std::string begin = "{\"content\": \"", first = "d\r\n" + begin + "\r\n";
  ASSERT_EQ(begin.size(), 13);
  const std::string last = "GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
  for (const std::string& chunks :
       {first + "6\r\nOnce\"}\r\n0\r\n\r\n", first + "0006;a=\"b\"\r\nOnce\"}\r\n000\r\n\r\n",
        first + "1\r\nO\r\n5\r\nnce\"}\r\n0;x\r\nX-Sum: 1\r\nY:\r\n\r\n"}) {
    const std::string answers = conversation(server, chunked(chunks) + last);
    EXPECT_EQ(answers_in(answers), 2) << chunks << answers;
    EXPECT_TRUE(answers.starts_with("HTTP/1.1 200")) << answers;
    EXPECT_NE(answers.find("\"count\":"), answers.npos) << answers;
  }
  // Bytes that two parsers may read differently.
  for (const std::string& chunks :
       {"d\n" + begin, "d \r\n" + begin, "0xd\r\n" + begin, " d\r\n" + begin, "+d\r\n" + begin, "-d\r\n" + begin,
        "\r\n" + begin, ";\r\n" + begin, "g\r\n" + begin,
        first.substr(0, first.size() - 2) + "6\r\nOnce\"}\r\n0\r\n\r\n", "c\r\n" + begin + "\r\n0\r\n\r\n",
        "d;a\rb\r\n" + begin, first + "0\r\nX: y\n\r\n"}) {
    const std::string answers = conversation(server, chunked(chunks + kInner));
    EXPECT_TRUE(answers.starts_with("HTTP/1.1 400")) << chunks << answers;
    EXPECT_EQ(answers_in(answers), 1) << chunks << answers;
  }
  EXPECT_TRUE(conversation(server, "POST /tokenize HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n")
                  .starts_with("HTTP/1.1 400"));
  EXPECT_TRUE(conversation(server, chunked("0\r\n\r\n", "Content-Encoding: gzip\r\n")).starts_with("HTTP/1.1 415"));
}

TEST(ServeSockets, ChunkedBodiesAreLimited) {
  Server server(kDemo);
  for (const char* size : {"2000001", "ffffffffffffffff", "10000000000000000"}) {
    EXPECT_TRUE(conversation(server, chunked(std::string(size) + "\r\n")).starts_with("HTTP/1.1 413")) << size;
  }
  std::string many = "1000000\r\n" + std::string(1 << 24, ' ') + "\r\n";
  const Client large(server);
  std::thread sender([&] { large.send(chunked(many + many + "1\r\n")); });
  EXPECT_TRUE(large.receive().starts_with("HTTP/1.1 413"));
  sender.join();
  // One byte a chunk, with long extensions.
  std::string extensions;
  while (extensions.size() < (34 << 20)) extensions += "1;" + std::string(4000, 'x') + "\r\n \r\n";
  const Client wasteful(server);
  std::thread waster([&] { wasteful.send(chunked(extensions)); });
  EXPECT_TRUE(wasteful.receive().starts_with("HTTP/1.1 400"));
  waster.join();
  const Client silent(server);
  EXPECT_TRUE(silent.send(chunked("e\r\n{")));
  EXPECT_TRUE(silent.receive().starts_with("HTTP/1.1 400")) << "the peer is silent";
  EXPECT_EQ(server.get("/health"), "{\"status\":\"ok\"}\n");
}

TEST(ServeSockets, RangesAreIgnored) {
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

TEST(ServeSockets, SlowConnectionsLockNobodyOut) {
  const std::string much = json({{"prompt", "Once"}, {"max_tokens", 500}, {"ignore_eos", true}, {"n", 24}}).dump();
  std::string pages;
  for (int i = 0; i < 300; ++i) pages += "GET /markdown.js HTTP/1.1\r\n\r\n";
  // Each connection makes a thread wait: for a head, for a body, or for the client to read.
  for (const std::string& begun : {kBegun, kBegunBody, pages}) {
    Server server(kDemo);
    const Client patient(server);  // waits for the engine, so the server must not evict it
    patient.send("POST /v1/completions HTTP/1.1\r\nConnection: close\r\nContent-Length: " +
                 std::to_string(much.size()) + "\r\n\r\n" + much);
    std::vector<std::unique_ptr<Client>> slow;
    for (int i = 0; i < 300; ++i) {
      slow.push_back(std::make_unique<Client>(server, 4096));
      slow.back()->send(begun);
    }
    const Clock::time_point start = Clock::now();
    for (int i = 0; i < 5; ++i) EXPECT_EQ(server.get("/health"), "{\"status\":\"ok\"}\n");
    EXPECT_LT(seconds_since(start), 4) << "the timeout for silent clients is longer: " << begun.substr(0, 20);
    EXPECT_TRUE(patient.receive(60'000).starts_with("HTTP/1.1 200"));  // 12,000 tokens, slow with sanitizers
  }
}

TEST(ServeSockets, BusyConnectionsLockNobodyOut) {
  Server server(kDemo);
  const std::string ask = "GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n";
  const std::jthread others([&](const std::stop_token& ends) {
    std::vector<std::unique_ptr<Client>> busy(300);
    while (!ends.stop_requested()) {
      for (std::unique_ptr<Client>& one : busy) {
        if (one && one->drop() && one->send(ask + ask)) continue;
        one = std::make_unique<Client>(server);
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(500));
  const Clock::time_point start = Clock::now();
  for (int i = 0; i < 3; ++i) EXPECT_EQ(server.get("/health"), "{\"status\":\"ok\"}\n");
  EXPECT_LT(seconds_since(start), 4);
}

TEST(ServeSockets, RefusalWithoutBodyKeepsConnection) {
  Server server(kDemo);
  const std::string foreign = "GET /v1/models HTTP/1.1\r\nHost: localhost\r\nOrigin: http://elsewhere\r\n\r\n";
  const std::string last = "GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
  EXPECT_EQ(answers_in(conversation(server, foreign + foreign + last)), 3);
}

TEST(ServeSockets, SlowConnectionsDoNotDelayShutdown) {
  Server server(kDemo);
  const Client head(server), body(server), idle(server);
  EXPECT_TRUE(head.send(kBegun));
  EXPECT_TRUE(body.send(kBegunBody));
  EXPECT_TRUE(idle.send("GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"));
  EXPECT_EQ(server.get("/health"), "{\"status\":\"ok\"}\n");
  const Clock::time_point start = Clock::now();
  EXPECT_EQ(server.end(), 0);
  EXPECT_LT(seconds_since(start), 4);  // below the timeout for silent clients
}

TEST(ServeSockets, SecondSignalEndsSlowReader) {
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
  std::this_thread::sleep_for(std::chrono::milliseconds(300));  // two pending signals count as one
  const Clock::time_point start = Clock::now();
  EXPECT_EQ(server.end(), 0);
  EXPECT_LT(seconds_since(start), 4);
}

TEST(ServeSockets, LogprobsAreLimited) {
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
