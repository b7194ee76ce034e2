#include "apps/cli/start.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdlib>
#include <string_view>
#include <system_error>
#include <thread>

#include "apps/cli/console.h"
#include "loader/files/mapped_file.h"

// Read by jemalloc. Its version 5.3 crashes if there is no memory for a new thread's arena. One arena is enough:
// nothing allocates per token.
extern "C" {
extern const char* malloc_conf;
const char* malloc_conf = "narenas:1";
}

namespace pinion {
namespace {

// Prints a line as `note` does. Async-signal-safe.
void report_unreadable(std::string_view path) {
  std::array<char, 8192> line;
  size_t length = 0;
  const auto add = [&](std::string_view text) {
    for (const char c : text.substr(0, line.size() - length)) {
      line[length++] = static_cast<unsigned char>(c) < ' ' && c != '\n' ? ' ' : c;
    }
  };
  add("pinion: ");
  add(path.substr(0, line.size() / 2));
  add(": cannot be read any more: it was shortened, or its disk or network failed; restore it, or remove it if it "
      "belongs to the weight cache\n");
  (void)!write(STDERR_FILENO, line.data(), length);
}

void on_bus_error(int number, siginfo_t* info, void*) {
  const char* path = mapped_file_at(info->si_addr);
  if (!path) {
    signal(number, SIG_DFL);
    raise(number);
    return;
  }
  static std::atomic_flag reported;  // every thread of the team may get here
  if (!reported.test_and_set()) {
    report_unreadable(path);
    _exit(kFailure);
  }
  for (;;) pause();
}

// jemalloc and libstdc++ start before main and crash with `ulimit -s 20`. Functions in .preinit_array run before those
// libraries, so this one must not use them.
void raise_tiny_stack() {
  constexpr rlim_t kMinBytes = rlim_t{64} << 10;
  rlimit limit{};
  if (getrlimit(RLIMIT_STACK, &limit) != 0 || limit.rlim_cur >= kMinBytes) return;
  limit = {kMinBytes, limit.rlim_max < kMinBytes ? kMinBytes : limit.rlim_max};  // only root may raise the second
  if (setrlimit(RLIMIT_STACK, &limit) == 0) return;
  constexpr char kMessage[] = "pinion: the stack is too small: start pinion where `ulimit -s` is 64 or more\n";
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, kMessage, sizeof kMessage - 1);
  _exit(kFailure);
}

__attribute__((section(".preinit_array"), used)) void (*const kBeforeLibraries)() = raise_tiny_stack;

}  // namespace

void open_standard_descriptors() {
  for (const int descriptor : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (fcntl(descriptor, F_GETFD) >= 0) continue;
    // open() returns the lowest free number, which is this one. The wrong direction keeps reads and writes failing.
    const int opened = open("/dev/null", descriptor == STDIN_FILENO ? O_WRONLY : O_RDONLY);
    if (opened != descriptor) _exit(kFailure);
  }
}

void install_bus_error_handler() {
  struct sigaction action = {};
  action.sa_sigaction = on_bus_error;
  action.sa_flags = SA_SIGINFO;
  sigaction(SIGBUS, &action, nullptr);
}

int run_on_enough_stack(const std::function<int()>& run) {
  constexpr size_t kStackBytes = size_t{8} << 20;
  rlimit limit{};
  if (getrlimit(RLIMIT_STACK, &limit) != 0 || limit.rlim_cur >= kStackBytes) return run();
  // The limit binds the first thread and is the default of all others, which may be given more.
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, kStackBytes);
  pthread_setattr_default_np(&attributes);
  pthread_attr_destroy(&attributes);
  setenv("OMP_STACKSIZE", "8M", 0);  // Clang's OpenMP runtime reads this at its first use, and not the default
  int status = kFailure;
  try {
    std::thread([&] { status = run(); }).join();
  } catch (const std::system_error& failure) {
    return fail(error("cannot start a thread", "a stack of 8 MB", {}, failure.what()));
  }
  return status;
}

}  // namespace pinion
