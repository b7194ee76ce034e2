// The packed layout of a weight matrix W [n, k] (out, in): one layout, read by every instruction set.
//
//   w8:   panels of 64 columns (a column is a row of W, an output channel), panels outermost; inside a panel exactly
//         [k/4, 64/4, 4, 4]:
//             element (k, n) lies at  panel(n / 64) + (k / 4) * 256 + (n % 64) * 4 + k % 4
//
//             k4 = 0:  | n0: k0 k1 k2 k3 | n1: k0 k1 k2 k3 | ... | n63: k0 k1 k2 k3 |   256 bytes
//             k4 = 1:  | n0: k4 k5 k6 k7 | ...
//
//         16 bytes are SDOT's operand (4 columns x 4 k), 64 are VPDPBUSD's.
//   bf16: the same panels with one k a row: element (k, n) at  panel(n / 64) + k * 64 + n % 64.  Floating-point sums
//         run sequentially in k with vectors across columns, so there is nothing to gain from groups of four k.
//   w4:   the same panels in groups of kBlockK = 32 k, each with a scale for every column. A group of a panel is one
//         record, the records of a panel are one stream:
//             1024 bytes  four pairs of w8's rows of four k: the low nibble of byte i is the code of byte i of the
//                         pair's first row, the high nibble that of the second
//              128 bytes  64 scales, f16
//               64 bytes  64 zero points, at most kMaxZero: w4z only; those of w4 are all 8
//         w(k, n) = (code - zero) * group scale * scale[n], codes 0 to 15.  A weight costs 4 + 16/32 = 4.5 bits (w4z
//         4.75), and 32/k for scale[n], a power of two that brings the group scales into f16's range. With bf16 they
//         would need none, but what quantize_w4 leaves as squared error would be 0.06 % more, files that hold 4-bit
//         codes have scales of f16, and f16 too is widened by one instruction on every instruction set.
//   w2:   ternary weights, -1, 0 or 1 times a scale: as w4 in groups of 128 k. A record:
//             2048 bytes  eight times four of w8's rows of four k: bits 0 and 1 of byte i are the code of byte i of the
//                         first row, bits 2 and 3 that of the second, and so on
//              128 bytes  64 scales, f16
//         w(k, n) = (code - 1) * group scale * scale[n]; of the codes 0 to 3 the last is not used. A weight costs 2 +
//         16/128 = 2.125 bits. k is a multiple of 128: models with such weights have no other.
//
// n is padded to whole panels and k to kBlockK with zeros (padded columns have scale 0): kernels have no tails.
//
// A rotated matrix has W D H / b in the place of W, H being the Hadamard matrix of b = rotation_of(k) and D signs, in
// blocks along the diagonal (Kernels::rotate): it multiplies H D x, since (W D H / b) (H D x) = W x. What stands out in
// x is spread over the block so, and one scale a row does for all of it.
//
// A matrix is one block: its panels, then the scales, then the column sums. Two that are read together, panel by panel,
// may share a block of both's size: their panels interleaved, so that reading them is one stream, then the scales and
// sums of the first, then those of the second.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/bf16.h"

namespace pinion {

constexpr int64_t kPanelColumns = 64;
constexpr int64_t kBlockK = 32;          // a multiple of every unroll below, and one group of w4
constexpr int64_t kAlignmentBytes = 64;  // of each array: a cache line, the widest vector

// int32 sums stay exact: |x| <= 127, |w| <= 128.
constexpr int64_t kMaxK = 131072;

// Of w4z, so that the sum of a group is at most 32 * 127 * 16 and eight products of a code's magnitude fit 16 bits.
constexpr int kMaxZero = 16;

enum class Format : uint8_t { bf16, w8, w4, w4z, w2 };

constexpr int64_t kW2GroupK = 128;

// A format in figures, from which sizes and places follow. A new one is a row here, a row of loader/pack/pack_strip.cpp
// (how floats become it) and a row of engine/forward/matmul.cpp (which kernels multiply it).
struct FormatTraits {
  const char* name;
  int bits;         // of a weight's code or number
  bool has_scales;  // one a column; then it multiplies inputs that are quantised, which all but w2 may have rotated
  bool has_sums;    // of a column's codes
  bool has_zero_points;
  int64_t group_k = 0;  // k that share a scale, a multiple of kBlockK; 0: its panels have no records
  int zero = 0;         // of formats with groups but without zero points: the code of 0
};
static constexpr FormatTraits kFormats[] = {
    {"bf16", 16, false, false, false},           {"w8", 8, true, true, false},
    {"w4", 4, true, false, false, kBlockK, 8},   {"w4z", 4, true, false, true, kBlockK},
    {"w2", 2, true, false, false, kW2GroupK, 1},
};
static constexpr const FormatTraits& traits_of(Format format) { return kFormats[static_cast<int>(format)]; }
static constexpr Format w4_format(bool has_zero_points) { return has_zero_points ? Format::w4z : Format::w4; }

struct Matrix {
  Format format = Format::w8;
  int64_t n = 0;                        // output channels
  int64_t k = 0;                        // inputs
  const void* panels = nullptr;         // the first of panel_count(n), each of panel_bytes(format, k): see panel_of()
  const float* scale = nullptr;         // [padded_n(n)], where the format has scales
  const int32_t* column_sum = nullptr;  // [padded_n(n)] sum over k of the codes, where it has sums
  int64_t interleaved = 1;              // matrices of this format and shape whose panels are interleaved
  int64_t rotation = 1;                 // w8 and w4: its inputs are rotated in blocks of this size; 1: they are not
};

// The block in which inputs of k elements are rotated: the largest power of two that divides k.
static constexpr int64_t rotation_of(int64_t k) { return k & -k; }

// static: an object of an instruction set keeps its own copy to itself, compiled with its own flags.
static constexpr int64_t round_up(int64_t value, int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}
static constexpr int64_t aligned(int64_t bytes) { return round_up(bytes, kAlignmentBytes); }
static constexpr int64_t padded_k(int64_t k) { return round_up(k, kBlockK); }
static constexpr int64_t padded_n(int64_t n) { return round_up(n, kPanelColumns); }
static constexpr int64_t panel_count(int64_t n) { return padded_n(n) / kPanelColumns; }

// Of a record: its codes, and all of it.
static constexpr int64_t code_bytes(Format format) {
  return traits_of(format).group_k * kPanelColumns * traits_of(format).bits / 8;
}
static constexpr int64_t record_bytes(Format format) {
  return code_bytes(format) + kPanelColumns * 2 + (traits_of(format).has_zero_points ? kPanelColumns : 0);
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

// What a column has beside its panel: a scale, and then a sum.
static constexpr int64_t column_data_bytes(Format format) {
  return (traits_of(format).has_scales ? 4 : 0) + (traits_of(format).has_sums ? 4 : 0);
}

// A block of one matrix. A multiple of kAlignmentBytes.
static constexpr int64_t packed_bytes(Format format, int64_t n, int64_t k) {
  return panel_count(n) * panel_bytes(format, k) + padded_n(n) * column_data_bytes(format);
}

// Position of element (k, n) inside its panel, in elements.
static constexpr int64_t w8_offset(int64_t k, int64_t n) {
  return k / 4 * (kPanelColumns * 4) + n % kPanelColumns * 4 + k % 4;
}
// The byte of element (k, n) inside its panel's records, and where its bits begin there.
static constexpr int64_t code_offset(Format format, int64_t k, int64_t n) {
  const int64_t group_k = traits_of(format).group_k, bits = traits_of(format).bits;
  return k / group_k * record_bytes(format) + w8_offset(k % group_k * bits / 32 * 4 + k % 4, n);
}
static constexpr int code_shift(Format format, int64_t k) {
  return static_cast<int>(k / 4 * traits_of(format).bits % 8);
}
static constexpr int64_t bf16_offset(int64_t k, int64_t n) { return k * kPanelColumns + n % kPanelColumns; }

}  // namespace pinion
