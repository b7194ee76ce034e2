// Runs the program on a terminal of its own.
#pragma once

#include <pty.h>
#include <termios.h>
#include <unistd.h>

#include <array>
#include <functional>

#include "tests/apps/program.h"

namespace pinion {

// Waits until the terminal shows a text, then types.
struct Step {
  std::string wait, type;
  std::function<void()> before = {};  // called before typing
};

struct Screen {
  uint16_t columns = 200;
  std::string environment = {};  // "NO_COLOR=1"
  std::string state_home = {};   // folder of the history; empty: a temporary one
};

// libedit takes over the terminal shortly after printing its prompt. Before that, ^C would be a signal.
inline void wait_for_edited_line(int terminal) {
  termios state = {};
  for (int i = 0; i < 5000 && tcgetattr(terminal, &state) == 0 && (state.c_lflag & ISIG) != 0; ++i) usleep(1000);
}

// Runs the program; `out` gets stdout and stderr, as a terminal shows them.
inline Outcome run_on_terminal(const std::vector<std::string>& arguments, const std::vector<Step>& steps = {},
                               const Screen& screen = {}) {
  const Folder home;
  const std::string state = screen.state_home.empty() ? home.path.string() : screen.state_home;
  const std::string command = "XDG_STATE_HOME=" + quoted(state) + " XDG_CONFIG_HOME=" + quoted(home.path) +
                              " TERM=xterm " + screen.environment + " " + command_line(arguments);
  const winsize size = {.ws_row = 50, .ws_col = screen.columns, .ws_xpixel = 0, .ws_ypixel = 0};
  int terminal = -1;
  const pid_t child = forkpty(&terminal, nullptr, nullptr, &size);
  if (child == 0) {
    execl("/bin/sh", "sh", "-c", command.c_str(), nullptr);
    _exit(127);
  }
  std::string shown;
  std::array<char, 4096> buffer;
  const auto read_more = [&] {
    const ssize_t bytes = read(terminal, buffer.data(), buffer.size());
    if (bytes > 0) shown.append(buffer.data(), static_cast<size_t>(bytes));
    return bytes > 0;
  };
  size_t seen = 0;
  for (const Step& step : steps) {
    size_t at;
    while ((at = shown.find(step.wait, seen)) == std::string::npos && read_more()) {
    }
    EXPECT_NE(at, std::string::npos) << "no " << step.wait << " in " << shown;
    if (at == std::string::npos) break;
    seen = at + step.wait.size();
    if (step.before || step.type.find('\x03') != std::string::npos) wait_for_edited_line(terminal);
    if (step.before) step.before();
    EXPECT_EQ(write(terminal, step.type.data(), step.type.size()), std::ssize(step.type));
  }
  while (read_more()) {
  }
  close(terminal);
  int status = -1;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  return {WIFEXITED(status) ? WEXITSTATUS(status) : 128, shown, ""};
}

}  // namespace pinion
