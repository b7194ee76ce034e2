// Results, limits and isolation of the child process.
#include "tokenizer/templates/limited_run.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>

namespace pinion {
namespace {

std::string outcome(const std::function<Error(std::string*)>& work, RunLimits limits = {}) {
  std::string text = "untouched";
  const Error e = run_limited(work, "w", &text, limits);
  return e ? "error: " + e.message() : text;
}

void wait_forever() {
  std::atomic<int> never{0};
  never.wait(0);
}

TEST(LimitedRun, ReturnsTextsAndErrors) {
  const std::string zeros("a\0b\n", 4);
  EXPECT_EQ(outcome([&](std::string* text) { return *text = zeros, Error(); }), zeros);
  EXPECT_EQ(outcome([](std::string*) { return Error(); }), "");
  EXPECT_EQ(outcome([](std::string*) { return error("a", "b", "c", "d"); }), "error: b: a: want c, have d");
  EXPECT_EQ(outcome([](std::string*) -> Error { throw std::runtime_error("no"); }), "error: w: failed: no");
}

TEST(LimitedRun, DoesNotChangeTheParent) {
  int value = 1;
  EXPECT_EQ(outcome([&](std::string*) { return value = 2, Error(); }), "");
  EXPECT_EQ(value, 1);
  EXPECT_EQ(waitpid(-1, nullptr, WNOHANG), -1);  // no child is left
  EXPECT_EQ(errno, ECHILD);
}

TEST(LimitedRun, LimitsAndCrashesAreErrors) {
  const auto contains = [](const std::string& text, const char* part) {
    EXPECT_NE(text.find(part), std::string::npos) << text;
  };
  const auto endless = [](std::string*) -> Error {
    for (std::atomic<int> count{0};; ++count) {
    }
  };
  contains(outcome(endless, {.cpu_seconds = 1}), "takes too long: want at most 1 s");
  contains(outcome([](std::string* text) { return text->assign(2000, 'x'), Error(); }, {.output_bytes = 1999}),
           "makes too much text");
  contains(outcome([](std::string*) -> Error { _exit(3); }), "exit status 3");
  contains(outcome([](std::string*) -> Error { _exit(0); }), "crashed");
  contains(outcome([](std::string*) { return raise(SIGKILL), Error(); }), "signal 9");
  contains(outcome([](std::string*) -> Error { return wait_forever(), Error(); }, {.wall_seconds = 1}),
           "takes too long: want at most 1 s");
}

// A program may be started with signals ignored.
TEST(LimitedRun, LimitsHoldWithIgnoredSignals) {
  const auto endless = [](std::string*) -> Error {
    for (std::atomic<int> count{0};; ++count) {
    }
  };
  for (const int ignored : {SIGXCPU, SIGCHLD}) {
    const auto before = std::signal(ignored, SIG_IGN);
    EXPECT_EQ(outcome([](std::string* text) { return *text = "whole", Error(); }), "whole");
    EXPECT_TRUE(outcome(endless, {.cpu_seconds = 1, .wall_seconds = 5}).starts_with("error: w: ")) << ignored;
    std::signal(ignored, before);
  }
}

TEST(LimitedRun, ChildEndsWithTheParent) {
  void* shared = mmap(nullptr, sizeof(std::atomic<pid_t>), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(shared, MAP_FAILED);
  auto* grandchild = new (shared) std::atomic<pid_t>(0);
  ASSERT_EQ(prctl(PR_SET_CHILD_SUBREAPER, 1), 0);  // so that the grandchild becomes a child of this process
  const pid_t parent = fork();
  if (parent == 0) {
    std::string text;
    const Error e = run_limited(
        [&](std::string*) -> Error {
          grandchild->store(getpid());
          return wait_forever(), Error();
        },
        "w", &text);
    _exit(e ? 1 : 0);
  }
  while (*grandchild == 0) usleep(1000);
  kill(parent, SIGKILL);
  EXPECT_EQ(waitpid(parent, nullptr, 0), parent);
  int status = 0;
  EXPECT_EQ(waitpid(*grandchild, &status, 0), *grandchild);
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) << status;
  prctl(PR_SET_CHILD_SUBREAPER, 0);
  munmap(shared, sizeof(std::atomic<pid_t>));
}

TEST(LimitedRun, ChildHasNoFilesOfTheParent) {
  const int low = memfd_create("file", 0), file = fcntl(low, F_DUPFD, 100);  // the pipe gets a low number
  ASSERT_GE(file, 100);
  const auto write_there = [&](std::string* text) -> Error {
    *text = write(file, "x", 1) < 0 ? std::strerror(errno) : "written";
    return {};
  };
  EXPECT_EQ(outcome(write_there), std::strerror(EBADF));
  EXPECT_EQ(lseek(file, 0, SEEK_END), 0);
  close(file);
  close(low);
}

TEST(LimitedRun, ChildCannotUseOtherCalls) {
#if defined(PINION_ADDRESS_SANITIZER)
  GTEST_SKIP() << "the sanitizer reads files when it unwinds, so calls are not filtered";
#endif
  if (prctl(PR_GET_SECCOMP, 0, 0, 0, 0) < 0) GTEST_SKIP() << "no filters for system calls: " << std::strerror(errno);
  const struct {
    const char* name;
    long (*call)();
  } kCalls[] = {
      {"open", [] { return static_cast<long>(open("/dev/null", O_RDONLY)); }},
      {"create", [] { return static_cast<long>(creat("/tmp/pinion-limited-run-test", 0600)); }},
      {"unlink", [] { return static_cast<long>(unlink("/tmp/pinion-limited-run-test")); }},
      {"socket", [] { return static_cast<long>(socket(AF_INET, SOCK_STREAM, 0)); }},
      {"local socket", [] { return static_cast<long>(socket(AF_UNIX, SOCK_STREAM, 0)); }},
      {"exec", [] { return static_cast<long>(execl("/bin/true", "true", nullptr)); }},
      {"fork", [] { return static_cast<long>(fork()); }},
      {"signal to the parent", [] { return static_cast<long>(kill(getppid(), 0)); }},
      {"signal to a thread of the parent", [] { return static_cast<long>(tgkill(1, 1, 0)); }},
      {"undo", [] { return static_cast<long>(prctl(PR_SET_SECCOMP, 0)); }},
  };
  for (const auto& [name, call] : kCalls) {
    const auto attempt = [&](std::string* text) -> Error {
      *text = call() < 0 ? std::strerror(errno) : "done";
      return {};
    };
    EXPECT_EQ(outcome(attempt), std::strerror(EPERM)) << name;
  }
  // abort() sends a signal to its own process.
  EXPECT_NE(outcome([](std::string*) -> Error { std::abort(); }).find("signal 6"), std::string::npos);
}

}  // namespace
}  // namespace pinion
