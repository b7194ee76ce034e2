#include "apps/serve/http.h"

#include <httplib.h>
#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <thread>

namespace pinion {
namespace {

constexpr size_t kMostBodyBytes = size_t{32} << 20;
constexpr size_t kMostConnections = 256;
constexpr size_t kRequestsOfConnection = 10'000;
constexpr int kIdle_s = 5;  // that a connection may be silent

class HttpConnection : public Connection {
 public:
  explicit HttpConnection(httplib::DataSink& sink) : sink_(sink) {}
  bool write(std::string_view text) override { return is_open() && sink_.write(text.data(), text.size()); }
  bool is_open() override { return sink_.is_writable(); }

 private:
  httplib::DataSink& sink_;
};

// Takes as long for a wrong key as for a right one, however many of its characters are right.
bool is_same_key(std::string_view a, std::string_view b) {
  unsigned different = a.size() == b.size() ? 0 : 1;
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    different |= static_cast<unsigned char>(a[i]) ^ static_cast<unsigned char>(b[i]);
  }
  return different == 0;
}

std::string key_of(const httplib::Request& request) {
  constexpr std::string_view kBearer = "Bearer ";
  const std::string authorization = request.get_header_value("Authorization");
  return authorization.starts_with(kBearer) ? authorization.substr(kBearer.size())
                                            : request.get_header_value("x-api-key");
}

// "localhost:8080" without the port, "[::1]" with its brackets.
std::string host_name(const std::string& host) {
  const size_t colon = host.rfind(':');
  const size_t bracket = host.rfind(']');
  const bool has_port = colon != std::string::npos && (bracket == std::string::npos || colon > bracket);
  return has_port ? host.substr(0, colon) : host;
}

bool is_loopback(const std::string& name) {
  return name == "localhost" || name == "127.0.0.1" || name == "[::1]" || name == "::1";
}

// A web page of somebody else's can make a browser send requests to this machine. It gives itself away by its origin,
// or, where its own name has been made to stand for this machine's address, by that name.
bool is_from_foreign_page(const httplib::Request& request, const HttpOptions& options) {
  const std::string host = request.get_header_value("Host"), origin = request.get_header_value("Origin");
  const bool is_other_origin = !origin.empty() && origin != "http://" + host && origin != "https://" + host;
  const bool is_other_name =
      options.keys.empty() && is_loopback(options.host) && !host.empty() && !is_loopback(host_name(host));
  return is_other_origin || is_other_name;
}

void send(const Reply& reply, httplib::Response& response) {
  response.status = reply.status;
  for (const auto& [name, value] : reply.headers) response.set_header(name, value);
  if (!reply.stream) response.set_content(reply.body, reply.type);
}

void stream(Reply reply, std::atomic<int>* answering, httplib::Response& response) {
  response.set_header("Cache-Control", "no-store");
  const auto write = [stream = std::move(reply.stream)](size_t, httplib::DataSink& sink) {
    HttpConnection connection(sink);
    if (!stream(connection)) return false;
    sink.done();
    return true;
  };
  ++*answering;
  response.set_chunked_content_provider(reply.type, write, [answering](bool) {
    --*answering;
    answering->notify_all();
  });
}

const char* words_for(int status) {
  switch (status) {
    case 404:
      return "no such path; the README lists the endpoints";
    case 413:
      return "the request is too large: at most 32 MB";
    case 414:
      return "the path is too long";
    default:
      return "not an HTTP request that this server understands";
  }
}

}  // namespace

struct HttpListener::State {
  httplib::Server server;
  HttpOptions options;
  std::span<const Route> routes;
  std::atomic<const Serving*> serving{nullptr};
  std::thread thread;
  std::atomic<int> answering{0};  // streams that are being written

  const Route* find(const std::string& path) const {
    const auto at = std::ranges::find(routes, path, &Route::path);
    return at == routes.end() ? nullptr : &*at;
  }
  Shape shape_of(const std::string& path) const {
    if (const Route* route = find(path)) return route->shape;
    return path.starts_with("/api/") ? Shape::ollama : Shape::openai;
  }

  // What is wrong with a request before anything reads it; status 0: nothing.
  ApiError refuse(const httplib::Request& request) const {
    if (is_from_foreign_page(request, options)) return {403, "requests from pages of other sites are refused"};
    const Route* route = find(request.path);
    const bool needs_key = !options.keys.empty() && !(route && route->is_open);
    const std::string key = needs_key ? key_of(request) : "";
    const bool has_key = std::ranges::any_of(options.keys, [&](const auto& own) { return is_same_key(own, key); });
    if (needs_key && !has_key) return {401, "the key is missing or wrong", {}, "invalid_api_key"};
    return {.status = 0, .message = {}};
  }

  void answer(const Route& route, const httplib::Request& request, httplib::Response& response) {
    static const Serving kNothing;
    const Serving* ready = route.is_static ? &kNothing : serving.load();
    if (!ready) {
      Reply reply = error_reply(route.shape, {503, "the model is being loaded", {}, "loading"});
      reply.headers.emplace_back("Retry-After", "1");
      return send(reply, response);
    }
    Reply reply = route.handle(*ready, request.body);
    send(reply, response);
    if (reply.stream) stream(std::move(reply), &answering, response);
  }
};

HttpListener::HttpListener() : state_(std::make_unique<State>()) {}
HttpListener::~HttpListener() { end(); }

Error HttpListener::bind(const HttpOptions& options, std::span<const Route> routes) {
  httplib::Server& server = state_->server;
  state_->options = options;
  state_->routes = routes;
  server.new_task_queue = [] { return new httplib::ThreadPool(kMostConnections); };
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
  server.set_pre_routing_handler([this](const httplib::Request& request, httplib::Response& response) {
    const ApiError failure = state_->refuse(request);
    if (failure.status == 0) return httplib::Server::HandlerResponse::Unhandled;
    send(error_reply(state_->shape_of(request.path), failure), response);
    return httplib::Server::HandlerResponse::Handled;
  });
  server.set_error_handler([this](const httplib::Request& request, httplib::Response& response) {
    if (!response.body.empty()) return;
    send(error_reply(state_->shape_of(request.path), {response.status, words_for(response.status)}), response);
  });
  server.set_exception_handler([this](const httplib::Request& request, httplib::Response& response, auto) {
    send(error_reply(state_->shape_of(request.path), {500, "out of memory, or a bug"}), response);
  });
  for (const Route& route : routes) {
    const auto handle = [this, &route](const httplib::Request& request, httplib::Response& response) {
      state_->answer(route, request, response);
    };
    if (std::string_view(route.method) == "GET") {
      server.Get(route.path, handle);
    } else {
      server.Post(route.path, handle);
    }
  }
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

void HttpListener::listen() {
  state_->thread = std::thread([this] { state_->server.listen_after_bind(); });
}

void HttpListener::open(const Serving* serving) { state_->serving = serving; }

void HttpListener::finish() {
  for (int left; (left = state_->answering.load()) > 0;) state_->answering.wait(left);
  end();
}

void HttpListener::end() {
  if (!state_->thread.joinable()) return;
  state_->server.stop();
  state_->thread.join();
}

}  // namespace pinion
