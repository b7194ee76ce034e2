#include "engine/team/memory.h"

#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <limits>
#include <span>

namespace pinion {
namespace {

constexpr int64_t kUnlimited = std::numeric_limits<int64_t>::max();

// The number after `key` in lines such as "MemAvailable: 123 kB" or "active_file 456"; `otherwise` if there is none.
int64_t read_field(const std::string& path, const std::string& key, int64_t otherwise) {
  std::ifstream file(path);
  std::string word, rest;
  for (int64_t value = 0; file >> word >> value; std::getline(file, rest)) {
    if (word == key) return value;
  }
  return otherwise;
}

// Files of a group's limit and use. `used` includes the page cache, which the kernel frees on demand.
struct MemoryFiles {
  const char* limit;
  const char* used;
  const char* active_cache;  // in memory.stat
  const char* inactive_cache;
};
// Above memory.high the kernel throttles the group.
constexpr MemoryFiles kMemoryFiles[] = {
    {"memory.max", "memory.current", "active_file", "inactive_file"},
    {"memory.high", "memory.current", "active_file", "inactive_file"},
    {"memory.limit_in_bytes", "memory.usage_in_bytes", "total_active_file", "total_inactive_file"},
};

// Bytes that the limit of a control group leaves; about kUnlimited without one, a number that version 1 writes.
int64_t left_by(const std::string& group, const MemoryFiles& files) {
  const int64_t limit = read_number(group + "/" + files.limit, kUnlimited);
  const int64_t used = read_number(group + "/" + files.used, kUnlimited);
  if (limit == kUnlimited || used == kUnlimited) return kUnlimited;
  const std::string stat = group + "/memory.stat";
  const int64_t cache = read_field(stat, files.active_cache, 0) + read_field(stat, files.inactive_cache, 0);
  return std::max<int64_t>(0, limit - std::max<int64_t>(0, used - cache));
}

}  // namespace

int64_t read_number(const std::string& path, int64_t otherwise) {
  std::ifstream file(path);
  int64_t value = 0;
  return file >> value ? value : otherwise;
}

std::string FreeMemory::text() const { return megabytes_text(bytes) + " " + limit; }

FreeMemory free_memory(const std::string& root) {
  const int64_t kilobytes = read_field(root + "/proc/meminfo", "MemAvailable:", -1);
  FreeMemory free = {kilobytes < 0 ? kUnlimited : kilobytes * 1024, "free"};
  for (const std::string& group : cgroup_folders(root, "memory")) {
    for (const MemoryFiles& files : kMemoryFiles) {
      const int64_t left = left_by(group, files);
      if (left < free.bytes) free = {left, "left by " + group.substr(root.size()) + "/" + files.limit};
    }
  }
  return free;
}

int64_t available_memory_bytes() { return free_memory().bytes; }
int64_t total_memory_bytes() { return read_field("/proc/meminfo", "MemTotal:", 0) * 1024; }

int64_t peak_rss_bytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_maxrss * 1024;  // Linux reports kilobytes
}

int64_t resident_bytes(std::byte* page, int64_t bytes) {
  const int64_t size = sysconf(_SC_PAGESIZE);
  std::array<unsigned char, 4096> states;
  int64_t pages = 0;
  for (int64_t at = 0; at < bytes; at += size * std::ssize(states)) {
    const int64_t length = std::min(bytes - at, size * std::ssize(states));
    if (mincore(page + at, length, states.data()) != 0) break;
    const std::span here(states.data(), (length + size - 1) / size);
    pages += std::ranges::count_if(here, [](unsigned char state) { return (state & 1) != 0; });
  }
  return size * pages;
}

int64_t private_bytes() {
  int64_t resident = 0, shared = 0;
  std::ifstream("/proc/self/statm") >> shared >> resident >> shared;  // the first number: all mapped pages
  return (resident - shared) * sysconf(_SC_PAGESIZE);
}

Error check_memory(int64_t bytes, const FreeMemory& free, std::string what, std::string where,
                   const std::string& detail) {
  if (bytes <= free.bytes) return {};
  return {std::move(what), std::move(where), megabytes_text(bytes) + detail, free.text(), bytes};
}

std::string megabytes_text(int64_t bytes) { return std::to_string((bytes + 999'999) / 1'000'000) + " MB"; }

std::vector<std::string> cgroup_folders(const std::string& root, const std::string& controller) {
  std::vector<std::string> folders;
  std::ifstream groups(root + "/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {  // "0::/path", with version 1 also "4:cpu,cpuacct:/path"
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
    const bool is_version_1 = controllers.find("," + controller + ",") != std::string::npos;
    if (!is_version_1 && controllers != ",,") continue;
    const std::string mount = root + "/sys/fs/cgroup" + (is_version_1 ? "/" + controller : "");
    std::string path = line.substr(second + 1);
    if (path == "/") path.clear();
    folders.push_back(mount + path);
    while (path.rfind('/') != std::string::npos) {
      path.resize(path.rfind('/'));
      folders.push_back(mount + path);
    }
  }
  return folders;
}

}  // namespace pinion
