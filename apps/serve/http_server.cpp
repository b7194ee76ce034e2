#include "apps/serve/http_server.h"

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <exception>
#include <system_error>
#include <thread>
#include <utility>

namespace pinion {
namespace {

// Nothing, or whether it was taken: another version.
using Enqueued = decltype(std::declval<httplib::TaskQueue&>().enqueue({}));

class Threads : public httplib::TaskQueue {
 public:
  Threads(size_t most, HttpSockets& sockets) : most_(most), sockets_(sockets) {}

  Enqueued enqueue(std::function<void()> task) override {
    take(std::move(task));
    return static_cast<Enqueued>(true);
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
    if (threads_.size() < most_ && add_thread()) return;
    if (threads_.empty()) {  // not even one: here, then
      const std::function<void()> only = std::move(tasks_.front());
      tasks_.pop_front();
      lock.unlock();
      return only();
    }
    count_queued();
  }

  void count_queued() { sockets_.set_queued(tasks_.size() - std::min(tasks_.size(), idle_)); }

  bool add_thread() {
    try {
      threads_.emplace_back([this] { work(); });
    } catch (const std::system_error&) {
      return false;
    }
    ++idle_;  // until it takes a task
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
      count_queued();
      lock.unlock();
      try {
        task();
      } catch (const std::exception&) {  // memory that ran out: this connection has ended
      }
      lock.lock();
      ++idle_;
    }
  }

  const size_t most_;
  HttpSockets& sockets_;
  std::mutex mutex_;
  std::condition_variable filled_;
  std::deque<std::function<void()>> tasks_;
  std::vector<std::thread> threads_;
  size_t idle_ = 0;
  bool is_over_ = false;
};

// Versions of the library differ in whether it finds the addresses itself.
template <class Server>
auto process(Server call, HttpSocket& socket, bool is_last, bool& is_closed,
             const std::function<void(httplib::Request&)>& setup) {
  if constexpr (requires { call(socket, is_last, is_closed, setup); }) {
    return call(socket, is_last, is_closed, setup);
  } else {
    std::string remote, local;
    int remote_port = 0, local_port = 0;
    socket.get_remote_ip_and_port(remote, remote_port);
    socket.get_local_ip_and_port(local, local_port);
    return call(socket, remote, remote_port, local, local_port, is_last, is_closed, setup);
  }
}

}  // namespace

// One more where the listener's own thread has to serve.
HttpServer::HttpServer(size_t most_connections) : sockets_(most_connections + 1) {
  new_task_queue = [this, most_connections] { return new Threads(most_connections, sockets_); };
}

bool HttpServer::process_and_close_socket(socket_t number) {
  HttpSocket socket(number, sockets_);
  const auto setup = [&socket](httplib::Request& request) {
    // The library cuts any answer, and repeats it for each range, in memory.
    request.ranges.clear();
    request.headers.erase("Range");
    socket.begin_body();
  };
  const auto call = [this](auto&... arguments)
    requires requires { this->process_request(arguments...); }
  { return this->process_request(arguments...); };
  const int idle_ms = static_cast<int>(keep_alive_timeout_sec_) * 1000;
  bool goes_on = true;
  for (size_t left = keep_alive_max_count_; goes_on && left > 0; --left) {
    if (!socket.wait_for_request(idle_ms, svr_sock_)) break;
    bool is_closed = false;
    const bool is_last = left == 1 || sockets_.has_queue();  // the library tells the client
    goes_on = process(call, socket, is_last, is_closed, setup) && !is_closed && !is_last && socket.is_whole();
    if (!socket.is_whole()) socket.drain();
  }
  return goes_on;
}

}  // namespace pinion
