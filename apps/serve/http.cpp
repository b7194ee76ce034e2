#include "apps/serve/http.h"

#include <arpa/inet.h>
#include <nettle/memops.h>
#include <sys/socket.h>

#include <cctype>
#include <charconv>
#include <cstdlib>
#include <new>
#include <system_error>

#include "apps/serve/http_connection.h"
#include "apps/serve/models.h"

namespace pinion {
namespace {

constexpr size_t kMaxBodyBytes = size_t{32} << 20;
constexpr const char* kBodyTooLarge = "the request is too large: at most 32 MB";
constexpr int64_t kMaxBodyBytesOfAll = int64_t{256} << 20;  // bodies that are being read or processed
constexpr size_t kMaxConnections = 256;
constexpr size_t kMaxRequestsPerConnection = 10'000;
constexpr int kIdleTimeout_s = 5;
constexpr std::chrono::milliseconds kStopInterval(20), kMaxStopping(1'000), kMaxWriting(10'000);

// --- Checks before a body is read

const ApiError kAccepted{.status = 0, .message = {}};

std::string lower_case(std::string text) {
  for (char& c : text) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return text;
}

// Takes the same time wherever the keys differ.
bool is_same_key(std::string_view key, std::string_view sent) {
  return key.size() == sent.size() && memeql_sec(key.data(), sent.data(), key.size()) != 0;
}

std::string key_of(const httplib::Request& request) {
  constexpr std::string_view kBearer = "bearer ";
  const std::string authorization = request.get_header_value("Authorization");
  return lower_case(authorization).starts_with(kBearer) ? authorization.substr(kBearer.size())
                                                        : request.get_header_value("x-api-key");
}

// "localhost:8080" without the port, "[::1]" with its brackets.
std::string host_name(const std::string& host) {
  const size_t colon = host.rfind(':');
  const size_t bracket = host.rfind(']');
  const bool has_port = colon != std::string::npos && (bracket == std::string::npos || colon > bracket);
  return has_port ? host.substr(0, colon) : host;
}

// True if the request comes from a page of HttpOptions::origins.
bool has_allowed_origin(const httplib::Request& request, const HttpOptions& options) {
  const std::string origin = lower_case(request.get_header_value("Origin"));
  return !origin.empty() && std::ranges::any_of(options.origins, [&](const std::string& allowed) {
    return allowed == "*" || lower_case(allowed) == origin;
  });
}

// Web pages of other sites can make a browser send requests to this machine. The Origin header reveals them or, if the
// site's own name was pointed at this machine's address (DNS rebinding), the Host header.
ApiError check_sender(const httplib::Request& request, const HttpOptions& options) {
  const std::string host = lower_case(request.get_header_value("Host"));
  const std::string origin = lower_case(request.get_header_value("Origin"));
  const bool is_own = origin.empty() || origin == "http://" + host || origin == "https://" + host;
  if (!is_own && !has_allowed_origin(request, options)) {
    return {403, "requests from pages of other sites are refused; --allow-origin admits those of one site"};
  }
  if (options.keys.empty() && is_loopback(options.host) && !host.empty() && !is_loopback(host_name(host))) {
    return {403, "the Host header is not this machine's name: use localhost or 127.0.0.1, or set --api-key-file"};
  }
  return kAccepted;
}

constexpr std::string_view kDigits = "0123456789";
// RFC 9110, 5.6.2: characters of a header's name.
constexpr std::string_view kTokenCharacters =
    "!#$%&'*+-.^_`|~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

bool consists_of(std::string_view text, std::string_view characters) {
  return !text.empty() && text.find_first_not_of(characters) == text.npos;
}

// Refuses heads that a proxy may understand differently from cpp-httplib, which skips, truncates or decodes parts of
// them: the two would disagree where the next request begins (request smuggling). RFC 9112, 2.2, 3.2, 5.1, 5.2, 6.3.
ApiError check_head(std::string_view head) {
  int sizes = 0, hosts = 0;
  bool is_request_line = true;
  while (!head.empty()) {
    const size_t end = std::min(head.find("\r\n"), head.size());
    const std::string_view line = head.substr(0, end);
    head.remove_prefix(std::min(end + 2, head.size()));
    if (line.find_first_of(std::string_view("\r\n\0", 3)) != line.npos) {
      return {400, "lines of a head end with CR LF and contain neither CR, LF nor NUL"};
    }
    if (std::exchange(is_request_line, false) || line.empty()) continue;
    const size_t colon = std::min(line.find(':'), line.size());
    if (colon == line.size() || !consists_of(line.substr(0, colon), kTokenCharacters)) {
      return {400, "each header is one line: a name followed at once by a colon"};
    }
    const std::string name = lower_case(std::string(line.substr(0, colon)));
    const std::string_view value = trimmed(line.substr(colon + 1), " \t");
    const bool is_length = name == "content-length", is_encoding = name == "transfer-encoding";
    if (is_length && !consists_of(value, kDigits)) return {400, "Content-Length must be a number"};
    if (is_encoding && lower_case(std::string(value)) != "chunked") return {400, "unknown Transfer-Encoding"};
    sizes += is_length || is_encoding;
    hosts += name == "host";
  }
  if (sizes > 1) return {400, "send one Content-Length, and no Transfer-Encoding beside it"};
  if (hosts > 1) return {400, "send one Host"};
  return kAccepted;
}

// Chunks are limited while they are read. HTTP/1.0 has none: a proxy that speaks it passes them on unread.
ApiError check_body(const httplib::Request& request) {
  const bool is_chunked = request.has_header("Transfer-Encoding");
  if (is_chunked && request.version == "HTTP/1.0") return {400, "Transfer-Encoding needs HTTP/1.1"};
  if (request.method == "GET" || request.method == "HEAD" || request.method == "DELETE") return kAccepted;
  if (!is_chunked && !request.has_header("Content-Length")) return {411, "send the body with its Content-Length"};
  const std::string length = request.get_header_value("Content-Length");
  if (length.size() > 9 || std::strtoul(length.c_str(), nullptr, 10) > kMaxBodyBytes) return {413, kBodyTooLarge};
  if (request.has_header("Content-Encoding")) return {415, "send the body uncompressed"};
  if (request.is_multipart_form_data()) return {415, "send the body as JSON"};
  return kAccepted;
}

// Decides whether a request is processed, before its body is read: an unambiguous head, no foreign web page, a valid
// key, an acceptable body. Status 0: it is. `head`: the bytes as received, up to the empty line.
ApiError check_request(const httplib::Request& request, std::string_view head, const HttpOptions& options,
                       bool is_public) {
  if (ApiError failure = check_head(head); failure.status != 0) return failure;
  if (ApiError failure = check_sender(request, options); failure.status != 0) return failure;
  if (request.method == "OPTIONS" && has_allowed_origin(request, options)) return kAccepted;  // carries no key
  if (!options.keys.empty() && !is_public) {
    const std::string sent = key_of(request);
    const bool is_known = std::ranges::any_of(options.keys, [&](const auto& key) { return is_same_key(key, sent); });
    if (!is_known) return {401, "the key is missing or wrong", {}, "invalid_api_key"};
  }
  return check_body(request);
}

// --- Replies and bodies

void set_reply(const Reply& reply, httplib::Response& response) {
  response.status = reply.status;
  for (const auto& [name, value] : reply.headers) response.set_header(name, value);
  if (!reply.stream) response.set_content(reply.body, reply.type);
}

// Headers by which a browser lets a page send the request and read the reply (fetch.spec.whatwg.org).
void allow_page(const httplib::Request& request, httplib::Response& response) {
  response.set_header("Access-Control-Allow-Origin", request.get_header_value("Origin"));
  response.set_header("Access-Control-Expose-Headers", "*");
  response.set_header("Vary", "Origin");
  if (request.method != "OPTIONS") return;
  response.set_header("Access-Control-Allow-Methods", "GET, HEAD, POST, DELETE");
  response.set_header("Access-Control-Allow-Headers", request.get_header_value("Access-Control-Request-Headers"));
  response.set_header("Access-Control-Allow-Private-Network", "true");
  response.set_header("Access-Control-Max-Age", "600");
}

// Counts a reply until it is sent or its connection is closed.
using ReplyCount = std::shared_ptr<void>;

void send_stream(Reply reply, ReplyCount count, httplib::Response& response) {
  response.set_header("Cache-Control", "no-store");
  const auto streamed = std::make_shared<const Reply>(std::move(reply));
  const auto provide = [count, streamed](size_t, httplib::DataSink& sink) {
    const StreamWriter writer{
        [&](std::string_view text) { return sink.is_writable() && sink.write(text.data(), text.size()); },
        [&] { return sink.is_writable(); }};
    try {
      if (!streamed->stream(writer)) return false;
    } catch (const std::bad_alloc&) {  // cpp-httplib does not catch it here
      warn("out of memory: a streamed reply was cut off");
      return false;
    }
    sink.done();
    return true;
  };
  response.set_chunked_content_provider(streamed->type, provide);
}

// Accounts a request's body against the limit for all of them.
class BodyBudget {
 public:
  explicit BodyBudget(std::atomic<int64_t>& total) : total_(total) {}
  ~BodyBudget() { total_ -= bytes_; }
  BodyBudget(const BodyBudget&) = delete;
  BodyBudget& operator=(const BodyBudget&) = delete;

  bool add(int64_t bytes) {
    bytes_ += bytes;
    return (total_ += bytes) <= kMaxBodyBytesOfAll;
  }

 private:
  std::atomic<int64_t>& total_;
  int64_t bytes_ = 0;
};

// Appends `size` bytes. Status 200: all were read.
int read_body(HttpConnection& connection, size_t size, BodyBudget& budget, std::string* body) {
  std::array<char, 4096> buffer;
  for (const size_t end = body->size() + size; body->size() < end;) {
    const ssize_t bytes = connection.read(buffer.data(), std::min(buffer.size(), end - body->size()));
    if (bytes <= 0) return 400;
    if (!budget.add(bytes)) return 503;
    body->append(buffer.data(), bytes);
  }
  return 200;
}

// A line of a chunked body, up to CR LF. False: it exceeds `left` bytes, which it reduces, or has control characters.
bool read_chunk_line(HttpConnection& connection, size_t* left, std::string* line) {
  line->clear();
  for (char c = 0; *left > 0 && connection.read(&c, 1) == 1; *line += c) {
    --*left;
    if (c == '\n') return line->ends_with('\r') && (line->pop_back(), true);
    if ((c < ' ' && c != '\r' && c != '\t') || line->ends_with('\r')) return false;
  }
  return false;
}

// RFC 9112, 7.1. Chunk extensions and trailers are ignored; all lines together are limited, too.
int read_chunks(HttpConnection& connection, BodyBudget& budget, std::string* body) {
  size_t left = kMaxBodyBytes;
  std::string line;
  while (true) {
    size_t size = 0;
    if (!read_chunk_line(connection, &left, &line)) return 400;
    const auto [end, code] = std::from_chars(line.data(), line.data() + line.size(), size, 16);
    const bool is_size = code == std::errc() && (end == line.data() + line.size() || *end == ';');
    if (code == std::errc::result_out_of_range || size > kMaxBodyBytes - body->size()) return 413;
    if (!is_size) return 400;
    if (size == 0) break;
    if (const int status = read_body(connection, size, budget, body); status != 200) return status;
    if (!read_chunk_line(connection, &left, &line) || !line.empty()) return 400;
  }
  do {  // trailers
    if (!read_chunk_line(connection, &left, &line)) return 400;
  } while (!line.empty());
  return 200;
}

bool is_prefix(const Route& route) { return route.path[1] != '\0' && std::string_view(route.path).ends_with('/'); }

bool accepts(const Route& route, const std::string& method) {
  return method == route.method || (method == "HEAD" && std::string_view(route.method) == "GET");
}

const char* status_message(int status) {
  if (status == 404) return "no such path; the README lists the endpoints";
  if (status == 413) return kBodyTooLarge;
  if (status == 414) return "the path is too long";
  return status == 503 ? "too many large requests at once" : "not an HTTP request that this server understands";
}

}  // namespace

struct HttpListener::State {
  HttpServer server{kMaxConnections};
  HttpOptions options;
  std::span<const Route> routes;
  std::atomic<ModelList*> models{nullptr};  // null while the model is being loaded
  std::thread thread;
  std::atomic<bool> is_over{false};  // the thread has left the accept loop
  std::atomic<int> replies{0};       // being computed or sent
  std::atomic<int64_t> body_bytes{0};

  State() {
    using Request = httplib::Request;
    using Response = httplib::Response;
    server.set_pre_routing_handler([this](const Request& request, Response& response) {
      handle(request, response);
      return httplib::Server::HandlerResponse::Handled;
    });
    // Errors of cpp-httplib itself: 400, 414 and 416.
    server.set_error_handler([this](const Request& request, Response& response) {
      if (!response.body.empty()) return;
      fail(request, {response.status, status_message(response.status)}, response);
    });
    server.set_exception_handler([this](const Request& request, Response& response, auto) {
      fail(request, {500, "internal error: out of memory or a bug"}, response);
    });
    server.set_post_routing_handler([](const Request&, Response& response) {
      if (HttpConnection::current()->is_complete() || response.has_header("Connection")) return;
      response.headers.erase("Keep-Alive");
      response.set_header("Connection", "close");
    });
  }

  // The row of a path and method, else the first of the path.
  const Route* find(const std::string& path, const std::string& method = {}) const {
    const Route* found = nullptr;
    for (const Route& route : routes) {
      if (path != route.path && !(is_prefix(route) && path.starts_with(route.path))) continue;
      if (accepts(route, method)) return &route;
      if (!found) found = &route;
    }
    return found;
  }

  // The error format of a path.
  Api api_of(const std::string& path) const {
    if (const Route* route = find(path)) return route->api;
    return path.starts_with("/v1/messages") ? Api::anthropic : path.starts_with("/api/") ? Api::ollama : Api::openai;
  }

  void fail(const httplib::Request& request, const ApiError& failure, httplib::Response& response) const {
    set_reply(error_reply(api_of(request.path), failure), response);
  }

  void reply(const Route& route, const HttpRequest& http, httplib::Response& response) {
    ++replies;  // before the request is submitted: finish() waits for it
    const ReplyCount count(this, [](State* state) { --state->replies; });
    std::shared_ptr<const ServerState> model;
    const ApiError failure = find_model(route, http, &model);
    if (failure.status != 0) return set_reply(error_reply(route.api, failure), response);
    Reply reply = route.handle(*model, http);
    reply.server = model;
    set_reply(reply, response);
    if (reply.stream) send_stream(std::move(reply), count, response);
  }

  ApiError find_model(const Route& route, const HttpRequest& http, std::shared_ptr<const ServerState>* out) const {
    ModelList* list = models.load();
    if (!route.is_static && !list) return {503, "the model is being loaded", {}, "loading"};
    if (!route.is_static && !route.is_of_all) return list->choose(http, std::string_view(route.method) != "GET", out);
    *out = list ? list->common() : std::make_shared<const ServerState>();
    return kAccepted;
  }

  // Handles a request whose head was read. cpp-httplib's own routing is not used: it takes paths for regular
  // expressions, and limits bodies without a Content-Type to 8 kB.
  void handle(const httplib::Request& request, httplib::Response& response) {
    HttpConnection& connection = *HttpConnection::current();
    const Route* route = find(request.path, request.method);
    const ApiError refusal = check_request(request, connection.head(), options, route && route->is_public);
    const std::string length = request.get_header_value("Content-Length");
    const bool has_body = request.has_header("Transfer-Encoding") || length.find_first_not_of('0') != length.npos;
    if (refusal.status != 400 && !has_body) connection.set_complete();  // 400: the end of the request is uncertain
    const bool is_page = has_allowed_origin(request, options);
    if (is_page) allow_page(request, response);
    if (refusal.status != 0) return fail(request, refusal, response);
    if (is_page && request.method == "OPTIONS") return set_reply({}, response);
    if (!route || !accepts(*route, request.method)) return fail(request, {404, status_message(404)}, response);
    HttpRequest http = {.path = request.path,
                        .is_strict = request.get_header_value("X-Pinion-Strict") == "1",
                        .is_ascending = request.get_param_value("order") == "asc",
                        .is_client_connected = [&connection] { return connection.is_peer_connected(); }};
    http.model = request.get_param_value("model");
    if (is_prefix(*route)) http.name = request.path.substr(std::string_view(route->path).size());
    BodyBudget budget(body_bytes);
    if (request.method == "POST") {
      const int status = request.has_header("Transfer-Encoding")
                             ? read_chunks(connection, budget, &http.body)
                             : read_body(connection, std::strtoull(length.c_str(), nullptr, 10), budget, &http.body);
      if (status != 200) return fail(request, {status, status_message(status)}, response);
      connection.set_complete();
    }
    reply(*route, http, response);
  }
};

bool is_loopback(std::string_view host) {
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  in_addr address = {};
  if (inet_pton(AF_INET, std::string(host).c_str(), &address) == 1) return ntohl(address.s_addr) >> 24 == 127;
  return host == "localhost" || host == "::1";
}

HttpListener::HttpListener() : state_(std::make_unique<State>()) {}
HttpListener::~HttpListener() {
  stop([] { return true; });
}

Error HttpListener::bind(const HttpOptions& options, std::span<const Route> routes) {
  httplib::Server& server = state_->server;
  state_->options = options;
  state_->routes = routes;
  server.set_tcp_nodelay(true);
  // Replaces cpp-httplib's SO_REUSEPORT, which would let two servers share a port unnoticed.
  int listener = -1;
  server.set_socket_options([&listener](int socket) {
    listener = socket;
    const int yes = 1;
    setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  });
  server.set_keep_alive_max_count(kMaxRequestsPerConnection);
  server.set_keep_alive_timeout(kIdleTimeout_s);
  if (options.port == 0) {
    port_ = std::max(0, server.bind_to_any_port(options.host));
  } else if (server.bind_to_port(options.host, options.port)) {
    port_ = options.port;
  }
  server.set_socket_options([](int) {});
  // cpp-httplib's backlog is 5. Beyond the backlog, connections break that their clients believe to be open.
  if (port_ > 0 && ::listen(listener, SOMAXCONN) == 0) return {};
  return error("cannot listen: the port is in use or the address is not this machine's; --port chooses another",
               options.host + ":" + std::to_string(options.port));
}

Error HttpListener::listen() {
  try {
    state_->thread = std::thread([this] {
      state_->server.listen_after_bind();
      state_->is_over = true;
    });
  } catch (const std::system_error& e) {
    return error("cannot create a thread", "server", {}, e.code().message());
  }
  // stop() has no effect on a server that does not run yet.
  while (!state_->server.is_running() && !state_->is_over) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  return {};
}

void HttpListener::open(ModelList* models) { state_->models = models; }

// Even after is_stopping(), streams get a moment to send their last event.
void HttpListener::finish(const std::function<bool()>& is_stopping) {
  auto stopping = std::chrono::milliseconds(0);
  while (stopping < kMaxStopping && state_->replies.load() > 0) {
    std::this_thread::sleep_for(kStopInterval);
    if (is_stopping()) stopping += kStopInterval;
  }
  stop(is_stopping);
}

// Incomplete requests are dropped; replies may still be written, for a limited time.
void HttpListener::stop(const std::function<bool()>& is_stopping) {
  if (!state_->thread.joinable()) return;
  HttpServer& server = state_->server;
  server.stop();
  server.shut_down_connections(is_stopping());
  for (auto waited = kStopInterval; !state_->is_over.load(); waited += kStopInterval) {
    if (waited > kMaxWriting || is_stopping()) server.shut_down_connections(true);
    std::this_thread::sleep_for(kStopInterval);
  }
  state_->thread.join();
}

}  // namespace pinion
