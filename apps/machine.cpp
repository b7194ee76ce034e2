#include "apps/machine.h"

#include <array>
#include <cstdio>
#include <fstream>
#include <sstream>

namespace pinion {
namespace {

// The rest of the first line that begins with `key`, after the colon; empty when there is none.
std::string field(const char* path, const std::string& key) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with(key)) continue;
    const size_t colon = line.find(':');
    if (colon == std::string::npos) continue;
    const size_t begin = line.find_first_not_of(" \t", colon + 1);
    return begin == std::string::npos ? std::string() : line.substr(begin);
  }
  return {};
}

}  // namespace

std::string cpu_name() {
  if (std::string name = field("/proc/cpuinfo", "model name"); !name.empty()) return name;
  std::string board;
  std::ifstream file("/proc/device-tree/model");
  std::getline(file, board, '\0');
  return board.empty() ? "unknown" : board;
}

std::string compiler_name() {
#if defined(__clang__)
  return "clang " __clang_version__;
#else
  return "gcc " __VERSION__;
#endif
}

std::string build_commit() { return PINION_COMMIT; }

std::string command_line() {
  std::ifstream file("/proc/self/cmdline");
  std::string line;
  for (std::string word; std::getline(file, word, '\0');) {
    const bool is_plain = !word.empty() && word.find_first_of(" \t\n'\"\\$`;&|<>()*?[]#~!{}") == std::string::npos;
    std::string quoted = "'";
    for (const char c : word) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
    line += (line.empty() ? "" : " ") + (is_plain ? word : quoted + "'");
  }
  return line;
}

int64_t total_memory_bytes() {
  int64_t kilobytes = 0;
  std::istringstream(field("/proc/meminfo", "MemTotal")) >> kilobytes;
  return kilobytes * 1024;
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
