#include "kernels/access_pattern.h"

#include <atomic>
#include <cstdlib>
#include <iterator>

#include "kernels/cpu.h"

namespace pinion {
namespace {

// Relaxed: which row a kernel takes changes no result.
std::atomic<size_t>& row_in_use() {
  static std::atomic<size_t> row = default_access_pattern();
  return row;
}

}  // namespace

std::optional<size_t> find_access_pattern(std::string_view name) {
  for (size_t i = 0; i < std::size(kAccessPatterns); ++i) {
    if (kAccessPatterns[i].name == name) return i;
  }
  return {};
}

size_t default_access_pattern() {
  if (const char* wanted = std::getenv("PINION_ACCESS")) {
    if (const std::optional<size_t> row = find_access_pattern(wanted)) return *row;
  }
#if defined(__x86_64__)
  enum : size_t { many_streams, few_streams, one_stream };
  if (__builtin_cpu_is("amd")) return cpu_features() & kCpuAvx512 ? one_stream : few_streams;
#endif
  return 0;
}

size_t access_pattern() { return row_in_use().load(std::memory_order_relaxed); }

void use_access_pattern(size_t row) { row_in_use().store(row, std::memory_order_relaxed); }

}  // namespace pinion
