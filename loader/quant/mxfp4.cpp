#include "loader/quant/mxfp4.h"

#include <bit>
#include <limits>

namespace pinion {
namespace {

// E8M0: an exponent alone. That of 0 is no normal float.
float power_of_two(std::byte scale) {
  const auto exponent = std::to_integer<uint32_t>(scale);
  if (exponent == 255) return std::numeric_limits<float>::quiet_NaN();
  return exponent == 0 ? 0x1p-127f : std::bit_cast<float>(exponent << 23);
}

}  // namespace

void read_mxfp4(const std::byte* codes, const std::byte* scales, int64_t blocks, float* out) {
  for (int64_t block = 0; block < blocks; block++) {
    const float scale = power_of_two(scales[block]);
    for (int64_t i = 0; i < kMxBlockBytes; i++, out += 2) {
      const auto pair = std::to_integer<uint32_t>(codes[block * kMxBlockBytes + i]);
      out[0] = kE2m1Numbers[pair & 15] * scale;
      out[1] = kE2m1Numbers[pair >> 4] * scale;
    }
  }
}

}  // namespace pinion
