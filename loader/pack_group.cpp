#include "loader/pack_group.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <numeric>
#include <type_traits>

#include "kernels/bf16.h"
#include "loader/convert.h"
#include "loader/quantize_w4.h"

namespace pinion {
namespace {

// The element types of a source: how its bits are read as a float, and where infinities and NaNs begin once the sign
// is masked off. Magnitudes compare like the numbers they stand for, so the largest is found without converting any.
struct SourceBf16 {
  using Bits = uint16_t;
  using Magnitude = int16_t;
  static constexpr Magnitude kMask = 0x7fff, kInfinity = 0x7f80;
  static float value(Bits bits) { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }
};

struct SourceF16 {
  using Bits = uint16_t;
  using Magnitude = int16_t;
  static constexpr Magnitude kMask = 0x7fff, kInfinity = 0x7c00;
  static float value(Bits bits) { return f16_to_float(bits); }
};

struct SourceF32 {
  using Bits = uint32_t;
  using Magnitude = int32_t;
  static constexpr Magnitude kMask = 0x7fffffff, kInfinity = 0x7f800000;
  static float value(Bits bits) { return std::bit_cast<float>(bits); }
};

// Codes that the file holds; what they stand for is their row's given scale times as much.
struct SourceI8 {
  using Bits = int8_t;
};

// The file does not align its tensors.
template <class Bits>
Bits load(const std::byte* row, int64_t i) {
  Bits bits;
  std::memcpy(&bits, row + i * static_cast<int64_t>(sizeof bits), sizeof bits);
  return bits;
}

constexpr int64_t kTileK = 256;
static_assert(kPanelColumns % kGroupRows == 0 && kTileK % kBlockK == 0 && kGroupRows == kW4Columns);

template <class Source>
const std::byte* row_of(const RowGroup& group, int64_t r) {
  return group.source + r * group.k * static_cast<int64_t>(sizeof(typename Source::Bits));
}

// What element i of a row stands for.
template <class Source>
float weight(const RowGroup& group, int64_t r, const std::byte* row, int64_t i) {
  const auto bits = load<typename Source::Bits>(row, i);
  if constexpr (std::is_same_v<Source, SourceI8>) {
    return static_cast<float>(bits) * group.given_scale[r];
  } else {
    return Source::value(bits);
  }
}

template <class Source>
typename Source::Magnitude largest_magnitude(const std::byte* row, int64_t k) {
  typename Source::Magnitude largest = 0;
  for (int64_t i = 0; i < k; i++) {
    const auto bits = load<typename Source::Bits>(row, i);
    largest = std::max(largest, static_cast<typename Source::Magnitude>(bits & Source::kMask));
  }
  return largest;
}

// codes [count]; returns their sum. A true division: multiplying by 127 / amax gives other codes on ties.
template <class Source>
int32_t quantise(const std::byte* row, int64_t first_k, int64_t count, float scale, int8_t* codes) {
  // Adding 1.5 * 2^23 leaves a sum whose unit is 1: the addition itself rounds to nearest even, and the sum's low byte
  // is the code. |w / scale| <= 127 after rounding because scale = amax / 127 is a normal number.
  constexpr float kRounder = 12582912.0f;
  int32_t sum = 0;
  for (int64_t i = 0; i < count; i++) {
    const float w = Source::value(load<typename Source::Bits>(row, first_k + i));
    codes[i] = static_cast<int8_t>(std::bit_cast<uint32_t>(w / scale + kRounder));
    sum += codes[i];
  }
  return sum;
}

// Codes of one tile [kGroupRows, kTileK] to their places in the panel: four k of a row stay together.
void store_tile(const int8_t* codes, int64_t k_count, std::byte* panel) {
  for (int64_t k = 0; k < k_count; k += 4) {
    std::byte* line = panel + w8_offset(k, 0);
    for (int64_t r = 0; r < kGroupRows; r++) std::memcpy(line + r * 4, codes + r * kTileK + k, 4);
  }
}

template <>
int32_t quantise<SourceI8>(const std::byte* row, int64_t first_k, int64_t count, float /*scale*/, int8_t* codes) {
  std::memcpy(codes, row + first_k, static_cast<size_t>(count));
  return std::accumulate(codes, codes + count, int32_t{0});
}

bool is_scale(float value) { return value > 0.0f && std::isfinite(value * 128.0f); }

// scale [rows]: what codes are multiplied by, found or given. Returns the first row that is unfit, or -1.
template <class Source>
int64_t find_scales(const RowGroup& group, float* scale) {
  // Below this amax / 127 is not a normal number, and a quotient by it could exceed 127.
  constexpr float kSmallestAmax = 0x1p-119f;
  for (int64_t r = 0; r < group.rows; r++) {
    const auto magnitude = largest_magnitude<Source>(row_of<Source>(group, r), group.k);
    if (magnitude >= Source::kInfinity) return r;
    const float amax = Source::value(static_cast<typename Source::Bits>(magnitude));
    scale[r] = amax < kSmallestAmax ? 0.0f : amax / 127.0f;
  }
  return -1;
}

template <>
int64_t find_scales<SourceI8>(const RowGroup& group, float* scale) {
  for (int64_t r = 0; r < group.rows; r++) {
    if (!is_scale(group.given_scale[r])) return r;
    scale[r] = group.given_scale[r];
  }
  return -1;
}

// Returns the first unfit row, or -1.
template <class Source>
int64_t pack_group_w8(const RowGroup& group) {
  float scale[kGroupRows] = {};
  int32_t sum[kGroupRows] = {};
  if (const int64_t bad = find_scales<Source>(group, scale); bad >= 0) return bad;
  for (int64_t k = 0; k < padded_k(group.k); k += kTileK) {
    alignas(kAlignmentBytes) int8_t codes[kGroupRows * kTileK] = {};
    const int64_t count = std::clamp<int64_t>(group.k - k, 0, kTileK);
    for (int64_t r = 0; r < group.rows; r++) {
      if (scale[r] == 0.0f) continue;
      const std::byte* row = row_of<Source>(group, r);
      sum[r] += quantise<Source>(row, k, count, scale[r], codes + r * kTileK);
    }
    store_tile(codes, std::min(padded_k(group.k) - k, kTileK), group.panel + w8_offset(k, 0));
  }
  std::copy_n(scale, kGroupRows, group.scale);
  std::copy_n(sum, kGroupRows, group.column_sum);
  return -1;
}

template <class Source>
void round_to_bf16(const RowGroup& group, int64_t r, int64_t first_k, int64_t count, bf16* values) {
  const std::byte* row = row_of<Source>(group, r);
  for (int64_t i = 0; i < count; i++) values[i] = to_bf16(weight<Source>(group, r, row, first_k + i));
}

template <class Source>
int64_t pack_group_bf16(const RowGroup& group) {
  bf16* panel = reinterpret_cast<bf16*>(group.panel);
  float scale[kGroupRows];  // unused: only whether they can be found matters
  if (const int64_t bad = find_scales<Source>(group, scale); bad >= 0) return bad;
  for (int64_t k = 0; k < padded_k(group.k); k += kTileK) {
    bf16 values[kGroupRows * kTileK] = {};
    const int64_t count = std::clamp<int64_t>(group.k - k, 0, kTileK);
    for (int64_t r = 0; r < group.rows; r++) round_to_bf16<Source>(group, r, k, count, values + r * kTileK);
    for (int64_t i = 0; i < std::min(padded_k(group.k) - k, kTileK); i++) {
      bf16* line = panel + bf16_offset(k + i, 0);
      for (int64_t r = 0; r < kGroupRows; r++) line[r] = values[r * kTileK + i];
    }
  }
  return -1;
}

// The weights of k [k, k + kBlockK), each row's divided by its power of two.
template <class Source>
void load_w4(const RowGroup& group, int64_t k, const float* inverse, W4Group* out) {
  const int64_t count = std::min(kBlockK, group.k - k);
  if (count < kBlockK || group.rows < kGroupRows) std::memset(out->weights, 0, sizeof out->weights);
  for (int64_t r = 0; r < group.rows; r++) {
    const std::byte* row = row_of<Source>(group, r);
    for (int64_t i = 0; i < count; i++) out->weights[i][r] = weight<Source>(group, r, row, k + i) * inverse[r];
  }
}

void store_w4(const W4Group& group, std::byte* codes, std::byte* scales) {
  for (int64_t pair = 0; pair < kBlockK / 8; pair++, codes += 4 * kPanelColumns) {
    for (int64_t r = 0; r < kGroupRows; r++) {
      for (int64_t i = 0; i < 4; i++) {
        const int first = group.codes[pair * 8 + i][r], second = group.codes[pair * 8 + 4 + i][r];
        codes[r * 4 + i] = static_cast<std::byte>(first | second << 4);
      }
    }
  }
  std::memcpy(scales, group.scales, sizeof group.scales);
}

// Each row's own scale is a power of two that brings its weights below 4, mostly the largest between 2 and 4.
template <class Source>
int64_t pack_group_w4(const RowGroup& group) {
  float scale[kGroupRows] = {}, inverse[kGroupRows] = {};
  if (const int64_t bad = find_scales<Source>(group, scale); bad >= 0) return bad;
  for (int64_t r = 0; r < group.rows; r++) {
    if (scale[r] == 0.0f) continue;
    scale[r] = std::bit_cast<float>(std::bit_cast<uint32_t>(scale[r] * 64.0f) & 0x7f800000u);
    if (scale[r] != 0.0f) inverse[r] = 1.0f / scale[r];
  }
  std::byte* codes = group.panel;
  for (int64_t k = 0; k < padded_k(group.k); k += kBlockK, codes += w4_record_bytes(false)) {
    alignas(kAlignmentBytes) W4Group quantised;
    load_w4<Source>(group, k, inverse, &quantised);
    quantize_w4(&quantised);
    store_w4(quantised, codes, codes + kW4CodeBytes - group.column * 2);
  }
  std::copy_n(scale, kGroupRows, group.scale);
  return -1;
}

template <class Source>
int64_t pack_group(Format format, const RowGroup& group) {
  if (format == Format::w8) return pack_group_w8<Source>(group);
  return format == Format::bf16 ? pack_group_bf16<Source>(group) : pack_group_w4<Source>(group);
}

}  // namespace

int64_t pack_group(DType dtype, Format format, const RowGroup& group) {
  if (dtype == DType::bf16) return pack_group<SourceBf16>(format, group);
  if (dtype == DType::f16) return pack_group<SourceF16>(format, group);
  return dtype == DType::i8 ? pack_group<SourceI8>(format, group) : pack_group<SourceF32>(format, group);
}

void pack_w4_rows(Format format, const RowGroup& group, const W4Rows& rows) {
  const bool has_zeros = format == Format::w4z;
  const int64_t blocks = padded_k(group.k) / kBlockK;
  std::byte* codes = group.panel;
  for (int64_t block = 0; block < blocks; block++, codes += w4_record_bytes(has_zeros)) {
    alignas(kAlignmentBytes) W4Group own;
    uint8_t zeros[kGroupRows];
    std::memset(own.codes, 8, sizeof own.codes);
    std::memset(own.scales, 0, sizeof own.scales);
    std::memset(zeros, 8, sizeof zeros);
    for (int64_t r = 0; r < group.rows; r++) {
      const auto i = static_cast<size_t>(r * blocks + block);
      for (size_t k = 0; k < size_t{kBlockK}; k++) own.codes[k][r] = rows.codes[i * size_t{kBlockK} + k];
      own.scales[r] = rows.group_scales[i];
      zeros[r] = rows.zeros[i];
    }
    std::byte* scales = codes + kW4CodeBytes - group.column * 2;
    store_w4(own, codes, scales);
    if (has_zeros) std::memcpy(scales + kPanelColumns * 2 - group.column, zeros, sizeof zeros);
  }
  std::fill_n(group.scale, kGroupRows, 0.0f);
  std::copy_n(rows.scales.data(), group.rows, group.scale);
}

}  // namespace pinion
