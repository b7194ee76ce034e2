#include "loader/quant/number_codes.h"

#include <algorithm>
#include <array>

#include "loader/checkpoint/convert.h"
#include "loader/quant/mxfp4.h"

namespace pinion {
namespace {

constexpr std::array<float, 256> kFp8Values = [] {
  std::array<float, 256> values = {};
  for (size_t i = 0; i < values.size(); ++i) values[i] = f8_e4m3_to_float(static_cast<uint8_t>(i));
  return values;
}();

}  // namespace

void read_fp8_row(const CodedMatrix& m, int64_t row, const float* scales, float* out) {
  const auto* codes = reinterpret_cast<const uint8_t*>(m.codes.data) + row * m.k;
  for (int64_t g = 0; g < m.groups(); ++g) {
    const int64_t end = std::min(m.k, (g + 1) * m.group_size());
    const float scale = scales[g];
    for (int64_t i = g * m.group_size(); i < end; ++i) out[i] = kFp8Values[codes[i]] * scale;
  }
}

void read_nvfp4_row(const CodedMatrix& m, int64_t row, const float* scales, float* out) {
  const auto* pairs = reinterpret_cast<const uint8_t*>(m.codes.data) + row * (m.k / 2);
  for (int64_t i = 0; i < m.k; i += 2) {
    const float scale = scales[i / kNvGroup];
    const uint8_t pair = pairs[i / 2];
    out[i] = kE2m1Numbers[pair & 15] * scale;
    out[i + 1] = kE2m1Numbers[pair >> 4] * scale;
  }
}

void read_fp8_scales(const CodedMatrix& m, int64_t first, int64_t count, float* out) {
  const auto* codes = reinterpret_cast<const uint8_t*>(m.scale.data) + first;
  for (int64_t i = 0; i < count; ++i) out[i] = kFp8Values[codes[i]] / m.scale_divisor;
}

}  // namespace pinion
