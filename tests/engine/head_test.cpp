// The head by halves: the logits of one that is read whole, and the likeliest of rows that need no others.
#include <gtest/gtest.h>

#include <random>

#include "engine/forward/head.h"
#include "loader/pack/pack.h"
#include "tests/engine/ids.h"
#include "tests/engine/one_result.h"

namespace pinion {
namespace {

// A model whose head has random weights, `n` rows of them.
struct RandomHead {
  std::unique_ptr<Model> model;
  Arena arena;
  std::vector<float> weights, bias;

  RandomHead(Format format, int64_t n) {
    EXPECT_FALSE(load_model(kStories, {}, &model));
    const int64_t k = model->config.hidden_size;
    std::mt19937 random(static_cast<uint32_t>(n));
    std::normal_distribution<float> normal(0.0f, 0.1f);
    for (int64_t i = 0; i < n * k; ++i) weights.push_back(normal(random));
    for (int64_t i = 0; i < n; ++i) bias.push_back(normal(random));
    const TensorView view = {"head", DType::f32, {n, k}, reinterpret_cast<const std::byte*>(weights.data()), n * k * 4};
    Linear& head = model->head;
    head.rows = {n, kPanelColumns};
    const PackJob job = {.source = view, .format = format, .out = &head.weight, .rotation = rotation_of(k)};
    EXPECT_FALSE(allocate_arena(packed_bytes({&job, 1}), &arena));
    EXPECT_FALSE(pack_all({}, {&job, 1}, arena.data));
    model->config.vocab_size = n;
  }
};

// [rows][n] logits of a text in one pass; `candidates` as of evaluate(). best: the panels' likeliest ids.
std::vector<float> logits_of(const Model& model, int64_t rows, int64_t candidates, int32_t threads,
                             const Kernels* kernels = nullptr, std::vector<int32_t>* best = nullptr) {
  Team team(std::vector<int32_t>(threads, -1));
  std::unique_ptr<Session> session;
  EXPECT_FALSE(open_session(model, team, {.kernels = kernels}, &session));
  std::vector<float> logits(rows * model.config.vocab_size);
  const std::vector<int32_t> ids = some_tokens(rows, std::min<int64_t>(512, model.config.vocab_size));
  const Error e = evaluate(*session, ids, true, logits.data(), candidates);
  EXPECT_EQ(e.message(), "");
  for (int64_t row = 0; best && row < rows; ++row) {
    for (const int32_t id : panel_best(*session, row)) best->push_back(id);
  }
  return logits;
}

TEST(HeadByHalves, RowsWithoutCandidatesHaveTheBitsOfAWholeHead) {
  for (const int64_t n : {40, 64, 65, 300, 2000}) {
    const RandomHead whole(Format::w8, n), halves(Format::w8h, n);
    for (const int64_t rows : {1, 2, 9, 70}) {
      const std::vector<float> expected = logits_of(*whole.model, rows, 0, 1);
      for (const Variant& variant : kernel_variants()) {
        if (variant.needs & ~cpu_features()) continue;
        EXPECT_TRUE(same_bits(logits_of(*halves.model, rows, 0, 2, &variant.table()), expected))
            << variant.name << ", " << rows << " rows of " << n;
      }
    }
  }
}

// Returns the number of logits that are computed. logits: of a ranked row, all: the same without ranking.
int64_t expect_likeliest(std::span<const float> logits, std::span<const int32_t> best, std::span<const float> all,
                         int64_t k) {
  std::vector<int64_t> order(all.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::sort(order, [&](int64_t x, int64_t y) { return all[x] != all[y] ? all[x] > all[y] : x < y; });
  for (int64_t i = 0; i < std::min(k, std::ssize(all)); ++i) EXPECT_EQ(logits[order[i]], all[order[i]]) << i;
  int64_t computed = 0;
  for (size_t id = 0; id < all.size(); ++id) {
    if (logits[id] == kMinusInfinity) continue;
    EXPECT_EQ(logits[id], all[id]) << id;
    ++computed;
  }
  EXPECT_EQ(std::ssize(best), panel_count(std::ssize(all)));
  for (int64_t panel = 0; panel < std::ssize(best); ++panel) {
    const int64_t first = panel * kPanelColumns;
    const std::span<const float> own = logits.subspan(first, std::min(kPanelColumns, std::ssize(logits) - first));
    EXPECT_EQ(best[panel], first + (std::ranges::max_element(own) - own.begin())) << panel;
  }
  return computed;
}

TEST(HeadByHalves, RankedRowsHaveTheLikeliest) {
  for (const int64_t n : {40, 65, 300, 20000}) {
    const RandomHead head(Format::w8h, n);
    for (const int64_t rows : {1, 3, 20}) {
      const std::vector<float> all = logits_of(*head.model, rows, 0, 1);
      for (const int64_t k : {1, 3, 64, 256}) {
        SCOPED_TRACE(std::to_string(k) + " of " + std::to_string(n) + ", rows " + std::to_string(rows));
        std::vector<int32_t> best;
        const std::vector<float> ranked = logits_of(*head.model, rows, k, 2, nullptr, &best);
        int64_t computed = 0;
        for (int64_t row = 0; row < rows; ++row) {
          computed += expect_likeliest(std::span(ranked).subspan(row * n, n),
                                       std::span(best).subspan(row * panel_count(n), panel_count(n)),
                                       std::span(all).subspan(row * n, n), k);
        }
        if (n == 20000) {
          EXPECT_LT(computed, rows * n / (k == 1 ? 20 : k < 256 ? 4 : 2));
        }
      }
    }
  }
}

TEST(HeadByHalves, EveryTableRanksAlike) {
  const RandomHead head(Format::w8h, 3000);
  for (const int64_t rows : {1, 5, 70}) {
    const std::vector<float> expected = logits_of(*head.model, rows, 8, 1, &scalar_kernels());
    EXPECT_GT(std::ranges::count(expected, kMinusInfinity), 0);
    for (const Variant& variant : kernel_variants()) {
      if (variant.needs & ~cpu_features()) continue;
      for (const int32_t threads : {1, 3}) {
        EXPECT_TRUE(same_bits(logits_of(*head.model, rows, 8, threads, &variant.table()), expected))
            << variant.name << ", " << rows << " rows";
      }
    }
  }
}

// A bias or a negative factor changes the order of products, so such heads are not ranked.
TEST(HeadByHalves, OtherOrdersAreComputedWhole) {
  RandomHead head(Format::w8h, 300);
  const auto expect_whole = [&](const char* name) {
    const std::vector<float> logits = logits_of(*head.model, 2, 1, 1);
    EXPECT_EQ(std::ranges::count(logits, kMinusInfinity), 0) << name;
    EXPECT_TRUE(same_bits(logits, logits_of(*head.model, 2, 0, 1))) << name;
  };
  head.model->head.bias = head.bias.data();
  expect_whole("bias");
  head.model->head.bias = nullptr, head.model->head.alpha = -1.0f;
  expect_whole("negative");
}

TEST(HeadByHalves, NaNIsAnError) {
  RandomHead head(Format::w8h, 300);
  std::vector<float> norm(head.model->config.hidden_size, 1.0f);
  norm[5] = std::numeric_limits<float>::quiet_NaN();
  head.model->final_norm.weight = norm.data();
  Team team({-1});
  std::unique_ptr<Session> session;
  ASSERT_FALSE(open_session(*head.model, team, {}, &session));
  std::vector<float> logits(300);
  for (const int64_t candidates : {0, 1}) {
    const Error e = evaluate(*session, std::vector<int32_t>{1, 2}, false, logits.data(), candidates);
    EXPECT_TRUE(e.message().find("NaN or infinity") != std::string::npos) << e.message();
  }
}

TEST(HeadByHalves, AllLogitsOfAnInputOfZerosAreEqual) {
  RandomHead head(Format::w8h, 300);
  const std::vector<float> norm(head.model->config.hidden_size, 0.0f);
  head.model->final_norm.weight = norm.data();
  for (const float logit : logits_of(*head.model, 2, 3, 1)) EXPECT_EQ(logit, 0.0f);
}

}  // namespace
}  // namespace pinion
