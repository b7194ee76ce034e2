#include "apps/serve/http_peer.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <httplib.h>
#include <netdb.h>
#include <sys/socket.h>

#include <array>
#include <charconv>
#include <string>
#include <string_view>

namespace pinion {
namespace {

bool is_connected_to(int socket, const std::string& address, int port) {
  sockaddr_storage peer = {};
  socklen_t bytes = sizeof peer;
  std::array<char, NI_MAXHOST> host;
  std::array<char, NI_MAXSERV> service;
  return getpeername(socket, reinterpret_cast<sockaddr*>(&peer), &bytes) == 0 &&
         getnameinfo(reinterpret_cast<sockaddr*>(&peer), bytes, host.data(), host.size(), service.data(),
                     service.size(), NI_NUMERICHOST | NI_NUMERICSERV) == 0 &&
         std::string_view(service.data()) == std::to_string(port) && host.data() == address;
}

// No other connection of this process has the same peer, and this one stays open while its request is handled. -1: not
// found.
int socket_to(const std::string& address, int port) {
  DIR* files = opendir("/proc/self/fd");
  if (!files) return -1;
  int found = -1;
  while (const dirent* file = found < 0 ? readdir(files) : nullptr) {
    const std::string_view name = file->d_name;
    int number = -1;
    std::from_chars(name.data(), name.data() + name.size(), number);
    if (number >= 0 && is_connected_to(number, address, port)) found = number;
  }
  closedir(files);
  return found;
}

}  // namespace

std::function<bool()> peer_watch(const httplib::Request& request) {
  // Few answers take so long that anybody looks, so it is not looked for before.
  return [address = request.remote_addr, port = request.remote_port, socket = -2]() mutable {
    if (socket == -2) socket = socket_to(address, port);
    char next;
    return socket < 0 || recv(socket, &next, 1, MSG_PEEK | MSG_DONTWAIT) != 0;
  };
}

}  // namespace pinion
