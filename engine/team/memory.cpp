#include "engine/team/memory.h"

#include <sys/resource.h>

#include <algorithm>
#include <fstream>
#include <limits>

namespace pinion {
namespace {

constexpr int64_t kUnlimited = std::numeric_limits<int64_t>::max();

// A number on a file's first line; kUnlimited when there is none ("max", no such file).
int64_t read_number(const std::string& path) {
  std::ifstream file(path);
  int64_t value = 0;
  return file >> value ? value : kUnlimited;
}

// The number after `key` in a file of such lines ("MemAvailable: 123 kB", "active_file 456"); `otherwise` without one.
int64_t read_field(const std::string& path, const std::string& key, int64_t otherwise) {
  std::ifstream file(path);
  std::string word, rest;
  for (int64_t value = 0; file >> word >> value; std::getline(file, rest)) {
    if (word == key) return value;
  }
  return otherwise;
}

int64_t mem_available() {
  const int64_t kilobytes = read_field("/proc/meminfo", "MemAvailable:", -1);
  return kilobytes < 0 ? kUnlimited : kilobytes * 1024;
}

// What a group could still take: its limit less what it uses, the page cache aside, which gives way.
int64_t group_available(const std::string& group) {
  const int64_t limit = read_number(group + "/memory.max");
  const int64_t used = read_number(group + "/memory.current");
  if (limit == kUnlimited || used == kUnlimited) return kUnlimited;
  const std::string stat = group + "/memory.stat";
  const int64_t cache = read_field(stat, "active_file", 0) + read_field(stat, "inactive_file", 0);
  return std::max<int64_t>(0, limit - used + cache);
}

// The process's own group in the unified hierarchy: "0::/path" in /proc/self/cgroup.
std::string memory_cgroup() {
  std::ifstream file("/proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("0::")) return "/sys/fs/cgroup" + line.substr(3);
  }
  return {};
}

}  // namespace

int64_t available_memory_bytes() { return std::min(mem_available(), group_available(memory_cgroup())); }

int64_t total_memory_bytes() { return read_field("/proc/meminfo", "MemTotal:", 0) * 1024; }

int64_t peak_rss_bytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_maxrss * 1024;  // Linux counts kilobytes
}

Error check_memory(int64_t weight_bytes, const std::string& where) {
  const int64_t available = available_memory_bytes();
  if (weight_bytes <= available) return {};
  return error("too little memory for the weights", where, megabytes_text(weight_bytes),
               megabytes_text(available) + " free");
}

std::string megabytes_text(int64_t bytes) { return std::to_string((bytes + 999'999) / 1'000'000) + " MB"; }

}  // namespace pinion
