#include <arpa/inet.h>
#include <httplib.h>
#include <nettle/memops.h>

#include <cctype>
#include <cstdlib>

#include "apps/serve/http.h"

namespace pinion {
namespace {

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

}  // namespace

bool has_allowed_origin(const httplib::Request& request, const HttpOptions& options) {
  const std::string origin = lower_case(request.get_header_value("Origin"));
  return !origin.empty() && std::ranges::any_of(options.origins, [&](const std::string& allowed) {
    return allowed == "*" || lower_case(allowed) == origin;
  });
}

bool is_loopback(std::string_view host) {
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  in_addr address = {};
  if (inet_pton(AF_INET, std::string(host).c_str(), &address) == 1) return ntohl(address.s_addr) >> 24 == 127;
  return host == "localhost" || host == "::1";
}

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

}  // namespace pinion
