#include "loader/pack/pack_strip.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <iterator>
#include <optional>
#include <span>
#include <vector>

#include "kernels/bf16.h"
#include "kernels/kernels.h"
#include "loader/pack/quantize_w4.h"
#include "loader/pack/ternary.h"

namespace pinion {
namespace {

constexpr int64_t kTileK = 256;
static_assert(kPanelColumns % kStripRows == 0 && kTileK % kBlockK == 0 && kStripRows == kW4Columns);

// f(k, count) for pieces of the padded rows, of whose kTileK elements `count` are the rows' own.
template <class F>
void each_tile(int64_t k, F f) {
  for (int64_t at = 0; at < padded_k(k); at += kTileK) f(at, std::clamp<int64_t>(k - at, 0, kTileK));
}

// Four k of four rows at a time: a vector of every CPU, as an extension that GCC and clang share.
using FourByFour = int32_t __attribute__((vector_size(16)));

// Sixteen codes of each of four rows, `stride` apart, to four lines of a panel: four k of a row stay together.
void store_four_rows(const int8_t* codes, int64_t stride, std::byte* line) {
  FourByFour r[4];
  for (int i = 0; i < 4; ++i) std::memcpy(&r[i], codes + i * stride, sizeof r[i]);
  const FourByFour low01 = __builtin_shufflevector(r[0], r[1], 0, 4, 1, 5);
  const FourByFour low23 = __builtin_shufflevector(r[2], r[3], 0, 4, 1, 5);
  const FourByFour high01 = __builtin_shufflevector(r[0], r[1], 2, 6, 3, 7);
  const FourByFour high23 = __builtin_shufflevector(r[2], r[3], 2, 6, 3, 7);
  const FourByFour lines[4] = {
      __builtin_shufflevector(low01, low23, 0, 1, 4, 5), __builtin_shufflevector(low01, low23, 2, 3, 6, 7),
      __builtin_shufflevector(high01, high23, 0, 1, 4, 5), __builtin_shufflevector(high01, high23, 2, 3, 6, 7)};
  for (int i = 0; i < 4; ++i) std::memcpy(line + i * 4 * kPanelColumns, &lines[i], sizeof lines[i]);
}

// Codes of one tile [kStripRows][kTileK] to their places in the panel, and their sums.
void store_w8(const int8_t* codes, int64_t k, const RowStrip& group) {
  const int64_t count = std::min(padded_k(group.k) - k, kTileK);
  for (int64_t i = 0; i < count; i += 16) {
    std::byte* line = group.panel + w8_offset(k + i, 0);
    for (int64_t r = 0; r < kStripRows; r += 4) store_four_rows(codes + r * kTileK + i, kTileK, line + r * 4);
  }
  for (int64_t r = 0; r < kStripRows; r++) {
    int16_t sum = 0;  // of a tile's codes, at most 2^15 in magnitude: half the work of a sum in 32 bits
    for (int64_t i = 0; i < count; i++) sum = static_cast<int16_t>(sum + codes[r * kTileK + i]);
    group.column_sum[r] = sum + (k == 0 ? 0 : group.column_sum[r]);
  }
}

// The rule of Kernels::quantize, whose division is a true one: by 127 / amax ties would get other codes.
int64_t pack_w8(const RowStrip& group, const float* values, const float* largest, int64_t rotation) {
  const Kernels& kernels = best_kernels();
  float scale[kStripRows] = {};
  for (int64_t r = 0; r < group.rows; r++) scale[r] = code_scale(largest[r]);
  each_tile(group.k, [&](int64_t k, int64_t count) {
    alignas(kAlignmentBytes) int8_t codes[kStripRows * kTileK] = {};
    for (int64_t r = 0; r < group.rows; r++) {
      kernels.encode(values + r * group.k + k, count, scale[r], codes + r * kTileK);
    }
    store_w8(codes, k, group);
  });
  for (int64_t r = 0; r < kStripRows; r++) group.scale[r] = scale[r] / static_cast<float>(rotation);
  return -1;
}

int64_t pack_bf16(const RowStrip& group, const float* values, const float* /*largest*/, int64_t /*rotation*/) {
  bf16* panel = reinterpret_cast<bf16*>(group.panel);
  const Kernels& kernels = best_kernels();
  each_tile(group.k, [&](int64_t k, int64_t count) {
    bf16 rounded[kStripRows * kTileK] = {};
    for (int64_t r = 0; r < group.rows; r++) {
      kernels.to_bf16(values + r * group.k + k, count, rounded + r * kTileK);
    }
    for (int64_t i = 0; i < std::min(padded_k(group.k) - k, kTileK); i++) {
      bf16* line = panel + bf16_offset(k + i, 0);
      for (int64_t r = 0; r < kStripRows; r++) line[r] = rounded[r * kTileK + i];
    }
  });
  return -1;
}

// The weights of k [k, k + kBlockK), each row's divided by its power of two.
void load_w4(const RowStrip& group, const float* values, int64_t k, const float* inverse, W4Group* out) {
  const int64_t count = std::min(kBlockK, group.k - k);
  if (count < kBlockK || group.rows < kStripRows) std::memset(out->weights, 0, sizeof out->weights);
  for (int64_t r = 0; r < group.rows; r++) {
    const float* row = values + r * group.k + k;
    for (int64_t i = 0; i < count; i++) out->weights[i][r] = row[i] * inverse[r];
  }
}

void store_w4(const W4Group& group, std::byte* codes, std::byte* scales) {
  for (int64_t pair = 0; pair < kBlockK / 8; pair++, codes += 4 * kPanelColumns) {
    for (int64_t r = 0; r < kStripRows; r++) {
      for (int64_t i = 0; i < 4; i++) {
        const int first = group.codes[pair * 8 + i][r], second = group.codes[pair * 8 + 4 + i][r];
        codes[r * 4 + i] = static_cast<std::byte>(first | second << 4);
      }
    }
  }
  std::memcpy(scales, group.scales, sizeof group.scales);
}

// Each row's own scale is a power of two that brings its weights below 4, mostly the largest between 2 and 4.
int64_t pack_w4(const RowStrip& group, const float* values, const float* largest, int64_t rotation) {
  float scale[kStripRows] = {}, inverse[kStripRows] = {};
  for (int64_t r = 0; r < group.rows; r++) {
    const float wide = code_scale(largest[r]) * 64.0f;
    scale[r] = std::bit_cast<float>(std::bit_cast<uint32_t>(wide) & 0x7f800000u);
    if (scale[r] != 0.0f) inverse[r] = 1.0f / scale[r];
  }
  std::byte* codes = group.panel;
  std::optional<FeedbackRows> rows;
  if (group.feedback) rows.emplace(*group.feedback);
  for (int64_t k = 0; k < padded_k(group.k); k += kBlockK, codes += record_bytes(Format::w4)) {
    alignas(kAlignmentBytes) W4Group quantised;
    load_w4(group, values, k, inverse, &quantised);
    if (rows) {
      rows->quantise(k, rotation > 1, &quantised);
    } else {
      quantize_w4(&quantised, rotation > 1);
    }
    store_w4(quantised, codes, codes + code_bytes(Format::w4) - group.column * 2);
  }
  for (int64_t r = 0; r < kStripRows; r++) group.scale[r] = scale[r] / static_cast<float>(rotation);
  return -1;
}

// A row's codes of one group to their column of a record.
void store_w2(const float* values, std::byte* column) {
  constexpr int64_t kFours = kW2GroupK / 4;
  uint8_t codes[kW2GroupK];
  for (int64_t i = 0; i < kW2GroupK; i++) codes[i] = static_cast<uint8_t>(1 + (values[i] > 0.0f) - (values[i] < 0.0f));
  uint32_t fours[kFours];  // no code fills its byte: shifting all four of a word parts them none the less
  std::memcpy(fours, codes, sizeof fours);
  for (int64_t i = 0; i < kFours; i += 4, column += 4 * kPanelColumns) {
    const uint32_t line = fours[i] | fours[i + 1] << 2 | fours[i + 2] << 4 | fours[i + 3] << 6;
    std::memcpy(column, &line, sizeof line);
  }
}

// Rows beyond the last have any codes: their scale is 0.
int64_t pack_w2(const RowStrip& group, const float* values, const float* /*largest*/, int64_t /*rotation*/) {
  constexpr int64_t kBytes = record_bytes(Format::w2);
  const int64_t groups = group.k / kW2GroupK;
  std::vector<float> scales(static_cast<size_t>(groups));
  std::vector<float> none(static_cast<size_t>(kW2GroupK));
  for (int64_t r = 0; r < kStripRows; r++) {
    const bool exists = r < group.rows;
    const std::span<const float> row(values + r * group.k, static_cast<size_t>(group.k));
    std::ranges::fill(scales, 0.0f);
    if (exists && !find_ternary_scales(row, scales.data())) return r;
    group.scale[r] = exists ? ternary_column_scale(scales) : 0.0f;
    for (int64_t g = 0; g < groups; g++) {
      std::byte* record = group.panel + g * kBytes;
      store_w2(exists ? row.data() + g * kW2GroupK : none.data(), record + r * 4);
      const f16 scale = to_f16(exists ? scales[static_cast<size_t>(g)] / group.scale[r] : 0.0f);
      std::memcpy(record + code_bytes(Format::w2) - group.column * 2 + r * 2, &scale, sizeof scale);
    }
  }
  return -1;
}

// By Format; null: only codes of a file become it. They return the first row that it cannot hold, or -1.
using FloatPacker = int64_t (*)(const RowStrip& group, const float* values, const float* largest, int64_t rotation);
constexpr FloatPacker kFloatPackers[] = {pack_bf16, pack_w8, pack_w4, nullptr, pack_w2};
static_assert(std::size(kFloatPackers) == std::size(kFormats));

}  // namespace

bool packs_floats(Format format) { return kFloatPackers[static_cast<size_t>(format)] != nullptr; }

int64_t pack_floats(Format format, const RowStrip& group, float* values, int64_t rotation) {
  const Kernels& kernels = best_kernels();
  float largest[kStripRows] = {};
  for (int64_t r = 0; r < group.rows; r++) {
    float* row = values + r * group.k;
    if (rotation > 1) kernels.rotate(row, group.k, rotation, row);
    largest[r] = kernels.max_magnitude(row, group.k);
    if (!std::isfinite(largest[r])) return r;
  }
  return kFloatPackers[static_cast<size_t>(format)](group, values, largest, rotation);
}

void pack_w8_codes(const RowStrip& group, const int8_t* codes, const float* scales) {
  each_tile(group.k, [&](int64_t k, int64_t count) {
    alignas(kAlignmentBytes) int8_t tile[kStripRows * kTileK] = {};
    for (int64_t r = 0; r < group.rows; r++) std::copy_n(codes + r * group.k + k, count, tile + r * kTileK);
    store_w8(tile, k, group);
  });
  std::fill_n(group.scale, kStripRows, 0.0f);
  std::copy_n(scales, group.rows, group.scale);
}

void pack_w4_codes(Format format, const RowStrip& group, const W4Rows& rows) {
  const bool has_zero_points = traits_of(format).has_zero_points;
  const int64_t blocks = padded_k(group.k) / kBlockK;
  std::byte* codes = group.panel;
  for (int64_t block = 0; block < blocks; block++, codes += record_bytes(format)) {
    alignas(kAlignmentBytes) W4Group own;
    uint8_t zero_points[kStripRows];
    std::memset(own.codes, 8, sizeof own.codes);
    std::memset(own.scales, 0, sizeof own.scales);
    std::memset(zero_points, 8, sizeof zero_points);
    for (int64_t r = 0; r < group.rows; r++) {
      const auto i = static_cast<size_t>(r * blocks + block);
      for (size_t k = 0; k < size_t{kBlockK}; k++) own.codes[k][r] = rows.codes[i * size_t{kBlockK} + k];
      own.scales[r] = rows.group_scales[i];
      zero_points[r] = rows.zero_points[i];
    }
    std::byte* scales = codes + code_bytes(Format::w4) - group.column * 2;
    store_w4(own, codes, scales);
    if (has_zero_points) std::memcpy(scales + kPanelColumns * 2 - group.column, zero_points, sizeof zero_points);
  }
  std::fill_n(group.scale, kStripRows, 0.0f);
  std::copy_n(rows.scales.data(), group.rows, group.scale);
}

}  // namespace pinion
