// MXFP4 worked by hand. The gpt_oss family in tests/data covers whole models.
#include "loader/checkpoint/number_formats.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "tests/loader/make_files.h"

namespace pinion {
namespace {

using Floats = std::vector<float>;

Floats decoded(const std::string& codes, const std::string& scales) {
  Floats out(scales.size() * kMxGroup);
  read_mxfp4(as_bytes(codes).data(), as_bytes(scales).data(), std::ssize(scales), out.data());
  return out;
}

// One group that begins with these bytes.
Floats first_of(std::string codes, int scale, size_t count) {
  codes.resize(kMxGroupBytes, '\0');
  Floats out = decoded(codes, std::string(1, static_cast<char>(scale)));
  out.resize(count);
  return out;
}

TEST(Mxfp4, HandWorkedNumbers) {
  // The lower nibble is the first number; the scale 127 is 2^0.
  EXPECT_EQ(first_of("\x10\x32\x54\x76\x98\xba\xdc\xfe", 127, 16),
            (Floats{0, 0.5f, 1, 1.5f, 2, 3, 4, 6, -0.0f, -0.5f, -1, -1.5f, -2, -3, -4, -6}));
  EXPECT_TRUE(std::signbit(first_of("\x08", 127, 1)[0]));
  EXPECT_EQ(first_of("\x71\x2f", 130, 4), (Floats{4, 48, -48, 8})) << "times 2^3";
  EXPECT_EQ(first_of("\x71\x2f", 120, 4), (Floats{0x1p-8f, 0x3p-6f, -0x3p-6f, 0x1p-7f})) << "times 2^-7";
}

TEST(Mxfp4, GroupsHaveSeparateScales) {
  const std::string codes = std::string(kMxGroupBytes, '\x22') + std::string(kMxGroupBytes, '\xa2');
  const Floats out = decoded(codes, "\x7f\x81");
  for (size_t i = 0; i < 32; ++i) EXPECT_EQ(out[i], 1) << i;
  for (size_t i = 32; i < 64; ++i) EXPECT_EQ(out[i], i % 2 == 0 ? 4 : -4) << i;
}

TEST(Mxfp4, EndsOfTheRange) {
  EXPECT_EQ(first_of("\x21\x73", 0, 4), (Floats{0x1p-128f, 0x1p-127f, 0x3p-128f, 0x3p-126f}))
      << "exact even if subnormal";
  EXPECT_EQ(first_of("\x21", 254, 2), (Floats{0x1p126f, 0x1p127f}));
  EXPECT_EQ(first_of("\x70", 254, 2)[1], std::numeric_limits<float>::infinity()) << "an error in packing";
  EXPECT_TRUE(std::isnan(first_of("\x20", 255, 2)[0])) << "zero times NaN";
  EXPECT_TRUE(std::isnan(first_of("\x20", 255, 2)[1]));
}

}  // namespace
}  // namespace pinion
