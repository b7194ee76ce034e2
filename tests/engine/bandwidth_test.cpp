// The read bandwidth is a figure that the hardware could have; what cannot be measured is refused.
#include "engine/bandwidth.h"

#include <gtest/gtest.h>

namespace pinion {
namespace {

TEST(Bandwidth, IsMeasured) {
  Team team({-1, -1});
  double bytes_per_second = 0;
  const Error e = measure_read_bandwidth(team, int64_t{16} << 20, 3, &bytes_per_second);
  ASSERT_FALSE(e) << e.message();
  EXPECT_GT(bytes_per_second, 1e6);
  EXPECT_LT(bytes_per_second, 1e13);
}

TEST(Bandwidth, RefusesTooMuchAndTooLittle) {
  Team team({});
  double bytes_per_second = 0;
  EXPECT_TRUE(measure_read_bandwidth(team, int64_t{1} << 50, 1, &bytes_per_second));
  EXPECT_TRUE(measure_read_bandwidth(team, 1000, 1, &bytes_per_second));
  EXPECT_TRUE(measure_read_bandwidth(team, -1, 1, &bytes_per_second));
  EXPECT_TRUE(measure_read_bandwidth(team, int64_t{16} << 20, 0, &bytes_per_second));
}

}  // namespace
}  // namespace pinion
