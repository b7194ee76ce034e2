// HTTP, done by cpp-httplib: connections, limits, keys. A thread each connection.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "apps/serve/api.h"

namespace pinion {

struct HttpOptions {
  std::string host = "127.0.0.1";
  int port = 8080;                // 0: any that is free
  std::vector<std::string> keys;  // one of them must be sent; empty: none needed
};

class HttpListener {
 public:
  HttpListener();
  ~HttpListener();

  // Takes the port. Errors: in use, not this machine's.
  Error bind(const HttpOptions& options, std::span<const Route> routes);
  int port() const { return port_; }

  // Answers from now on, on threads of its own: that the model is being loaded, until there is `serving`.
  Error listen();  // no thread can be had
  void open(const Serving* serving);

  // Ends once all answers are sent, or once it `hurries`.
  void finish(const std::function<bool()>& hurries);

 private:
  void add_handlers();
  void end(const std::function<bool()>& hurries);

  struct State;
  std::unique_ptr<State> state_;
  int port_ = 0;
};

}  // namespace pinion
