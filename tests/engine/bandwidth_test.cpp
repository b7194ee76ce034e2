// Read bandwidth: the bytes are really read, and the time really passes.
#include "engine/measure/bandwidth.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <vector>

namespace pinion {
namespace {

constexpr int64_t kBufferBytes = int64_t{16} << 20;

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// All words differ, so that a missing or repeated one changes their xor.
void fill(const ReadBuffer& buffer) {
  for (int64_t at = 0; at < kBufferBytes; at += 8) {
    const uint64_t word = static_cast<uint64_t>(at + 1) * 0x9e3779b97f4a7c15u;
    std::memcpy(buffer.arena.data + at, &word, 8);
  }
}

// The xor of the words that one worker reads: in each of 8 windows, whole steps of 8 KB from the start of each stream.
uint64_t expected_sum(const ReadBuffer& buffer, int streams, int64_t* bytes) {
  const int64_t window = kBufferBytes / 8, stride = window / streams / 64 * 64, run = stride / 8192 * 8192;
  uint64_t sum = 0;
  for (int64_t w = 0; w < 8; ++w) {
    for (int64_t stream = 0; stream < streams; ++stream) {
      for (int64_t at = 0; at < run; at += 8) {
        uint64_t word;
        std::memcpy(&word, buffer.arena.data + w * window + stream * stride + at, 8);
        sum ^= word;
      }
    }
  }
  *bytes = 8 * streams * run;
  return sum;
}

TEST(Bandwidth, OneWorkerReadsEveryWordOnce) {
  Team team({-1});
  ReadBuffer buffer;
  ASSERT_EQ(allocate_read_buffer(team, kBufferBytes, &buffer).message(), "");
  fill(buffer);
  const std::vector<ReadPass> passes = read_passes(team, buffer, 2);
  ASSERT_EQ(passes.size(), 4u);
  for (const ReadPass& pass : passes) {
    int64_t bytes = 0;
    EXPECT_EQ(pass.sum, expected_sum(buffer, pass.streams, &bytes)) << pass.streams;
    EXPECT_EQ(pass.bytes, bytes) << pass.streams;
    EXPECT_GT(bytes, kBufferBytes * 9 / 10);
  }
}

TEST(Bandwidth, FirstWorkerEndsPass) {
  for (const int32_t workers : {2, 3}) {
    Team team(std::vector<int32_t>(workers, -1));
    ReadBuffer buffer;
    ASSERT_EQ(allocate_read_buffer(team, kBufferBytes, &buffer).message(), "");
    EXPECT_EQ(buffer.worker_bytes, workers == 2 ? int64_t{8} << 20 : int64_t{4} << 20) << "whole huge pages";
    for (const ReadPass& pass : read_passes(team, buffer, 3)) {
      EXPECT_GT(pass.bytes, buffer.worker_bytes * 9 / 10) << "one worker has read its range";
      EXPECT_LE(pass.bytes, workers * buffer.worker_bytes);
    }
  }
}

// The measured time is at most the caller's, so the rate is at least the caller's.
TEST(Bandwidth, TimeMatchesCallersClock) {
  Team team({-1});
  ReadBuffer buffer;
  ASSERT_EQ(allocate_read_buffer(team, kBufferBytes, &buffer).message(), "");
  const auto start = std::chrono::steady_clock::now();
  const double rate = read_bandwidth(team, buffer, 1);
  EXPECT_GE(rate, static_cast<double>(kBufferBytes) * 0.9 / seconds_since(start));
  double counted = 0;
  const auto again = std::chrono::steady_clock::now();
  for (const ReadPass& pass : read_passes(team, buffer, 2)) {
    EXPECT_GT(pass.seconds, 0);
    counted += pass.seconds;
  }
  EXPECT_LE(counted, seconds_since(again));
}

TEST(Bandwidth, StopFlagEndsReading) {
  Team team({-1, -1});
  std::atomic<bool> stop{true};
  ReadBuffer buffer;
  buffer.stop = &stop;
  ASSERT_EQ(allocate_read_buffer(team, kBufferBytes, &buffer).message(), "");
  EXPECT_EQ(buffer.arena.data[0], std::byte{0}) << "touched";
  EXPECT_EQ(read_bandwidth(team, buffer, 3), 0);
  for (const ReadPass& pass : read_passes(team, buffer, 1)) EXPECT_EQ(pass.bytes, 0);
  stop = false;
  EXPECT_GT(read_bandwidth(team, buffer, 1), 0);
}

TEST(Bandwidth, BarriersAreCountedAndTimed) {
  for (const int32_t workers : {1, 2, 3}) {
    Team team(std::vector<int32_t>(workers, -1));
    const auto start = std::chrono::steady_clock::now();
    const double seconds = barrier_seconds(team, 2);
    EXPECT_GT(seconds, 0);
    EXPECT_LE(100 * seconds, seconds_since(start)) << "one of two rounds of 100 took no longer than both";
    EXPECT_EQ(team.barriers(), 2 * (1 + 100) + 1) << "one before each round, one at the end of the run";
  }
}

TEST(Bandwidth, RefusesBadBufferSizes) {
  Team team({});
  ReadBuffer buffer;
  EXPECT_TRUE(
      allocate_read_buffer(team, int64_t{1} << 50, &buffer).message().starts_with("read bandwidth: too little"));
  for (const int64_t bytes : {int64_t{1000}, int64_t{-1}, int64_t{0}}) {
    EXPECT_TRUE(allocate_read_buffer(team, bytes, &buffer).message().starts_with("read bandwidth: too little"))
        << bytes;
  }
}

}  // namespace
}  // namespace pinion
