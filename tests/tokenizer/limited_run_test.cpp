// What comes back from a child process, whatever becomes of it.
#include "tokenizer/limited_run.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>

namespace pinion {
namespace {

std::string outcome(const std::function<Error(std::string*)>& work, RunLimits limits = {}) {
  std::string text = "untouched";
  const Error e = run_limited(work, "w", &text, limits);
  return e ? "error: " + e.message() : text;
}

TEST(LimitedRun, BringsBackTextsAndErrors) {
  const std::string zeros("a\0b\n", 4);
  EXPECT_EQ(outcome([&](std::string* text) { return *text = zeros, Error(); }), zeros);
  EXPECT_EQ(outcome([](std::string*) { return Error(); }), "");
  EXPECT_EQ(outcome([](std::string*) { return error("a", "b", "c", "d"); }), "error: b: a: want c, have d");
  EXPECT_EQ(outcome([](std::string*) -> Error { throw std::runtime_error("no"); }), "error: w: failed: no");
}

TEST(LimitedRun, LeavesTheParentAsItWas) {
  int value = 1;
  EXPECT_EQ(outcome([&](std::string*) { return value = 2, Error(); }), "");
  EXPECT_EQ(value, 1);
  EXPECT_EQ(waitpid(-1, nullptr, WNOHANG), -1);  // no child is left
  EXPECT_EQ(errno, ECHILD);
}

TEST(LimitedRun, HoldsWhateverHappens) {
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
  contains(outcome([](std::string*) -> Error { return pause(), Error(); }, {.wall_seconds = 1}),
           "takes too long: want at most 1 s");
}

// Who starts a program may have it ignore signals.
TEST(LimitedRun, HoldsWhateverSignalsAreIgnored) {
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

TEST(LimitedRun, TheChildEndsWithTheParent) {
  std::array<int, 2> ends{};
  ASSERT_EQ(pipe(ends.data()), 0);
  const pid_t parent = fork();
  if (parent == 0) {
    close(ends[0]);
    std::string text;
    _exit(run_limited([&](std::string*) -> Error { return write(ends[1], "x", 1), pause(), Error(); }, "w", &text) ? 1
                                                                                                                   : 0);
  }
  close(ends[1]);
  char byte = 0;
  EXPECT_EQ(read(ends[0], &byte, 1), 1);  // the grandchild runs
  kill(parent, SIGKILL);
  EXPECT_EQ(waitpid(parent, nullptr, 0), parent);
  pollfd ended{ends[0], POLLIN, 0};
  EXPECT_EQ(poll(&ended, 1, 10'000), 1);  // nobody has the other end any more
  close(ends[0]);
}

}  // namespace
}  // namespace pinion
