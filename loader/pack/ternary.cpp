#include "loader/pack/ternary.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <vector>

#include "kernels/f16.h"
#include "kernels/layout.h"
#include "loader/checkpoint/convert.h"

namespace pinion {
namespace {

bool are_f16(std::span<const float> scales, float column_scale) {
  return std::ranges::all_of(scales, [=](float scale) {
    const float divided = scale / column_scale;
    return std::isfinite(scale) && divided * column_scale == scale && to_float(to_f16(divided)) == divided;
  });
}

bool is_ternary(const float* group, float scale) {
  bool fits = true;
  for (int64_t i = 0; i < kW2GroupK; ++i) fits &= (group[i] == 0.0f) | (std::fabs(group[i]) == scale);
  return fits;
}

float largest_magnitude(const float* group) {
  float largest = 0.0f;
  for (int64_t i = 0; i < kW2GroupK; ++i) largest = std::max(largest, std::fabs(group[i]));
  return largest;
}

constexpr int64_t kLookedAt = 8;  // rows, spread evenly

}  // namespace

float ternary_column_scale(std::span<const float> scales) {
  const float largest = std::ranges::max(scales);
  if (are_f16(scales, 1.0f)) return 1.0f;
  if (std::isnormal(largest) && are_f16(scales, largest)) return largest;
  constexpr uint32_t kExponentBits = 23, kF16Top = 15;
  const uint32_t exponent = std::bit_cast<uint32_t>(largest) >> kExponentBits;
  if (exponent <= kF16Top || exponent >= 0xff) return 0.0f;
  const float power = std::bit_cast<float>((exponent - kF16Top) << kExponentBits);
  return are_f16(scales, power) ? power : 0.0f;
}

bool find_ternary_scales(std::span<const float> row, float* scales) {
  const int64_t groups = std::ssize(row) / kW2GroupK;
  for (int64_t g = 0; g < groups; ++g) {
    const float* group = row.data() + g * kW2GroupK;
    scales[g] = largest_magnitude(group);
    if (!is_ternary(group, scales[g])) return false;
  }
  return ternary_column_scale({scales, static_cast<size_t>(groups)}) != 0.0f;
}

bool looks_ternary(const TensorView& weight) {
  const int64_t n = weight.shape[0], k = weight.shape[1];
  if (!weight.data || !is_float(weight.dtype) || k % kW2GroupK != 0) return false;
  float first[kW2GroupK];  // a page of the file is all that most models need
  read_floats(weight, 0, kW2GroupK, first);
  if (!is_ternary(first, largest_magnitude(first))) return false;
  std::vector<float> row(static_cast<size_t>(k)), scales(static_cast<size_t>(k / kW2GroupK));
  bool is_nothing = true;
  for (int64_t i = 0; i < kLookedAt; ++i) {
    read_row(weight, (n - 1) * i / (kLookedAt - 1), row.data());
    if (!find_ternary_scales(row, scales.data())) return false;
    is_nothing = is_nothing && std::ranges::max(scales) == 0.0f;
  }
  return !is_nothing;
}

}  // namespace pinion
