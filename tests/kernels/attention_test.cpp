// Attention over a chunk and the merging of chunks: every variant against scalar, and the span of each row: positions
// outside it have no effect.
#include "tests/kernels/attention.h"

namespace pinion {
namespace {

std::string describe(const AttentionCase& c) {
  std::string text = std::string(std::array{"f32", "bf16", "q8"}[size_t(c.type)]) + ", head_dim " +
                     std::to_string(c.head_dim) + ", spans";
  for (const AttentionSpan& span : c.spans) text += " " + std::to_string(span.begin) + "-" + std::to_string(span.end);
  return text;
}

Result attend_on_all_tables(const AttentionCase& c) {
  return run_on_all_tables(describe(c), [&](const Kernels& kernels, Edge edge) { return attend(kernels, edge, c); });
}

// Each row alone gives the same bits as together with other rows.
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
    {{0, 256, 0.0625f, 300}, {3, 40, 0.5f, 39}},
    {{0, 256}, {0, 256}},
    {{0, 1}, {240, 256}},
    {{0, 256}, {0, 255}, {1, 256}},
    {{250, 256}},
    {{0, 30}, {0, 30}},
    {{0, 40}, {0, 41}, {0, 42}},                                      // a causal prompt
    {{3, 50}, {4, 51}, {5, 52}, {6, 53}},                             // in a sliding window
    {{0, 1}, {60, 70}, {17, 18}, {0, 70}, {69, 70}},                  // far apart
    {{0, 20}, {0, 20}, {0, 21}, {0, 21}, {0, 22}, {0, 22}},           // a group of two query heads, three tokens
    {{9, 25}, {8, 33}, {7, 31}, {6, 32}, {5, 16}, {4, 17}, {3, 48}},  // one more than a tile of rows
};

TEST(Attend, Spans) {
  Random random;
  for (const std::vector<AttentionSpan>& spans : kSpans) {
    for (const KvType type : kTypes) {
      for (int32_t head_dim : {16, 64, 128}) {
        const AttentionCase c = random_attention(random, head_dim, type, spans);
        expect_rows_independent(c, attend_on_all_tables(c));
      }
    }
  }
}

TEST(Attend, HeadDims) {
  Random random;
  for (int32_t head_dim = 16; head_dim <= 608; head_dim += head_dim == 256 ? 320 : 16) {  // from 576: of latents
    const KvType type = kTypes[head_dim / 16 % 3];
    const AttentionCase c = random_attention(random, head_dim, type, {{0, 20}, {2, 37}, {1, 19}});
    expect_rows_independent(c, attend_on_all_tables(c));
  }
  for (int32_t rows = 1; rows <= 14; ++rows) {
    std::vector<AttentionSpan> spans;
    for (int32_t r = 0; r < rows; ++r) spans.push_back({r % 3, 30 + r / 2});
    const AttentionCase c = random_attention(random, 80, kTypes[rows % 3], spans);
    expect_rows_independent(c, attend_on_all_tables(c));
  }
}

// Below, at and above the numbers of rows and positions from which some tables widen keys and values slice by slice.
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
      expect_rows_independent(c, attend_on_all_tables(c));
    }
  }
}

TEST(Attend, PositionsOutsideSpansHaveNoEffect) {
  Random random;
  for (const KvType type : kTypes) {
    AttentionCase c = random_attention(random, 32, type, {{40, 60}, {45, 61}});
    const Result before = attend_on_all_tables(c);
    // Positions before the first group of kKeyLanes that any row attends to are NaN; cached_keys does the same after
    // the last. For codes the first group stays, because the centre is its mean.
    const int64_t first = type == KvType::q8 ? kCentred * 32 : 0;
    std::fill(c.values.begin() + first, c.values.begin() + 32 * 32, kNan);
    std::fill(c.keys.begin() + first, c.keys.begin() + 32 * 32, kNan);
    // Within the group, positions before the span are read with weight 0: any finite number.
    for (size_t i = 32 * 32; i < 40 * 32; ++i) c.keys[i] = 1e4f, c.values[i] = -1e30f;
    // The pair partner of the last position is read with weight 0, too.
    c.values.insert(c.values.end(), 32, 1e30f);
    c.keys.insert(c.keys.end(), 32, kNan);
    expect_same(attend_on_all_tables(c), before, "positions outside every span");
  }
}

TEST(Attend, HugeScores) {
  Random random;
  for (const KvType type : kTypes) {
    for (float factor : {1e3f, 1e15f, 1e-30f}) {
      AttentionCase c = random_attention(random, 48, type, {{0, 33}, {3, 50}});
      for (float& v : c.q) v *= factor;
      attend_on_all_tables(c);
    }
  }
}

// Operands of the smallest magnitude. If a product or sum of them were denormal, tables would differ.
TEST(Attend, SmallestOperands) {
  Random random;
  AttentionCase c = random_attention(random, 48, KvType::bf16, {{0, 33}, {3, 50}, {17, 18}});
  for (std::vector<float>* all : {&c.q, &c.keys, &c.values}) {
    for (float& v : *all) v = std::copysign(kMinOperand * random.floats(1, 1, 4)[0], v);
  }
  for (const float scale : {1.0f, 2.0f}) {
    c.scale = scale;
    attend_on_all_tables(c);
  }
}

// Products beyond the largest float, of both signs, and infinite inputs.
TEST(Attend, Overflow) {
  Random random;
  for (const KvType type : kTypes) {
    AttentionCase c = random_attention(random, 32, type, {{0, 33}, {3, 50}, {17, 18}});
    for (std::vector<float>* all : {&c.q, &c.keys}) {
      for (float& v : *all) v *= 1e19f;
    }
    attend_on_all_tables(c);
    for (float& v : c.values) v *= 1e38f;
    attend_on_all_tables(c);
    c.values[20 * 32] = std::numeric_limits<float>::infinity();
    c.q[40] = -std::numeric_limits<float>::infinity();
    attend_on_all_tables(c);
  }
}

// Key p is unit vector p, so the scores of a row are the elements of q; all elements of value p are p.
AttentionCase one_hot_keys(int32_t positions, std::vector<AttentionSpan> spans) {
  AttentionCase c = {.spans = std::move(spans)};
  c.q.resize(c.rows() * 16);
  for (int32_t p = 0; p < positions; ++p) {
    for (int32_t d = 0; d < 16; ++d) {
      c.keys.push_back(p % 16 == d ? 1.0f : 0.0f);
      c.values.push_back(static_cast<float>(p));
    }
  }
  return c;
}

// Score of a query against a key that both have one nonzero element.
TEST(Attend, QueriesAreRounded) {
  const auto score = [](float q, float scale, KvType type) {
    AttentionCase c = one_hot_keys(1, {{0, 1}});
    c.q[0] = q, c.scale = scale, c.type = type;
    return split(attend_on_all_tables(c), 1).max[0];
  };
  EXPECT_EQ(score(1 + 0x1p-8f, 1, KvType::f32), 1 + 0x1p-8f);
  EXPECT_EQ(score(1 + 0x1p-8f, 1, KvType::bf16), 1);            // tie to even
  EXPECT_EQ(score(1 + 0x3p-8f, 1, KvType::bf16), 1 + 0x1p-6f);  // tie to even
  EXPECT_EQ(score(-1 - 0x1.1p-8f, 1, KvType::bf16), -1 - 0x1p-7f);
  EXPECT_EQ(score(1 + 0x1p-7f, 1 + 0x1p-7f, KvType::bf16), 1 + 0x1p-6f);  // rounded once, after scaling
  EXPECT_EQ(score(0x1p-50f, 1, KvType::bf16), 0x1p-50f);
  EXPECT_EQ(score(0x1.fep-51f, 1, KvType::bf16), 0);
  EXPECT_EQ(score(0x1.fep-51f, 1, KvType::f32), 0x1.fep-51f);
}

// Weight in a bf16 cache of a position whose score differs by `score` from that of another position.
TEST(Attend, ProbabilitiesAreRounded) {
  const auto weight = [](float distance) {
    AttentionCase c = one_hot_keys(2, {{0, 2}});
    c.q[1] = -distance;
    return split(attend_on_all_tables(c), 1).acc[0];
  };
  EXPECT_EQ(weight(0), 1);
  for (float distance : {0.25f, 1.0f, 3.5f, 10.0f, 34.5f}) {
    EXPECT_NEAR(weight(distance) / std::exp(-distance), 1, 0x1.01p-8) << distance;
  }
  EXPECT_EQ(weight(1), to_float(to_bf16(std::exp(-1.0f))));
  EXPECT_EQ(weight(34.75f), 0);
  EXPECT_EQ(weight(1e30f), 0);

  // The smallest score with a weight above zero. No bf16 query has this value, but a sum of two has.
  const auto weight_at = [](float high, float low) {
    AttentionCase c = one_hot_keys(2, {{0, 2}});
    c.keys[16 + 2] = 1;  // key 1 adds elements 1 and 2
    c.q[1] = high, c.q[2] = low;
    return split(attend_on_all_tables(c), 1).acc[0];
  };
  EXPECT_EQ(weight_at(-34.5f, -0.15625f), kMinOperand);
  EXPECT_EQ(weight_at(-34.5f, -0.158203125f), 0);

  // Weights of that size with the smallest values.
  Random random;
  AttentionCase c = one_hot_keys(16, {{0, 16}});
  for (size_t i = 0; i < 16; ++i) c.q[i] = i == 3 ? 0 : -static_cast<float>(i % 2 ? 34.5 : 34.0);
  for (float& v : c.values) v = std::copysign(kMinOperand, random.floats(1, -1, 1)[0]);
  attend_on_all_tables(c);
}

TEST(Attend, NanPropagates) {
  Random random;
  for (const KvType type : kTypes) {
    AttentionCase c = random_attention(random, 16, type, {{0, 5}, {0, 20}, {0, 5}});
    c.keys[10 * 16] = kNan;  // only row 1 attends to it
    c.q[2 * 16 + 3] = kNan;
    const State state = split(attend_on_all_tables(c), 3);
    EXPECT_FALSE(std::isnan(state.sum[0]));
    EXPECT_TRUE(std::isnan(state.sum[1]));
    EXPECT_TRUE(std::isnan(state.sum[2]));
  }
}

TEST(Attend, HandWorked) {
  for (const KvType type : kFloatTypes) {
    AttentionCase c = one_hot_keys(16, {{0, 16}, {0, 16}, {2, 5}});
    c.type = type;
    c.q[3] = 1000;  // row 0: one huge score selects position 3; rows 1 and 2: equal scores
    const State state = split(attend_on_all_tables(c), 3);
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

// Keys 3 and 19 are equal, but only the second is stored as a difference from the centre. All codes, those of q too,
// are within 1/254 of their values.
TEST(Attend, CodesHandWorked) {
  AttentionCase c = one_hot_keys(20, {{0, 20}, {14, 18}});
  c.type = KvType::q8;
  c.q[3] = 8, c.q[16 + 1] = 2;
  const State state = split(attend_on_all_tables(c), 2);
  const float far = std::exp(-8.0f), near = std::exp(-2.0f);
  EXPECT_NEAR(state.max[0], 8, 0.06);
  EXPECT_NEAR(state.max[1], 2, 0.02);
  EXPECT_NEAR(state.sum[0], 2 + 18 * far, 0.1);
  EXPECT_NEAR(state.sum[1], 1 + 3 * near, 0.02);
  EXPECT_NEAR(state.acc[5] / state.sum[0], (3 + 19 + far * (190 - 22)) / (2 + 18 * far), 0.5);
  EXPECT_NEAR(state.acc[16 + 5] / state.sum[1], (17 + near * (14 + 15 + 16)) / (1 + 3 * near), 0.05);

  c.q[3] = 800, c.cap = 2;
  const State capped = split(attend_on_all_tables(c), 2);
  EXPECT_EQ(capped.max[0], 2);
  EXPECT_NEAR(capped.sum[0], 2 + 18 * near, 0.02);
}

// Weights that are zero or below kMinWeight give zero.
TEST(Attend, CodesOfZeroWeight) {
  Random random;
  for (const float size : {0.0f, 0x1p-110f}) {
    AttentionCase c = random_attention(random, 32, KvType::q8, {{0, 16}, {0, 40}, {3, 16}});
    for (size_t i = 0; i < 16 * 32; ++i) c.values[i] = size;
    const State state = split(attend_on_all_tables(c), 3);
    for (size_t i = 0; i < 32; ++i) EXPECT_EQ(state.acc[i], 0);
    for (size_t i = 64; i < 96; ++i) EXPECT_EQ(state.acc[i], 0);
    EXPECT_NE(state.acc[32], 0);
    EXPECT_GT(state.sum[0], 1);
  }
}

// Weights have two digits: position 0 has weight 1, the others e^-7.5, which a single digit would round to zero.
TEST(Attend, WeightsHaveTwoDigits) {
  AttentionCase c = one_hot_keys(16, {{0, 16}});
  c.type = KvType::q8;
  for (size_t i = 0; i < 16; ++i) c.q[i] = i == 0 ? 0.0f : -7.5f;
  for (int64_t p = 0; p < 16; ++p) std::fill_n(c.values.begin() + p * 16, 16, p == 0 ? 0.0f : 1.0f);
  c.values[0] = 1;  // position 0 has the largest weight
  EXPECT_NEAR(split(attend_on_all_tables(c), 1).acc[1] / (15 * std::exp(-7.5f)), 1, 0.05);
}

// e^x as the sums of a cache add it.
float weight_of(float x, KvType type) { return type == KvType::f32 ? std::exp(x) : to_float(to_bf16(std::exp(x))); }

TEST(Attend, ScaleIsApplied) {
  for (const KvType type : kFloatTypes) {
    AttentionCase c = one_hot_keys(2, {{0, 2}});
    c.type = type;
    c.q[0] = 8, c.q[1] = 4;
    c.scale = 0.25f;
    const State state = split(attend_on_all_tables(c), 1);
    EXPECT_EQ(state.max[0], 2);
    EXPECT_NEAR(state.sum[0], 1 + weight_of(-1, type), 1e-6);
    EXPECT_NEAR(state.acc[7], weight_of(-1, type), 1e-6);  // value 1 with weight e^-1, value 0 with weight 1
  }
}

// Scores 800 and 0 become 2 and 0 under a cap of 2, at any position.
TEST(Attend, CapIsApplied) {
  for (const KvType type : kFloatTypes) {
    AttentionCase c = one_hot_keys(16, {{0, 16}, {4, 6}});
    c.type = type;
    c.q[4] = 800, c.q[16 + 5] = -800;
    c.cap = 2;
    const State state = split(attend_on_all_tables(c), 2);
    EXPECT_EQ(state.max, (std::vector<float>{2, 0}));
    EXPECT_NEAR(state.sum[0], 1 + 15 * weight_of(-2, type), 1e-5);
    EXPECT_NEAR(state.sum[1], 1 + weight_of(-2, type), 1e-6);
    EXPECT_NEAR(state.acc[16], 4 + 5 * weight_of(-2, type), 1e-5);
  }
}

Result merge_on_all_tables(const State& first, const State& second) {
  return run_on_all_tables("merge",
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
    merge_on_all_tables(parts[0], parts[1]);
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
    expect_same(merge_on_all_tables(c.first, c.second), want, c.name);
  }
}

TEST(MergeAttention, NanPropagates) {
  const State whole = {{1}, {2}, std::vector<float>(16, 1.0f)};
  const State broken = {{1}, {kNan}, std::vector<float>(16, kNan)};
  for (const Result& result : {merge_on_all_tables(whole, broken), merge_on_all_tables(broken, whole)}) {
    EXPECT_TRUE(std::isnan(result.floats[1]));
    EXPECT_TRUE(std::isnan(result.floats[2]));
  }
}

}  // namespace
}  // namespace pinion
