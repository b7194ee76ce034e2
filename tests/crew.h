// Workers for tests: threads that take pieces from a counter, so that who does what differs from run to run.
#pragma once

#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

#include "kernels/base/workers.h"

namespace pinion {

// 1: no team at all, the caller's thread.
inline Workers crew(int32_t count) {
  if (count == 1) return {};
  // Only the count is needed to do the work: it is its own team.
  static constexpr int32_t kCounts[] = {0, 1, 2, 3, 4, 5, 6, 7, 8};
  const auto run = [](void* team, int64_t pieces, void (*piece)(void* context, int64_t index), void* context) {
    std::atomic<int64_t> next{0};
    const auto work = [&] {
      for (int64_t i = next.fetch_add(1); i < pieces; i = next.fetch_add(1)) piece(context, i);
    };
    std::vector<std::thread> threads;
    for (int32_t t = 1; t < *static_cast<const int32_t*>(team); ++t) threads.emplace_back(work);
    work();
    for (std::thread& thread : threads) thread.join();
  };
  return {count, run, const_cast<int32_t*>(&kCounts[count])};
}

constexpr int32_t kCrews[] = {1, 2, 5};

}  // namespace pinion
