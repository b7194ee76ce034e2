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
//
// n is padded to whole panels and k to kBlockK with zeros (padded columns have scale 0): kernels have no tails.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/bf16.h"

namespace pinion {

constexpr int64_t kPanelColumns = 64;
constexpr int64_t kBlockK = 32;          // a multiple of every unroll below, and one group of a 4-bit format
constexpr int64_t kAlignmentBytes = 64;  // of each array: a cache line, the widest vector

// int32 sums stay exact: |x| <= 127, |w| <= 128.
constexpr int64_t kMaxK = 131072;

enum class Format : uint8_t { bf16, w8 };

struct Matrix {
  Format format = Format::w8;
  int64_t n = 0;                        // output channels
  int64_t k = 0;                        // inputs
  const void* panels = nullptr;         // [panels(n)] panels of panel_bytes(format, k)
  const float* scale = nullptr;         // w8: [padded_n(n)]; null for bf16
  const int32_t* column_sum = nullptr;  // w8: [padded_n(n)] sum over k of the codes; null for bf16
};

// static: an object of an instruction set keeps its own copy to itself, compiled with its own flags.
static constexpr int64_t round_up(int64_t value, int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}
static constexpr int64_t aligned(int64_t bytes) { return round_up(bytes, kAlignmentBytes); }
static constexpr int64_t padded_k(int64_t k) { return round_up(k, kBlockK); }
static constexpr int64_t padded_n(int64_t n) { return round_up(n, kPanelColumns); }
static constexpr int64_t panel_count(int64_t n) { return padded_n(n) / kPanelColumns; }
static constexpr int64_t panel_bytes(Format format, int64_t k) {
  return padded_k(k) * kPanelColumns * (format == Format::w8 ? 1 : 2);
}

// The whole matrix in one block: the panels, then (w8) scales, then column sums. A multiple of kAlignmentBytes.
static constexpr int64_t packed_bytes(Format format, int64_t n, int64_t k) {
  return panel_count(n) * panel_bytes(format, k) + (format == Format::w8 ? padded_n(n) * 8 : 0);
}

// Position of element (k, n) inside its panel, in elements.
static constexpr int64_t w8_offset(int64_t k, int64_t n) {
  return k / 4 * (kPanelColumns * 4) + n % kPanelColumns * 4 + k % 4;
}
static constexpr int64_t bf16_offset(int64_t k, int64_t n) { return k * kPanelColumns + n % kPanelColumns; }

}  // namespace pinion
