// A plain streaming read: nothing between memory and registers but one xor a load.
#include "engine/bandwidth.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <string>
#include <vector>

#include "engine/memory.h"
#include "loader/arena.h"

namespace pinion {
namespace {

constexpr int64_t kHugePageBytes = int64_t{2} << 20;
constexpr int64_t kBlockBytes = int64_t{64} << 10;  // of each stream, between two looks at whether another has finished

using Clock = std::chrono::steady_clock;
using Vector = uint64_t __attribute__((vector_size(16), may_alias));  // one register of every machine we know

// Two streams far apart keep more requests under way than one: on a Zen 5 core 49 instead of 44 GB/s, on two 95 instead
// of 78, which is what 64-byte loads reach too. Eight sums keep the loads from waiting for one another.
uint64_t read_blocks(const std::byte* first, const std::byte* second) {
  constexpr int kWide = 4;
  Vector sums[2][kWide] = {};
  for (int64_t at = 0; at < kBlockBytes; at += static_cast<int64_t>(sizeof sums[0])) {
    const auto* a = reinterpret_cast<const Vector*>(first + at);
    const auto* b = reinterpret_cast<const Vector*>(second + at);
    for (int i = 0; i < kWide; ++i) sums[0][i] ^= a[i];
    for (int i = 0; i < kWide; ++i) sums[1][i] ^= b[i];
  }
  Vector all = {};
  for (int i = 0; i < kWide; ++i) all ^= sums[0][i] ^ sums[1][i];
  return all[0] ^ all[1];
}

struct Pass {
  std::atomic<bool> finished{false};
  std::atomic<int64_t> bytes{0};
  std::atomic<uint64_t> sum{0};  // a result that nobody asked for would not be read at all
};

// Everybody reads until the first has finished its part: no time counts in which only the slow cores are at work.
void read_part(const std::byte* part, int64_t part_bytes, Pass& pass) {
  const int64_t half = part_bytes / 2;
  uint64_t sum = 0;
  int64_t done = 0;  // of each half
  for (; done < half && !pass.finished.load(std::memory_order_relaxed); done += kBlockBytes) {
    sum ^= read_blocks(part + done, part + half + done);
  }
  pass.finished.store(true, std::memory_order_relaxed);
  pass.bytes.fetch_add(2 * done, std::memory_order_relaxed);
  pass.sum.fetch_xor(sum, std::memory_order_relaxed);
}

}  // namespace

Error measure_read_bandwidth(Team& team, int64_t buffer_bytes, int passes, double* bytes_per_second) {
  const int64_t part_bytes = buffer_bytes / team.size() / kHugePageBytes * kHugePageBytes;
  if (part_bytes <= 0 || passes < 1) {
    return error("too little to measure", "read bandwidth", "2 MB a thread and one pass",
                 std::to_string(buffer_bytes) + " bytes, " + std::to_string(passes) + " passes");
  }
  if (const int64_t available = available_memory_bytes(); available < buffer_bytes) {
    return error("not enough memory for the buffer", "read bandwidth", megabytes_text(buffer_bytes),
                 megabytes_text(available));
  }
  Arena buffer;
  if (Error e = allocate_arena(buffer_bytes, &buffer)) return e;

  double best = 0;
  std::vector<Pass> results(static_cast<size_t>(passes));
  std::vector<Clock::time_point> starts(static_cast<size_t>(team.size()), Clock::time_point::max());
  team.run([&](Worker& worker) {
    std::byte* part = buffer.data + worker.index * part_bytes;
    std::memset(part, 1, static_cast<size_t>(part_bytes));  // its pages come to the memory that is near this worker
    for (Pass& pass : results) {
      worker.barrier();
      starts[static_cast<size_t>(worker.index)] = Clock::now();
      read_part(part, part_bytes, pass);
      worker.barrier();
      if (worker.index != 0) continue;
      const std::chrono::duration<double> seconds = Clock::now() - *std::ranges::min_element(starts);
      best = std::max(best, static_cast<double>(pass.bytes.load()) / seconds.count());
    }
  });
  *bytes_per_second = best;
  return {};
}

}  // namespace pinion
