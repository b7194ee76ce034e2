// The HTTP server: routes, limits, keys, shutdown. README.md has the reasons for its design.
#pragma once

#include "apps/serve/api.h"

namespace pinion {

struct HttpOptions {
  std::string host = "127.0.0.1";
  int port = 8080;                // 0: any free port
  std::vector<std::string> keys;  // accepted API keys; empty: none is required
  // Pages that may use the server besides its own: "app://obsidian.md", "http://localhost:3000", or "*" for all.
  std::vector<std::string> origins = {};
};

class HttpListener {
 public:
  HttpListener();
  ~HttpListener();

  // Binds the port. Fails when it is in use or the address is not this machine's. `routes` must outlive this.
  Error bind(const HttpOptions& options, std::span<const Route> routes);
  int port() const { return port_; }

  // Serves static routes on threads of its own, 503 for others until open(). Fails if no thread starts.
  Error listen();
  void open(ModelList* models);

  // Stops once all replies are sent, or soon after `is_stopping` returns true.
  void finish(const std::function<bool()>& is_stopping);

 private:
  void stop(const std::function<bool()>& is_stopping);

  struct State;
  std::unique_ptr<State> state_;
  int port_ = 0;
};

// "localhost", 127.0.0.0/8 or ::1, with or without brackets.
bool is_loopback(std::string_view host);

}  // namespace pinion
