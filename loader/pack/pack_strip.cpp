#include "loader/pack/pack.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <optional>

#include "kernels/kernels.h"

namespace pinion {
namespace {

constexpr int64_t kTileK = 256;
static_assert(kPanelColumns % kStripRows == 0 && kTileK % kGroupK == 0 && kStripRows == kW4Columns);

// f(k, count) for tiles of kTileK elements of the padded rows; the first `count` of them are not padding.
template <class F>
void for_each_tile(int64_t k, F f) {
  for (int64_t at = 0; at < padded_k(k); at += kTileK) f(at, std::clamp<int64_t>(k - at, 0, kTileK));
}

// Four k of four rows: a 16-byte vector, an extension of GCC and Clang. Every CPU with vectors has such registers.
using FourByFour = int32_t __attribute__((vector_size(16)));

// Stores sixteen codes of each of four rows, `stride` apart, in four lines of a panel. Four k of a row stay together.
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

// Sums over a row of w8h, of a = 2 (16 high + 7.5) and b = 2 (low - 7.5): below 2^31 for kMaxHalvedK.
struct HalfSums {
  int32_t aa = 0, ab = 0, bb = 0;

  void add(int code) {
    const int a = 2 * (code & ~15) + 15, b = 2 * (code & 15) - 15;
    aa += a * a, ab += a * b, bb += b * b;
  }
  bf16_pair spread(int64_t k) const {
    const double factor = static_cast<double>(ab) / aa, rest = std::max(0.0, bb - factor * ab);
    return {to_bf16(static_cast<float>(std::sqrt(rest / static_cast<double>(k)) / 2)),
            to_bf16(static_cast<float>(factor))};
  }
};

// Stores the codes of one tile [kStripRows][kTileK] as halves.
void store_w8h(const int8_t* codes, int64_t k, const RowStrip& strip, HalfSums* sums) {
  const int64_t half = padded_k(strip.k) / 2, count = std::min(padded_k(strip.k) - k, kTileK);
  for (int64_t r = 0; r < kStripRows; r++) {
    HalfSums sum = sums[r];  // a copy, which no store through a pointer to bytes may change
    for (int64_t i = 0; i < std::min(count, strip.k - k); i++) sum.add(codes[r * kTileK + i]);
    strip.spread[r] = (sums[r] = sum).spread(strip.k);
    for (int64_t i = 0; i < count; i++) {
      const int code = codes[r * kTileK + i], high = (code >> 4) + kFormats[static_cast<int>(Format::w8h)].zero;
      const int64_t at = k + i;
      std::byte& pair = strip.panel[code_offset(Format::w8h, at, r)];
      pair = static_cast<std::byte>(code_shift(Format::w8h, at) == 0 ? high : static_cast<int>(pair) | high << 4);
      uint8_t& low = strip.low[r * half + (at < half ? at : at - half)];
      low = static_cast<uint8_t>(at < half ? code & 15 : low | (code & 15) << 4);
    }
  }
}

// Stores the codes of one tile [kStripRows][kTileK] in the panel and adds up the column sums.
void store_w8(const int8_t* codes, int64_t k, const RowStrip& strip) {
  const int64_t count = std::min(padded_k(strip.k) - k, kTileK);
  for (int64_t i = 0; i < count; i += 16) {
    std::byte* line = strip.panel + w8_offset(k + i, 0);
    for (int64_t r = 0; r < kStripRows; r += 4) store_four_rows(codes + r * kTileK + i, kTileK, line + r * 4);
  }
  for (int64_t r = 0; r < kStripRows; r++) {
    int16_t sum = 0;  // of one tile, at most 2^15 in magnitude: vectors hold twice as many as with 32 bits
    for (int64_t i = 0; i < count; i++) sum = static_cast<int16_t>(sum + codes[r * kTileK + i]);
    strip.column_sum[r] = sum + (k == 0 ? 0 : strip.column_sum[r]);
  }
}

// Loads the weights of k [k, k + kGroupK), each row times its factor.
void load_group(const RowStrip& strip, const float* values, int64_t k, const float* factors, W4Group* out) {
  const int64_t count = std::min(kGroupK, strip.k - k);
  if (count < kGroupK || strip.rows < kStripRows) std::memset(out->weights, 0, sizeof out->weights);
  for (int64_t r = 0; r < strip.rows; r++) {
    const float* row = values + r * strip.k + k;
    for (int64_t i = 0; i < count; i++) out->weights[i][r] = row[i] * factors[r];
  }
}

constexpr float kOnes[kStripRows] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};

// Divides like Kernels::quantize: multiplying by 127 / amax would round ties differently.
int64_t pack_w8(const RowStrip& strip, const float* values, const float* largest, int64_t rotation) {
  const Kernels& kernels = best_kernels();
  float scale[kStripRows] = {};
  HalfSums sums[kStripRows];
  for (int64_t r = 0; r < strip.rows; r++) scale[r] = code_scale(largest[r]);
  std::optional<FeedbackRows> feedback;
  if (strip.feedback) feedback.emplace(*strip.feedback);
  for_each_tile(strip.k, [&](int64_t k, int64_t count) {
    alignas(kAlignmentBytes) int8_t codes[kStripRows * kTileK] = {};
    for (int64_t i = 0; feedback && i < count; i += kGroupK) {
      W4Group group;
      load_group(strip, values, k + i, kOnes, &group);
      feedback->quantise(k + i, Format::w8, false, scale, &group);
      for (int64_t at = 0; at < kStripRows * kGroupK; at++) {
        const int64_t r = at / kGroupK, n = at % kGroupK;
        codes[r * kTileK + i + n] = static_cast<int8_t>(group.codes[n][r] - kW8Zero);
      }
    }
    for (int64_t r = 0; !feedback && r < strip.rows; r++) {
      kernels.encode(values + r * strip.k + k, count, scale[r], codes + r * kTileK);
    }
    strip.low ? store_w8h(codes, k, strip, sums) : store_w8(codes, k, strip);
  });
  for (int64_t r = 0; r < kStripRows; r++) strip.scale[r] = scale[r] / static_cast<float>(rotation);
  return -1;
}

int64_t pack_bf16(const RowStrip& strip, const float* values, const float* /*largest*/, int64_t /*rotation*/) {
  bf16* panel = reinterpret_cast<bf16*>(strip.panel);
  const Kernels& kernels = best_kernels();
  for_each_tile(strip.k, [&](int64_t k, int64_t count) {
    bf16 rounded[kStripRows * kTileK] = {};
    for (int64_t r = 0; r < strip.rows; r++) kernels.to_bf16(values + r * strip.k + k, count, rounded + r * kTileK);
    for (int64_t i = 0; i < std::min(padded_k(strip.k) - k, kTileK); i++) {
      bf16* line = panel + bf16_offset(k + i, 0);
      for (int64_t r = 0; r < kStripRows; r++) line[r] = rounded[r * kTileK + i];
    }
  });
  return -1;
}

// Stores a group in the record whose codes of the strip begin at `codes`.
void store_w4(Format format, const W4Group& group, int64_t column, std::byte* codes) {
  std::byte* scales = codes + code_bytes(format) - column * 2;
  std::memcpy(scales, group.scales, sizeof group.scales);
  if (traits_of(format).has_zero_points) {
    std::memcpy(scales + kPanelColumns * 2 - column, group.zero_points, sizeof group.zero_points);
  }
  for (int64_t pair = 0; pair < kGroupK / 8; pair++, codes += 4 * kPanelColumns) {
    for (int64_t r = 0; r < kStripRows; r++) {
      for (int64_t i = 0; i < 4; i++) {
        const int first = group.codes[pair * 8 + i][r], second = group.codes[pair * 8 + 4 + i][r];
        codes[r * 4 + i] = static_cast<std::byte>(first | second << 4);
      }
    }
  }
}

// The scale of a row is a power of two that brings its weights below 4, the largest usually between 2 and 4.
template <Format F>
int64_t pack_w4(const RowStrip& strip, const float* values, const float* largest, int64_t rotation) {
  float scale[kStripRows] = {}, inverse[kStripRows] = {};
  for (int64_t r = 0; r < strip.rows; r++) {
    const float wide = code_scale(largest[r]) * 64.0f;
    scale[r] = std::bit_cast<float>(std::bit_cast<uint32_t>(wide) & 0x7f800000u);
    if (scale[r] != 0.0f) inverse[r] = 1.0f / scale[r];
  }
  std::byte* codes = strip.panel;
  std::optional<FeedbackRows> rows;
  if (strip.feedback) rows.emplace(*strip.feedback);
  for (int64_t k = 0; k < padded_k(strip.k); k += kGroupK, codes += record_bytes(F)) {
    alignas(kAlignmentBytes) W4Group quantised;
    load_group(strip, values, k, inverse, &quantised);
    if (rows) {
      rows->quantise(k, F, rotation > 1, nullptr, &quantised);
    } else {
      quantize_w4(&quantised, F, rotation > 1);
    }
    store_w4(F, quantised, strip.column, codes);
  }
  for (int64_t r = 0; r < kStripRows; r++) strip.scale[r] = scale[r] / static_cast<float>(rotation);
  return -1;
}

// Stores a row's codes of one group in its column of a record.
void store_w2(const float* values, std::byte* column) {
  constexpr int64_t kFours = kW2GroupK / 4;
  uint8_t codes[kW2GroupK];
  for (int64_t i = 0; i < kW2GroupK; i++) codes[i] = static_cast<uint8_t>(1 + (values[i] > 0.0f) - (values[i] < 0.0f));
  uint32_t fours[kFours];  // codes use two bits of a byte, so a word of four can be shifted as a whole
  std::memcpy(fours, codes, sizeof fours);
  for (int64_t i = 0; i < kFours; i += 4, column += 4 * kPanelColumns) {
    const uint32_t line = fours[i] | fours[i + 1] << 2 | fours[i + 2] << 4 | fours[i + 3] << 6;
    std::memcpy(column, &line, sizeof line);
  }
}

// Codes of padding rows are arbitrary: their scale is 0.
int64_t pack_w2(const RowStrip& strip, const float* values, const float* /*largest*/, int64_t /*rotation*/) {
  constexpr int64_t kBytes = record_bytes(Format::w2);
  const int64_t groups = strip.k / kW2GroupK;
  std::vector<float> scales(groups), padding(kW2GroupK);
  for (int64_t r = 0; r < kStripRows; r++) {
    const bool exists = r < strip.rows;
    const std::span<const float> row(values + r * strip.k, strip.k);
    std::ranges::fill(scales, 0.0f);
    if (exists && !find_ternary_scales(row, scales.data())) return r;
    strip.scale[r] = exists ? ternary_column_scale(scales) : 0.0f;
    for (int64_t g = 0; g < groups; g++) {
      std::byte* record = strip.panel + g * kBytes;
      store_w2(exists ? row.data() + g * kW2GroupK : padding.data(), record + r * 4);
      const f16 scale = to_f16(exists ? scales[g] / strip.scale[r] : 0.0f);
      std::memcpy(record + code_bytes(Format::w2) - strip.column * 2 + r * 2, &scale, sizeof scale);
    }
  }
  return -1;
}

// Returns the first row that the format cannot represent, or -1.
using FloatPacker = int64_t (*)(const RowStrip& strip, const float* values, const float* largest, int64_t rotation);

// By Format.
constexpr FloatPacker kFloatPackers[] = {pack_bf16, pack_w8, pack_w4<Format::w4>,  nullptr,
                                         pack_w2,   nullptr, pack_w4<Format::w4n>, pack_w8};
static_assert(std::size(kFloatPackers) == std::size(kFormats));

}  // namespace

int64_t pack_floats(Format format, const RowStrip& strip, float* values, int64_t rotation) {
  const Kernels& kernels = best_kernels();
  float largest[kStripRows] = {};
  for (int64_t r = 0; r < strip.rows; r++) {
    float* row = values + r * strip.k;
    if (rotation > 1) kernels.rotate(row, strip.k, rotation, row);
    largest[r] = kernels.max_magnitude(row, strip.k);
    if (!std::isfinite(largest[r])) return r;
  }
  return kFloatPackers[static_cast<size_t>(format)](strip, values, largest, rotation);
}

void pack_w8_codes(const RowStrip& strip, const int8_t* codes, const float* scales) {
  HalfSums sums[kStripRows];
  for_each_tile(strip.k, [&](int64_t k, int64_t count) {
    alignas(kAlignmentBytes) int8_t tile[kStripRows * kTileK] = {};
    for (int64_t r = 0; r < strip.rows; r++) std::copy_n(codes + r * strip.k + k, count, tile + r * kTileK);
    strip.low ? store_w8h(tile, k, strip, sums) : store_w8(tile, k, strip);
  });
  std::fill_n(strip.scale, kStripRows, 0.0f);
  std::copy_n(scales, strip.rows, strip.scale);
}

void pack_w4_codes(Format format, const RowStrip& strip, const W4Rows& rows) {
  const int64_t groups = padded_k(strip.k) / kGroupK;
  std::byte* codes = strip.panel;
  for (int64_t g = 0; g < groups; g++, codes += record_bytes(format)) {
    alignas(kAlignmentBytes) W4Group packed;
    std::memset(packed.codes, 8, sizeof packed.codes);
    std::memset(packed.scales, 0, sizeof packed.scales);
    std::memset(packed.zero_points, 8 * kZeroSteps, sizeof packed.zero_points);
    for (int64_t r = 0; r < strip.rows; r++) {
      const int64_t i = r * groups + g;
      for (int64_t k = 0; k < kGroupK; k++) packed.codes[k][r] = rows.codes[i * kGroupK + k];
      packed.scales[r] = rows.group_scales[i];
      packed.zero_points[r] = rows.zero_points[i];
    }
    store_w4(format, packed, strip.column, codes);
  }
  std::fill_n(strip.scale, kStripRows, 0.0f);
  std::copy_n(rows.scales.data(), strip.rows, strip.scale);
}

// Numbers that are f16 already stay exact, and scales of blocks that are quantised again have room above.
constexpr int kTopExponent = 10;
constexpr float kMaxCode = 15.0f;

void append_w4_row(std::span<const W4Block> blocks, const uint8_t* codes, W4Rows* rows) {
  float largest = 0.0f;
  for (const W4Block& b : blocks) largest = std::max({largest, std::fabs(b.scale), std::fabs(b.minimum) / kMaxZero});
  const float scale = largest >= 0x1p-100f ? std::ldexp(1.0f, std::ilogb(largest) - kTopExponent) : 1.0f;
  rows->scales.push_back(scale);
  for (const auto& [block_scale, minimum] : blocks) {
    const float steps = minimum == 0.0f ? 0.0f : std::nearbyint(-minimum / block_scale * kZeroSteps);
    if (steps >= 0 && steps <= kZeroSteps * kMaxZero) {
      std::copy_n(codes, kGroupK, std::back_inserter(rows->codes));
      rows->group_scales.push_back(to_f16(block_scale / scale));
      rows->zero_points.push_back(static_cast<uint8_t>(steps));
    } else {
      const float largest_weight = std::max(std::fabs(minimum), std::fabs(block_scale * kMaxCode + minimum));
      const f16 step = to_f16(largest_weight / kMaxCode / scale);
      const float zero = minimum < 0.0f ? kMaxCode : 0.0f,
                  inverse = step.bits > 0 ? 1.0f / to_float(step) / scale : 0.0f;
      for (int64_t k = 0; k < kGroupK; ++k) {
        const float weight = block_scale * static_cast<float>(codes[k]) + minimum;
        const float code = std::min(kMaxCode, std::nearbyint(weight * inverse) + zero);  // NaN becomes kMaxCode
        rows->codes.push_back(static_cast<uint8_t>(std::max(0.0f, code)));
      }
      rows->group_scales.push_back(step);
      rows->zero_points.push_back(static_cast<uint8_t>(zero * kZeroSteps));
    }
    codes += kGroupK;
  }
}

}  // namespace pinion
