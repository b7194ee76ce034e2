// The packed layout of a weight matrix W [n, k] (out, in). There is one layout, and every instruction set reads it.
//
//   w8:   panels of 64 columns (a column is a row of W, an output channel), panels outermost. Inside a panel exactly
//         [k/4, 64/4, 4, 4]:
//             element (k, n) is at  panel(n / 64) + (k / 4) * 256 + (n % 64) * 4 + k % 4
//
//             k4 = 0:  | n0: k0 k1 k2 k3 | n1: k0 k1 k2 k3 | ... | n63: k0 k1 k2 k3 |   256 bytes
//             k4 = 1:  | n0: k4 k5 k6 k7 | ...
//
//         16 bytes are one operand of SDOT (4 columns x 4 k), 64 bytes one operand of VPDPBUSD.
//   bf16: the same panels with one k a row: element (k, n) is at  panel(n / 64) + k * 64 + n % 64.  Floating-point sums
//         run sequentially in k with vectors across columns, so groups of four k would gain nothing.
//   w4:   the same panels in groups of kGroupK = 32 k, each group with one scale per column. A group of a panel is one
//         record, and the records of a panel are contiguous:
//             1024 bytes  codes: four pairs of rows of four k, laid out as in w8; the low nibble of byte i is byte i of
//                         the pair's first row, the high nibble that of the second
//              128 bytes  64 scales, f16
//               64 bytes  64 zero points in eighths, at most 8 kMaxZero (w4z only; the zero points of w4 are all 8)
//         w(k, n) = (code - zero) * group scale * scale[n], codes 0 to 15.  A weight takes 4 + 16/32 = 4.5 bits (w4z
//         4.75), plus 32/k for scale[n], a power of two that brings the group scales into the range of f16. bf16 group
//         scales would not need it, but would raise the squared error of quantize_w4 by 0.06 %. Files with 4-bit codes
//         have f16 scales, and every instruction set widens f16, too, in one instruction.
//   mxfp4: as w4, with levels: w(k, n) = (level(code) - 12) * group scale * scale[n]. Level - 12 is twice the code's
//   E2M1
//         number (OCP Microscaling Formats 1.0): 0 1 2 3 4 6 8 12, the same negated from code 8 on. Never quantised to.
//   w2:   ternary weights, -1, 0 or 1 times a scale, as w4 but in groups of 128 k. A record:
//             2048 bytes  codes: eight times four rows of four k, laid out as in w8; bits 0 and 1 of byte i are byte i
//                         of the first row, bits 2 and 3 that of the second, and so on
//              128 bytes  64 scales, f16
//         w(k, n) = (code - 1) * group scale * scale[n], codes 0 to 2.  A weight takes 2 + 16/128 = 2.125 bits. k is a
//         multiple of 128, as in all published models with such weights.
//   w8h: w8 by halves, for a head whose rows are ranked before few of them are read whole: code = 16 high + low.
//         high, -8 to 7: records as of w4, without scales (1024 bytes); w4's codes minus 8 are the numbers
//         low, 0 to 15: behind all panels [padded_n(n)][padded_k(k) / 2], column by column; the low nibble of byte i is
//         that of input i, the high nibble that of input padded_k(k) / 2 + i
//         spread, behind the scales [padded_n(n)], two bf16: a column's low halves are 7.5 + factor (16 high + 7.5)
//         plus a rest with the standard deviation `deviation`
//         Sums of the high halves are exact in floats, as k is at most kMaxHalvedK.
//
// n is padded to whole panels and k to a multiple of kGroupK with zeros (padded columns have scale 0), so kernels have
// no tails.
//
// A rotated matrix stores W D H / b instead of W, where H is the Hadamard matrix of size b = rotation_of(k) and D are
// signs, in blocks along the diagonal (Kernels::rotate). It multiplies H D x: (W D H / b) (H D x) = W x. The rotation
// spreads outliers of x over a block, so that one scale per row of x suffices.
//
// A packed matrix is one run of memory: its panels, then the scales, then the column sums. Two matrices that are read
// together, panel by panel, may share one run: their panels interleaved, so that they are read as one stream, then the
// scales and sums of the first matrix, then those of the second.
#pragma once

#include <cstddef>

#include "kernels/half.h"

namespace pinion {

constexpr int64_t kPanelColumns = 64;
constexpr int64_t kGroupK = 32;          // one group of w4; a multiple of the k that any kernel takes in one step
constexpr int64_t kW2GroupK = 128;       // one group of w2
constexpr int64_t kAlignmentBytes = 64;  // of each array: one cache line, the widest vector

// int32 sums stay exact: |x| <= 127, |w| <= 128.
constexpr int64_t kMaxK = 131072;
constexpr int64_t kMaxHalvedK = 16384;  // 8 * 127 * k < 2^24

// Zero points of w4z are stored times kZeroSteps, up to kMaxZero: kZeroSteps * (code - zero) fits a signed byte, so
// that tiles of rows multiply the weights of w4z at the cost of w4's. Sums of a group are then below 2^20 in magnitude.
constexpr int kZeroSteps = 8;
constexpr int kMaxZero = 16;

enum class Format : uint8_t { bf16, w8, w4, w4z, w2, mxfp4, w4n, w8h };

// The numbers from which sizes and offsets follow. A new format is one row here, one case in loader/pack/pack_strip.cpp
// (conversion from floats) and one in engine/forward/matmul.cpp (its kernels).
struct FormatTraits {
  const char* name;
  int bits;         // bits of one weight's code or number
  bool has_scales;  // one scale per column; such formats multiply quantised inputs, all but w2 also rotated ones
  bool has_sums;    // sums of each column's codes
  bool has_zero_points;
  int64_t group_k = 0;             // inputs that share a scale, a multiple of kGroupK; 0: no groups and no records
  int zero = 0;                    // code of weight 0, for formats with groups but without zero points and levels
  const int8_t* levels = nullptr;  // [16] weights by code, before scaling; null: code - zero
  bool is_halved = false;          // w8h: records without scales, and low halves behind the panels
};
// mxfp4 has twice the E2M1 numbers. w4n's steps grow with the magnitude, as those of GGUF's IQ4_NL do; they leave 0.82
// times w4's squared error of normally distributed weights.
static constexpr int8_t kMxfp4Levels[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};
static constexpr int8_t kW4nLevels[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
static constexpr FormatTraits kFormats[] = {
    {"bf16", 16, false, false, false},
    {"w8", 8, true, true, false},
    {"w4", 4, true, false, false, kGroupK, 8},
    {"w4z", 4, true, false, true, kGroupK},
    {"w2", 2, true, false, false, kW2GroupK, 1},
    {"mxfp4", 4, true, false, false, kGroupK, 0, kMxfp4Levels},
    {"w4n", 4, true, false, false, kGroupK, 0, kW4nLevels},
    {"w8h", 8, true, false, false, kGroupK, 8, nullptr, true},
};
static constexpr const FormatTraits& traits_of(Format format) { return kFormats[static_cast<int>(format)]; }
static constexpr Format w4_format(bool has_zero_points) { return has_zero_points ? Format::w4z : Format::w4; }

struct Matrix {
  Format format = Format::w8;
  int64_t n = 0;                        // output channels
  int64_t k = 0;                        // inputs
  const void* panels = nullptr;         // panel_count(n) panels of panel_bytes(format, k), see panel_of()
  const float* scale = nullptr;         // [padded_n(n)]; null if the format has no scales
  const int32_t* column_sum = nullptr;  // [padded_n(n)] sums over k of the codes; null if the format has none
  const uint8_t* low = nullptr;         // [padded_n(n)][padded_k(k) / 2] low halves of w8h; null for other formats
  const bf16_pair* spread = nullptr;    // [padded_n(n)] factors and deviations of low halves; null for other formats
  int64_t interleaved = 1;              // number of matrices of this format and shape whose panels are interleaved
  int64_t rotation = 1;                 // w8, w8h, w4, w4n: size of the blocks of rotated inputs; 1: not rotated
};

// Size of the blocks in which k inputs are rotated: the largest power of two that divides k.
static constexpr int64_t rotation_of(int64_t k) { return k & -k; }

// static: each instruction-set object has a private copy, compiled with its own flags (see half.h).
static constexpr int64_t round_up(int64_t value, int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}
static constexpr int64_t aligned(int64_t bytes) { return round_up(bytes, kAlignmentBytes); }
static constexpr int64_t padded_k(int64_t k) { return round_up(k, kGroupK); }
static constexpr int64_t padded_n(int64_t n) { return round_up(n, kPanelColumns); }
static constexpr int64_t panel_count(int64_t n) { return padded_n(n) / kPanelColumns; }

// Bits of a code in a record, bytes of a record's codes, and of the whole record.
static constexpr int code_bits(Format format) {
  return traits_of(format).is_halved ? traits_of(format).bits / 2 : traits_of(format).bits;
}
static constexpr int64_t code_bytes(Format format) {
  return traits_of(format).group_k * kPanelColumns * code_bits(format) / 8;
}
static constexpr int64_t record_bytes(Format format) {
  const FormatTraits& traits = traits_of(format);
  return code_bytes(format) + (traits.is_halved ? 0 : kPanelColumns * 2) + (traits.has_zero_points ? kPanelColumns : 0);
}

static constexpr int64_t panel_bytes(Format format, int64_t k) {
  const int64_t group_k = traits_of(format).group_k;
  if (group_k > 0) return round_up(k, group_k) / group_k * record_bytes(format);
  return padded_k(k) * kPanelColumns * traits_of(format).bits / 8;
}

static inline const std::byte* panel_of(const Matrix& matrix, int64_t panel) {
  const int64_t bytes = matrix.interleaved * panel_bytes(matrix.format, matrix.k);
  return static_cast<const std::byte*>(matrix.panels) + panel * bytes;
}

// Bytes per column outside the panel: low halves, and of the rest a scale, a spread and a sum, if the format has them.
static constexpr int64_t low_bytes(Format format, int64_t k) {
  return traits_of(format).is_halved ? padded_k(k) / 2 : 0;
}
static constexpr int64_t column_data_bytes(Format format, int64_t k) {
  const FormatTraits& traits = traits_of(format);
  return low_bytes(format, k) + 4 * (traits.has_scales + traits.has_sums + traits.is_halved);
}

// Bytes of one packed matrix, a multiple of kAlignmentBytes.
static constexpr int64_t packed_bytes(Format format, int64_t n, int64_t k) {
  return panel_count(n) * panel_bytes(format, k) + padded_n(n) * column_data_bytes(format, k);
}

// Offset of element (k, n) inside its panel, in elements (bf16_offset too).
static constexpr int64_t w8_offset(int64_t k, int64_t n) {
  return k / 4 * (kPanelColumns * 4) + n % kPanelColumns * 4 + k % 4;
}
// Offset of the byte that holds the code of element (k, n) in the records of its panel, and its lowest bit there.
static constexpr int64_t code_offset(Format format, int64_t k, int64_t n) {
  const int64_t group_k = traits_of(format).group_k, bits = code_bits(format);
  return k / group_k * record_bytes(format) + w8_offset(k % group_k * bits / 32 * 4 + k % 4, n);
}
static constexpr int code_shift(Format format, int64_t k) { return static_cast<int>(k / 4 * code_bits(format) % 8); }
static constexpr int64_t bf16_offset(int64_t k, int64_t n) { return k * kPanelColumns + n % kPanelColumns; }

}  // namespace pinion
