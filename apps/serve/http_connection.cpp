#include "apps/serve/http_connection.h"

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <exception>
#include <system_error>
#include <thread>

#include "kernels/base/clock.h"

namespace pinion {
namespace {

constexpr int httplib_minor(std::string_view version) {  // 11 for "0.11.4"
  int minor = 0;
  for (size_t i = 2; i < version.size() && version[i] != '.'; ++i) minor = 10 * minor + (version[i] - '0');
  return version.starts_with("0.") ? minor : -1;
}
// HttpServer overrides the private function process_and_close_socket(). Version 0.19 changed httplib::Stream.
constexpr int kHttplibMinor = httplib_minor(CPPHTTPLIB_VERSION);
static_assert(kHttplibMinor >= 11 && kHttplibMinor <= 18, "Pinion needs cpp-httplib 0.11 to 0.18");

constexpr size_t kMaxHeadBytes = 64 << 10;
constexpr int kMaxHead_ms = 10'000;
constexpr int kMaxSilence_ms = 5'000;           // of the peer, within a request or a reply
constexpr int64_t kMinBytesPerSecond = 50'000;  // of a body, after the first kMaxHead_ms
constexpr int kPollInterval_ms = 100;
constexpr int64_t kSlowPeer_ns = 1'000'000'000;  // a connection that waits less is not evicted
constexpr int kLinger_ms = 2'000;                // besides the time that the bytes may take
constexpr int64_t kMaxLingerBytes = int64_t{64} << 20, kMaxLingerHeadBytes = int64_t{1} << 20;

thread_local HttpConnection* current_connection = nullptr;

}  // namespace

void HttpConnections::shut_down(bool also_writing) {
  const std::lock_guard lock(mutex_);
  for (const HttpConnection* connection : open_) shutdown(connection->socket_, also_writing ? SHUT_RDWR : SHUT_RD);
}

// The connection that has waited longest: among those between requests, else among those with a slow peer.
HttpConnection* HttpConnections::choose_victim(int64_t now, size_t* evicted) const {
  HttpConnection* victim = nullptr;
  std::pair<bool, int64_t> longest = {false, 0};
  for (HttpConnection* connection : open_) {
    const int64_t ns = connection->waiting_ns(now);
    const bool is_idle = connection->is_idle_;
    if (connection->is_evicted_) {
      ++*evicted;
    } else if ((is_idle || ns > kSlowPeer_ns) && std::pair(is_idle, ns) > longest && ns > 0) {
      victim = connection, longest = {is_idle, ns};
    }
  }
  return victim;
}

void HttpConnections::evict_if_queued() {
  if (queued_ == 0) return;
  const std::lock_guard lock(mutex_);
  size_t evicted = 0;
  HttpConnection* victim = choose_victim(now_ns(), &evicted);
  // The victim's bytes may have arrived meanwhile.
  if (!victim || evicted >= queued_ || victim->waiting_since_ns_ == 0) return;
  victim->is_evicted_ = true;
  shutdown(victim->socket_, SHUT_RDWR);
}

HttpConnection::HttpConnection(int socket, HttpConnections& connections)
    : socket_(socket), connections_(connections), begin_ns_(now_ns()) {
  const std::lock_guard lock(connections_.mutex_);
  connections_.open_.push_back(this);
  current_connection = this;
}

HttpConnection::~HttpConnection() {
  current_connection = nullptr;
  const std::lock_guard lock(
      connections_.mutex_);  // no other thread may shut the socket down after its number is reused
  std::erase(connections_.open_, this);
  shutdown(socket_, SHUT_RDWR);
  close(socket_);
}

HttpConnection* HttpConnection::current() { return current_connection; }

bool HttpConnection::is_ready(short events, int timeout_ms) const {
  pollfd entry = {.fd = socket_, .events = events, .revents = 0};
  return poll(&entry, 1, timeout_ms) > 0;
}

// Polls in short intervals, because the waiting threads are those that evict connections for queued ones.
bool HttpConnection::wait_for_peer(short events, int timeout_ms, const std::atomic<socket_t>* listener) const {
  waiting_since_ns_ = now_ns();
  bool ready = is_ready(events, 0);
  for (int waited_ms = 0; !ready && waited_ms < timeout_ms; waited_ms += kPollInterval_ms) {
    if (listener && *listener == INVALID_SOCKET) break;
    connections_.evict_if_queued();
    ready = is_ready(events, std::min(kPollInterval_ms, timeout_ms - waited_ms));
  }
  waited_ns_ += now_ns() - waiting_since_ns_;
  waiting_since_ns_ = 0;
  return ready;
}

int64_t HttpConnection::waiting_ns(int64_t now) const {
  const int64_t since = waiting_since_ns_;
  return since == 0 ? 0 : waited_ns_ + now - since;
}

bool HttpConnection::is_peer_connected() const {
  char next;
  return recv(socket_, &next, 1, MSG_PEEK | MSG_DONTWAIT) != 0;
}

bool HttpConnection::is_writable() const { return is_peer_connected() && wait_for_peer(POLLOUT, kMaxSilence_ms); }

bool HttpConnection::wait_for_request(int timeout_ms, const std::atomic<socket_t>& listener) {
  if (listener == INVALID_SOCKET) return false;  // even if a request is in the buffer
  in_head_ = true;
  const int64_t waited_before_ns = waited_ns_;
  is_idle_ = true;
  if (begin_ == end_ && !wait_for_peer(POLLIN, timeout_ms, &listener)) return false;
  is_idle_ = false;
  waited_ns_ = waited_before_ns / 2;  // occasional requests may keep a connection open for hours
  head_.clear();
  is_complete_ = false;
  begin_ns_ = now_ns();
  return true;
}

void HttpConnection::begin_body() {
  body_bytes_ = 0;
  begin_ns_ = now_ns();
  in_head_ = false;
}

void HttpConnection::linger() {
  if (head_.empty()) return;  // nothing was received, so there is no reply to protect
  shutdown(socket_, SHUT_WR);
  const int64_t start_ns = now_ns();
  const int64_t max_bytes = head_.ends_with("\r\n\r\n") ? kMaxLingerBytes : kMaxLingerHeadBytes;
  for (int64_t bytes = 0; bytes < max_bytes;) {
    const int64_t left_ms = kLinger_ms + bytes * 1000 / kMinBytesPerSecond - (now_ns() - start_ns) / 1'000'000;
    if (left_ms <= 0 || !wait_for_peer(POLLIN, static_cast<int>(std::min<int64_t>(left_ms, kLinger_ms)))) return;
    const ssize_t received = recv(socket_, buffer_.data(), buffer_.size(), 0);
    if (received <= 0) return;
    bytes += received;
  }
}

int HttpConnection::read_timeout_ms() const {
  const int64_t taken_ms = (now_ns() - begin_ns_) / 1'000'000;
  const int64_t max_ms = in_head_ ? kMaxHead_ms : kMaxHead_ms + body_bytes_ * 1000 / kMinBytesPerSecond;
  return static_cast<int>(std::clamp<int64_t>(max_ms - taken_ms, 0, kMaxSilence_ms));
}

ssize_t HttpConnection::read(char* data, size_t bytes) {
  if (begin_ == end_) {
    const int timeout_ms = in_head_ && head_.size() >= kMaxHeadBytes ? 0 : read_timeout_ms();
    if (timeout_ms == 0 || !wait_for_peer(POLLIN, timeout_ms)) return -1;
    const ssize_t received = recv(socket_, buffer_.data(), buffer_.size(), 0);
    if (received <= 0) return received;
    begin_ = 0, end_ = received;
    if (!in_head_) body_bytes_ += received;
  }
  const size_t count = std::min(bytes, end_ - begin_);
  std::memcpy(data, buffer_.data() + begin_, count);
  begin_ += count;
  if (in_head_) head_.append(data, count);
  return static_cast<ssize_t>(count);
}

ssize_t HttpConnection::write(const char* data, size_t bytes) {
  const int64_t end_ns = now_ns() + int64_t{kMaxSilence_ms} * 1'000'000;  // poll() and send() may disagree forever
  while (now_ns() < end_ns && wait_for_peer(POLLOUT, kMaxSilence_ms)) {
    const ssize_t sent = send(socket_, data, bytes, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent >= 0 || errno != EAGAIN) return sent;
  }
  return -1;
}

namespace {

class ConnectionThreads : public httplib::TaskQueue {
 public:
  ConnectionThreads(size_t max_threads, HttpConnections& connections)
      : max_threads_(max_threads), connections_(connections) {}

  using EnqueueResult = decltype(std::declval<httplib::TaskQueue&>().enqueue({}));  // void; bool since 0.15
  EnqueueResult enqueue(std::function<void()> task) override {
    take(std::move(task));
    return static_cast<EnqueueResult>(true);
  }

  void shutdown() override {
    {
      const std::lock_guard lock(mutex_);
      is_over_ = true;
    }
    filled_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }

 private:
  void take(std::function<void()> task) {
    std::unique_lock lock(mutex_);
    tasks_.push_back(std::move(task));
    if (tasks_.size() <= idle_) return filled_.notify_one();
    if (threads_.size() < max_threads_ && add_thread()) return;
    if (threads_.empty()) {  // no thread could be created: serve on the listener's
      const std::function<void()> only = std::move(tasks_.front());
      tasks_.pop_front();
      lock.unlock();
      return only();
    }
    update_queued();
  }

  void update_queued() { connections_.set_queued(tasks_.size() - std::min(tasks_.size(), idle_)); }

  bool add_thread() {
    try {
      threads_.emplace_back([this] { work(); });
    } catch (const std::system_error&) {
      return false;
    }
    ++idle_;
    return true;
  }

  void work() {
    std::unique_lock lock(mutex_);
    while (true) {
      filled_.wait(lock, [this] { return is_over_ || !tasks_.empty(); });
      --idle_;
      if (tasks_.empty()) return;
      const std::function<void()> task = std::move(tasks_.front());
      tasks_.pop_front();
      update_queued();
      lock.unlock();
      try {
        task();
      } catch (const std::exception&) {  // out of memory: only this connection ends
      }
      lock.lock();
      ++idle_;
    }
  }

  const size_t max_threads_;
  HttpConnections& connections_;
  std::mutex mutex_;
  std::condition_variable filled_;
  std::deque<std::function<void()>> tasks_;
  std::vector<std::thread> threads_;
  size_t idle_ = 0;
  bool is_over_ = false;
};

}  // namespace

// The listener's thread serves one more connection when no other thread could be created.
HttpServer::HttpServer(size_t max_connections) : connections_(max_connections + 1) {
  new_task_queue = [this, max_connections] { return new ConnectionThreads(max_connections, connections_); };
}

bool HttpServer::process_and_close_socket(socket_t socket) {
  HttpConnection connection(socket, connections_);
  const std::function<void(httplib::Request&)> set_up = [&connection](httplib::Request& request) {
    // cpp-httplib would apply ranges to any reply, and copy the body for each of them.
    request.ranges.clear();
    request.headers.erase("Range");
    connection.begin_body();
  };
  const int idle_timeout_ms = static_cast<int>(keep_alive_timeout_sec_) * 1000;
  bool continues = true;
  for (size_t left = keep_alive_max_count_; continues && left > 0; --left) {
    if (!connection.wait_for_request(idle_timeout_ms, svr_sock_)) break;
    bool is_closed = false;
    const bool is_last = left == 1 || connections_.has_queue();  // sends "Connection: close"
    const auto process = [&](auto& server) {                     // a template, because only one of the calls compiles
      if constexpr (kHttplibMinor >= 18) {                       // it also takes the addresses of both ends
        return server.process_request(connection, "", 0, "", 0, is_last, is_closed, set_up);
      } else {
        return server.process_request(connection, is_last, is_closed, set_up);
      }
    };
    const bool is_sent = process(*this);
    continues = is_sent && !is_closed && !is_last && connection.is_complete();
    if (!connection.is_complete()) connection.linger();
  }
  return continues;
}

}  // namespace pinion
