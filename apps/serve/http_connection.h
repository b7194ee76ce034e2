// Connections under cpp-httplib, which parses heads and writes replies: the deadlines, limits and threads it lacks.
#pragma once

#include <httplib.h>
#include <poll.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

namespace pinion {

class HttpConnection;

// All open connections.
class HttpConnections {
 public:
  explicit HttpConnections(size_t max_count) { open_.reserve(max_count); }

  // Ends reading on all connections; with `also_writing`, writing too.
  void shut_down(bool also_writing);

  // Connections that wait for a thread. For each of them one open connection is evicted.
  void set_queued(size_t count) { queued_ = count; }
  bool has_queue() const { return queued_ > 0; }

 private:
  friend class HttpConnection;
  void evict_if_queued();
  HttpConnection* choose_victim(int64_t now, size_t* evicted) const;

  std::mutex mutex_;
  std::vector<HttpConnection*> open_;
  std::atomic<size_t> queued_{0};
};

// A connection, used by one thread. Reads fail when a head exceeds 64 kB or 10 s, when a body arrives at less than
// 50 kB/s, or when the peer is silent for 5 s; writes fail when the peer accepts nothing for 5 s.
class HttpConnection : public httplib::Stream {
 public:
  HttpConnection(int socket, HttpConnections& connections);
  ~HttpConnection() override;  // closes it

  // The connection whose request this thread handles, or null: handlers of cpp-httplib do not see it.
  static HttpConnection* current();

  // Waits for the first byte of a request, while the server listens.
  bool wait_for_request(int timeout_ms, const std::atomic<socket_t>& listener);
  void begin_body();  // bytes read from now on belong to the body
  const std::string& head() const { return head_; }

  // Marks the request as read to its end. Otherwise its body may follow: the connection is closed after the reply.
  void set_complete() { is_complete_ = true; }
  bool is_complete() const { return is_complete_; }

  // Lingering close (RFC 9112, 9.6): discards what the peer still sends. A reset might cost the peer the reply.
  void linger();

  bool is_peer_connected() const;

  bool is_readable() const override { return begin_ < end_ || is_ready(POLLIN, 0); }
  bool is_writable() const override;
  ssize_t read(char* data, size_t bytes) override;
  ssize_t write(const char* data, size_t bytes) override;
  void get_remote_ip_and_port(std::string&, int&) const override {}
  void get_local_ip_and_port(std::string&, int&) const override {}
  socket_t socket() const override { return socket_; }

 private:
  friend class HttpConnections;
  bool is_ready(short events, int timeout_ms) const;
  // Like is_ready(), but this connection may be evicted meanwhile. `listener`: returns early when it is closed.
  bool wait_for_peer(short events, int timeout_ms, const std::atomic<socket_t>* listener = nullptr) const;
  int64_t waiting_ns(int64_t now) const;  // 0: not waiting now
  int read_timeout_ms() const;

  int socket_;
  HttpConnections& connections_;
  // Total time of waiting for the peer, halved with each request: slow readers of many replies count as slow.
  mutable std::atomic<int64_t> waited_ns_{0};
  mutable std::atomic<int64_t> waiting_since_ns_{0};  // 0: not waiting now
  std::atomic<bool> is_idle_{true};                   // between requests
  bool is_evicted_ = false;                           // guarded by connections_.mutex_
  bool in_head_ = true;
  int64_t begin_ns_;  // of the head or the body
  std::string head_;
  int64_t body_bytes_ = 0;
  bool is_complete_ = false;
  std::array<char, 4096> buffer_;  // cpp-httplib reads single bytes
  size_t begin_ = 0, end_ = 0;     // unread part of buffer_
};

class HttpServer : public httplib::Server {
 public:
  // A thread for each connection, at most `max_connections`, created on demand. When all are busy or no more can be
  // created, each new connection evicts an old one: one between requests, else one whose peer is slow; of these the one
  // that has waited longest. Busy connections are closed after their current request.
  explicit HttpServer(size_t max_connections);

  void shut_down_connections(bool also_writing) { connections_.shut_down(also_writing); }

 private:
  bool process_and_close_socket(socket_t socket) override;

  HttpConnections connections_;
};

}  // namespace pinion
