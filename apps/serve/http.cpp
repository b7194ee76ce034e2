#include "apps/serve/http.h"

#include <httplib.h>
#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <new>
#include <regex>
#include <system_error>
#include <thread>

#include "apps/serve/http_guard.h"
#include "apps/serve/http_server.h"

namespace pinion {
namespace {

constexpr int64_t kMostBytesAtOnce = int64_t{256} << 20;  // of all bodies that are being read or answered
constexpr size_t kMostConnections = 256;
constexpr size_t kRequestsOfConnection = 10'000;
constexpr int kIdle_s = 5;  // that a connection may be silent
constexpr std::chrono::milliseconds kLook(20), kLastWords(1'000), kMostFarewell(10'000);

class HttpConnection : public Connection {
 public:
  explicit HttpConnection(httplib::DataSink& sink) : sink_(sink) {}
  bool write(std::string_view text) override { return is_open() && sink_.write(text.data(), text.size()); }
  bool is_open() override { return sink_.is_writable(); }

 private:
  httplib::DataSink& sink_;
};

void send(const Reply& reply, httplib::Response& response) {
  response.status = reply.status;
  for (const auto& [name, value] : reply.headers) response.set_header(name, value);
  if (!reply.stream) response.set_content(reply.body, reply.type);
}

// Counts an answer until it is sent, or was none to send.
using Answering = std::shared_ptr<void>;

void stream(Reply reply, Answering answering, httplib::Response& response) {
  response.set_header("Cache-Control", "no-store");
  const auto write = [stream = std::move(reply.stream), answering](size_t, httplib::DataSink& sink) {
    HttpConnection connection(sink);
    try {
      if (!stream(connection)) return false;
    } catch (const std::bad_alloc&) {  // the library would let it end the program
      warn("out of memory: an answer was cut off");
      return false;
    }
    sink.done();
    return true;
  };
  response.set_chunked_content_provider(reply.type, write);
}

// What one request's body takes of what all may.
class BodyShare {
 public:
  explicit BodyShare(std::atomic<int64_t>& all) : all_(all) {}
  ~BodyShare() { all_ -= own_; }
  BodyShare(const BodyShare&) = delete;
  BodyShare& operator=(const BodyShare&) = delete;

  bool add(size_t bytes) {
    own_ += static_cast<int64_t>(bytes);
    has_room_ = (all_ += static_cast<int64_t>(bytes)) <= kMostBytesAtOnce;
    return has_room_;
  }
  bool has_room() const { return has_room_; }

 private:
  std::atomic<int64_t>& all_;
  int64_t own_ = 0;
  bool has_room_ = true;
};

// While its request is handled, on that thread.
bool is_client_there() {
  const HttpSocket* socket = HttpSocket::of_this_thread();
  return socket && socket->is_peer_there();
}

size_t length(const Route& route) { return std::string_view(route.path).size(); }

// GET /v1/models/NAME. "/" is the page and nothing behind it.
bool has_name(const Route& route) { return length(route) > 1 && std::string_view(route.path).ends_with('/'); }

const char* words_for(int status) {
  switch (status) {
    case 404:
      return "no such path; the README lists the endpoints";
    case 503:
      return "too many large requests at once";
    case 414:
      return "the path is too long";
    default:
      return "not an HTTP request that this server understands";
  }
}

}  // namespace

struct HttpListener::State {
  HttpServer server{kMostConnections};
  HttpOptions options;
  std::span<const Route> routes;
  std::atomic<const Serving*> serving{nullptr};
  std::thread thread;
  std::atomic<bool> is_over{false};    // the thread is about to end
  std::atomic<int> answering{0};       // requests that have an answer coming
  std::atomic<int64_t> body_bytes{0};  // what they have sent

  const Route* find(const std::string& path) const {
    const auto at = std::ranges::find_if(routes, [&](const Route& route) {
      return path == route.path || (has_name(route) && path.size() > length(route) && path.starts_with(route.path));
    });
    return at == routes.end() ? nullptr : &*at;
  }
  Shape shape_of(const std::string& path) const {
    if (const Route* route = find(path)) return route->shape;
    if (path.starts_with("/v1/messages")) return Shape::anthropic;
    return path.starts_with("/api/") ? Shape::ollama : Shape::openai;
  }

  Answering begin_answer() {
    ++answering;
    return {this, [](State* state) { --state->answering; }};
  }

  void answer(const Route& route, const HttpRequest& http, httplib::Response& response) {
    const Answering one = begin_answer();  // before the text is under way: it may end at once
    static const Serving kNothing;
    const Serving* ready = route.is_static ? &kNothing : serving.load();
    if (!ready) return send(error_reply(route.shape, {503, "the model is being loaded", {}, "loading"}), response);
    Reply reply = route.handle(*ready, http);
    send(reply, response);
    if (reply.stream) stream(std::move(reply), one, response);
  }
};

void HttpListener::add_handlers() {
  httplib::Server& server = state_->server;
  using Request = httplib::Request;
  using Response = httplib::Response;
  const auto fail = [this](const Request& request, int status, const char* words) {
    return error_reply(state_->shape_of(request.path), {status, words});
  };
  server.set_pre_routing_handler([this](const Request& request, Response& response) {
    const Route* route = state_->find(request.path);
    HttpSocket& socket = *HttpSocket::of_this_thread();
    const ApiError failure = refusal_of(request, socket.head(), state_->options, route && route->is_open);
    // Of a head that may be read in two ways nobody can tell what is behind it.
    if (failure.status != 400 && !has_body(request)) socket.set_whole();
    if (failure.status != 0) {
      send(error_reply(state_->shape_of(request.path), failure), response);
      return httplib::Server::HandlerResponse::Handled;
    }
    const bool is_named = route && has_name(*route) && request.method == route->method;
    if (!is_named) return httplib::Server::HandlerResponse::Unhandled;
    // The library would take such a path for an expression, whose match may need much of the stack.
    state_->answer(*route, {request.path.substr(length(*route)), "", is_client_there}, response);
    return httplib::Server::HandlerResponse::Handled;
  });
  server.set_error_handler([fail](const Request& request, Response& response) {
    if (response.body.empty()) send(fail(request, response.status, words_for(response.status)), response);
  });
  server.set_post_routing_handler([](const Request&, Response& response) {
    if (HttpSocket::of_this_thread()->is_whole() || response.has_header("Connection")) return;
    response.headers.erase("Keep-Alive");
    response.set_header("Connection", "close");
  });
  server.set_exception_handler([fail](const Request& request, Response& response, auto) {
    send(fail(request, 500, "out of memory, or a bug"), response);
  });
  for (const Route& route : state_->routes) {
    if (has_name(route)) continue;
    const std::string path = std::regex_replace(route.path, std::regex("\\."), "\\.");  // paths are expressions there
    if (std::string_view(route.method) == "GET") {
      server.Get(path, [this, &route](const Request&, Response& response) {
        state_->answer(route, {"", "", is_client_there}, response);
      });
      continue;
    }
    // Read by us, since the library has a limit of 8 kB for what curl sends unless it is told the type.
    server.Post(path,
                [this, &route, fail](const Request& request, Response& response, const httplib::ContentReader& read) {
                  std::string body;
                  BodyShare share(state_->body_bytes);
                  const auto add = [&](const char* data, size_t bytes) {
                    if (!share.add(bytes)) return false;
                    body.append(data, bytes);
                    return true;
                  };
                  if (read(add)) {
                    HttpSocket::of_this_thread()->set_whole();
                    return state_->answer(route, {"", std::move(body), is_client_there}, response);
                  }
                  const int status = !share.has_room() ? 503 : response.status > 0 ? response.status : 400;
                  send(fail(request, status, words_for(status)), response);
                });
  }
}

HttpListener::HttpListener() : state_(std::make_unique<State>()) {}
HttpListener::~HttpListener() {
  end([] { return true; });
}

Error HttpListener::bind(const HttpOptions& options, std::span<const Route> routes) {
  httplib::Server& server = state_->server;
  state_->options = options;
  state_->routes = routes;
  server.set_tcp_nodelay(true);
  // Not the library's SO_REUSEPORT, with which two servers would share a port without knowing.
  int listener = -1;
  server.set_socket_options([&listener](int socket) {
    listener = socket;
    const int yes = 1;
    setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  });
  server.set_payload_max_length(kMostBodyBytes);
  server.set_keep_alive_max_count(kRequestsOfConnection);
  server.set_keep_alive_timeout(kIdle_s);
  server.set_read_timeout(kIdle_s);
  server.set_write_timeout(kIdle_s);
  add_handlers();
  if (options.port == 0) {
    port_ = std::max(0, server.bind_to_any_port(options.host));
  } else if (server.bind_to_port(options.host, options.port)) {
    port_ = options.port;
  }
  server.set_socket_options([](int) {});
  // The library lets five wait to be accepted. Beyond that, connections break that their clients believe to have.
  if (port_ > 0 && ::listen(listener, SOMAXCONN) == 0) return {};
  return error("cannot listen there: the port is in use or the address not this machine's; --port chooses another",
               options.host + ":" + std::to_string(options.port));
}

Error HttpListener::listen() {
  try {
    state_->thread = std::thread([this] {
      state_->server.listen_after_bind();
      state_->is_over = true;
    });
  } catch (const std::system_error& e) {
    return error("cannot start a thread", "server", {}, e.code().message());
  }
  // A server that is not running yet cannot be stopped.
  while (!state_->server.is_running() && !state_->is_over) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  return {};
}

void HttpListener::open(const Serving* serving) { state_->serving = serving; }

// In a hurry, too, answers get a moment to say that they have ended.
void HttpListener::finish(const std::function<bool()>& hurries) {
  auto hurried = std::chrono::milliseconds(0);
  while (hurried < kLastWords && state_->answering.load() > 0) {
    std::this_thread::sleep_for(kLook);
    if (hurries()) hurried += kLook;
  }
  end(hurries);
}

// Requests that have not come whole are not read on. What is still being written goes, unless it takes too long.
void HttpListener::end(const std::function<bool()>& hurries) {
  if (!state_->thread.joinable()) return;
  HttpServer& server = state_->server;
  server.stop();
  server.close_all(hurries());
  for (auto waited = kLook; !state_->is_over.load(); waited += kLook) {
    if (waited > kMostFarewell || hurries()) server.close_all(true);
    std::this_thread::sleep_for(kLook);
  }
  state_->thread.join();
}

}  // namespace pinion
