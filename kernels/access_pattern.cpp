#include "kernels/access_pattern.h"

#include <cstdlib>
#include <iterator>

#include "kernels/cpu.h"

namespace pinion {
namespace {

enum : size_t { many_streams, few_streams, one_stream };

size_t find_pattern() {
  if (const char* wanted = std::getenv("PINION_ACCESS")) {
    for (size_t i = 0; i < std::size(kAccessPatterns); ++i) {
      if (kAccessPatterns[i].name == wanted) return i;
    }
  }
#if defined(__x86_64__)
  if (__builtin_cpu_is("amd")) return cpu_features() & kCpuAvx512 ? one_stream : few_streams;
#endif
  return many_streams;
}

}  // namespace

size_t access_pattern() {
  static const size_t pattern = find_pattern();
  return pattern;
}

}  // namespace pinion
