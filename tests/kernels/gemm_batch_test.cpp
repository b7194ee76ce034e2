// gemm_batch against its definition: the bits must not depend on the table, the workers or the packing of B.
#include "tests/kernels/gemm_batch.h"

namespace pinion {
namespace {

template <class T, class R>
Problem<T, R> two_by_two() {
  //  1 2 3     1  0     5 -1
  //  4 5 6  *  2  1  =  14 -1   the second column: 2 - 3, 5 - 6
  //            0 -1
  Problem<T, R> p;
  p.g.type = kType<T>, p.g.result = kResult<R>, p.g.m = 2, p.g.n = 2, p.g.k = 3;
  for (float v : {1.0f, 2.0f, 3.0f, 4.0f, 5.0f, 6.0f}) p.a.push_back(number<T>(v));
  for (float v : {1.0f, 0.0f, 2.0f, 1.0f, 0.0f, -1.0f}) p.b.push_back(number<T>(v));
  p.c.assign(4, padding_value<R>());
  return p;
}

TEST(GemmBatch, HandWorked) {
  for_each_type([]<class T, class R>(T, R) {
    const Problem<T, R> p = two_by_two<T, R>();
    std::vector<R> by_hand;
    for (float v : {5.0f, -1.0f, 14.0f, -1.0f}) by_hand.push_back(number<R>(v));
    ASSERT_TRUE(same(definition(p), by_hand));
    expect_all_forms(p);
  });
}

TEST(GemmBatch, EpilogueHandWorked) {
  Problem<int8_t, float> p = two_by_two<int8_t, float>();
  p.row_scale = {0.5f, 2}, p.column_scale = {4, 8};  // 10 -4; 112 -16
  p.g.alpha = 0.25f;                                 // 2.5 -1; 28 -4
  p.bias = {1, -1};                                  // 3.5 -2; 29 -5
  p.gate = {0, 0, 40, 40};                           // silu: 0 0; 40 40, so 0 -0; 1160 -200
  p.c = {6, 2, 2, 0};
  p.g.beta = 0.5f;               // 3 1; 1161 -200
  p.g.low = -100, p.g.high = 2;  // 2 1; 2 -100
  ASSERT_EQ(definition(p), (std::vector<float>{2, 1, 2, -100}));
  expect_all_forms(p);

  // bf16 rounds to nearest even: 257 and 259 lie halfway between 256, 258 and 260.
  Problem<float, bf16> rounded = two_by_two<float, bf16>();
  rounded.bias = {252, 260};  // 257 259; 266 259
  ASSERT_TRUE(same(definition(rounded), {to_bf16(256), to_bf16(260), to_bf16(266), to_bf16(260)}));
  expect_all_forms(rounded);
}

// Rounding, saturation and NaN of the narrow result types.
TEST(GemmBatch, NarrowResultsHandWorked) {
  const std::vector<float> values = {2.5f, 3.5f, -2.5f, 127.5f, 300, -0.5f, -200, kNan};
  const auto one_row = [&]<class R>(R, const std::vector<R>& by_hand) {
    Problem<float, R> p;
    p.g.result = kResult<R>, p.g.m = 1, p.g.n = std::ssize(values), p.g.k = 1;
    p.a = {1}, p.b = values, p.c.assign(values.size(), padding_value<R>());
    ASSERT_TRUE(same(definition(p), by_hand));
    expect_all_forms(p);
  };
  one_row(int8_t{}, std::vector<int8_t>{2, 4, -2, 127, 127, 0, -128, 0});
  one_row(uint8_t{}, std::vector<uint8_t>{2, 4, 0, 128, 255, 0, 0, 0});

  Problem<float, f16> halves;  // units: 2^-10 at 1, 32 below 65536, 2^-24 at 0
  halves.g.result = GemmResult::f16, halves.g.m = 1, halves.g.n = 6, halves.g.k = 1;
  halves.a = {1}, halves.c.resize(6);
  halves.b = {1 + 0x1p-11f, 1 + 0x3p-11f, 65519, 65520, -0x1p-25f, 0x3p-25f};
  expect_all_forms(halves);
  std::vector<uint16_t> bits;
  for (f16 h : definition(halves)) bits.push_back(h.bits);
  EXPECT_EQ(bits, (std::vector<uint16_t>{0x3c00, 0x3c02, 0x7bff, 0x7c00, 0x8000, 0x0002}));
}

// Sums that another order, or rounded products, would change.
TEST(GemmBatch, FloatSumsAreFmaInOrder) {
  Problem<float, float> p;
  p.g.m = 1, p.g.n = 1, p.g.k = 4;
  p.a = {0x1p24f, 1, 1, -0x1p24f};
  p.b = {1, 1, 1, 1};
  p.c = {kNan};
  ASSERT_EQ(definition(p), std::vector<float>{0});  // 2^24 + 1 is 2^24 again, twice
  expect_all_forms(p);

  p.g.k = 2;
  p.a = {1, 1 + 0x1p-12f};
  p.b = {-1, 1 + 0x1p-12f};
  ASSERT_EQ(definition(p),
            std::vector<float>{0x1p-11f + 0x1p-24f});  // a product rounded on its own would lose the last bits
  expect_all_forms(p);
}

TEST(GemmBatch, EveryRowCount) {
  Random random;
  for (int64_t m = 1; m <= 70; m += m < 20 ? 1 : kStride) {
    for_each_type([&]<class T, class R>(T, R) { expect_next_form(random_problem<T, R>(random, {m, 66, 35})); });
  }
}

TEST(GemmBatch, Columns) {
  Random random;
  for (int64_t n : {1, 2, 15, 16, 17, 31, 48, 63, 64, 65, 127, 128, 129, 200}) {
    for (int64_t m : {1, 7}) {
      for_each_type([&]<class T, class R>(T, R) { expect_next_form(random_problem<T, R>(random, {m, n, 33})); });
    }
  }
}

TEST(GemmBatch, EveryK) {
  Random random;
  for (int64_t k = 1; k <= 70; k += k < 9 ? 1 : kStride) {
    for (int64_t m : {1, 3}) {
      for_each_type([&]<class T, class R>(T, R) { expect_next_form(random_problem<T, R>(random, {m, 65, k})); });
    }
  }
}

// More rows than a tile, more panels than workers and fewer; one panel whose rows are cut.
TEST(GemmBatch, ManyTiles) {
  Random random;
  for (const Size& size : {Size{193, 10, 20}, {130, 300, 34}, {67, 128, 300, 2}, {20, 70, 30, 9}}) {
    for_each_type([&]<class T, class R>(T, R) { expect_forms(random_problem<T, R>(random, size)); });
  }
}

TEST(GemmBatch, Batches) {
  Random random;
  for (int64_t batch : {0, 1, 2, 3}) {
    for (bool reduce : {false, true}) {
      for (const Size& size : {Size{1, 65, 36}, {1, 3, 5}, {9, 70, 33}}) {
        for_each_type([&]<class T, class R>(T, R) {
          expect_forms(random_problem<T, R>(random, {size.m, size.n, size.k, batch, reduce}));
        });
      }
    }
  }
}

// Empty results, and empty sums (k or the reduced batch is zero): C = epilogue(0).
TEST(GemmBatch, Zeros) {
  Random random;
  for (const Size& size : {Size{0, 5, 6},
                           {5, 0, 6},
                           {5, 66, 0},
                           {1, 66, 0},
                           {0, 0, 0},
                           {3, 5, 6, 0},
                           {3, 66, 6, 0, true},
                           {3, 5, 0, 2},
                           {3, 5, 0, 2, true}}) {
    for_each_type([&]<class T, class R>(T, R) {
      Problem<T, R> p = random_problem<T, R>(random, size);
      expect_forms(p);
      for (R& c : p.c) c = number<R>(3);
      p.g.beta = 1;
      if constexpr (!std::is_same_v<R, int32_t>) p.bias.assign(size.n, 0.5f);
      expect_forms(p);
    });
  }
}

TEST(GemmBatch, MaximumReducedTerms) {
  Random random;
  for_each_type([&]<class T, class R>(T, R) {
    for (int64_t m : {1, 5}) expect_next_form(random_problem<T, R>(random, {m, 9, 6, kMaxGemmTerms, true}));
  });
}

TEST(GemmBatch, EveryEpilogue) {
  Random random;
  for (int set = 0; set < 64; set += set < 8 ? 1 : static_cast<int>(std::min<int64_t>(kStride, 5))) {
    for_each_type([&]<class T, class R>(T, R) {
      if constexpr (!std::is_same_v<R, int32_t>) {
        Problem<T, R> p = random_problem<T, R>(random, {1 + set % 8, 70, 21, 1 + set % 2});
        if (set & 1) p.row_scale = random.floats(p.g.m), p.column_scale = random.floats(p.g.n);
        if (set & 2) p.g.alpha = -0.3f;
        if (set & 4) p.bias = random.floats(p.g.n, -5, 5);
        if (set & 8) p.gate = random.floats(p.g.m * p.g.n, -20, 20);
        if (set & 16) {
          p.c = numbers<R>(random, std::ssize(p.c));
          p.g.beta = 0.7f;
        }
        if (set & 32) p.g.low = -0.9f, p.g.high = 1.1f;
        expect_next_form(p);
      }
    });
  }
}

TEST(GemmBatch, OneSidedClamp) {
  Random random;
  Problem<float, float> p = random_problem<float, float>(random, {3, 20, 8});
  p.b[5] = kNan;  // a column of NaN, which stay NaN
  p.g.low = 0;
  expect_all_forms(p);
  p.g.low = -kInfinity, p.g.high = -0.25f;
  expect_all_forms(p);
}

TEST(GemmBatch, AlphaZeroAndMinusOne) {
  Random random;
  for_each_type([&]<class T, class R>(T, R) {
    if constexpr (!std::is_same_v<R, int32_t>) {
      Problem<T, R> p = random_problem<T, R>(random, {4, 5, 6});
      for (float alpha : {0.0f, -1.0f, 0x1p-126f}) {
        p.g.alpha = alpha;
        expect_next_form(p);
      }
    }
  });
}

TEST(GemmBatch, Int32ResultsAccumulate) {
  Random random;
  for (const Size& size : {Size{1, 70, 36}, {1, 70, 35}, {9, 70, 35, 2}, {9, 70, 35, 3, true}}) {
    Problem<int8_t, int32_t> p = random_problem<int8_t, int32_t>(random, size);
    p.g.beta = 1;
    for (int32_t& c : p.c) c = static_cast<int32_t>(random.next() % 2000000) - 1000000;
    expect_all_forms(p);
  }
}

// int32 additions to C wrap around; the definition truncates int64 sums.
TEST(GemmBatch, Int32ResultsWrap) {
  Problem<int8_t, int32_t> p = two_by_two<int8_t, int32_t>();
  p.g.beta = 1;
  p.c = {std::numeric_limits<int32_t>::max(), std::numeric_limits<int32_t>::min(), 0, 0};
  ASSERT_EQ(definition(p), (std::vector<int32_t>{std::numeric_limits<int32_t>::min() + 4,
                                                 std::numeric_limits<int32_t>::max(), 14, -1}));
  expect_all_forms(p);
}

// The largest sums: one term of kMaxK, and many terms of kMaxK together.
TEST(GemmBatch, LargestSumsAreExact) {
  struct Shape {
    int64_t batch, m;
  };
  for (const Shape& shape : {Shape{1, 1}, {1, 2}, {2, 1}, {kMaxGemmTerms, 3}}) {
    Problem<int8_t, int32_t> p;
    p.g = {.type = GemmType::s8,
           .result = GemmResult::s32,
           .batch = shape.batch,
           .m = shape.m,
           .n = 2,
           .k = kMaxK / shape.batch,
           .reduce = true};
    p.a.assign(shape.m * kMaxK, 127);
    for (int64_t i = 0; i < kMaxK; ++i) p.b.push_back(-128), p.b.push_back(127);
    p.c.assign(2 * shape.m, 99);
    const std::vector<int32_t> expected = definition(p);
    ASSERT_EQ(expected[0], 127 * -128 * int32_t{kMaxK});
    ASSERT_EQ(expected[1], 127 * 127 * int32_t{kMaxK});
    expect_next_form(p);
  }
}

TEST(GemmBatch, AllMagnitudes) {
  Random random;
  for (int64_t m : {1, 7}) {
    for_each_type([&]<class T, class R>(T, R) {
      if constexpr (!std::is_same_v<T, int8_t>) {
        Problem<T, R> p = random_problem<T, R>(random, {m, 40, 9});
        for (T& v : p.a) v = number<T>(random.spread(-149, 128));
        for (T& v : p.b) v = number<T>(random.spread(-149, 100));  // some sums overflow
        expect_next_form(p);
        p.a.front() = number<T>(kInfinity), p.b.back() = number<T>(kNan);
        expect_next_form(p);
        for (T& v : p.a) v = number<T>(random.spread(-149, -80));
        for (T& v : p.b) v = number<T>(random.spread(-70, 10));  // some sums underflow
        expect_next_form(p);
      }
    });
  }
}

}  // namespace
}  // namespace pinion
