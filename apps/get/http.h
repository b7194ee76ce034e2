// HTTP as a client. libcurl does the transport; it is loaded by the first request, so that other commands start without
// it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "kernels/base/error.h"

namespace pinion {

struct Request {
  std::string url;
  std::string token = {};    // sent to the URL's own scheme, host and port, and to no other after a redirect
  int64_t from = 0;          // the first byte wanted
  std::string body = {};     // not empty: JSON to be sent by POST, and a redirect is not followed
  int64_t most_idle_s = 60;  // without a byte; 0: as long as the connection stands
};

struct Response {
  long status = 0;            // HTTP's
  int64_t from = 0;           // the first byte of the body that came; 0 where the server sends all
  int64_t retry_after_s = 0;  // as the server wishes
  std::string page = {};      // the body of an answer that is no success
};

bool is_success(const Response& response);

// Takes a part of the body of a response that is a success. An error ends the transfer.
using Sink = std::function<Error(const Response& response, std::span<const std::byte> part)>;

// A token that can stand in a header: a line's end in it would begin another one. `where` names what it came from.
Error check_token(std::string_view token, const std::string& where);

struct CurlLibrary;

class Http {
 public:
  Http();
  ~Http();
  Error open();  // before all else

  // Follows redirects of GET. An error is one of the transport: no connection, cut off, a wrong certificate. What the
  // server answered is in `out`, what the sink found wrong in `sink_error`.
  Error ask(const Request& request, const Sink& sink, Response* out, Error* sink_error);

 private:
  std::unique_ptr<CurlLibrary> curl_;
  void* handle_ = nullptr;  // keeps connections open
};

}  // namespace pinion
