// Whether a client is still there before its answer has begun. Until then cpp-httplib keeps the connection to itself,
// in the versions that Debian 12 and Ubuntu 24.04 have.
#pragma once

#include <functional>

namespace httplib {
struct Request;
}

namespace pinion {

// Looks when it is called, on the thread and for as long as the request is handled.
std::function<bool()> peer_watch(const httplib::Request& request);

}  // namespace pinion
