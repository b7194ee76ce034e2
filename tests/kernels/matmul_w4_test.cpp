// matmul_w4 against its definition: the same bits for every table and every cut into parts, each part in buffers of its
// own between guard pages.
#include "kernels/ops/matmul_w4.h"

#include <algorithm>
#include <functional>

#include "tests/kernels/ops.h"

namespace pinion {
namespace {

// x [m][k], codes [n][k], scales and zeros [n][groups]; empty: not given.
struct Problem {
  MatmulW4 mm = {};
  int64_t group = kGroupK;
  std::vector<float> x = {};
  std::vector<int> codes = {};
  std::vector<f16> scales = {};
  std::vector<uint8_t> zeros = {};
  std::vector<float> column_scale = {}, bias = {}, gate = {};
  float low = -kInfinity, high = kInfinity;
  std::vector<uint8_t> nibbles = {};

  void pack_nibbles() {
    const auto row_bytes = static_cast<size_t>((mm.k + 1) / 2);
    nibbles.assign(static_cast<size_t>(mm.n) * row_bytes, 0);
    for (size_t c = 0, i = 0; c < static_cast<size_t>(mm.n); ++c) {
      for (size_t k = 0; k < static_cast<size_t>(mm.k); ++k, ++i) {
        nibbles[c * row_bytes + k / 2] |= static_cast<uint8_t>(codes[i] << (k % 2 ? 4 : 0));
      }
    }
  }
  std::string describe() const {
    return "m " + std::to_string(mm.m) + ", n " + std::to_string(mm.n) + ", k " + std::to_string(mm.k) +
           (mm.has_zero_points ? ", zeros" : "") + ", groups of " + std::to_string(group);
  }
};

// The definition: codes by quantize, exact group sums, fma in the order of groups, the scales, the epilogue.
std::vector<float> definition(const Problem& p) {
  const int64_t n = p.mm.n, k = p.mm.k, groups = (k + p.group - 1) / p.group;
  std::vector<float> out;
  std::vector<int8_t> codes(padded_k(k));
  for (int64_t r = 0; r < p.mm.m; ++r) {
    float scale;
    scalar_kernels().quantize(p.x.data() + r * k, k, codes.data(), &scale);
    for (int64_t c = 0; c < n; ++c) {
      float total = 0;
      for (int64_t first = 0; first < k; first += 32) {
        const auto of_group = static_cast<size_t>(c * groups + first / p.group);
        int64_t sum = 0;
        for (int64_t i = first; i < std::min(k, first + 32); ++i) {
          sum += codes[i] * (p.codes[c * k + i] - (p.mm.has_zero_points ? p.zeros[of_group] : 8));
        }
        total = std::fma(static_cast<float>(sum), to_float(p.scales[of_group]), total);
      }
      float value = total * scale * (p.column_scale.empty() ? 1.0f : p.column_scale[c]);
      if (!p.bias.empty()) value += p.bias[c];
      if (!p.gate.empty()) scalar_kernels().silu_mul(&p.gate[r * n + c], &value, 1, &value);
      if (value < p.low) value = p.low;
      if (value > p.high) value = p.high;
      out.push_back(value);
    }
  }
  return out;
}

// Size of the parts in steps of rows and columns; 0: everything in one part.
struct Split {
  int64_t rows, columns;
};

int64_t value(const std::function<Error(int64_t*)>& query) {
  int64_t result = -1;
  EXPECT_EQ(query(&result).message(), "");
  return result;
}

std::vector<std::byte> packed_rhs(const Problem& p, const MatmulW4& mm, Edge edge, int32_t workers) {
  MatmulW4Sizes sizes;
  EXPECT_FALSE(matmul_w4_sizes(mm, &sizes));
  const Guarded<uint8_t> codes(p.nibbles, edge), zeros(p.zeros, edge);
  const Guarded<f16> scales(p.scales, edge);
  const Guarded<float> column_scale(p.column_scale, edge);
  const Guarded<std::byte> packed(sizes.rhs_bytes, edge);
  const MatmulW4Weights weights = {.codes = codes.data,
                                   .scales = scales.data,
                                   .zero_points = mm.has_zero_points ? zeros.data : nullptr,
                                   .group = p.group,
                                   .column_scale = p.column_scale.empty() ? nullptr : column_scale.data};
  EXPECT_EQ(matmul_w4_pack_rhs(mm, weights, packed.data, crew(workers)).message(), "");
  return packed.copy();
}

// Packs rows [m0, m1) into a buffer of their own, from rows with padding.
template <class T>
std::vector<std::byte> packed_lhs(const MatmulW4& mm, const std::vector<T>& dense, int64_t m0, int64_t m1, Edge edge) {
  const int64_t ldx = mm.k + 3;
  const Guarded<T> x((m1 - m0 - 1) * ldx + mm.k, edge);
  for (int64_t r = m0; r < m1; ++r) std::copy_n(dense.data() + r * mm.k, mm.k, x.data + (r - m0) * ldx);
  const auto offset = [&](int64_t row) {
    return value([&](int64_t* bytes) { return matmul_w4_lhs_packed_offset(mm, row, bytes); });
  };
  const Guarded<std::byte> packed(offset(m1) - offset(m0), edge);
  EXPECT_EQ(matmul_w4_pack_lhs(mm, m0, m1, x.data, ldx, packed.data).message(), "");
  return packed.copy();
}

void run_part(const Problem& p, const MatmulW4& mm, const std::vector<std::byte>& lhs,
              const std::vector<std::byte>& rhs, MatmulW4Part part, Edge edge, std::vector<float>* out) {
  const auto offset = [&](int64_t column) {
    return value([&](int64_t* bytes) { return matmul_w4_rhs_packed_offset(mm, column, bytes); });
  };
  const Guarded<std::byte> a(lhs, edge);
  const Guarded<std::byte> b(std::vector<std::byte>(rhs.begin() + offset(part.n0), rhs.begin() + offset(part.n1)),
                             edge);
  const int64_t rows = part.m1 - part.m0, columns = part.n1 - part.n0;
  const int64_t ldo = columns + (part.m0 + part.n0) % 5;
  const Guarded<float> result((rows - 1) * ldo + columns, edge);
  part.lhs = a.data, part.rhs = b.data, part.out = result.data, part.ldo = ldo;
  part.ops.low = p.low, part.ops.high = p.high;
  if (!p.bias.empty()) part.ops.bias = p.bias.data() + part.n0;
  if (!p.gate.empty()) part.ops.gate = p.gate.data() + part.m0 * mm.n + part.n0, part.ops.gate_stride = mm.n;
  EXPECT_EQ(matmul_w4(mm, part).message(), "");
  for (int64_t r = 0; r < rows; ++r) {
    const int64_t at =
        value([&](int64_t* i) { return matmul_w4_dst_offset(mm, part.m0, part.n0, mm.n, i); }) + r * mm.n;
    std::copy_n(result.data + r * ldo, columns, out->begin() + at);
  }
}

template <class T>
std::vector<float> run(const Problem& p, const std::vector<T>& x, const MatmulW4& mm, const Split& split, Edge edge,
                       int32_t workers) {
  MatmulW4Sizes sizes;
  EXPECT_FALSE(matmul_w4_sizes(mm, &sizes));
  const int64_t rows = split.rows ? split.rows * sizes.m_step : std::max<int64_t>(1, mm.m);
  const int64_t columns = split.columns ? split.columns * sizes.n_step : std::max<int64_t>(1, mm.n);
  const std::vector<std::byte> rhs = packed_rhs(p, mm, edge, workers);
  std::vector<float> out(mm.m * mm.n, kNan);
  for (int64_t m0 = (mm.m - 1) / rows * rows; m0 >= 0; m0 -= rows) {  // the last part first
    const int64_t m1 = std::min(mm.m, m0 + rows);
    const std::vector<std::byte> lhs = packed_lhs(mm, x, m0, m1, edge);
    for (int64_t n0 = 0; n0 < mm.n; n0 += columns) {
      run_part(p, mm, lhs, rhs, {.m0 = m0, .m1 = m1, .n0 = n0, .n1 = std::min(mm.n, n0 + columns)}, edge, &out);
    }
  }
  return out;
}

// Whole and in parts, on every table, for rows of floats and, if the numbers allow it, of bf16.
std::vector<float> expect_definition(Problem p, bool as_bf16) {
  if (as_bf16) p.x = to_float(to_bf16(p.x));
  p.pack_nibbles();
  const std::vector<float> expected = definition(p);
  for_each_table([&](const OpOptions& options, Edge edge, const std::string& label) {
    MatmulW4 mm = p.mm;
    mm.kernels = options.kernels;
    for (const Split& split : {Split{0, 0}, {1, 1}, {2, 0}, {0, 1}, {3, 2}}) {
      const std::string how = label + ", " + p.describe() + ", split " + std::to_string(split.rows) + " " +
                              std::to_string(split.columns) + (as_bf16 ? ", bf16" : "");
      const int32_t workers = options.workers.count;
      const std::vector<float> out =
          as_bf16 ? run(p, to_bf16(p.x), mm, split, edge, workers) : run(p, p.x, mm, split, edge, workers);
      EXPECT_TRUE(same_bits(out, expected)) << how;
    }
  });
  return expected;
}

Problem random_problem(Random& random, int64_t m, int64_t n, int64_t k, bool has_zero_points, int64_t group) {
  Problem p = {.mm = {.m = m, .n = n, .k = k, .has_zero_points = has_zero_points}, .group = group};
  p.x = random.floats(m * k, -3, 3);
  for (int64_t i = 0; i < n * k; ++i) p.codes.push_back(static_cast<int>(random.next() % 16));
  for (int64_t i = 0; i < n * ((k + group - 1) / group); ++i) {
    p.scales.push_back(to_f16(random.uniform(-0.01f, 0.02f)));
    if (has_zero_points) p.zeros.push_back(static_cast<uint8_t>(random.next() % (kMaxZero + 1)));
  }
  return p;
}

// Row 0: max 127, scale 1, codes 127 -2 0. Row 1: max 254, scale 2, codes 127 0 0 (0.5 is a tie). The columns' weights
// are 1 0 7, times 0.5, and 0 2 0, times 2 and 4.
TEST(MatmulW4, HandWorked) {
  Problem p = {.mm = {.m = 2, .n = 2, .k = 3},
               .x = {127, -2, 0, 254, 0, 1},
               .codes = {9, 8, 15, 8, 10, 8},
               .scales = {to_f16(0.5f), to_f16(2)}};
  EXPECT_EQ(expect_definition(p, true), (std::vector<float>{63.5f, -8, 127, 0}));
  p.pack_nibbles();
  EXPECT_EQ(p.nibbles, (std::vector<uint8_t>{0x89, 0x0f, 0xa8, 0x08}));
  p.column_scale = {1, 4};
  EXPECT_EQ(expect_definition(p, false), (std::vector<float>{63.5f, -32, 127, 0}));
  p.bias = {1, 0.5f}, p.low = -20, p.high = 100;
  EXPECT_EQ(expect_definition(p, false), (std::vector<float>{64.5f, -20, 100, 0.5f}));
  p.mm.has_zero_points = true, p.zeros = {9, 8};  // column 0: 0 -1 6, times 0.5
  EXPECT_EQ(expect_definition(p, false), (std::vector<float>{2, -20, 1, 0.5f}));
}

TEST(MatmulW4, Shapes) {
  Random random;
  for (int64_t m : {1, 2, 5, 6, 7, 13, 17, 33, 65, 100}) {
    for (int64_t n : {1, 64, 65, 130}) {
      const bool has_zero_points = (m + n) % 2 == 0;
      expect_definition(random_problem(random, m, n, 33, has_zero_points, 32), n == 64);
      if (kStride > 1 && m > 33) break;
    }
  }
  for (int64_t k : {1, 31, 32, 64, 95, 255, 256, 257, 600, 1500}) {
    for (int64_t m : {1, 7}) expect_definition(random_problem(random, m, 70, k, k % 2 == 0, k > 95 ? 64 : 32), m == 7);
  }
}

TEST(MatmulW4, EpilogueOfParts) {
  Random random;
  for (int64_t m : {1, 40}) {
    Problem p = random_problem(random, m, 150, 64, true, 64);
    p.column_scale = random.floats(150, 0.5f, 2), p.bias = random.floats(150), p.gate = random.floats(m * 150, -2, 2);
    p.low = -0.5f, p.high = 0.75f;
    expect_definition(p, false);
  }
}

TEST(MatmulW4, NanStaysInItsRow) {
  Random random;
  for (float bad : {kNan, kInfinity, -kInfinity}) {
    Problem p = random_problem(random, 3, 65, 300, false, 32);
    p.x[300 + 280] = bad;
    const std::vector<float> out = expect_definition(p, bad > 0);
    for (size_t i = 0; i < out.size(); ++i) EXPECT_EQ(std::isnan(out[i]), i / 65 == 1) << i;
  }
}

TEST(MatmulW4, EmptyProduct) {
  for (const MatmulW4& mm : {MatmulW4{.m = 0, .n = 5, .k = 3}, {.m = 5, .n = 0, .k = 3}}) {
    MatmulW4Sizes sizes;
    EXPECT_FALSE(matmul_w4_sizes(mm, &sizes));
    EXPECT_EQ(sizes.lhs_bytes == 0, mm.m == 0);
    EXPECT_EQ(sizes.rhs_bytes == 0, mm.n == 0);
    EXPECT_FALSE(matmul_w4(mm, {.m1 = mm.m, .n1 = mm.n, .ldo = mm.n}));
  }
  EXPECT_FALSE(matmul_w4_pack_lhs<float>({.m = 0, .n = 5, .k = 3}, 0, 0, nullptr, 3, nullptr));
  EXPECT_FALSE(matmul_w4_pack_rhs({.m = 5, .n = 0, .k = 3}, {}, nullptr));
}

// The example of kernels/README.md.
Error columns_at_a_time(const MatmulW4& mm, const MatmulW4Weights& weights, const float* x, const float* bias,
                        std::byte* lhs, std::byte* rhs, float* out) {
  MatmulW4Sizes sizes;
  if (Error e = matmul_w4_sizes(mm, &sizes)) return e;
  if (Error e = matmul_w4_pack_rhs(mm, weights, rhs)) return e;
  if (Error e = matmul_w4_pack_lhs(mm, 0, mm.m, x, mm.k, lhs)) return e;
  for (int64_t n0 = 0; n0 < mm.n; n0 += sizes.n_step) {
    MatmulW4Part part = {.m1 = mm.m, .n0 = n0, .n1 = std::min(mm.n, n0 + sizes.n_step), .lhs = lhs, .ldo = mm.n};
    int64_t offset_bytes, offset;
    if (Error e = matmul_w4_rhs_packed_offset(mm, n0, &offset_bytes)) return e;
    if (Error e = matmul_w4_dst_offset(mm, 0, n0, mm.n, &offset)) return e;
    part.rhs = rhs + offset_bytes, part.out = out + offset;
    part.ops = {.bias = bias + n0, .low = 0};
    if (Error e = matmul_w4(mm, part)) return e;
  }
  return {};
}

TEST(MatmulW4, ReadmeExample) {
  Random random;
  Problem p = random_problem(random, 5, 130, 40, false, 32);
  p.bias = random.floats(130), p.low = 0;
  p.pack_nibbles();
  MatmulW4Sizes sizes;
  ASSERT_FALSE(matmul_w4_sizes(p.mm, &sizes));
  const Guarded<std::byte> lhs(sizes.lhs_bytes, Edge::end), rhs(sizes.rhs_bytes, Edge::end);
  const Guarded<float> out(5 * 130, Edge::end);
  const MatmulW4Weights weights = {.codes = p.nibbles.data(), .scales = p.scales.data()};
  const Error e = columns_at_a_time(p.mm, weights, p.x.data(), p.bias.data(), lhs.data, rhs.data, out.data);
  EXPECT_EQ(e.message(), "");
  EXPECT_TRUE(same_bits(out.copy(), definition(p)));
}

}  // namespace
}  // namespace pinion
