// Both matmuls: every variant against scalar over rows and k below, at and above each block, and scalar against sums
// written out here.
#include <algorithm>

#include "tests/kernels/guarded.h"

namespace pinion {
namespace {

// Integer problem: a [rows][k], w [k][64], both row-major.
struct W8Case {
  int64_t rows, k;
  std::vector<int8_t> a, w;
};

struct W8Panel {
  std::vector<int8_t> codes;
  std::vector<int32_t> column_sum;
};

W8Panel pack(const W8Case& c) {
  W8Panel panel = {std::vector<int8_t>(c.w.size()), std::vector<int32_t>(kPanelColumns)};
  for (int64_t i = 0; i < c.k; ++i) {
    for (int64_t n = 0; n < kPanelColumns; ++n) {
      const int8_t code = c.w[static_cast<size_t>(i * kPanelColumns + n)];
      panel.codes[static_cast<size_t>(i / 4 * 256 + n * 4 + i % 4)] = code;
      panel.column_sum[static_cast<size_t>(n)] += code;
    }
  }
  return panel;
}

Result gemm_w8(const Kernels& kernels, Edge edge, const W8Case& c, const W8Panel& panel) {
  // Rows lie apart, and what is between them is no legal code.
  const int64_t lda = c.k + 5;
  std::vector<int8_t> a(static_cast<size_t>((c.rows - 1) * lda + c.k), -128);
  for (int64_t r = 0; r < c.rows; ++r) std::copy_n(c.a.begin() + r * c.k, c.k, a.begin() + r * lda);

  const Guarded<int8_t> in(a, edge), weights(panel.codes, edge);
  const Guarded<int32_t> column_sum(panel.column_sum, edge), acc(c.rows * kPanelColumns, edge);
  kernels.gemm_w8(in.data, lda, c.rows, weights.data, column_sum.data, c.k, acc.data);
  return {.sums = acc.copy()};
}

Result gemm_w8_everywhere(const std::string& label, const W8Case& c) {
  const W8Panel panel = pack(c);
  return run_everywhere(label + ", rows " + std::to_string(c.rows) + ", k " + std::to_string(c.k),
                        [&](const Kernels& kernels, Edge edge) { return gemm_w8(kernels, edge, c, panel); });
}

W8Case random_w8(Random& random, int64_t rows, int64_t k) {
  return {rows, k, random.codes(rows * k, -127), random.codes(k * kPanelColumns, -128)};
}

TEST(GemmW8, HandWorked) {
  W8Case c = {2, 32, std::vector<int8_t>(64), std::vector<int8_t>(32 * 64)};
  c.a[0] = 1, c.a[1] = 2, c.a[2] = 3, c.a[4] = 4;  // row 0
  c.a[32 + 31] = -127;                             // row 1
  for (size_t n = 0; n < 64; ++n) c.w[0 * 64 + n] = static_cast<int8_t>(n), c.w[4 * 64 + n] = -128;
  c.w[1 * 64 + 7] = 10, c.w[2 * 64 + 7] = 100, c.w[31 * 64 + 63] = -128;
  const std::vector<int32_t> acc = gemm_w8_everywhere("by hand", c).sums;
  EXPECT_EQ(acc[0], 4 * -128);
  EXPECT_EQ(acc[5], 1 * 5 + 4 * -128);
  EXPECT_EQ(acc[7], 1 * 7 + 2 * 10 + 3 * 100 + 4 * -128);
  EXPECT_EQ(acc[64 + 0], 0);
  EXPECT_EQ(acc[64 + 63], -127 * -128);
}

TEST(GemmW8, EveryRowCount) {
  Random random;
  for (int64_t rows = 1; rows <= 70; rows += rows < 16 ? 1 : kStride)
    gemm_w8_everywhere("random", random_w8(random, rows, 96));
}

TEST(GemmW8, EveryK) {
  Random random;
  for (int64_t k = 32; k <= 2048; k += 32 * kStride) gemm_w8_everywhere("random", random_w8(random, 1 + k / 32 % 7, k));
}

TEST(GemmW8, AgainstSumsInRowOrder) {
  Random random;
  const W8Case c = random_w8(random, 9, 160);
  std::vector<int32_t> expected;
  for (int64_t r = 0; r < c.rows; ++r) {
    for (int64_t n = 0; n < kPanelColumns; ++n) {
      int64_t sum = 0;
      for (int64_t i = 0; i < c.k; ++i)
        sum += c.a[static_cast<size_t>(r * c.k + i)] * c.w[static_cast<size_t>(i * 64 + n)];
      expected.push_back(static_cast<int32_t>(sum));
    }
  }
  EXPECT_EQ(gemm_w8_everywhere("random", c).sums, expected);
}

// What would saturate or wrap somewhere inside: 16-bit pairs, the unsigned side's offset, its correction.
struct Pattern {
  const char* name;
  int (*a)(int64_t i);
  int (*w)(int64_t i, int64_t n);
};

constexpr Pattern kPatterns[] = {
    {"all +127", [](int64_t) { return 127; }, [](int64_t, int64_t) { return 127; }},
    {"all -127", [](int64_t) { return -127; }, [](int64_t, int64_t) { return -127; }},
    {"-127 by -128", [](int64_t) { return -127; }, [](int64_t, int64_t) { return -128; }},
    {"+127 by -128", [](int64_t) { return 127; }, [](int64_t, int64_t) { return -128; }},
    {"signs alternate together", [](int64_t i) { return i % 2 ? 127 : -127; },
     [](int64_t i, int64_t) { return i % 2 ? 127 : -128; }},
    {"signs alternate apart", [](int64_t i) { return i % 2 ? 127 : -127; },
     [](int64_t i, int64_t) { return i % 2 ? -128 : 127; }},
    {"pairs alternate", [](int64_t i) { return i / 2 % 2 ? 127 : -127; },
     [](int64_t i, int64_t n) { return (i / 2 + n) % 2 ? 127 : -128; }},
    {"groups of four", [](int64_t i) { return i / 4 % 2 ? 127 : -127; },
     [](int64_t i, int64_t n) { return (i / 4 + n) % 3 ? -128 : 127; }},
    {"zero activations", [](int64_t) { return 0; }, [](int64_t, int64_t) { return -128; }},
    {"zero weights", [](int64_t) { return -127; }, [](int64_t, int64_t) { return 0; }},
};

W8Case pattern_w8(const Pattern& pattern, int64_t rows, int64_t k) {
  W8Case c = {rows, k, {}, {}};
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t i = 0; i < k; ++i) c.a.push_back(static_cast<int8_t>(pattern.a(i)));
  }
  for (int64_t i = 0; i < k; ++i) {
    for (int64_t n = 0; n < kPanelColumns; ++n) c.w.push_back(static_cast<int8_t>(pattern.w(i, n)));
  }
  return c;
}

TEST(GemmW8, Adversarial) {
  for (const Pattern& pattern : kPatterns) {
    for (int64_t rows : {1, 2, 3, 4, 7}) gemm_w8_everywhere(pattern.name, pattern_w8(pattern, rows, 64));
    gemm_w8_everywhere(pattern.name, pattern_w8(pattern, 7, 2048 / kStride / 32 * 32));
  }
}

TEST(GemmW8, LargestKIsExact) {
  for (int64_t rows = 1; rows <= 7; rows += 6 * kStride) {
    const Result low = gemm_w8_everywhere("+127 by -128", pattern_w8(kPatterns[3], rows, kMaxK));
    for (int32_t sum : low.sums) EXPECT_EQ(sum, 127 * -128 * int32_t{kMaxK});
    const Result high = gemm_w8_everywhere("-127 by -128", pattern_w8(kPatterns[2], rows, kMaxK));
    for (int32_t sum : high.sums) EXPECT_EQ(sum, 127 * 128 * int32_t{kMaxK});
  }
}

// Float problem: a [rows][k], w [k][64], which is the panel as it lies.
struct Bf16Case {
  int64_t rows, k;
  std::vector<float> a;
  std::vector<bf16> w;
};

Result gemm_bf16(const Kernels& kernels, Edge edge, const Bf16Case& c) {
  const int64_t lda = c.k + 3;
  std::vector<float> a(static_cast<size_t>((c.rows - 1) * lda + c.k), kNan);
  for (int64_t r = 0; r < c.rows; ++r) std::copy_n(c.a.begin() + r * c.k, c.k, a.begin() + r * lda);
  const Guarded<float> in(a, edge);
  const Guarded<bf16> weights(c.w, edge);
  const Guarded<float> acc(c.rows * kPanelColumns, edge);
  kernels.gemm_bf16(in.data, lda, c.rows, weights.data, c.k, acc.data);
  return {.floats = acc.copy()};
}

// By fma, sequentially in k from 0.
void expect_sequential_fma(const std::string& name, const Bf16Case& c) {
  const std::string label = name + ", rows " + std::to_string(c.rows) + ", k " + std::to_string(c.k);
  Result expected;
  for (int64_t r = 0; r < c.rows; ++r) {
    for (int64_t n = 0; n < kPanelColumns; ++n) {
      float sum = 0;
      for (int64_t i = 0; i < c.k; ++i) {
        sum = std::fma(c.a[static_cast<size_t>(r * c.k + i)], to_float(c.w[static_cast<size_t>(i * kPanelColumns + n)]),
                       sum);
      }
      expected.floats.push_back(sum);
    }
  }
  const auto run = [&](const Kernels& kernels, Edge edge) { return gemm_bf16(kernels, edge, c); };
  expect_same(run_everywhere(label, run), expected, "contract: " + label);
}

Bf16Case random_bf16(Random& random, int64_t rows, int64_t k) {
  Bf16Case c = {rows, k, random.floats(rows * k, -3, 3), {}};
  for (float v : random.floats(k * kPanelColumns)) c.w.push_back(to_bf16(v));
  return c;
}

TEST(GemmBf16, Shapes) {
  Random random;
  for (int64_t rows = 1; rows <= 14; ++rows) expect_sequential_fma("random", random_bf16(random, rows, 40));
  for (int64_t k = 1; k <= 70; k += kStride) expect_sequential_fma("random", random_bf16(random, 1 + k % 7, k));
  expect_sequential_fma("random", random_bf16(random, 3, 1000));
}

TEST(GemmBf16, AllMagnitudes) {
  Random random;
  for (int64_t rows : {1, 7}) {
    Bf16Case c = random_bf16(random, rows, 33);
    for (float& v : c.a) v = random.spread(-149, 128);
    for (bf16& v : c.w) v = bf16{static_cast<uint16_t>(random.next())};  // NaN and infinity among them
    expect_sequential_fma("every encoding", c);
    for (bf16& v : c.w) v = to_bf16(random.spread(-149, 0));
    expect_sequential_fma("no overflow", c);
  }
}

TEST(GemmBf16, HandWorked) {
  Bf16Case c = {1, 3, {2, 3, 0.5f}, std::vector<bf16>(3 * 64)};
  c.w[5] = to_bf16(10), c.w[64 + 5] = to_bf16(-1), c.w[2 * 64 + 5] = to_bf16(8);
  const auto run = [&](const Kernels& kernels, Edge edge) { return gemm_bf16(kernels, edge, c); };
  const std::vector<float> acc = run_everywhere("by hand", run).floats;
  EXPECT_EQ(acc[5], 2.0f * 10 - 3 + 4);
  EXPECT_EQ(acc[6], 0);
}

}  // namespace
}  // namespace pinion
