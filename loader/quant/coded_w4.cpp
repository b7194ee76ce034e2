#include "loader/quant/coded_w4.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <span>
#include <vector>

#include "loader/files/mapped_file.h"
#include "loader/quant/stored_weights.h"

namespace pinion {
namespace {

constexpr uint32_t kExponentBits = 23;

uint32_t magnitude(float value) { return std::bit_cast<uint32_t>(value) & 0x7fffffffu; }

// What the scales of one column are divided by to become f16: 1 of F16, else the power of two that brings the largest
// into [2^15, 2^16), the highest that f16 reaches, to leave room below.
float column_scale(DType dtype, std::span<const float> scales) {
  uint32_t largest = 0;
  for (const float scale : scales) largest = std::max(largest, magnitude(scale));
  if (dtype == DType::f16 || largest == 0) return 1.0f;
  return std::bit_cast<float>(((largest >> kExponentBits) - 15) << kExponentBits);
}

// Whether the scales of one column, divided so, are normal f16 numbers, or zeros.
bool fit_f16(std::span<const float> scales) {
  // The exponents of a float for which the column's scale and 16 times the largest are normal numbers, too.
  constexpr uint32_t kLeast = 31, kMost = 246, kBelowLargest = 29;
  uint32_t largest = 0, smallest_less_one = ~0u, bits_beyond_f16 = 0;
  for (const float scale : scales) {
    const uint32_t size = magnitude(scale);
    largest = std::max(largest, size);
    smallest_less_one = std::min(smallest_less_one, size - 1);  // a zero is above all others
    bits_beyond_f16 |= size & 0x1fffu;
  }
  if (largest == 0) return true;
  const uint32_t top = largest >> kExponentBits, bottom = (smallest_less_one + 1) >> kExponentBits;
  return bits_beyond_f16 == 0 && top >= kLeast && top <= kMost && bottom + kBelowLargest >= top;
}

bool all_scales_fit(const CodedMatrix& m) {
  if (m.scale.dtype == DType::f16) return true;
  constexpr int64_t kRows = 64;  // at a time: a cache line and more where the rows are columns of the file
  const int64_t groups = m.groups();
  std::vector<float> scales(static_cast<size_t>(kRows * groups));
  for (int64_t first = 0; first < m.n; first += kRows) {
    const int64_t rows = std::min(kRows, m.n - first);
    read_scales(m, first, rows, scales.data());
    for (int64_t r = 0; r < rows; ++r) {
      if (!fit_f16({scales.data() + r * groups, static_cast<size_t>(groups)})) return false;
    }
  }
  return true;
}

}  // namespace

std::string find_w4_format(const CodedMatrix& m, Format* out) {
  if (m.order.data) return "inputs in an order of their own";
  if (m.groups() > 1 && m.group_size() % kBlockK != 0) return "groups that are no multiple of 32";
  const bool fit = all_scales_fit(m), symmetric = zeros_are_middle(m);
  release_pages(m.scale.contents());  // packing reads them again, or the packed cache makes that needless
  release_pages(m.zero.contents());
  if (!fit) return "scales that f16 cannot hold";
  *out = symmetric ? Format::w4 : Format::w4z;
  return {};
}

int64_t read_w4_rows(const CodedMatrix& m, int64_t first, int64_t count, W4Rows* out) {
  first += m.first_row;
  const int64_t groups = m.groups(), blocks = padded_k(m.k) / kBlockK;
  std::vector<float> zero_points(static_cast<size_t>(count * groups)), scales(zero_points.size());
  std::vector<uint8_t> codes(static_cast<size_t>(count * m.k));
  read_codes(m, first, count, codes.data(), zero_points.data());
  read_scales(m, first, count, scales.data());
  out->codes.resize(static_cast<size_t>(count * blocks * kBlockK));
  out->zero_points.resize(static_cast<size_t>(count * blocks));
  out->group_scales.resize(out->zero_points.size());
  out->scales.resize(static_cast<size_t>(count));
  for (int64_t r = 0; r < count; ++r) {
    const std::span row_scales(scales.data() + r * groups, static_cast<size_t>(groups));
    const float scale = column_scale(m.scale.dtype, row_scales);
    out->scales[static_cast<size_t>(r)] = scale;
    uint8_t* to = out->codes.data() + r * blocks * kBlockK;
    for (int64_t block = 0; block < blocks; ++block, to += kBlockK) {
      const int64_t k = block * kBlockK, group = k / m.group_size(), i = r * blocks + block;
      const float zero = zero_points[static_cast<size_t>(r * groups + group)],
                  own = row_scales[static_cast<size_t>(group)];
      if (!std::isfinite(zero) || !std::isfinite(own)) return r;
      out->zero_points[static_cast<size_t>(i)] = static_cast<uint8_t>(zero);
      out->group_scales[static_cast<size_t>(i)] = to_f16(own / scale);
      const int64_t inside = std::min(kBlockK, m.k - k);
      std::copy_n(codes.data() + r * m.k + k, inside, to);
      std::fill(to + inside, to + kBlockK, static_cast<uint8_t>(std::min(zero, 15.0f)));
    }
  }
  return -1;
}

}  // namespace pinion
