// The measured loop is a plain streaming read with one xor per load.
#include "engine/measure/bandwidth.h"

#include <cstring>

#include "engine/measure/statistics.h"
#include "engine/team/memory.h"
#include "kernels/base/clock.h"

namespace pinion {
namespace {

constexpr int64_t kHugePageBytes = int64_t{2} << 20;
constexpr int64_t kWindows = 8;                   // see read_range()
constexpr int64_t kStepBytes = int64_t{8} << 10;  // of each stream, between two checks for the end of the pass

using Vector = uint64_t __attribute__((vector_size(16), may_alias));  // a register on every supported machine

// Reads kStepBytes of each stream. Eight independent sums, so that no load waits for another. Not instrumented by
// sanitizers, whose check of a load takes longer than the load.
template <int Streams>
__attribute__((no_sanitize("address", "undefined", "thread"))) uint64_t read_step(const std::byte* first,
                                                                                  int64_t stride) {
  constexpr int kLine = 4;  // vectors per cache line
  Vector sums[2 * kLine] = {};
  for (int64_t at = 0; at < kStepBytes; at += 2 * kLine * static_cast<int64_t>(sizeof(Vector))) {
    for (int s = 0; s < Streams; ++s) {
      const auto* line = reinterpret_cast<const Vector*>(first + s * stride + at);
      for (int i = 0; i < 2 * kLine; ++i) sums[i] ^= line[i];
    }
  }
  Vector all = {};
  for (const Vector& sum : sums) all ^= sum;
  return all[0] ^ all[1];
}

struct SharedPass {
  const ReadBuffer* buffer = nullptr;
  std::atomic<bool> finished{false};
  std::atomic<int64_t> bytes{0};
  std::atomic<uint64_t> sum{0};  // makes the loads' results used, so that the compiler keeps the loads
};

// Reads one of kWindows windows of the range with all streams, then the next window. So reads with different numbers of
// streams have about the same order of addresses, and each finds little of the last one's data in a cache.
template <int Streams>
void read_range(const std::byte* range, int64_t range_bytes, SharedPass& pass) {
  const int64_t window_bytes = range_bytes / kWindows;
  const int64_t stride = window_bytes / Streams / 64 * 64;
  uint64_t sum = 0;
  int64_t steps = 0;
  for (int64_t window = 0; window < kWindows; ++window) {
    for (int64_t at = 0; at + kStepBytes <= stride; at += kStepBytes) {
      if (pass.finished.load(std::memory_order_relaxed) || pass.buffer->is_stopped()) break;
      ++steps;
      sum ^= read_step<Streams>(range + window * window_bytes + at, stride);
    }
  }
  pass.finished.store(true, std::memory_order_relaxed);
  pass.bytes.fetch_add(Streams * steps * kStepBytes, std::memory_order_relaxed);
  pass.sum.fetch_xor(sum, std::memory_order_relaxed);
}

// The fastest number of streams varies (tools/MEASURED.md). Eight were fastest nowhere and filled caches for the next.
struct Reader {
  int streams;
  void (*read)(const std::byte*, int64_t, SharedPass&);
};
constexpr Reader kReaders[] = {{2, read_range<2>}, {15, read_range<15>}};

}  // namespace

Error allocate_read_buffer(Team& team, int64_t buffer_bytes, ReadBuffer* out) {
  const int64_t worker_bytes = buffer_bytes / team.size() / kHugePageBytes * kHugePageBytes;
  if (worker_bytes <= 0) {
    return error("too little to measure", "read bandwidth", "2 MB a thread", std::to_string(buffer_bytes) + " bytes");
  }
  if (Error e = check_memory(buffer_bytes, free_memory(), "too little memory for the buffer", "read bandwidth")) {
    return e;
  }
  if (Error e = allocate_arena(buffer_bytes, &out->arena)) return e;
  out->worker_bytes = worker_bytes;
  team.run([&](Worker& worker) {
    std::byte* range = out->arena.data + worker.index * worker_bytes;
    for (int64_t at = 0; at < worker_bytes && !out->is_stopped(); at += kHugePageBytes) {
      std::memset(range + at, 1, kHugePageBytes);
    }
  });
  return {};
}

std::vector<ReadPass> read_passes(Team& team, const ReadBuffer& buffer, int passes) {
  std::vector<ReadPass> results(passes * std::size(kReaders));
  std::vector<SharedPass> shared(results.size());
  for (SharedPass& pass : shared) pass.buffer = &buffer;
  std::vector<double> starts(team.size(), std::numeric_limits<double>::infinity());
  team.run([&](Worker& worker) {
    const std::byte* range = buffer.arena.data + worker.index * buffer.worker_bytes;
    for (size_t i = 0; i < results.size(); ++i) {
      const Reader& reader = kReaders[i % std::size(kReaders)];
      worker.barrier();
      starts[worker.index] = now_seconds();
      reader.read(range, buffer.worker_bytes, shared[i]);
      worker.barrier();
      if (worker.index != 0) continue;
      const double seconds = now_seconds() - *std::ranges::min_element(starts);
      results[i] = {reader.streams, shared[i].bytes.load(), shared[i].sum.load(), seconds};
    }
  });
  return results;
}

double read_bandwidth(Team& team, const ReadBuffer& buffer, int passes) {
  const std::vector<ReadPass> all = read_passes(team, buffer, passes);
  if (buffer.is_stopped()) return 0;
  double best = 0;
  for (const Reader& reader : kReaders) {
    std::vector<double> rates;
    for (const ReadPass& pass : all) {
      if (pass.streams == reader.streams) rates.push_back(static_cast<double>(pass.bytes) / pass.seconds);
    }
    best = std::max(best, median_of(std::move(rates)));
  }
  return best;
}

double barrier_seconds(Team& team, int rounds) {
  constexpr int kBarriers = 100;
  std::vector<double> seconds;
  team.run([&](Worker& worker) {
    for (int round = 0; round < rounds; ++round) {
      worker.barrier();
      const double start = now_seconds();
      for (int i = 0; i < kBarriers; ++i) worker.barrier();
      const double passed = now_seconds() - start;
      if (worker.index == 0) seconds.push_back(passed / kBarriers);
    }
  });
  return median_of(std::move(seconds));
}

}  // namespace pinion
