// Which requests are refused before anything reads them.
#pragma once

#include <string>
#include <string_view>

#include "apps/serve/http.h"

namespace httplib {
struct Request;
}

namespace pinion {

constexpr size_t kMostBodyBytes = size_t{32} << 20;

// "localhost", 127.0.0.0/8, ::1, with brackets or without.
bool is_loopback(std::string_view host);

// Status 0: nothing is wrong. `head`: the request's lines as they came. `is_open`: needs no key.
ApiError refusal_of(const httplib::Request& request, std::string_view head, const HttpOptions& options, bool is_open);

// Of a request that was not refused.
bool has_body(const httplib::Request& request);

}  // namespace pinion
