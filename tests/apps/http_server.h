// A server on 127.0.0.1 that answers GET requests one by one with the test's replies: whole, cut off or wrong.
#pragma once

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cctype>
#include <functional>
#include <map>
#include <string>
#include <thread>
#include <vector>

namespace pinion {

struct FakeRequest {
  std::string path;
  std::map<std::string, std::string> headers;  // names in lower case
};

struct FakeResponse {
  int status = 200;
  std::string body = {};
  std::vector<std::string> headers = {};  // "Name: value"
  size_t cut_after = std::string::npos;   // bytes of the body after which the connection is closed
};

class FakeServer {
 public:
  explicit FakeServer(std::function<FakeResponse(const FakeRequest&)> answer) : answer_(std::move(answer)) {
    listener_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t bytes = sizeof address;
    EXPECT_EQ(bind(listener_, reinterpret_cast<sockaddr*>(&address), bytes), 0);
    EXPECT_EQ(listen(listener_, 16), 0);
    EXPECT_EQ(getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &bytes), 0);
    port_ = ntohs(address.sin_port);
    thread_ = std::thread([this] { serve(); });
  }
  ~FakeServer() { stop(); }
  FakeServer(const FakeServer&) = delete;
  FakeServer& operator=(const FakeServer&) = delete;

  std::string url() const { return "http://127.0.0.1:" + std::to_string(port_); }

  // The requests so far, in order.
  const std::vector<FakeRequest>& requests() {
    stop();
    return requests_;
  }

 private:
  void stop() {
    if (!thread_.joinable()) return;
    shutdown(listener_, SHUT_RDWR);  // ends accept()
    thread_.join();
    close(listener_);
  }

  void serve() {
    for (int connection; (connection = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC)) >= 0; close(connection)) {
      std::string text;
      char buffer[4096];
      while (text.find("\r\n\r\n") == text.npos) {
        const ssize_t bytes = recv(connection, buffer, sizeof buffer, 0);
        if (bytes <= 0) break;
        text.append(buffer, static_cast<size_t>(bytes));
      }
      if (text.find("\r\n\r\n") == text.npos) continue;
      requests_.push_back(parse(text));
      send_response(connection, answer_(requests_.back()));
    }
  }

  static FakeRequest parse(const std::string& text) {
    FakeRequest request;
    request.path = text.substr(4, text.find(' ', 4) - 4);  // after "GET "
    for (size_t line = text.find("\r\n") + 2; text.compare(line, 2, "\r\n") != 0; line = text.find("\r\n", line) + 2) {
      const size_t colon = text.find(':', line);
      std::string name = text.substr(line, colon - line);
      for (char& c : name) c = static_cast<char>(std::tolower(c));
      request.headers[name] = text.substr(colon + 2, text.find("\r\n", line) - colon - 2);
    }
    return request;
  }

  static void send_response(int connection, const FakeResponse& response) {
    std::string text = "HTTP/1.1 " + std::to_string(response.status) +
                       " Words\r\nConnection: close\r\nContent-Length: " + std::to_string(response.body.size()) +
                       "\r\n";
    for (const std::string& header : response.headers) text += header + "\r\n";
    text += "\r\n" + response.body.substr(0, response.cut_after);
    for (size_t sent = 0; sent < text.size();) {
      const ssize_t bytes = send(connection, text.data() + sent, text.size() - sent, MSG_NOSIGNAL);
      if (bytes <= 0) return;
      sent += static_cast<size_t>(bytes);
    }
  }

  std::function<FakeResponse(const FakeRequest&)> answer_;
  std::vector<FakeRequest> requests_;
  int listener_ = -1;
  int port_ = 0;
  std::thread thread_;
};

}  // namespace pinion
