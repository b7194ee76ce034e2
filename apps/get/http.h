// HTTP client over libcurl, which is loaded when a client is opened, so that other commands start without it.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string_view>

#include "kernels/base/error.h"

namespace pinion {

struct ClientRequest {
  std::string url;
  std::string token = {};       // sent to the URL's scheme, host and port only, also after redirects
  int64_t from = 0;             // first byte to request
  std::string body = {};        // not empty: JSON to send by POST; redirects are not followed then
  int64_t idle_timeout_s = 60;  // maximum time without a byte; 0: no limit
};

struct ClientResponse {
  long status = 0;            // HTTP status code
  int64_t from = 0;           // offset of the body's first byte; 0: the server sends the whole
  int64_t retry_after_s = 0;  // from the header Retry-After
  std::string page = {};      // body of an unsuccessful response
};

bool is_success(const ClientResponse& response);

// Receives the body of a successful response piece by piece. An error ends the transfer.
using Sink = std::function<Error(const ClientResponse& response, std::span<const std::byte> part)>;

// Appends the bodies to a text of at most max_bytes. `where` names the server in errors.
Sink text_sink(std::string* out, int64_t max_bytes, const std::string& where);

// Fails unless the token can be part of a header: a newline would begin another header. `where` names its source.
Error check_token(std::string_view token, const std::string& where);

struct CurlLibrary;

class HttpClient {
 public:
  HttpClient();
  ~HttpClient();
  Error open();  // must be called first

  // Follows redirects of GET. Returns errors of the transport: no connection, an interrupted one, a wrong certificate.
  // *out has the server's response, *sink_error the error of the sink.
  Error ask(const ClientRequest& request, const Sink& sink, ClientResponse* out, Error* sink_error);

 private:
  std::unique_ptr<CurlLibrary> curl_;
  void* handle_ = nullptr;  // reuses connections
};

}  // namespace pinion
