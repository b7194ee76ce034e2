// cpp-httplib's server over sockets and threads of our own.
#pragma once

#include "apps/serve/http_socket.h"

namespace pinion {

class HttpServer : public httplib::Server {
 public:
  // At most so many connections at once, a thread each, made when it is needed. Where all are taken, or no more can be
  // had, the connection that has kept its thread waiting for the longest time goes for a new one.
  explicit HttpServer(size_t most_connections);

  // Ends: nothing more is read. `hurries`: nor written.
  void close_all(bool hurries) { sockets_.close_all(hurries); }

 private:
  bool process_and_close_socket(socket_t socket) override;

  HttpSockets sockets_;
};

}  // namespace pinion
