#include "engine/team/wait.h"

#include <gtest/gtest.h>

#include <thread>

namespace pinion {
namespace {

TEST(Wait, ReturnsAtOnceAfterAChange) {
  const std::atomic<int64_t> value{7};
  EXPECT_TRUE(wait_a_moment(value, 6));
  EXPECT_TRUE(wait_a_moment(value, (int64_t{1} << 40) + 7));
}

// A team larger than the machine yields its cores after that.
TEST(Wait, EndsWithoutAWrite) {
  const std::atomic<int64_t> value{7};
  for (int i = 0; i < 100; ++i) EXPECT_FALSE(wait_a_moment(value, 7));
}

TEST(Wait, AcquiresEarlierWrites) {
  for (int64_t round = 0; round < 200; ++round) {
    std::atomic<int64_t> value{round};
    int64_t plain = 0;
    std::jthread writer([&] {
      plain = round + 5;
      value.store(round + 1, std::memory_order_release);
    });
    while (!wait_a_moment(value, round)) std::this_thread::yield();
    EXPECT_EQ(plain, round + 5);
  }
}

#if defined(__aarch64__)
// The emulator has no event stream, but its WFE always ends.
TEST(Wait, SleepEndsAfterAChange) {
  const std::atomic<int64_t> value{(int64_t{1} << 40) + 7};
  wait_for_write(value, 7);
  wait_for_write(value, 0);
}
#endif

}  // namespace
}  // namespace pinion
