// Blocks of files that become rows of w4z: kept codes, and those whose zero points are out of range.
#include <gtest/gtest.h>

#include <vector>

#include "loader/pack/pack.h"

namespace pinion {
namespace {

TEST(W4Blocks, CodesStayAndZeroPointsAreRounded) {
  std::vector<uint8_t> codes;
  for (int i = 0; i < 192; ++i) codes.push_back(static_cast<uint8_t>(i * 7 % 16));
  const float tiny = 0x1p-24f;  // f16's smallest
  const W4Block blocks[] = {{0.25f, -2.0f}, {-0.5f, 4.0f}, {tiny, -8 * tiny},
                            {0.3f, -1.0f},  {0.25f, 0.0f}, {0.0f, -0.0f}};
  W4Rows rows;
  append_w4_row(blocks, codes.data(), &rows);
  append_w4_row(blocks, codes.data(), &rows);
  EXPECT_EQ(rows.codes.size(), 384u);
  EXPECT_TRUE(std::equal(codes.begin(), codes.end(), rows.codes.begin() + 192));
  EXPECT_EQ(rows.zero_points, (std::vector<uint8_t>{64, 64, 64, 27, 0, 0, 64, 64, 64, 27, 0, 0}));
  ASSERT_EQ(rows.scales.size(), 2u);
  for (size_t b : {0, 1, 2, 4, 5}) EXPECT_EQ(to_float(rows.group_scales[b]) * rows.scales[1], blocks[b].scale) << b;
  EXPECT_NEAR(to_float(rows.group_scales[3]) * rows.scales[0], 0.3f, 0.3f / 2048);
}

TEST(W4Blocks, ZeroPointsOutsideTheirRangeAreQuantisedAgain) {
  std::vector<uint8_t> codes;
  for (int i = 0; i < 128; ++i) codes.push_back(static_cast<uint8_t>(i % 16));
  const W4Block blocks[] = {{0.01f, -0.3f}, {0.01f, 0.1f}, {0.0f, -0.125f}, {0.0f, 0.0f}};
  W4Rows rows;
  append_w4_row(blocks, codes.data(), &rows);
  for (size_t i = 0; i < 128; ++i) {
    const size_t b = i / 32;
    const float zero = static_cast<float>(rows.zero_points[b]) / kZeroSteps;
    const float weight = (static_cast<float>(rows.codes[i]) - zero) * to_float(rows.group_scales[b]) * rows.scales[0];
    EXPECT_NEAR(weight, blocks[b].scale * codes[i] + blocks[b].minimum, b < 2 ? 0.012 : 1e-4) << i;
  }
}

}  // namespace
}  // namespace pinion
