// cpp-httplib's server over sockets and threads of our own.
#pragma once

#include "apps/serve/http_socket.h"

namespace pinion {

class HttpServer : public httplib::Server {
 public:
  // At most so many connections at once, a thread each, made when it is needed. Where all are taken, or no more can be
  // had, connections end with the request that they are at, and one that waits goes for each new one: between requests,
  // or for a slow peer, whichever has waited for the longest time.
  explicit HttpServer(size_t most_connections);

  // Ends: nothing more is read. `hurries`: nor written.
  void close_all(bool hurries) { sockets_.close_all(hurries); }

 private:
  bool process_and_close_socket(socket_t socket) override;

  HttpSockets sockets_;
};

}  // namespace pinion
