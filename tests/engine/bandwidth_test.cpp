// The read bandwidth is a figure that the hardware could have; what cannot be measured is refused.
#include "engine/bandwidth.h"

#include <gtest/gtest.h>

#include <vector>

namespace pinion {
namespace {

TEST(Bandwidth, IsMeasured) {
  for (const int32_t workers : {1, 2}) {
    Team team(std::vector<int32_t>(static_cast<size_t>(workers), -1));
    ReadBuffer buffer;
    const Error e = allocate_read_buffer(team, int64_t{16} << 20, &buffer);
    ASSERT_FALSE(e) << e.message();
    for (const int passes : {1, 2}) {
      const double bytes_per_second = read_bandwidth(team, buffer, passes);
      EXPECT_GT(bytes_per_second, 1e6);
      EXPECT_LT(bytes_per_second, 1e13);
    }
  }
}

TEST(Bandwidth, BarrierIsMeasured) {
  for (const int32_t workers : {1, 2, 3}) {
    Team team(std::vector<int32_t>(static_cast<size_t>(workers), -1));
    const double seconds = barrier_seconds(team, 2);
    EXPECT_GT(seconds, 1e-10);
    EXPECT_LT(seconds, 1.0);
    EXPECT_GE(team.barriers(), 202);
  }
}

TEST(Bandwidth, RefusesTooMuchAndTooLittle) {
  Team team({});
  ReadBuffer buffer;
  EXPECT_TRUE(allocate_read_buffer(team, int64_t{1} << 50, &buffer));
  EXPECT_TRUE(allocate_read_buffer(team, 1000, &buffer));
  EXPECT_TRUE(allocate_read_buffer(team, -1, &buffer));
}

}  // namespace
}  // namespace pinion
