// The packed layout against the picture in layout.h, and bf16 conversion against double arithmetic.
#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "tests/kernels/guarded.h"

namespace pinion {
namespace {

TEST(Layout, Picture) {
  EXPECT_EQ(w8_offset(0, 0), 0);
  EXPECT_EQ(w8_offset(3, 0), 3);     // k3 of n0
  EXPECT_EQ(w8_offset(0, 1), 4);     // then n1
  EXPECT_EQ(w8_offset(3, 63), 255);  // the end of the first row
  EXPECT_EQ(w8_offset(4, 0), 256);   // k4 begins the second
  EXPECT_EQ(bf16_offset(0, 63), 63);
  EXPECT_EQ(bf16_offset(1, 0), 64);
}

TEST(Layout, OnePanelIsTheFlatArray) {
  constexpr int64_t kK = 96;
  std::set<int64_t> seen;
  for (int64_t k = 0; k < kK; ++k) {
    for (int64_t n = 0; n < kPanelColumns; ++n) {
      // [K/4, N/4, 4, 4] with N = 64: indices k / 4, n / 4, n % 4, k % 4.
      EXPECT_EQ(w8_offset(k, n), ((k / 4 * (kPanelColumns / 4) + n / 4) * 4 + n % 4) * 4 + k % 4);
      EXPECT_EQ(w8_offset(k, n + 3 * kPanelColumns), w8_offset(k, n));  // offsets are within a panel
      seen.insert(w8_offset(k, n));
    }
  }
  EXPECT_EQ(static_cast<int64_t>(seen.size()), panel_bytes(Format::w8, kK));
  EXPECT_EQ(*seen.rbegin(), panel_bytes(Format::w8, kK) - 1);
}

// The first 1024 bytes of a record hold two codes each.
TEST(Layout, W4HasOneCodePerNibble) {
  for (const Format format : {Format::w4, Format::w4z, Format::mxfp4, Format::w4n, Format::w8h}) {
    std::set<int64_t> seen;
    for (int64_t k = 0; k < 64; ++k) {
      for (int64_t n = 0; n < kPanelColumns; ++n) {
        const int64_t at = code_offset(format, k, n) - k / 32 * record_bytes(format);
        EXPECT_EQ(at, w8_offset(k % 32 / 8 * 4 + k % 4, n));
        EXPECT_EQ(code_shift(format, k), k % 8 < 4 ? 0 : 4);
        seen.insert(code_offset(format, k, n) * 8 + code_shift(format, k));
      }
    }
    EXPECT_EQ(seen.size(), 64u * kPanelColumns);
    EXPECT_EQ(*seen.rbegin(), (record_bytes(format) + 1023) * 8 + 4);
  }
}

// The first 2048 bytes of a record hold four codes each.
TEST(Layout, W2HasOneCodePerTwoBits) {
  EXPECT_EQ(record_bytes(Format::w2), 2048 + 128);
  std::set<int64_t> seen;
  for (int64_t k = 0; k < 256; ++k) {
    for (int64_t n = 0; n < kPanelColumns; ++n) {
      const int64_t at = code_offset(Format::w2, k, n) - k / 128 * (2048 + 128);
      EXPECT_EQ(at, k % 128 / 16 * 256 + n * 4 + k % 4);
      EXPECT_EQ(code_shift(Format::w2, k), k / 4 % 4 * 2);
      seen.insert(code_offset(Format::w2, k, n) * 8 + code_shift(Format::w2, k));
    }
  }
  EXPECT_EQ(seen.size(), 256u * kPanelColumns);
  EXPECT_EQ(*seen.rbegin(), (2048 + 128 + 2047) * 8 + 6);
}

TEST(Layout, Sizes) {
  EXPECT_EQ(padded_k(1), 32);
  EXPECT_EQ(padded_k(32), 32);
  EXPECT_EQ(padded_k(33), 64);
  EXPECT_EQ(padded_n(65), 128);
  EXPECT_EQ(panel_count(64), 1);
  EXPECT_EQ(panel_count(65), 2);
  EXPECT_EQ(panel_bytes(Format::w8, 33), 64 * 64);
  EXPECT_EQ(panel_bytes(Format::bf16, 33), 64 * 64 * 2);
  EXPECT_EQ(packed_bytes(Format::bf16, 65, 33), 2 * 64 * 64 * 2);
  EXPECT_EQ(packed_bytes(Format::w8, 65, 33), 2 * 64 * 64 + 128 * (4 + 4));  // panels, scales, column sums
  EXPECT_EQ(panel_bytes(Format::w4, 33), 2 * (1024 + 128));
  EXPECT_EQ(panel_bytes(Format::w4z, 33), 2 * (1024 + 128 + 64));
  EXPECT_EQ(packed_bytes(Format::w4, 65, 33), 2 * 2 * (1024 + 128) + 128 * 4);  // panels, column scales
  EXPECT_EQ(panel_bytes(Format::w2, 256), 2 * (2048 + 128));
  EXPECT_EQ(packed_bytes(Format::w2, 65, 128), 2 * (2048 + 128) + 128 * 4);
  EXPECT_EQ(panel_bytes(Format::w8h, 33), 2 * 1024);
  EXPECT_EQ(packed_bytes(Format::w8h, 65, 33),
            2 * 2 * 1024 + 128 * (32 + 4 + 4));  // panels, low halves, scales, spread
  for (int64_t n : {1, 63, 64, 65}) {
    for (int64_t k : {1, 31, 32, 33}) {
      for (Format format :
           {Format::w8, Format::bf16, Format::w4, Format::w4z, Format::w2, Format::mxfp4, Format::w4n, Format::w8h}) {
        EXPECT_EQ(packed_bytes(format, n, k) % kAlignmentBytes, 0);
      }
    }
  }
}

TEST(Bf16, EveryEncodingRoundTrips) {
  for (uint32_t i = 0; i < 65536; ++i) {
    const float x = to_float(bf16{static_cast<uint16_t>(i)});
    EXPECT_EQ(float_bits(x), i << 16);
    if (!std::isnan(x)) {
      EXPECT_EQ(to_bf16(x).bits, i);
    }
  }
}

// The number of a bf16 magnitude. The encoding of infinity is the next power of two, from which rounding to infinity is
// measured.
double magnitude(uint32_t encoding) {
  return encoding == 0x7f80 ? 0x1p128 : to_float(bf16{static_cast<uint16_t>(encoding)});
}

TEST(Bf16, RoundsToNearestEven) {
  int64_t wrong = 0;
  for (uint32_t upper = 0; upper < 0x7f80; ++upper) {
    for (uint32_t lower : {0x0000u, 0x0001u, 0x7fffu, 0x8000u, 0x8001u, 0xffffu}) {
      const uint32_t bits = upper << 16 | lower;
      const double x = bits_float(bits);
      const double down = x - magnitude(upper);
      const double up = magnitude(upper + 1) - x;
      const uint32_t expected = down < up || (down == up && upper % 2 == 0) ? upper : upper + 1;
      wrong += to_bf16(bits_float(bits)).bits != expected;
      wrong += to_bf16(bits_float(bits | 0x80000000u)).bits != (expected | 0x8000u);
    }
  }
  EXPECT_EQ(wrong, 0);
}

TEST(Bf16, SpecialValues) {
  EXPECT_EQ(to_bf16(std::numeric_limits<float>::max()).bits, 0x7f80);  // rounds to infinity
  EXPECT_EQ(to_bf16(-kInfinity).bits, 0xff80);
  EXPECT_EQ(to_bf16(std::numeric_limits<float>::denorm_min()).bits, 0);
  EXPECT_EQ(to_bf16(-0.0f).bits, 0x8000);
  for (uint32_t nan : {0x7f800001u, 0x7fffffffu, 0xff800001u, 0xffffffffu}) {
    EXPECT_TRUE(std::isnan(to_float(to_bf16(bits_float(nan))))) << std::hex << nan;
    EXPECT_EQ(to_bf16(bits_float(nan)).bits >> 15, nan >> 31);
  }
}

}  // namespace
}  // namespace pinion
