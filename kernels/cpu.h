// CPU features: one bit per instruction set extension that a kernel table may need.
#pragma once

#include <cstdint>
#include <string>

namespace pinion {

enum CpuFeature : uint32_t {
  kCpuNeon = 1u << 0,
  kCpuDotprod = 1u << 1,
  kCpuI8mm = 1u << 2,
  kCpuSve2 = 1u << 3,
  kCpuSme2 = 1u << 4,
  kCpuBf16 = 1u << 5,
  kCpuAvx2 = 1u << 8,  // with FMA and F16C
  kCpuAvxVnni = 1u << 9,
  kCpuAvx512 = 1u << 10,  // F, BW, DQ, VL
  kCpuAvx512Vnni = 1u << 11,
  kCpuAvx512Bf16 = 1u << 12,
};

// Features of this CPU, as the operating system reports them.
uint32_t cpu_features();

// Names separated by blanks: "avx2 avx512 avx512_vnni".
std::string feature_names(uint32_t features);

}  // namespace pinion
