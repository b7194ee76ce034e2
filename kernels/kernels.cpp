// Choice of the kernel table and of the access pattern.
#include "kernels/kernels.h"

#include <atomic>
#include <cstdlib>
#include <iterator>

#include "kernels/access_pattern.h"
#include "kernels/cpu.h"

namespace pinion {
namespace {

#if defined(PINION_SME2_NEEDS_SVE2)
constexpr uint32_t kCpuNeededBySme2 = kCpuSve2;  // see isa/sme2.cmake
#elif defined(PINION_SME2)
constexpr uint32_t kCpuNeededBySme2 = 0;
#endif

// Relaxed order suffices, because results do not depend on the row.
std::atomic<size_t>& access_row() {
  static std::atomic<size_t> row = default_access_pattern();
  return row;
}

}  // namespace

std::span<const Variant> kernel_variants() {
  static constexpr Variant kVariants[] = {
#if defined(__aarch64__)
#if defined(PINION_SME2)
      {"sme2", kCpuNeon | kCpuDotprod | kCpuI8mm | kCpuBf16 | kCpuSme2 | kCpuNeededBySme2, sme2_kernels},
#endif
      {"neon_bf16", kCpuNeon | kCpuDotprod | kCpuI8mm | kCpuBf16, neon_bf16_kernels},
      {"neon_i8mm", kCpuNeon | kCpuDotprod | kCpuI8mm, neon_i8mm_kernels},
      {"neon_dotprod", kCpuNeon | kCpuDotprod, neon_dotprod_kernels},
      {"neon", kCpuNeon, neon_kernels},
#elif defined(__x86_64__)
      {"avx512_bf16", kCpuAvx2 | kCpuAvx512 | kCpuAvx512Vnni | kCpuAvx512Bf16, avx512_bf16_kernels},
      {"avx512_vnni", kCpuAvx2 | kCpuAvx512 | kCpuAvx512Vnni, avx512_vnni_kernels},
      {"avx_vnni", kCpuAvx2 | kCpuAvxVnni, avx_vnni_kernels},
      {"avx2", kCpuAvx2, avx2_kernels},
#endif
      {"scalar", 0, scalar_kernels},
  };
  return kVariants;
}

const Kernels& best_kernels() {
  const uint32_t features = cpu_features();
  for (const Variant& variant : kernel_variants()) {
    if ((variant.needs & ~features) == 0) return variant.table();
  }
  return scalar_kernels();
}

Error select_kernels(std::string_view name, const Kernels** out) {
  const uint32_t features = cpu_features();
  const char* from_environment = std::getenv("PINION_KERNELS");
  if (name.empty() && from_environment) name = from_environment;
  std::string names;
  for (const Variant& variant : kernel_variants()) {
    const uint32_t missing = variant.needs & ~features;
    if (name.empty() ? missing == 0 : name == variant.name) {
      if (missing) return error("the CPU lacks " + feature_names(missing), "kernels " + std::string(name));
      *out = &variant.table();
      return {};
    }
    names += (names.empty() ? "" : ", ") + std::string(variant.name);
  }
  return error("unknown kernels", std::string(name), "one of " + names);
}

std::optional<size_t> find_access_pattern(std::string_view name) {
  for (size_t i = 0; i < std::size(kAccessPatterns); ++i) {
    if (kAccessPatterns[i].name == name) return i;
  }
  return {};
}

size_t default_access_pattern() {
  if (const char* name = std::getenv("PINION_ACCESS")) {
    if (const std::optional<size_t> row = find_access_pattern(name)) return *row;
  }
#if defined(__x86_64__)
  if (__builtin_cpu_is("amd")) return *find_access_pattern(cpu_features() & kCpuAvx512 ? "one_stream" : "few_streams");
#endif
  return 0;
}

size_t access_pattern() { return access_row().load(std::memory_order_relaxed); }

void use_access_pattern(size_t row) { access_row().store(row, std::memory_order_relaxed); }

}  // namespace pinion
