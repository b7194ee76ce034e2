// Google Benchmark of the matmul kernels and of attention. Matmuls are reported beside a limit of the machine, measured
// right before and after them, so that the ratio is valid on machines whose speed varies.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "engine/measure/bandwidth.h"
#include "engine/measure/statistics.h"
#include "engine/team/team.h"
#include "engine/team/topology.h"
#include "kernels/base/clock.h"
#include "kernels/cpu.h"
#include "kernels/ops/gemm.h"
#include "kernels/ops/ops.h"
#include "kernels/ops/tiles.h"
#include "loader/files/mapped_file.h"

namespace pinion {
namespace {

using benchmark::State;

constexpr int64_t kStreamedBytes = int64_t{384} << 20;  // beyond any last-level cache

[[noreturn]] void fail(const std::string& message) {
  std::fprintf(stderr, "bench_kernels: %s\n", message.c_str());
  std::exit(1);
}

Arena bytes(int64_t size) {
  Arena arena;
  if (Error e = allocate_arena(size, &arena)) fail(e.message());
  for (int64_t i = 0; i < size; ++i) arena.data[i] = static_cast<std::byte>(i * 37 % 251 - 125);
  return arena;
}

// The CPUs of the default team, read before any thread is pinned.
const std::vector<int32_t>& all_cpus() {
  static const std::vector<int32_t> cpus = [] {
    Topology topology;
    if (Error e = read_topology(&topology)) fail(e.message());
    return default_team(topology);
  }();
  return cpus;
}

Team team_of(int32_t threads) { return Team({all_cpus().begin(), all_cpus().begin() + threads}); }

double roof(Team& team) {
  ReadBuffer buffer;
  if (Error e = allocate_read_buffer(team, kStreamedBytes, &buffer)) fail(e.message());
  return read_bandwidth(team, buffer, 4);
}

// Decode: one row by a matrix larger than the caches.

// Times run(), which reads streamed_bytes from memory, and reports its bandwidth beside the roof.
void measure_stream(State& state, Team& team, int64_t streamed_bytes, const std::function<void()>& run) {
  run();
  const double before = roof(team);
  std::vector<double> times;
  for (auto _ : state) {
    const double start = now_seconds();
    run();
    const double seconds = now_seconds() - start;
    times.push_back(seconds);
    state.SetIterationTime(seconds);
  }
  const double limit = (before + roof(team)) / 2;
  const double rate = static_cast<double>(streamed_bytes) / median_of(std::move(times));
  state.counters["GB/s"] = rate * 1e-9;
  state.counters["roof_GB/s"] = limit * 1e-9;
  state.counters["roof_share"] = rate / limit;
}

constexpr int64_t kStreamedK = 4096;

// sdot_gemv over the flat layout [K/4, N/4, 4, 4].
void gemv_flat(State& state, const Kernels& kernels, int32_t threads) {
  constexpr int64_t k = kStreamedK, n = kStreamedBytes / k;
  const Arena weights = bytes(k * n);
  const std::vector<int8_t> a(k, 3);
  std::vector<int32_t> c(n);
  Team team = team_of(threads);
  const auto* b = reinterpret_cast<const int8_t*>(weights.data);
  measure_stream(state, team, k * n, [&] {
    if (Error e = sdot_gemv(a.data(), b, c.data(), k, n, {&kernels, workers_of(&team)})) fail(e.message());
  });
}

// One row or a few rows by consecutive panels.
void multiply_panels(const Kernels& kernels, Format format, int64_t rows, const int8_t* a, const std::byte* b,
                     int64_t panels, int32_t* sums, float* values) {
  constexpr int64_t k = kStreamedK;
  if (traits_of(format).group_k > 0) {
    const GroupedPanel first = {b, k, format};
    if (rows == 1) return kernels.gemv_grouped(a, first, panels, values);
    return kernels.rows_grouped(a, k, rows, first, panels, values);
  }
  for (int64_t i = 0; i < panels; ++i, sums += rows * kPanelColumns) {
    const auto* panel = reinterpret_cast<const int8_t*>(b + i * panel_bytes(format, k));
    if (rows == 1) kernels.gemv_s8(a, panel, 4 * kPanelColumns, k, sums);
    if (rows > 1) kernels.rows_s8(a, k, rows, panel, k, sums);
  }
}

// GEMV over panels, cut into tasks as in the engine.
void gemv_panels(State& state, const Kernels& kernels, int32_t threads, Format format, int64_t rows) {
  const int64_t panel = panel_bytes(format, kStreamedK), panels = kStreamedBytes / panel;
  const Arena weights = bytes(panel * panels);
  const std::vector<int8_t> a(rows * kStreamedK, 3);
  std::vector<int32_t> sums(panels * rows * kPanelColumns);
  std::vector<float> values(sums.size());
  Team team = team_of(threads);
  constexpr int64_t kAtOnce = 4;  // panels of a task, for formats with groups
  const int64_t step = traits_of(format).group_k > 0 ? kAtOnce : 1;
  measure_stream(state, team, panel * panels, [&] {
    team.run([&](Worker& worker) {
      worker.for_each((panels + step - 1) / step, [&](int64_t task) {
        const int64_t i = task * step, at = i * rows * kPanelColumns;
        multiply_panels(kernels, format, rows, a.data(), weights.data + i * panel, std::min(step, panels - i),
                        sums.data() + at, values.data() + at);
      });
    });
  });
}

// Prefill: several rows.

#if defined(__x86_64__)
// int8 multiply-adds per second of VPDPBUSD on registers alone; twelve chains hide its latency.
[[gnu::target("avx512f,avx512vnni")]] double peak_macs() {
  using Vector = int32_t __attribute__((vector_size(64)));
  constexpr int64_t kSteps = 1000000;
  Vector x = {}, w = {};
  Vector s0 = {}, s1 = {}, s2 = {}, s3 = {}, s4 = {}, s5 = {}, s6 = {}, s7 = {}, s8 = {}, s9 = {}, s10 = {}, s11 = {};
  const double start = now_seconds();
  for (int64_t i = 0; i < kSteps; ++i) {
    asm volatile(
        "vpdpbusd %13, %12, %0\n vpdpbusd %13, %12, %1\n vpdpbusd %13, %12, %2\n vpdpbusd %13, %12, %3\n"
        "vpdpbusd %13, %12, %4\n vpdpbusd %13, %12, %5\n vpdpbusd %13, %12, %6\n vpdpbusd %13, %12, %7\n"
        "vpdpbusd %13, %12, %8\n vpdpbusd %13, %12, %9\n vpdpbusd %13, %12, %10\n vpdpbusd %13, %12, %11\n"
        : "+v"(s0), "+v"(s1), "+v"(s2), "+v"(s3), "+v"(s4), "+v"(s5), "+v"(s6), "+v"(s7), "+v"(s8), "+v"(s9), "+v"(s10),
          "+v"(s11)
        : "v"(x), "v"(w));
  }
  return kSteps * 12 * 64 / (now_seconds() - start);
}
bool has_peak() { return (cpu_features() & kCpuAvx512Vnni) != 0; }
#else
double peak_macs() { return 0; }
bool has_peak() { return false; }
#endif

double best_peak() {
  double peak = 0;
  for (int i = 0; has_peak() && i < 5; ++i) peak = std::max(peak, peak_macs());
  return peak;
}

void report_macs(State& state, double macs, double best_seconds, double peak, int32_t threads) {
  state.counters["GMAC/s"] = macs / best_seconds * 1e-9;
  if (!has_peak()) return;
  state.counters["peak_GMAC/s"] = peak * threads * 1e-9;
  state.counters["peak_share"] = macs / best_seconds / (peak * threads);
}

// gemm_batch: packs A, multiplies by a packed B, dequantises to float.
void gemm(State& state, const Kernels& kernels, int32_t threads, int64_t m, int64_t k, int64_t n) {
  const Arena a = bytes(m * k), b = bytes(k * n), packed = bytes(gemm_packed_b_bytes(GemmType::s8, n, k));
  gemm_pack_b(GemmType::s8, {b.data, n}, n, k, packed.data);
  const std::vector<float> row_scale(m, 0.01f), column_scale(n, 0.01f);
  const Arena c = bytes(m * n * 4);
  GemmBatch args = {.type = GemmType::s8, .m = m, .n = n, .k = k};
  args.a = a.data, args.lda = k, args.b = packed.data, args.b_packed = true, args.c = c.data, args.ldc = n;
  args.row_scale = row_scale.data(), args.column_scale = column_scale.data();
  const int64_t scratch_bytes = std::max<int64_t>(kAlignmentBytes, gemm_scratch_bytes(&kernels, args));
  const Arena scratch = bytes(scratch_bytes);
  Team team = team_of(threads);
  double best = 1e9, peak = best_peak();
  for (auto _ : state) {
    const double start = now_seconds();
    if (Error e = gemm_batch(&kernels, workers_of(&team), args, {scratch.data, static_cast<size_t>(scratch_bytes)})) {
      fail(e.message());
    }
    const double seconds = now_seconds() - start;
    best = std::min(best, seconds);
    state.SetIterationTime(seconds);
  }
  peak = std::max(peak, best_peak());
  report_macs(state, static_cast<double>(m * n * k), best, peak, threads);
}

// Kernels::gemm_grouped alone, on packed rows and without epilogue.
void gemm_grouped(State& state, const Kernels& kernels, int32_t threads, Format format, int64_t m, int64_t k,
                  int64_t n) {
  const int64_t block = block_rows(kernels.s8_shape, m), panel = panel_bytes(format, k);
  const Arena rows = bytes(round_up(m, block) * k), weights = bytes(panel * panel_count(n));
  const auto* a = reinterpret_cast<const int8_t*>(rows.data);
  Team team = team_of(threads);
  double best = 1e9, peak = best_peak();
  for (auto _ : state) {
    const double start = now_seconds();
    team.run([&](Worker& worker) {
      std::vector<float> tile(kTileRows * kPanelColumns);
      worker.for_each(panel_count(n), [&](int64_t i) {
        for_each_row_tile(0, m, block, [&](int64_t first, int64_t count) {
          kernels.gemm_grouped(a + first * k, {block, block * k}, count, {weights.data + i * panel, k, format},
                               tile.data());
        });
      });
    });
    const double seconds = now_seconds() - start;
    best = std::min(best, seconds);
    state.SetIterationTime(seconds);
  }
  peak = std::max(peak, best_peak());
  report_macs(state, static_cast<double>(m * n * k), best, peak, threads);
}

// Attention over one chunk of the KV cache, which stays in each worker's cache.
void attend(State& state, const Kernels& kernels, int32_t threads, int64_t rows, KvType type) {
  constexpr int64_t kHeadDim = 128, kPlane = kAttentionChunk * kHeadDim, kCalls = 64;
  const std::vector<bf16> data(3 * kPlane, to_bf16(0.5f));  // any codes and positive scales
  const int64_t plane_bytes = type == KvType::q8 ? kPlane : 2 * kPlane;
  const auto* keys = reinterpret_cast<const std::byte*>(data.data());
  const AttentionChunk chunk = {type, keys, keys + plane_bytes, kHeadDim, kHeadDim};
  std::vector<float> q(rows * kHeadDim, 1.0f);
  for (int64_t r = 0; r < rows; ++r) make_query_row(kernels, q.data() + r * kHeadDim, kHeadDim, 0.1f, type);
  const std::vector<AttentionSpan> spans(rows, {0, kAttentionChunk});
  Team team = team_of(threads);
  double best = 1e9;
  for (auto _ : state) {
    const double start = now_seconds();
    team.run([&](Worker&) {
      const auto floats = [rows](int64_t n) { return std::vector<float>(rows * n); };
      std::vector<float> scores = floats(kScoreFloats), max = floats(1), sum = floats(1), acc = floats(kHeadDim);
      for (int64_t i = 0; i < kCalls; ++i) {
        attend_chunk(kernels, chunk, q.data(), rows, spans.data(), scores.data(), {max.data(), sum.data(), acc.data()});
      }
    });
    const double seconds = now_seconds() - start;
    best = std::min(best, seconds);
    state.SetIterationTime(seconds);
  }
  state.counters["GMAC/s"] = static_cast<double>(threads * kCalls * rows * 2 * kPlane) / best * 1e-9;
}

// The Hadamard rotation of one input row, by each worker.
void rotate(State& state, const Kernels& kernels, int32_t threads, int64_t k) {
  constexpr int64_t kCalls = 4096;
  const std::vector<float> x(k, 1.0f);
  Team team = team_of(threads);
  double best = 1e9;
  for (auto _ : state) {
    const double start = now_seconds();
    team.run([&](Worker&) {
      std::vector<float> out(k);
      for (int64_t i = 0; i < kCalls; ++i) kernels.rotate(x.data(), k, rotation_of(k), out.data());
    });
    const double seconds = now_seconds() - start;
    best = std::min(best, seconds);
    state.SetIterationTime(seconds);
  }
  state.counters["ns/element"] = best / static_cast<double>(kCalls * k) * 1e9;
}

void add(const std::string& name, const std::function<void(State&)>& run) {
  benchmark::RegisterBenchmark(name.c_str(), run)->UseManualTime()->Unit(benchmark::kMicrosecond);
}

void add_all() {
  const auto all = static_cast<int32_t>(all_cpus().size());
  std::vector<int32_t> teams = {1};
  if (all > 1) teams.push_back(all);
  for (const Variant& variant : kernel_variants()) {
    if ((variant.needs & ~cpu_features()) != 0 || variant.needs == 0) continue;
    const Kernels& kernels = variant.table();
    for (const int32_t threads : teams) {
      const std::string end = std::string("/") + variant.name + "/threads:" + std::to_string(threads);
      add("gemv_s8 panels" + end, [&kernels, threads](State& s) { gemv_panels(s, kernels, threads, Format::w8, 1); });
      add("gemv_w4 panels" + end, [&kernels, threads](State& s) { gemv_panels(s, kernels, threads, Format::w4, 1); });
      add("gemv_w2 panels" + end, [&kernels, threads](State& s) { gemv_panels(s, kernels, threads, Format::w2, 1); });
      for (const int64_t rows : {2, 4, 8}) {
        if (rows > kernels.few_rows) continue;
        const std::string few = " panels rows:" + std::to_string(rows) + end;
        add("rows_s8" + few, [=, &kernels](State& s) { gemv_panels(s, kernels, threads, Format::w8, rows); });
        add("rows_w4" + few, [=, &kernels](State& s) { gemv_panels(s, kernels, threads, Format::w4, rows); });
        add("rows_w2" + few, [=, &kernels](State& s) { gemv_panels(s, kernels, threads, Format::w2, rows); });
      }
      add("sdot_gemv flat" + end, [&kernels, threads](State& s) { gemv_flat(s, kernels, threads); });
      for (const int64_t m : {512, 128, 16}) {
        add("gemm_s8 m:" + std::to_string(m) + " k:1024 n:3072" + end,
            [&kernels, threads, m](State& s) { gemm(s, kernels, threads, m, 1024, 3072); });
        for (const Format format : {Format::w4, Format::w2}) {
          add("gemm_" + std::string(traits_of(format).name) + " m:" + std::to_string(m) + " k:1024 n:3072" + end,
              [=, &kernels](State& s) { gemm_grouped(s, kernels, threads, format, m, 1024, 3072); });
        }
      }
      for (const int64_t k : {576, 1024, 3072}) {
        add("rotate k:" + std::to_string(k) + end,
            [&kernels, threads, k](State& s) { rotate(s, kernels, threads, k); });
      }
      for (const int64_t rows : {60, 8, 2, 1}) {
        for (const KvType type : {KvType::bf16, KvType::q8}) {
          const std::string cache = type == KvType::q8 ? "q8" : "bf16";
          add("attend " + cache + " rows:" + std::to_string(rows) + " positions:256 head_dim:128" + end,
              [&kernels, threads, rows, type](State& s) { attend(s, kernels, threads, rows, type); });
        }
      }
    }
  }
}

}  // namespace
}  // namespace pinion

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  pinion::add_all();
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
}
