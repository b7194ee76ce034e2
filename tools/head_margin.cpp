// Deviations of a head by halves from its ranking: for each position and row of the head the sum of the low halves
// minus its estimate, over its standard deviation (Matrix::spread). The ranking misses no token as long as all are
// below kDeviations (engine/forward/head.cpp).
//
//   head_margin DIR IDS      a model, and a file of token ids, which are read in windows of 256
//   head_margin N K COUNT    random normal weights [N, K] and COUNT random inputs
#include <atomic>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <mutex>
#include <random>
#include <thread>

#include "engine/runtime/load.h"
#include "engine/session/session.h"
#include "loader/pack/pack.h"

namespace pinion {
namespace {

constexpr int64_t kWindow = 256, kRows = 8;

struct Deviations {
  int64_t positions = 0;
  double largest = 0, largest_factor = 0, least_spread = INFINITY, largest_spread = 0;
  int64_t beyond[9] = {};  // by deviation, rounded down

  void add(double deviation) {
    largest = std::max(largest, deviation);
    ++beyond[std::min<size_t>(std::size(beyond) - 1, static_cast<size_t>(deviation))];
  }
  void add(const Deviations& other) {
    largest = std::max(largest, other.largest);
    for (size_t i = 0; i < std::size(beyond); ++i) beyond[i] += other.beyond[i];
  }
};

// A head by halves, and its low halves minus 8 as the high halves of another: both are multiplied in panels.
struct Head {
  const Matrix& whole;
  Matrix low;
  Arena arena;
};

void add_spreads(const Matrix& w, Deviations* all) {
  for (int64_t column = 0; column < w.n; ++column) {
    const double factor = to_float(w.spread[column].first), deviation = to_float(w.spread[column].second);
    all->largest_factor = std::max(all->largest_factor, std::fabs(factor));
    all->least_spread = std::min(all->least_spread, deviation);
    all->largest_spread = std::max(all->largest_spread, deviation);
  }
}

Error make_head(const Matrix& w, Head* out) {
  const int64_t k = padded_k(w.k), half = k / 2;
  std::vector<int8_t> codes(w.n * k);
  for (int64_t i = 0; i < w.n * k; ++i) {
    const int pair = w.low[i / k * half + i % half];
    codes[i] = static_cast<int8_t>(16 * ((i % k < half ? pair & 15 : pair >> 4) - 8));
  }
  const float one = 1;
  const TensorView scale = {"scale", DType::f32, {1}, reinterpret_cast<const std::byte*>(&one), 4};
  const TensorView source = {"low", DType::i8, {w.n, k}, reinterpret_cast<const std::byte*>(codes.data()), w.n * k};
  const PackJob job = {.source = source, .format = Format::w8h, .out = &out->low, .scale = scale};
  if (Error e = allocate_arena(packed_bytes({&job, 1}), &out->arena)) return e;
  return pack_all({}, {&job, 1}, out->arena.data);
}

// Codes [kRows][padded_k] of inputs [rows][k], as the engine makes them.
std::vector<int8_t> codes_of(const Matrix& w, const float* inputs, int64_t rows) {
  const Kernels& kernels = best_kernels();
  std::vector<int8_t> codes(kRows * padded_k(w.k));
  std::vector<float> rotated(w.k);
  float scale = 0;
  for (int64_t row = 0; row < rows; ++row) {
    std::copy_n(inputs + row * w.k, w.k, rotated.data());
    if (w.rotation > 1) kernels.rotate(rotated.data(), w.k, w.rotation, rotated.data());
    kernels.quantize(rotated.data(), w.k, codes.data() + row * padded_k(w.k), &scale);
  }
  return codes;
}

Deviations deviations_of(const Head& head, const float* inputs, int64_t rows) {
  const Matrix& w = head.whole;
  const int64_t k = padded_k(w.k);
  const std::vector<int8_t> codes = codes_of(w, inputs, rows);
  double sums[kRows] = {}, norms[kRows] = {};
  for (int64_t i = 0; i < rows * k; ++i) sums[i / k] += codes[i], norms[i / k] += codes[i] * codes[i];
  Deviations out;
  float high[kRows * kPanelColumns], low[kRows * kPanelColumns];
  for (int64_t column = 0; column < w.n; ++column) {
    if (column % kPanelColumns == 0) {
      const auto multiply = [&](const Matrix& m, float* to) {
        const GroupedPanel panel = {panel_of(m, column / kPanelColumns), k, Format::w8h};
        best_kernels().rows_grouped(codes.data(), k, kRows, panel, 1, to);
      };
      multiply(w, high), multiply(head.low, low);
    }
    const double factor = to_float(w.spread[column].first), deviation = to_float(w.spread[column].second);
    for (int64_t row = 0; row < rows && norms[row] > 0; ++row) {
      const int64_t at = row * kPanelColumns + column % kPanelColumns;
      const double estimate = 7.5 * sums[row] + factor * (16.0 * high[at] + 7.5 * sums[row]);
      out.add(std::fabs(low[at] + 8 * sums[row] - estimate) / (std::max(deviation, 1e-3) * std::sqrt(norms[row])));
    }
  }
  return out;
}

// Adds the deviations of inputs [rows][k], on all cores.
void measure(const Head& head, std::span<const float> inputs, Deviations* all) {
  std::atomic<int64_t> next = 0;
  std::mutex mutex;
  std::vector<std::thread> threads;
  const int64_t rows = std::ssize(inputs) / head.whole.k;
  all->positions += rows;
  for (unsigned i = 0; i < std::max(1u, std::thread::hardware_concurrency()); ++i) {
    threads.emplace_back([&] {
      Deviations own;
      for (int64_t row; (row = kRows * next++) < rows;) {
        own.add(deviations_of(head, inputs.data() + row * head.whole.k, std::min(kRows, rows - row)));
      }
      const std::scoped_lock lock(mutex);
      all->add(own);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

Error measure_model(const std::string& folder, const char* ids_file, Deviations* all) {
  std::unique_ptr<Model> model;
  if (Error e = load_model(folder, {.quant = Quant::w8a8}, &model)) return e;
  if (!model->head.weight.low) return error("the head is not by halves", folder);
  Team team(std::vector<int32_t>(std::max(1u, std::thread::hardware_concurrency()), -1));
  std::unique_ptr<Session> session;
  if (Error e = open_session(*model, team, {.pass_rows = kWindow}, &session)) return e;
  session->hidden.resize(kWindow * model->config.hidden_size);
  Head head{.whole = model->head.weight, .low = {}, .arena = {}};
  if (Error e = make_head(head.whole, &head)) return e;
  add_spreads(head.whole, all);
  std::ifstream in(ids_file);
  std::vector<int32_t> ids;
  const auto flush = [&]() -> Error {
    rewind(session->sequence, 0);
    if (Error e = evaluate(*session, ids, false, nullptr)) return e;
    measure(head, std::span(session->hidden).first(ids.size() * model->config.hidden_size), all);
    ids.clear();
    return {};
  };
  for (int32_t id; in >> id;) {
    ids.push_back(id);
    if (std::ssize(ids) < kWindow) continue;
    if (Error e = flush()) return e;
  }
  return ids.empty() ? Error{} : flush();
}

Error measure_random(int64_t n, int64_t k, int64_t count, Deviations* all) {
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  std::vector<float> weights(n * k), inputs(count * k);
  for (float& value : weights) value = normal(random);
  for (float& value : inputs) value = normal(random);
  Matrix w;
  const TensorView source = {"head", DType::f32, {n, k}, reinterpret_cast<const std::byte*>(weights.data()), n * k * 4};
  const PackJob job = {.source = source, .format = Format::w8h, .out = &w, .rotation = rotation_of(k)};
  Arena arena;
  if (Error e = allocate_arena(packed_bytes({&job, 1}), &arena)) return e;
  if (Error e = pack_all({}, {&job, 1}, arena.data)) return e;
  Head head{.whole = w, .low = {}, .arena = {}};
  if (Error e = make_head(w, &head)) return e;
  add_spreads(w, all);
  measure(head, inputs, all);
  return {};
}

int run(int count, char** words) {
  Deviations all;
  const Error e = count == 3   ? measure_model(words[1], words[2], &all)
                  : count == 4 ? measure_random(std::atoll(words[1]), std::atoll(words[2]), std::atoll(words[3]), &all)
                               : error("want DIR IDS, or N K COUNT", "head_margin");
  if (e) {
    std::fprintf(stderr, "%s\n", e.message().c_str());
    return 1;
  }
  std::printf("%lld positions, largest deviation %.2f; rows by deviation:", static_cast<long long>(all.positions),
              all.largest);
  for (const int64_t rows : all.beyond) std::printf(" %lld", static_cast<long long>(rows));
  std::printf("; factors up to %.3f, deviations %.2f to %.2f\n", all.largest_factor, all.least_spread,
              all.largest_spread);
  return 0;
}

}  // namespace
}  // namespace pinion

int main(int count, char** words) { return pinion::run(count, words); }
