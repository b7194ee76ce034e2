#include "apps/cli/start.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/resource.h>
#include <unistd.h>

#include <system_error>
#include <thread>

#include "apps/cli/console.h"

// For jemalloc. Its version 5.3 crashes where there is no memory for a new thread's arena. One is enough: nothing
// allocates for each token.
extern "C" {
extern const char* malloc_conf;
const char* malloc_conf = "narenas:1";
}

namespace pinion {

void open_standard_descriptors() {
  for (const int descriptor : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (fcntl(descriptor, F_GETFD) >= 0) continue;
    // The lowest number that is free is this one. The wrong direction, so that reading and writing still fail.
    const int opened = open("/dev/null", descriptor == STDIN_FILENO ? O_WRONLY : O_RDONLY);
    if (opened != descriptor) _exit(kFailure);
  }
}

int run_on_enough_stack(const std::function<int()>& run) {
  constexpr size_t kStackBytes = size_t{8} << 20;
  rlimit limit{};
  if (getrlimit(RLIMIT_STACK, &limit) != 0 || limit.rlim_cur >= kStackBytes) return run();
  // The limit is the first thread's, and the default of all others: those may be given more.
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, kStackBytes);
  pthread_setattr_default_np(&attributes);
  pthread_attr_destroy(&attributes);
  int status = kFailure;
  try {
    std::thread([&] { status = run(); }).join();
  } catch (const std::system_error& failure) {
    return fail(error("cannot start a thread", "a stack of 8 MB", {}, failure.what()));
  }
  return status;
}

namespace {

// The libraries start before main, and jemalloc and libstdc++ crash there with `ulimit -s 20`. The linker runs what
// this section names before them; nothing of theirs may be used yet.
void raise_tiny_stack() {
  constexpr rlim_t kLeastBytes = rlim_t{64} << 10;
  rlimit limit{};
  if (getrlimit(RLIMIT_STACK, &limit) != 0 || limit.rlim_cur >= kLeastBytes) return;
  limit = {kLeastBytes, limit.rlim_max < kLeastBytes ? kLeastBytes : limit.rlim_max};  // the second is for root only
  if (setrlimit(RLIMIT_STACK, &limit) == 0) return;
  constexpr char kMessage[] = "pinion: the stack is too small: start pinion where `ulimit -s` is 64 or more\n";
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, kMessage, sizeof kMessage - 1);
  _exit(kFailure);
}

__attribute__((section(".preinit_array"), used)) void (*const kBeforeLibraries)() = raise_tiny_stack;

}  // namespace
}  // namespace pinion
