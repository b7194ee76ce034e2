// Deviations of a head by halves from its ranking: for each position and row of the head the sum of the low halves
// minus its mean, over its standard deviation. The ranking misses no token as long as all are below kDeviations
// (engine/forward/head.cpp).
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

constexpr int64_t kWindow = 256;
constexpr float kLowMean = 7.5f, kLowDeviation = 4.61f;

struct Deviations {
  int64_t positions = 0;
  double largest = 0;
  int64_t beyond[9] = {};  // by deviation, rounded down

  void add(const Deviations& other) {
    positions += other.positions;
    largest = std::max(largest, other.largest);
    for (size_t i = 0; i < std::size(beyond); ++i) beyond[i] += other.beyond[i];
  }
};

Deviations deviations_of(const Matrix& w, const float* input) {
  const Kernels& kernels = best_kernels();
  const int64_t k = padded_k(w.k);
  std::vector<float> rotated(input, input + w.k);
  std::vector<int8_t> codes(k);
  float scale = 0;
  if (w.rotation > 1) kernels.rotate(rotated.data(), w.k, w.rotation, rotated.data());
  kernels.quantize(rotated.data(), w.k, codes.data(), &scale);
  double sum = 0, squares = 0;
  for (const int8_t code : codes) sum += code, squares += code * code;
  Deviations out = {.positions = 1};
  for (int64_t column = 0; column < w.n; ++column) {
    const int32_t low = kernels.dot_low(codes.data(), w.low + column * k / 2, k);
    const double deviation = std::fabs(low - kLowMean * sum) / (kLowDeviation * std::sqrt(std::max(squares, 1.0)));
    out.largest = std::max(out.largest, deviation);
    ++out.beyond[std::min<size_t>(std::size(out.beyond) - 1, static_cast<size_t>(deviation))];
  }
  return out;
}

// Adds the deviations of inputs [rows][k], on all cores.
void measure(const Matrix& w, std::span<const float> rows, Deviations* all) {
  std::atomic<int64_t> next = 0;
  std::mutex mutex;
  std::vector<std::thread> threads;
  for (unsigned i = 0; i < std::max(1u, std::thread::hardware_concurrency()); ++i) {
    threads.emplace_back([&] {
      Deviations own;
      for (int64_t row; (row = next++) * w.k < std::ssize(rows);) own.add(deviations_of(w, rows.data() + row * w.k));
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
  std::ifstream in(ids_file);
  std::vector<int32_t> ids;
  const auto flush = [&]() -> Error {
    rewind(session->sequence, 0);
    if (Error e = evaluate(*session, ids, false, nullptr)) return e;
    measure(model->head.weight, std::span(session->hidden).first(ids.size() * model->config.hidden_size), all);
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
  measure(w, inputs, all);
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
  std::printf("\n");
  return 0;
}

}  // namespace
}  // namespace pinion

int main(int count, char** words) { return pinion::run(count, words); }
