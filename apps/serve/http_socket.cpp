#include "apps/serve/http_socket.h"

#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "kernels/base/clock.h"

namespace pinion {
namespace {

constexpr size_t kMostHeadBytes = 64 << 10;
constexpr int kMostHead_ms = 10'000;
constexpr int kSilent_ms = 5'000;                 // within a request or an answer
constexpr int64_t kLeastBytesPerSecond = 50'000;  // of a body, beside the first seconds
constexpr int kLook_ms = 100;
constexpr int64_t kSlow_ns = 1'000'000'000;  // who waits less for its peer is not in anybody's way
constexpr int kDrain_ms = 2'000;             // beside the time that the bytes may take
constexpr int64_t kMostDrainedBytes = int64_t{64} << 20, kMostDrainedHead = int64_t{1} << 20;

thread_local HttpSocket* own_socket = nullptr;

void find_address(int (*of)(int, sockaddr*, socklen_t*), int socket, std::string& ip, int& port) {
  sockaddr_storage address = {};
  socklen_t bytes = sizeof address;
  std::array<char, NI_MAXHOST> host;
  std::array<char, NI_MAXSERV> service;
  if (of(socket, reinterpret_cast<sockaddr*>(&address), &bytes) != 0 ||
      getnameinfo(reinterpret_cast<sockaddr*>(&address), bytes, host.data(), host.size(), service.data(),
                  service.size(), NI_NUMERICHOST | NI_NUMERICSERV) != 0) {
    return;
  }
  ip = host.data();
  port = std::atoi(service.data());
}

}  // namespace

void HttpSockets::close_all(bool writes) {
  const std::lock_guard lock(mutex_);
  for (const HttpSocket* one : open_) shutdown(one->socket_, writes ? SHUT_RDWR : SHUT_RD);
}

// Of those that wait now, one between requests, else one whose peer is slow: the one that has waited for the longest
// time.
HttpSocket* HttpSockets::next_to_go(int64_t now, size_t* going) const {
  HttpSocket* longest = nullptr;
  std::pair<bool, int64_t> most = {false, 0};
  for (HttpSocket* one : open_) {
    const int64_t ns = one->waiting_ns(now);
    const bool is_idle = one->is_idle_;
    if (one->is_going_) {
      ++*going;
    } else if ((is_idle || ns > kSlow_ns) && std::pair(is_idle, ns) > most && ns > 0) {
      longest = one, most = {is_idle, ns};
    }
  }
  return longest;
}

// For each that is queued one goes.
void HttpSockets::make_room() {
  if (queued_ == 0) return;
  const std::lock_guard lock(mutex_);
  size_t going = 0;
  HttpSocket* one = next_to_go(now_ns(), &going);
  // It may have got its request meanwhile.
  if (!one || going >= queued_ || one->waiting_since_ns_ == 0) return;
  one->is_going_ = true;
  shutdown(one->socket_, SHUT_RDWR);
}

HttpSocket::HttpSocket(int socket, HttpSockets& all) : socket_(socket), all_(all), begun_ns_(now_ns()) {
  const std::lock_guard lock(all_.mutex_);
  all_.open_.push_back(this);
  own_socket = this;
}

HttpSocket::~HttpSocket() {
  own_socket = nullptr;
  const std::lock_guard lock(all_.mutex_);  // nobody else may shut it down once the number is another's
  std::erase(all_.open_, this);
  shutdown(socket_, SHUT_RDWR);
  close(socket_);
}

bool HttpSocket::is_ready(short events, int most_ms) const {
  pollfd one = {.fd = socket_, .events = events, .revents = 0};
  return poll(&one, 1, most_ms) > 0;
}

// In short looks: when connections are queued, nobody else may come to see it.
bool HttpSocket::await(short events, int most_ms, const std::atomic<socket_t>* listener) const {
  waiting_since_ns_ = now_ns();
  bool is = is_ready(events, 0);
  for (int waited_ms = 0; !is && waited_ms < most_ms; waited_ms += kLook_ms) {
    if (listener && *listener == INVALID_SOCKET) break;
    all_.make_room();
    is = is_ready(events, std::min(kLook_ms, most_ms - waited_ms));
  }
  waited_ns_ += now_ns() - waiting_since_ns_;
  waiting_since_ns_ = 0;
  return is;
}

int64_t HttpSocket::waiting_ns(int64_t now) const {
  const int64_t since = waiting_since_ns_;
  return since == 0 ? 0 : waited_ns_ + now - since;
}

bool HttpSocket::is_peer_there() const {
  char next;
  return recv(socket_, &next, 1, MSG_PEEK | MSG_DONTWAIT) != 0;
}

HttpSocket* HttpSocket::of_this_thread() { return own_socket; }

bool HttpSocket::is_writable() const { return is_peer_there() && await(POLLOUT, kSilent_ms); }

bool HttpSocket::wait_for_request(int most_ms, const std::atomic<socket_t>& listener) {
  if (listener == INVALID_SOCKET) return false;  // nor are those begun that have come already
  in_head_ = true;
  const int64_t before_ns = waited_ns_;
  is_idle_ = true;
  if (begin_ == end_ && !await(POLLIN, most_ms, &listener)) return false;
  is_idle_ = false;
  waited_ns_ = before_ns / 2;  // who asks now and then may keep a connection for hours
  head_.clear();
  is_whole_ = false;
  begun_ns_ = now_ns();
  return true;
}

void HttpSocket::begin_body() {
  body_bytes_ = 0;
  begun_ns_ = now_ns();
  in_head_ = false;
}

void HttpSocket::drain() {
  if (head_.empty()) return;  // no answer either
  shutdown(socket_, SHUT_WR);
  const int64_t begin_ns = now_ns(), most = head_.ends_with("\r\n\r\n") ? kMostDrainedBytes : kMostDrainedHead;
  for (int64_t bytes = 0; bytes < most;) {
    const int64_t left_ms = kDrain_ms + bytes * 1000 / kLeastBytesPerSecond - (now_ns() - begin_ns) / 1'000'000;
    if (left_ms <= 0 || !await(POLLIN, static_cast<int>(std::min<int64_t>(left_ms, kDrain_ms)))) return;
    const ssize_t got = recv(socket_, buffer_.data(), buffer_.size(), 0);
    if (got <= 0) return;
    bytes += got;
  }
}

int HttpSocket::read_ms_left() const {
  const int64_t taken_ms = (now_ns() - begun_ns_) / 1'000'000;
  const int64_t most_ms = in_head_ ? kMostHead_ms : kMostHead_ms + body_bytes_ * 1000 / kLeastBytesPerSecond;
  return static_cast<int>(std::clamp<int64_t>(most_ms - taken_ms, 0, kSilent_ms));
}

ssize_t HttpSocket::read(char* data, size_t bytes) {
  if (begin_ == end_) {
    const int left_ms = in_head_ && head_.size() >= kMostHeadBytes ? 0 : read_ms_left();
    const ssize_t got = left_ms > 0 && await(POLLIN, left_ms) ? recv(socket_, buffer_.data(), buffer_.size(), 0) : -1;
    if (got <= 0) return got;
    begin_ = 0, end_ = static_cast<size_t>(got);
    if (!in_head_) body_bytes_ += got;
  }
  const size_t count = std::min(bytes, end_ - begin_);
  std::memcpy(data, buffer_.data() + begin_, count);
  begin_ += count;
  if (in_head_) head_.append(data, count);
  return static_cast<ssize_t>(count);
}

ssize_t HttpSocket::write(const char* data, size_t bytes) {
  const int64_t end_ns = now_ns() + int64_t{kSilent_ms} * 1'000'000;  // poll and send may disagree
  while (now_ns() < end_ns && await(POLLOUT, kSilent_ms)) {
    const ssize_t sent = send(socket_, data, bytes, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent >= 0 || errno != EAGAIN) return sent;
  }
  return -1;
}

void HttpSocket::get_remote_ip_and_port(std::string& ip, int& port) const {
  find_address(getpeername, socket_, ip, port);
}

void HttpSocket::get_local_ip_and_port(std::string& ip, int& port) const {
  find_address(getsockname, socket_, ip, port);
}

}  // namespace pinion
