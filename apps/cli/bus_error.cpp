#include "apps/cli/bus_error.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <string_view>

#include "apps/cli/console.h"
#include "loader/files/mapped_file.h"

namespace pinion {
namespace {

// A line as `note` writes it, in what a signal handler may call.
void tell(std::string_view path) {
  std::array<char, 8192> line;
  size_t length = 0;
  const auto add = [&](std::string_view text) {
    for (const char c : text.substr(0, line.size() - length)) {
      line[length++] = static_cast<unsigned char>(c) < ' ' && c != '\n' ? ' ' : c;
    }
  };
  add("pinion: ");
  add(path.substr(0, line.size() / 2));
  add(": cannot be read any more: it was shortened, or its disk or network failed; restore it, or remove it if it is "
      "of "
      "the weight cache\n");
  (void)!write(STDERR_FILENO, line.data(), length);
}

void on_bus_error(int number, siginfo_t* info, void*) {
  const char* path = mapped_file_at(info->si_addr);
  if (!path) {
    signal(number, SIG_DFL);
    raise(number);
    return;
  }
  static std::atomic_flag is_told;  // the whole team may meet it
  if (!is_told.test_and_set()) {
    tell(path);
    _exit(kFailure);
  }
  for (;;) pause();
}

}  // namespace

void name_unreadable_files() {
  struct sigaction action = {};
  action.sa_sigaction = on_bus_error;
  action.sa_flags = SA_SIGINFO;
  sigaction(SIGBUS, &action, nullptr);
}

}  // namespace pinion
