#include "engine/team/memory.h"

#include <sys/resource.h>

#include <algorithm>
#include <fstream>
#include <limits>
#include <utility>

#include "engine/team/cgroup.h"

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

// Where a group's limit and use are written. The page cache counts as used, but gives way.
struct MemoryFiles {
  const char* limit;
  const char* used;
  const char* active_cache;  // in memory.stat
  const char* inactive_cache;
};
// The second is where the kernel begins to slow a group down.
constexpr MemoryFiles kMemoryFiles[] = {
    {"memory.max", "memory.current", "active_file", "inactive_file"},
    {"memory.high", "memory.current", "active_file", "inactive_file"},
    {"memory.limit_in_bytes", "memory.usage_in_bytes", "total_active_file", "total_inactive_file"},
};

// Version 1 writes no limit as a number near kUnlimited.
int64_t left_by(const std::string& group, const MemoryFiles& files) {
  const int64_t limit = read_number(group + "/" + files.limit);
  const int64_t used = read_number(group + "/" + files.used);
  if (limit == kUnlimited || used == kUnlimited) return kUnlimited;
  const std::string stat = group + "/memory.stat";
  const int64_t cache = read_field(stat, files.active_cache, 0) + read_field(stat, files.inactive_cache, 0);
  return std::max<int64_t>(0, limit - std::max<int64_t>(0, used - cache));
}

}  // namespace

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
  return usage.ru_maxrss * 1024;  // Linux counts kilobytes
}

Error check_memory(int64_t bytes, const FreeMemory& free, std::string what, std::string where,
                   const std::string& detail) {
  if (bytes <= free.bytes) return {};
  return error(std::move(what), std::move(where), megabytes_text(bytes) + detail, free.text());
}

std::string megabytes_text(int64_t bytes) { return std::to_string((bytes + 999'999) / 1'000'000) + " MB"; }

}  // namespace pinion
