// A running `pinion serve` and its HTTP client.
#pragma once

#include <fcntl.h>
#include <httplib.h>
#include <poll.h>
#include <spawn.h>
#include <unistd.h>

#include <csignal>
#include <thread>

#include "tests/apps/program.h"

namespace pinion {

class Server {
 public:
  explicit Server(const std::string& model, const std::vector<std::string>& options = {}) {
    std::vector<std::string> arguments = {"serve", "--model", model, "--port", "0", "--quiet"};
    arguments.insert(arguments.end(), options.begin(), options.end());
    // `exec`: signals must reach the program, not a shell.
    const std::string command = "XDG_CACHE_HOME=" + quoted(home_.path) + " XDG_CONFIG_HOME=" + quoted(home_.path) +
                                " exec " + command_line(arguments) + " 2>" + quoted(home_ / "err");
    std::array<int, 2> ends = {};
    EXPECT_EQ(pipe2(ends.data(), O_CLOEXEC), 0);
    process_ = fork();
    if (process_ == 0) {
      dup2(ends[1], STDOUT_FILENO);
      execl("/bin/sh", "sh", "-c", command.c_str(), nullptr);
      _exit(127);
    }
    close(ends[1]);
    std::string line;
    for (char c = 0; read(ends[0], &c, 1) == 1 && c != '\n';) line += c;
    close(ends[0]);
    const size_t colon = line.rfind(':');
    EXPECT_NE(colon, std::string::npos) << "not ready: " << line << errors();
    if (colon != std::string::npos) port_ = std::atoi(line.c_str() + colon + 1);
    name_ = line;
  }
  ~Server() { end(); }
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  httplib::Client client() const {
    httplib::Client one("127.0.0.1", port_);
    one.set_read_timeout(120);
    return one;
  }
  int port() const { return port_; }
  const std::string& ready_line() const { return name_; }
  std::string errors() const { return read_file(home_ / "err"); }
  void signal(int number) const { kill(process_, number); }

  // Stops the server as a service manager does. Returns the exit status.
  int end() {
    if (process_ < 0) return status_;
    signal(SIGTERM);
    return wait();
  }
  int wait() {
    int status = 0;
    if (process_ >= 0) waitpid(process_, &status, 0);
    process_ = -1;
    status_ = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    return status_;
  }

  // The reply's JSON; null if it is none.
  json post(const std::string& path, const json& body, int status = 200) const {
    const httplib::Result result = client().Post(path, body.dump(), "application/json");
    EXPECT_TRUE(result) << path << ": " << httplib::to_string(result.error());
    if (!result) return nullptr;
    EXPECT_EQ(result->status, status) << result->body;
    return json::parse(result->body, nullptr, false);
  }
  std::string get(const std::string& path, int status = 200) const {
    const httplib::Result result = client().Get(path);
    EXPECT_TRUE(result) << path;
    if (!result) return {};
    EXPECT_EQ(result->status, status) << result->body;
    return result->body;
  }

  // The chunks of a stream without the final [DONE].
  std::vector<json> stream(const std::string& path, json body) const {
    body["stream"] = true;
    const httplib::Result result = client().Post(path, body.dump(), "application/json");
    EXPECT_TRUE(result) << path;
    if (!result) return {};
    EXPECT_EQ(result->status, 200) << result->body;
    EXPECT_EQ(result->get_header_value("Content-Type"), "text/event-stream");
    EXPECT_TRUE(result->body.ends_with("data: [DONE]\n\n")) << result->body;
    std::vector<json> chunks;
    for (size_t at = 0; at < result->body.size();) {
      const size_t end = result->body.find("\n\n", at);
      const std::string event = result->body.substr(at, end - at);
      at = end + 2;
      EXPECT_TRUE(event.starts_with("data: ")) << event;
      if (event != "data: [DONE]") chunks.push_back(json::parse(event.substr(6), nullptr, false));
    }
    return chunks;
  }

  // A value of /metrics; -1: absent.
  double metric(const std::string& name) const {
    const std::string text = get("/metrics"), line = "\npinion_" + name + " ";
    const size_t at = text.find(line);
    return at == std::string::npos ? -1 : std::atof(text.c_str() + at + line.size());
  }

  // Waits until a metric reaches a value, until the test's timeout at most.
  void await(const std::string& name, double value) const {
    while (metric(name) < value) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }

 private:
  Folder home_;
  pid_t process_ = -1;
  int port_ = 0, status_ = -1;
  std::string name_;
};

inline const json kOwlStory = {{{"role", "user"}, {"content", "Tell me a story about an owl."}}};

// The demo model's reply to the messages.
inline std::string chatted(const Server& server, const json& messages) {
  return server.post("/v1/chat/completions",
                     {{"messages", messages}, {"max_tokens", 40}, {"seed", 3}})["choices"][0]["message"]["content"];
}

}  // namespace pinion
