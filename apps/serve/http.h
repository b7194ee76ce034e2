// The HTTP server: routes, limits, keys, shutdown. README.md has the reasons for its design.
#pragma once

#include "apps/serve/api.h"

namespace httplib {
struct Request;
}

namespace pinion {

constexpr size_t kMaxBodyBytes = size_t{32} << 20;
constexpr const char* kBodyTooLarge = "the request is too large: at most 32 MB";

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

  // Starts to serve on threads of its own: static routes, and status 503 for the others until open(). Fails when no
  // thread can be created.
  Error listen();
  void open(const ServerState* server);

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

// True if the request comes from a page of HttpOptions::origins.
bool has_allowed_origin(const httplib::Request& request, const HttpOptions& options);

// Decides whether a request is processed, before its body is read: an unambiguous head, no foreign web page, a valid
// key, an acceptable body. Status 0: it is. `head`: the bytes as received, up to the empty line.
ApiError check_request(const httplib::Request& request, std::string_view head, const HttpOptions& options,
                       bool is_public);

}  // namespace pinion
