// Attention and the merging of its parts: every variant against scalar; what a row sees, and that it sees nothing else.
#include "tests/kernels/attention.h"

namespace pinion {
namespace {

std::string describe(const AttentionCase& c) {
  std::string text =
      std::string(c.is_float ? "float" : "bf16") + ", head_dim " + std::to_string(c.head_dim) + ", spans";
  for (const AttentionSpan& span : c.spans) text += " " + std::to_string(span.begin) + "-" + std::to_string(span.end);
  return text;
}

Result attend_everywhere(const AttentionCase& c) {
  return run_everywhere(describe(c), [&](const Kernels& kernels, Edge edge) { return attend(kernels, edge, c); });
}

// Each row alone must give the bits that it gives among the others.
void expect_rows_independent(const AttentionCase& c, const Result& together) {
  const State all = split(together, c.rows());
  const size_t d = static_cast<size_t>(c.head_dim);
  for (size_t r = 0; r < c.spans.size(); ++r) {
    AttentionCase alone = c;
    alone.spans = {c.spans[r]};
    alone.q.assign(c.q.begin() + static_cast<int64_t>(r * d), c.q.begin() + static_cast<int64_t>((r + 1) * d));
    Result expected = {.floats = {all.max[r], all.sum[r]}};
    expected.floats.insert(expected.floats.end(), all.acc.begin() + static_cast<int64_t>(r * d),
                           all.acc.begin() + static_cast<int64_t>((r + 1) * d));
    expect_same(attend(scalar_kernels(), Edge::end, alone), expected,
                "row " + std::to_string(r) + " of " + describe(c));
  }
}

const std::vector<AttentionSpan> kSpans[] = {
    {{0, 1}},
    {{0, 16}},
    {{0, 17}},
    {{5, 6}},
    {{15, 17}},
    {{16, 33}},
    {{37, 100}},
    {{0, 256}},
    {{250, 256}},
    {{0, 30}, {0, 30}},
    {{0, 40}, {0, 41}, {0, 42}},                                      // a causal prompt
    {{3, 50}, {4, 51}, {5, 52}, {6, 53}},                             // in a sliding window
    {{0, 1}, {60, 70}, {17, 18}, {0, 70}, {69, 70}},                  // far apart
    {{0, 20}, {0, 20}, {0, 21}, {0, 21}, {0, 22}, {0, 22}},           // a group of two query heads, three tokens
    {{9, 25}, {8, 33}, {7, 31}, {6, 32}, {5, 16}, {4, 17}, {3, 48}},  // one more than a block of rows
};

TEST(Attend, Spans) {
  Random random;
  for (const std::vector<AttentionSpan>& spans : kSpans) {
    for (bool is_float : {false, true}) {
      for (int32_t head_dim : {16, 64}) {
        const AttentionCase c = random_attention(random, head_dim, is_float, spans);
        expect_rows_independent(c, attend_everywhere(c));
      }
    }
  }
}

TEST(Attend, HeadDims) {
  Random random;
  for (int32_t head_dim = 16; head_dim <= 256; head_dim += 16) {
    const bool is_float = head_dim / 16 % 2;
    const AttentionCase c = random_attention(random, head_dim, is_float, {{0, 20}, {2, 37}, {1, 19}});
    expect_rows_independent(c, attend_everywhere(c));
  }
  for (int32_t rows = 1; rows <= 14; ++rows) {
    std::vector<AttentionSpan> spans;
    for (int32_t r = 0; r < rows; ++r) spans.push_back({r % 3, 30 + r / 2});
    const AttentionCase c = random_attention(random, 80, rows % 2, spans);
    expect_rows_independent(c, attend_everywhere(c));
  }
}

// Below, at and above the rows and positions from which on keys and values are turned into floats a piece at a time.
TEST(Attend, ManyRows) {
  Random random;
  for (int32_t rows : {15, 16, 17, 64}) {
    for (int32_t positions : {127, 128, 129, 256}) {
      std::vector<AttentionSpan> spans;
      for (int32_t r = 0; r < rows; ++r) spans.push_back({r % 2, positions - r / 3});
      const AttentionCase c = random_attention(random, positions % 2 ? 80 : 128, rows == 17, spans);
      expect_rows_independent(c, attend_everywhere(c));
    }
  }
}

TEST(Attend, WhatNoRowSeesDoesNotMatter) {
  Random random;
  AttentionCase c = random_attention(random, 32, true, {{40, 60}, {45, 61}});
  const Result before = attend_everywhere(c);
  // Whole blocks before the first position, by value and by key; blocked_keys does the same behind the last.
  std::fill_n(c.values.begin(), 32 * 32, kNan);
  std::fill_n(c.keys.begin(), 32 * 32, kNan);
  // In its own block a position before the span is read with weight 0: any number will do.
  for (size_t i = 32 * 32; i < 40 * 32; ++i) c.keys[i] = 1e4f, c.values[i] = -1e30f;
  expect_same(attend_everywhere(c), before, "positions outside every span");
}

TEST(Attend, HugeScores) {
  Random random;
  for (float factor : {1e3f, 1e15f, 1e-30f}) {
    AttentionCase c = random_attention(random, 48, true, {{0, 33}, {3, 50}});
    for (float& v : c.q) v *= factor;
    attend_everywhere(c);
  }
}

TEST(Attend, DamageShows) {
  Random random;
  AttentionCase c = random_attention(random, 16, true, {{0, 5}, {0, 20}});
  c.keys[10 * 16] = kNan;  // only row 1 sees it
  const State state = split(attend_everywhere(c), 2);
  EXPECT_FALSE(std::isnan(state.sum[0]));
  EXPECT_TRUE(std::isnan(state.sum[1]));
}

// Key p is p's unit vector, so that a row's scores are q's elements themselves; value p is p everywhere.
AttentionCase one_hot_keys(int32_t positions, std::vector<AttentionSpan> spans) {
  AttentionCase c = {.spans = std::move(spans)};
  c.q.resize(static_cast<size_t>(c.rows() * 16));
  for (int32_t p = 0; p < positions; ++p) {
    for (int32_t d = 0; d < 16; ++d) {
      c.keys.push_back(p % 16 == d ? 1.0f : 0.0f);
      c.values.push_back(static_cast<float>(p));
    }
  }
  return c;
}

TEST(Attend, HandWorked) {
  for (bool is_float : {false, true}) {
    AttentionCase c = one_hot_keys(16, {{0, 16}, {0, 16}, {2, 5}});
    c.is_float = is_float;
    c.q[3] = 1000;  // row 0: one huge score picks position 3; rows 1 and 2: all alike
    const State state = split(attend_everywhere(c), 3);
    EXPECT_EQ(state.max, (std::vector<float>{1000, 0, 0}));
    EXPECT_EQ(state.sum, (std::vector<float>{1, 16, 3}));
    EXPECT_EQ(state.acc[0], 3);
    EXPECT_EQ(state.acc[16], 0 + 1 + 2 + 3 + 4 + 5 + 6 + 7 + 8 + 9 + 10 + 11 + 12 + 13 + 14 + 15);
    EXPECT_EQ(state.acc[47], 2 + 3 + 4);
    EXPECT_EQ(state.acc, std::vector<float>([&] {
                std::vector<float> acc(16, 3.0f);
                acc.insert(acc.end(), 16, 120.0f);
                acc.insert(acc.end(), 16, 9.0f);
                return acc;
              }()));
  }
}

TEST(Attend, TheScaleIsApplied) {
  AttentionCase c = one_hot_keys(2, {{0, 2}});
  c.q[0] = 8, c.q[1] = 4;
  c.scale = 0.25f;
  const State state = split(attend_everywhere(c), 1);
  EXPECT_EQ(state.max[0], 2);
  EXPECT_NEAR(state.sum[0], 1 + std::exp(-1.0), 1e-6);
  EXPECT_NEAR(state.acc[7], std::exp(-1.0), 1e-6);  // value 1 with weight e^-1, value 0 with weight 1
}

// Scores 800 and 0 under a cap of 2 are 2 and 0, wherever they stand.
TEST(Attend, TheCapIsApplied) {
  for (bool is_float : {false, true}) {
    AttentionCase c = one_hot_keys(16, {{0, 16}, {4, 6}});
    c.is_float = is_float;
    c.q[4] = 800, c.q[16 + 5] = -800;
    c.cap = 2;
    const State state = split(attend_everywhere(c), 2);
    EXPECT_EQ(state.max, (std::vector<float>{2, 0}));
    EXPECT_NEAR(state.sum[0], 1 + 15 * std::exp(-2.0), 1e-5);
    EXPECT_NEAR(state.sum[1], 1 + std::exp(-2.0), 1e-6);
    EXPECT_NEAR(state.acc[16], 4 + 5 * std::exp(-2.0), 1e-5);
  }
}

Result merge_everywhere(const State& first, const State& second) {
  return run_everywhere("merge",
                        [&](const Kernels& kernels, Edge edge) { return merge(kernels, edge, first, second); });
}

TEST(MergeAttention, Shapes) {
  Random random;
  for (int64_t head_dim = 16; head_dim <= 256; head_dim += 16) {
    const int64_t rows = 1 + head_dim / 16 % 5;
    State parts[2];
    for (State& part : parts) {
      part = {random.floats(rows, -30, 30), random.floats(rows, 1, 200), random.floats(rows * head_dim, -100, 100)};
    }
    merge_everywhere(parts[0], parts[1]);
  }
}

TEST(MergeAttention, HandWorked) {
  const std::vector<float> ones(16, 1.0f), twos(16, 2.0f), threes(16, 3.0f), zeros(16);
  struct Case {
    const char* name;
    State first, second, want;
  };
  const Case cases[] = {
      {"equal maxima add up", {{5}, {1}, ones}, {{5}, {2}, twos}, {{5}, {3}, threes}},
      {"a vanishing first part", {{-500}, {7}, twos}, {{5}, {2}, ones}, {{5}, {2}, ones}},
      {"a vanishing second part", {{5}, {2}, ones}, {{-500}, {7}, twos}, {{5}, {2}, ones}},
      {"nothing seen yet", {{-kInfinity}, {0}, zeros}, {{5}, {2}, ones}, {{5}, {2}, ones}},
      {"nothing more", {{5}, {2}, ones}, {{-kInfinity}, {0}, zeros}, {{5}, {2}, ones}},
  };
  for (const Case& c : cases) {
    Result want = {.floats = c.want.max};
    append(want.floats, c.want.sum);
    append(want.floats, c.want.acc);
    expect_same(merge_everywhere(c.first, c.second), want, c.name);
  }
}

TEST(MergeAttention, DamageShows) {
  const State whole = {{1}, {2}, std::vector<float>(16, 1.0f)};
  const State broken = {{1}, {kNan}, std::vector<float>(16, kNan)};
  for (const Result& result : {merge_everywhere(whole, broken), merge_everywhere(broken, whole)}) {
    EXPECT_TRUE(std::isnan(result.floats[1]));
    EXPECT_TRUE(std::isnan(result.floats[2]));
  }
}

}  // namespace
}  // namespace pinion
