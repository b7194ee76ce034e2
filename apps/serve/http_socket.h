// Connections as cpp-httplib reads and writes them, with limits that it lacks: it reads a head of any length, for as
// long as a byte comes now and then.
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

class HttpSocket;

// All that are open.
class HttpSockets {
 public:
  // Nothing more is read from any; what is being written still goes. `writes`: that neither.
  void close_all(bool writes);
  explicit HttpSockets(size_t most) { open_.reserve(most); }

  // So many are not open yet, since no thread is free.
  void set_queued(size_t count) { queued_ = count; }
  bool has_queue() const { return queued_ > 0; }

 private:
  friend class HttpSocket;
  void make_room();
  HttpSocket* next_to_go(int64_t now, size_t* going) const;

  std::mutex mutex_;
  std::vector<HttpSocket*> open_;
  std::atomic<size_t> queued_{0};
};

class HttpSocket : public httplib::Stream {
 public:
  HttpSocket(int socket, HttpSockets& all);
  ~HttpSocket();  // closes it
  HttpSocket(const HttpSocket&) = delete;
  HttpSocket& operator=(const HttpSocket&) = delete;

  // Waits for a request's first byte, at most so long, and while the server listens.
  bool wait_for_request(int most_ms, const std::atomic<socket_t>& listener);
  // What is read belongs to a body from now on.
  void begin_body();
  // What the request had sent until then.
  const std::string& head() const { return head_; }
  // All of the request has been read. Unless somebody has said so, what follows may be its body, and is no request.
  void set_whole() { is_whole_ = true; }
  bool is_whole() const { return is_whole_; }
  // Drops what the peer still sends, as long as it sends fast enough. RFC 9112, 9.6: closing at once would reset the
  // connection, and the answer might be lost with it.
  void drain();
  // Whether the client is still there. A handler of cpp-httplib 0.11 cannot ask, so it finds its socket by its thread.
  bool is_peer_there() const;
  static HttpSocket* of_this_thread();  // null: it handles no request

  // As Stream has them. Versions of the library differ in which they are, so none says that it overrides.
  bool is_readable() const { return begin_ < end_ || is_ready(POLLIN, 0); }
  bool wait_readable() const { return begin_ < end_ || await(POLLIN, read_ms_left()); }
  bool is_writable() const;
  bool wait_writable() const { return is_writable(); }
  ssize_t read(char* data, size_t bytes);
  ssize_t write(const char* data, size_t bytes);
  void get_remote_ip_and_port(std::string& ip, int& port) const;
  void get_local_ip_and_port(std::string& ip, int& port) const;
  socket_t socket() const { return socket_; }
  time_t duration() const { return 0; }  // of no interest to a server

 private:
  friend class HttpSockets;
  bool is_ready(short events, int most_ms) const;
  // As is_ready(), for the peer, who may go for another meanwhile. `listener`: while it listens.
  bool await(short events, int most_ms, const std::atomic<socket_t>* listener = nullptr) const;
  int64_t waiting_ns(int64_t now) const;  // 0: it waits for nothing now
  int read_ms_left() const;

  int socket_;
  HttpSockets& all_;
  // Time spent waiting for bytes to come or go, in all requests so far, the older the less: who reads many pages slowly
  // is slow, too.
  mutable std::atomic<int64_t> waited_ns_{0};
  mutable std::atomic<int64_t> waiting_since_ns_{0};  // 0: it does not wait now
  std::atomic<bool> is_idle_{true};                   // between requests
  bool is_going_ = false;                             // of all_, under its mutex
  bool in_head_ = true;
  int64_t begun_ns_;  // the head, or the body
  std::string head_;
  int64_t body_bytes_ = 0;
  bool is_whole_ = false;
  std::array<char, 4096> buffer_;  // the library asks for one byte at a time
  size_t begin_ = 0, end_ = 0;     // what it holds
};

}  // namespace pinion
