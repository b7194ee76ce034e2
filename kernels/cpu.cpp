#include "kernels/cpu.h"

#include <utility>

#if defined(__aarch64__)
#include <sys/auxv.h>
#elif defined(__x86_64__)
#include <cpuid.h>
#endif

namespace pinion {
namespace {

constexpr std::pair<uint32_t, const char*> kNames[] = {
    {kCpuNeon, "neon"},
    {kCpuDotprod, "dotprod"},
    {kCpuI8mm, "i8mm"},
    {kCpuBf16, "bf16"},
    {kCpuSve2, "sve2"},
    {kCpuSme2, "sme2"},
    {kCpuAvx2, "avx2"},
    {kCpuAvxVnni, "avx_vnni"},
    {kCpuAvx512, "avx512"},
    {kCpuAvx512Vnni, "avx512_vnni"},
    {kCpuAvx512Bf16, "avx512_bf16"},
};

}  // namespace

#if defined(__aarch64__)

uint32_t cpu_features() {
  // Bit positions of the Linux arm64 ABI (Documentation/arch/arm64/elf_hwcaps.rst); older headers lack newer names.
  const unsigned long hwcap = getauxval(AT_HWCAP);
  const unsigned long hwcap2 = getauxval(AT_HWCAP2);
  uint32_t features = kCpuNeon;
  if (hwcap >> 20 & 1) features |= kCpuDotprod;
  if (hwcap2 >> 13 & 1) features |= kCpuI8mm;
  if (hwcap2 >> 14 & 1) features |= kCpuBf16;
  // Some Linux kernels report SVE2 if only streaming mode has it. Plain SVE is missing then.
  if ((hwcap >> 22 & 1) && (hwcap2 >> 1 & 1)) features |= kCpuSve2;
  if (hwcap2 >> 37 & 1) features |= kCpuSme2;
  return features;
}

#elif defined(__x86_64__)

namespace {

uint32_t detect_features() {
  uint32_t features = 0;
  // Every CPU with AVX2 has FMA and F16C, but an emulator may not. __builtin_cpu_supports of older clangs lacks F16C.
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  const bool has_f16c = __get_cpuid(1, &eax, &ebx, &ecx, &edx) && (ecx & bit_F16C);
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && has_f16c) features |= kCpuAvx2;
  if (__builtin_cpu_supports("avxvnni")) features |= kCpuAvxVnni;
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
      __builtin_cpu_supports("avx512vl")) {
    features |= kCpuAvx512;
    if (__builtin_cpu_supports("avx512vnni")) features |= kCpuAvx512Vnni;
    if (__builtin_cpu_supports("avx512bf16")) features |= kCpuAvx512Bf16;
  }
  return features;
}

}  // namespace

// Cached, because CPUID takes microseconds in a virtual machine.
uint32_t cpu_features() {
  static const uint32_t features = detect_features();
  return features;
}

#else

uint32_t cpu_features() { return 0; }

#endif

std::string feature_names(uint32_t features) {
  std::string text;
  for (const auto& [bit, name] : kNames) {
    if (features & bit) text += (text.empty() ? "" : " ") + std::string(name);
  }
  return text;
}

}  // namespace pinion
