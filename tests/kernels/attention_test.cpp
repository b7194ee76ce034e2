// Attention and the merging of its parts: every variant against scalar; what a row sees, and that it sees nothing else.
#include "tests/kernels/attention.h"

namespace pinion {
namespace {

std::string describe(const AttentionCase& c) {
  std::string text = std::string(std::array{"f32", "bf16", "q8"}[static_cast<size_t>(c.type)]) + ", head_dim " +
                     std::to_string(c.head_dim) + ", spans";
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
    {{0, 256}, {0, 256}},
    {{0, 1}, {240, 256}},
    {{0, 256}, {0, 255}, {1, 256}},
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
    for (const KvType type : kTypes) {
      for (int32_t head_dim : {16, 64, 128}) {
        const AttentionCase c = random_attention(random, head_dim, type, spans);
        expect_rows_independent(c, attend_everywhere(c));
      }
    }
  }
}

TEST(Attend, HeadDims) {
  Random random;
  for (int32_t head_dim = 16; head_dim <= 256; head_dim += 16) {
    const KvType type = kTypes[head_dim / 16 % 3];
    const AttentionCase c = random_attention(random, head_dim, type, {{0, 20}, {2, 37}, {1, 19}});
    expect_rows_independent(c, attend_everywhere(c));
  }
  for (int32_t rows = 1; rows <= 14; ++rows) {
    std::vector<AttentionSpan> spans;
    for (int32_t r = 0; r < rows; ++r) spans.push_back({r % 3, 30 + r / 2});
    const AttentionCase c = random_attention(random, 80, kTypes[rows % 3], spans);
    expect_rows_independent(c, attend_everywhere(c));
  }
}

// Below, at and above the rows and positions from which on some tables turn keys and values into floats a piece at a
// time.
TEST(Attend, ManyRows) {
  Random random;
  for (int32_t rows : {15, 16, 17, 64}) {
    for (int32_t positions : {1, 2, 127, 128, 129, 256}) {
      std::vector<AttentionSpan> spans;
      for (int32_t r = 0; r < rows; ++r) spans.push_back({positions > 30 ? r % 2 : 0, std::max(1, positions - r / 3)});
      const AttentionCase c = random_attention(random, positions % 2 ? 80 : 128,
                                               rows == 17   ? KvType::f32
                                               : rows == 16 ? KvType::bf16
                                                            : KvType::q8,
                                               spans);
      expect_rows_independent(c, attend_everywhere(c));
    }
  }
}

TEST(Attend, WhatNoRowSeesDoesNotMatter) {
  Random random;
  for (const KvType type : kTypes) {
    AttentionCase c = random_attention(random, 32, type, {{40, 60}, {45, 61}});
    const Result before = attend_everywhere(c);
    // Whole blocks before the first position, by value and by key; cached_keys does the same behind the last. Not the
    // first block of codes: the others are told from its mean.
    const int64_t first = type == KvType::q8 ? kCentred * 32 : 0;
    std::fill(c.values.begin() + first, c.values.begin() + 32 * 32, kNan);
    std::fill(c.keys.begin() + first, c.keys.begin() + 32 * 32, kNan);
    // In its own block a position before the span is read with weight 0: any number will do.
    for (size_t i = 32 * 32; i < 40 * 32; ++i) c.keys[i] = 1e4f, c.values[i] = -1e30f;
    // So is what shares a pair with the last position.
    c.values.insert(c.values.end(), 32, 1e30f);
    c.keys.insert(c.keys.end(), 32, kNan);
    expect_same(attend_everywhere(c), before, "positions outside every span");
  }
}

TEST(Attend, HugeScores) {
  Random random;
  for (const KvType type : kTypes) {
    for (float factor : {1e3f, 1e15f, 1e-30f}) {
      AttentionCase c = random_attention(random, 48, type, {{0, 33}, {3, 50}});
      for (float& v : c.q) v *= factor;
      attend_everywhere(c);
    }
  }
}

// The smallest operands there are: were a product or a sum of them denormal, tables would differ.
TEST(Attend, LeastOperands) {
  Random random;
  AttentionCase c = random_attention(random, 48, KvType::bf16, {{0, 33}, {3, 50}, {17, 18}});
  for (std::vector<float>* all : {&c.q, &c.keys, &c.values}) {
    for (float& v : *all) v = std::copysign(kMinOperand * random.floats(1, 1, 4)[0], v);
  }
  for (const float scale : {1.0f, 2.0f}) {
    c.scale = scale;
    attend_everywhere(c);
  }
}

// Products beyond the largest float, of both signs, and what is infinite already.
TEST(Attend, Overflow) {
  Random random;
  for (const KvType type : kTypes) {
    AttentionCase c = random_attention(random, 32, type, {{0, 33}, {3, 50}, {17, 18}});
    for (std::vector<float>* all : {&c.q, &c.keys}) {
      for (float& v : *all) v *= 1e19f;
    }
    attend_everywhere(c);
    for (float& v : c.values) v *= 1e38f;
    attend_everywhere(c);
    c.values[20 * 32] = std::numeric_limits<float>::infinity();
    c.q[40] = -std::numeric_limits<float>::infinity();
    attend_everywhere(c);
  }
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

// A query of one element against keys of one element.
TEST(Attend, QueriesAreRounded) {
  const auto score = [](float q, float scale, KvType type) {
    AttentionCase c = one_hot_keys(1, {{0, 1}});
    c.q[0] = q, c.scale = scale, c.type = type;
    return split(attend_everywhere(c), 1).max[0];
  };
  EXPECT_EQ(score(1 + 0x1p-8f, 1, KvType::f32), 1 + 0x1p-8f);
  EXPECT_EQ(score(1 + 0x1p-8f, 1, KvType::bf16), 1);            // half way: to the even one
  EXPECT_EQ(score(1 + 0x3p-8f, 1, KvType::bf16), 1 + 0x1p-6f);  // likewise
  EXPECT_EQ(score(-1 - 0x1.1p-8f, 1, KvType::bf16), -1 - 0x1p-7f);
  EXPECT_EQ(score(1 + 0x1p-7f, 1 + 0x1p-7f, KvType::bf16), 1 + 0x1p-6f);  // once, after the scale
  EXPECT_EQ(score(0x1p-50f, 1, KvType::bf16), 0x1p-50f);
  EXPECT_EQ(score(0x1.fep-51f, 1, KvType::bf16), 0);
  EXPECT_EQ(score(0x1.fep-51f, 1, KvType::f32), 0x1.fep-51f);
}

// Of two positions the second is that far below the first: its weight in a cache of bf16.
TEST(Attend, ProbabilitiesAreRounded) {
  const auto weight = [](float distance) {
    AttentionCase c = one_hot_keys(2, {{0, 2}});
    c.q[1] = -distance;
    return split(attend_everywhere(c), 1).acc[0];
  };
  EXPECT_EQ(weight(0), 1);
  for (float distance : {0.25f, 1.0f, 3.5f, 10.0f, 34.5f}) {
    EXPECT_NEAR(weight(distance) / std::exp(-distance), 1, 0x1.01p-8) << distance;
  }
  EXPECT_EQ(weight(1), to_float(to_bf16(std::exp(-1.0f))));
  EXPECT_EQ(weight(34.75f), 0);
  EXPECT_EQ(weight(1e30f), 0);

  // The edge of what counts: queries of bf16 cannot stand there, two of them added can.
  const auto weight_at = [](float high, float low) {
    AttentionCase c = one_hot_keys(2, {{0, 2}});
    c.keys[16 + 2] = 1;  // key 1 adds elements 1 and 2
    c.q[1] = high, c.q[2] = low;
    return split(attend_everywhere(c), 1).acc[0];
  };
  EXPECT_EQ(weight_at(-34.5f, -0.15625f), kMinOperand);
  EXPECT_EQ(weight_at(-34.5f, -0.158203125f), 0);

  // Such weights with the least values.
  Random random;
  AttentionCase c = one_hot_keys(16, {{0, 16}});
  for (size_t i = 0; i < 16; ++i) c.q[i] = i == 3 ? 0 : -static_cast<float>(i % 2 ? 34.5 : 34.0);
  for (float& v : c.values) v = std::copysign(kMinOperand, random.floats(1, -1, 1)[0]);
  attend_everywhere(c);
}

TEST(Attend, DamageShows) {
  Random random;
  for (const KvType type : kTypes) {
    AttentionCase c = random_attention(random, 16, type, {{0, 5}, {0, 20}, {0, 5}});
    c.keys[10 * 16] = kNan;  // only row 1 sees it
    c.q[2 * 16 + 3] = kNan;
    const State state = split(attend_everywhere(c), 3);
    EXPECT_FALSE(std::isnan(state.sum[0]));
    EXPECT_TRUE(std::isnan(state.sum[1]));
    EXPECT_TRUE(std::isnan(state.sum[2]));
  }
}

TEST(Attend, HandWorked) {
  for (const KvType type : kFloatTypes) {
    AttentionCase c = one_hot_keys(16, {{0, 16}, {0, 16}, {2, 5}});
    c.type = type;
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

// Keys 3 and 19 are alike, but only the second is told from the centre. The codes are within 1/254 of what they stand
// for, q's too.
TEST(Attend, CodesByHand) {
  AttentionCase c = one_hot_keys(20, {{0, 20}, {14, 18}});
  c.type = KvType::q8;
  c.q[3] = 8, c.q[16 + 1] = 2;
  const State state = split(attend_everywhere(c), 2);
  const float far = std::exp(-8.0f), near = std::exp(-2.0f);
  EXPECT_NEAR(state.max[0], 8, 0.06);
  EXPECT_NEAR(state.max[1], 2, 0.02);
  EXPECT_NEAR(state.sum[0], 2 + 18 * far, 0.1);
  EXPECT_NEAR(state.sum[1], 1 + 3 * near, 0.02);
  EXPECT_NEAR(state.acc[5] / state.sum[0], (3 + 19 + far * (190 - 22)) / (2 + 18 * far), 0.5);
  EXPECT_NEAR(state.acc[16 + 5] / state.sum[1], (17 + near * (14 + 15 + 16)) / (1 + 3 * near), 0.05);

  c.q[3] = 800, c.cap = 2;
  const State capped = split(attend_everywhere(c), 2);
  EXPECT_EQ(capped.max[0], 2);
  EXPECT_NEAR(capped.sum[0], 2 + 18 * near, 0.02);
}

// Values that are zero, or too small to be told from it, have no largest one to be measured by.
TEST(Attend, CodesOfNoWeight) {
  Random random;
  for (const float size : {0.0f, 0x1p-110f}) {
    AttentionCase c = random_attention(random, 32, KvType::q8, {{0, 16}, {0, 40}, {3, 16}});
    for (size_t i = 0; i < 16 * 32; ++i) c.values[i] = size;
    const State state = split(attend_everywhere(c), 3);
    for (size_t i = 0; i < 32; ++i) EXPECT_EQ(state.acc[i], 0);
    for (size_t i = 64; i < 96; ++i) EXPECT_EQ(state.acc[i], 0);
    EXPECT_NE(state.acc[32], 0);
    EXPECT_GT(state.sum[0], 1);
  }
}

// Two digits tell weights of 14 bits apart: position 0 has the weight 1, the others e^-7.5, which one digit would
// round to nothing.
TEST(Attend, CodesHaveTwoDigits) {
  AttentionCase c = one_hot_keys(16, {{0, 16}});
  c.type = KvType::q8;
  for (size_t i = 0; i < 16; ++i) c.q[i] = i == 0 ? 0.0f : -7.5f;
  for (int64_t p = 0; p < 16; ++p) std::fill_n(c.values.begin() + p * 16, 16, p == 0 ? 0.0f : 1.0f);
  c.values[0] = 1;  // so that the largest weight is position 0's
  EXPECT_NEAR(split(attend_everywhere(c), 1).acc[1] / (15 * std::exp(-7.5f)), 1, 0.05);
}

// e^x as a cache's sums take it.
float weight_of(float x, KvType type) { return type == KvType::f32 ? std::exp(x) : to_float(to_bf16(std::exp(x))); }

TEST(Attend, TheScaleIsApplied) {
  for (const KvType type : kFloatTypes) {
    AttentionCase c = one_hot_keys(2, {{0, 2}});
    c.type = type;
    c.q[0] = 8, c.q[1] = 4;
    c.scale = 0.25f;
    const State state = split(attend_everywhere(c), 1);
    EXPECT_EQ(state.max[0], 2);
    EXPECT_NEAR(state.sum[0], 1 + weight_of(-1, type), 1e-6);
    EXPECT_NEAR(state.acc[7], weight_of(-1, type), 1e-6);  // value 1 with weight e^-1, value 0 with weight 1
  }
}

// Scores 800 and 0 under a cap of 2 are 2 and 0, wherever they stand.
TEST(Attend, TheCapIsApplied) {
  for (const KvType type : kFloatTypes) {
    AttentionCase c = one_hot_keys(16, {{0, 16}, {4, 6}});
    c.type = type;
    c.q[4] = 800, c.q[16 + 5] = -800;
    c.cap = 2;
    const State state = split(attend_everywhere(c), 2);
    EXPECT_EQ(state.max, (std::vector<float>{2, 0}));
    EXPECT_NEAR(state.sum[0], 1 + 15 * weight_of(-2, type), 1e-5);
    EXPECT_NEAR(state.sum[1], 1 + weight_of(-2, type), 1e-6);
    EXPECT_NEAR(state.acc[16], 4 + 5 * weight_of(-2, type), 1e-5);
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
