#include "apps/serve/http_guard.h"

#include <arpa/inet.h>
#include <httplib.h>

#include <algorithm>
#include <cctype>
#include <utility>

namespace pinion {
namespace {

const ApiError kFine{.status = 0, .message = {}};

std::string in_small_letters(std::string text) {
  for (char& c : text) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return text;
}

// Looks at all of the key that was sent, wherever it differs.
bool is_same_key(std::string_view own, std::string_view sent) {
  unsigned different = own.size() == sent.size() ? 0 : 1;
  for (size_t i = 0; i < sent.size(); ++i) {
    different |= static_cast<unsigned char>(own[i % own.size()]) ^ static_cast<unsigned char>(sent[i]);
  }
  return different == 0;
}

std::string key_of(const httplib::Request& request) {
  constexpr std::string_view kBearer = "bearer ";
  const std::string authorization = request.get_header_value("Authorization");
  return in_small_letters(authorization).starts_with(kBearer) ? authorization.substr(kBearer.size())
                                                              : request.get_header_value("x-api-key");
}

// "localhost:8080" without the port, "[::1]" with its brackets.
std::string host_name(const std::string& host) {
  const size_t colon = host.rfind(':');
  const size_t bracket = host.rfind(']');
  const bool has_port = colon != std::string::npos && (bracket == std::string::npos || colon > bracket);
  return has_port ? host.substr(0, colon) : host;
}

// A web page of somebody else's can make a browser send requests to this machine. It gives itself away by its origin,
// or, where its own name has been made to stand for this machine's address, by that name.
bool is_from_foreign_page(const httplib::Request& request, const HttpOptions& options) {
  const std::string host = in_small_letters(request.get_header_value("Host"));
  const std::string origin = in_small_letters(request.get_header_value("Origin"));
  const bool is_other_origin = !origin.empty() && origin != "http://" + host && origin != "https://" + host;
  const bool is_other_name =
      options.keys.empty() && is_loopback(options.host) && !host.empty() && !is_loopback(host_name(host));
  return is_other_origin || is_other_name;
}

constexpr std::string_view kDigits = "0123456789";
// Of a header's name: RFC 9110, 5.6.2.
constexpr std::string_view kTokenCharacters =
    "!#$%&'*+-.^_`|~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

bool consists_of(std::string_view text, std::string_view characters) {
  return !text.empty() && text.find_first_not_of(characters) == text.npos;
}

std::string_view without_blanks(std::string_view text) {
  const size_t begin = std::min(text.find_first_not_of(" \t"), text.size());
  return text.substr(begin, text.find_last_not_of(" \t") + 1 - begin);
}

// What somebody on the way may have read in another way than the library, which skips, cuts or decodes some of it: then
// the next request would begin elsewhere. RFC 9112, 2.2, 3.2, 5.1, 5.2, 6.3.
ApiError check_head(std::string_view head) {
  int sizes = 0, hosts = 0;
  bool is_request_line = true;
  while (!head.empty()) {
    const size_t end = std::min(head.find("\r\n"), head.size());
    const std::string_view line = head.substr(0, end);
    head.remove_prefix(std::min(end + 2, head.size()));
    if (line.find_first_of(std::string_view("\r\n\0", 3)) != line.npos) {
      return {400, "lines of a head end with CR and LF, and have none within, nor NUL"};
    }
    if (std::exchange(is_request_line, false) || line.empty()) continue;
    const size_t colon = std::min(line.find(':'), line.size());
    if (colon == line.size() || !consists_of(line.substr(0, colon), kTokenCharacters)) {
      return {400, "each header is one line, a name with a colon right behind it"};
    }
    const std::string name = in_small_letters(std::string(line.substr(0, colon)));
    const std::string_view value = without_blanks(line.substr(colon + 1));
    const bool is_length = name == "content-length", is_encoding = name == "transfer-encoding";
    if (is_length && !consists_of(value, kDigits)) return {400, "Content-Length must be a number"};
    if (is_encoding && in_small_letters(std::string(value)) != "chunked") return {400, "unknown Transfer-Encoding"};
    sizes += is_length || is_encoding;
    hosts += name == "host";
  }
  if (sizes > 1) return {400, "send one Content-Length, and no Transfer-Encoding beside it"};
  if (hosts > 1) return {400, "send one Host"};
  return kFine;
}

// The limit on the body is one on what Content-Length says, so that must be there and mean the body as it comes.
ApiError check_body(const httplib::Request& request) {
  if (request.has_header("Transfer-Encoding")) return {411, "send the body in one piece, with its Content-Length"};
  if (request.method == "GET" || request.method == "HEAD") return kFine;
  if (!request.has_header("Content-Length")) return {411, "send the body with its Content-Length"};
  const std::string length = request.get_header_value("Content-Length");
  if (length.size() > 9 || std::stoul(length) > kMostBodyBytes) return {413, "the request is too large: at most 32 MB"};
  if (request.has_header("Content-Encoding")) return {415, "send the body as it is, not compressed"};
  if (request.is_multipart_form_data()) return {415, "send the body as JSON"};
  return kFine;
}

}  // namespace

bool is_loopback(std::string_view host) {
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  in_addr address = {};
  if (inet_pton(AF_INET, std::string(host).c_str(), &address) == 1) return ntohl(address.s_addr) >> 24 == 127;
  return host == "localhost" || host == "::1";
}

ApiError refusal_of(const httplib::Request& request, std::string_view head, const HttpOptions& options, bool is_open) {
  if (ApiError failure = check_head(head); failure.status != 0) return failure;
  if (is_from_foreign_page(request, options)) return {403, "requests from pages of other sites are refused"};
  if (!options.keys.empty() && !is_open) {
    const std::string key = key_of(request);
    const bool has_key = std::ranges::any_of(options.keys, [&](const auto& own) { return is_same_key(own, key); });
    if (!has_key) return {401, "the key is missing or wrong", {}, "invalid_api_key"};
  }
  return check_body(request);
}

bool has_body(const httplib::Request& request) {
  return request.has_header("Transfer-Encoding") ||
         request.get_header_value("Content-Length").find_first_not_of('0') != std::string::npos;
}

}  // namespace pinion
