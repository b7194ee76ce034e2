#include "apps/serve/http_guard.h"

#include <arpa/inet.h>
#include <httplib.h>

#include <algorithm>
#include <cctype>

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

// The limit on the body is one on what Content-Length says, so that must be there and mean the body as it comes.
ApiError check_body(const httplib::Request& request) {
  if (request.has_header("Transfer-Encoding")) return {411, "send the body in one piece, with its Content-Length"};
  if (request.method == "GET" || request.method == "HEAD") return kFine;
  if (!request.has_header("Content-Length")) return {411, "send the body with its Content-Length"};
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

ApiError refusal_of(const httplib::Request& request, const HttpOptions& options, bool is_open) {
  if (is_from_foreign_page(request, options)) return {403, "requests from pages of other sites are refused"};
  if (!options.keys.empty() && !is_open) {
    const std::string key = key_of(request);
    const bool has_key = std::ranges::any_of(options.keys, [&](const auto& own) { return is_same_key(own, key); });
    if (!has_key) return {401, "the key is missing or wrong", {}, "invalid_api_key"};
  }
  return check_body(request);
}

}  // namespace pinion
