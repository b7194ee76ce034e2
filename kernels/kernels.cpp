#include "kernels/kernels.h"

#include <cstdlib>
#include <string>

#include "kernels/cpu.h"

namespace pinion {

#if defined(PINION_SME2_NEEDS_SVE2)
constexpr uint32_t kCpuBesideSme2 = kCpuSve2;  // see sme2.cmake
#elif defined(PINION_SME2)
constexpr uint32_t kCpuBesideSme2 = 0;
#endif

std::span<const Variant> kernel_variants() {
  static constexpr Variant kVariants[] = {
#if defined(__aarch64__)
#if defined(PINION_SME2)
      {"sme2", kCpuNeon | kCpuDotprod | kCpuI8mm | kCpuBf16 | kCpuSme2 | kCpuBesideSme2, sme2_kernels},
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

}  // namespace pinion
