#include "engine/memory.h"

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

int64_t mem_available() {
  std::ifstream file("/proc/meminfo");
  std::string key, unit;
  int64_t kilobytes = 0;
  while (file >> key >> kilobytes) {
    if (key == "MemAvailable:") return kilobytes * 1024;
    std::getline(file, unit);
  }
  return kUnlimited;
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

int64_t available_memory_bytes() {
  int64_t available = mem_available();
  const std::string group = memory_cgroup();
  const int64_t limit = read_number(group + "/memory.max");
  if (!group.empty() && limit != kUnlimited) {
    const int64_t used = read_number(group + "/memory.current");
    if (used != kUnlimited) available = std::min(available, std::max<int64_t>(0, limit - used));
  }
  return available;
}

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
