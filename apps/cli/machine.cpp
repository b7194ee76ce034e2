#include "apps/cli/machine.h"

#include <array>
#include <cstdio>
#include <fstream>

namespace pinion {

std::string shell_quoted(std::string_view word) {
  std::string quoted = "'";
  for (const char c : word) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted + "'";
}

std::string command_line() {
  std::ifstream file("/proc/self/cmdline");
  std::string line;
  for (std::string word; std::getline(file, word, '\0');) {
    const bool is_plain = !word.empty() && word.find_first_of(" \t\n'\"\\$`;&|<>()*?[]#~!{}") == std::string::npos;
    line += (line.empty() ? "" : " ") + (is_plain ? word : shell_quoted(word));
  }
  return line;
}

std::string bytes_text(double bytes) {
  constexpr std::array<const char*, 5> kUnits = {"B", "kB", "MB", "GB", "TB"};
  size_t unit = 0;
  for (; bytes >= 999.5 && unit + 1 < kUnits.size(); ++unit) bytes /= 1000;
  std::array<char, 32> text;
  std::snprintf(text.data(), text.size(), unit == 0 || bytes >= 99.95 ? "%.0f %s" : "%.1f %s", bytes, kUnits[unit]);
  return text.data();
}

}  // namespace pinion
