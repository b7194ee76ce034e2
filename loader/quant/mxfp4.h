// MXFP4 (OCP Microscaling Formats 1.0): blocks of 32 numbers, each a 4-bit code, with one power of two for the block.
#pragma once

#include <cstddef>
#include <cstdint>

namespace pinion {

constexpr int64_t kMxBlock = 32;       // numbers
constexpr int64_t kMxBlockBytes = 16;  // of their codes

// E2M1 numbers by their code: sign, two bits of exponent, one of mantissa.
constexpr float kE2m1Numbers[16] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6, -0.0f, -0.5f, -1, -1.5f, -2, -3, -4, -6};

// out [blocks * kMxBlock], exactly: the code's E2M1 number times 2^(scale - 127), NaN where the scale is 255. codes:
// [blocks][kMxBlockBytes], the lower nibble first; scales: [blocks]. No number has more than two significant bits: bf16
// holds it too.
void read_mxfp4(const std::byte* codes, const std::byte* scales, int64_t blocks, float* out);

}  // namespace pinion
