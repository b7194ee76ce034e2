// The matmuls: every variant against scalar, for rows and k below, at and above each tile, and scalar against plain
// sums. The same problem is packed into row blocks of several sizes, as one term and as several.
#include <algorithm>

#include "kernels/ops/tiles.h"
#include "tests/kernels/guarded.h"

namespace pinion {
namespace {

// Integer problem: a [rows][k], w [k][64], both row-major.
struct S8Case {
  int64_t rows, k;
  std::vector<int8_t> a, w;
};

struct S8Panel {
  std::vector<int8_t> codes;
  std::vector<int32_t> column_sum;
};

S8Panel pack(const S8Case& c) {
  S8Panel panel = {std::vector<int8_t>(c.w.size()), std::vector<int32_t>(kPanelColumns)};
  for (int64_t i = 0; i < c.k; ++i) {
    for (int64_t n = 0; n < kPanelColumns; ++n) {
      const int8_t code = c.w[i * kPanelColumns + n];
      panel.codes[i / 4 * 256 + n * 4 + i % 4] = code;
      panel.column_sum[n] += code;
    }
  }
  return panel;
}

// A form of the problem: rows of a row block (0: the table's choice) and number of terms.
struct Form {
  int64_t block;
  int64_t terms;
};
constexpr Form kForms[] = {{0, 1}, {0, 3}, {2, 1}, {16, 2}, {32, 1}};

int64_t block_of(const Form& form, const PackShape& shape, int64_t rows) {
  return form.block > 0 ? round_up(form.block, shape.row_multiple) : block_rows(shape, rows);
}

// Bounds of terms of similar size, multiples of `unit`; some terms are empty if k is small.
std::vector<int64_t> cut(int64_t k, int64_t terms, int64_t unit) {
  std::vector<int64_t> bounds;
  for (int64_t i = 0; i <= terms; ++i) bounds.push_back(k / unit * i / terms * unit);
  bounds.back() = k;
  return bounds;
}

// Rows of A are padded, and the padding must not be used.
template <class T>
std::vector<T> spread_rows(const std::vector<T>& a, int64_t rows, int64_t k, int64_t lda, T padding) {
  std::vector<T> spread((rows - 1) * lda + k, padding);
  for (int64_t r = 0; r < rows; ++r) std::copy_n(a.begin() + r * k, k, spread.begin() + r * lda);
  return spread;
}

Result gemm_s8(const Kernels& kernels, Edge edge, const S8Case& c, const S8Panel& panel, const Form& form) {
  const int64_t lda = c.k + 5;
  const Guarded<int8_t> a(spread_rows<int8_t>(c.a, c.rows, c.k, lda, -128), edge), weights(panel.codes, edge);
  const Guarded<int32_t> column_sum(panel.column_sum, edge), acc(c.rows * kPanelColumns, edge);

  const int64_t block = block_of(form, kernels.s8_shape, c.rows);
  const int64_t blocks = (c.rows + block - 1) / block;
  const Guarded<int8_t> packed(blocks * block * c.k, edge);
  kernels.pack_s8(a.data, lda, c.rows, c.k, block, packed.data);

  std::vector<GemmTerm> terms;
  const std::vector<int64_t> bounds = cut(c.k, form.terms, kGroupK);
  for (size_t i = 0; i + 1 < bounds.size(); ++i) {
    terms.push_back(
        {packed.data + bounds[i] * block, weights.data + bounds[i] * kPanelColumns, bounds[i + 1] - bounds[i]});
  }
  kernels.gemm_s8(terms.data(), std::ssize(terms), {block, block * c.k}, c.rows, column_sum.data, acc.data);
  return {.sums = acc.copy()};
}

// gemv_s8 for each row, with rows of four k that are row_bytes apart.
Result gemv_s8(const Kernels& kernels, Edge edge, const S8Case& c, const S8Panel& panel, int64_t row_bytes) {
  const Guarded<int8_t> a(c.a, edge);
  const Guarded<int8_t> weights(spread_rows<int8_t>(panel.codes, c.k / 4, 256, row_bytes, 99), edge);
  const Guarded<int32_t> acc(c.rows * kPanelColumns, edge);
  for (int64_t r = 0; r < c.rows; ++r) {
    kernels.gemv_s8(a.data + r * c.k, weights.data, row_bytes, c.k, acc.data + r * kPanelColumns);
  }
  return {.sums = acc.copy()};
}

Result gemm_s8_everywhere(const std::string& name, const S8Case& c) {
  const S8Panel panel = pack(c);
  const std::string label = name + ", rows " + std::to_string(c.rows) + ", k " + std::to_string(c.k);
  const Result expected = run_on_all_tables(
      label, [&](const Kernels& kernels, Edge edge) { return gemm_s8(kernels, edge, c, panel, kForms[0]); });
  const Form& second_form = kForms[1 + static_cast<size_t>(c.rows + c.k / kGroupK) % (std::size(kForms) - 1)];
  const std::string put =
      label + ", blocks of " + std::to_string(second_form.block) + ", terms " + std::to_string(second_form.terms);
  expect_same(
      run_on_all_tables(put, [&](const Kernels& k, Edge edge) { return gemm_s8(k, edge, c, panel, second_form); }),
      expected, put);
  expect_same(
      run_on_all_tables("gemv: " + label, [&](const Kernels& k, Edge edge) { return gemv_s8(k, edge, c, panel, 256); }),
      expected, "gemv: " + label);
  return expected;
}

S8Case random_s8(Random& random, int64_t rows, int64_t k) {
  return {rows, k, random.codes(rows * k, -127), random.codes(k * kPanelColumns, -128)};
}

TEST(GemmS8, HandWorked) {
  S8Case c = {2, 32, std::vector<int8_t>(64), std::vector<int8_t>(32 * 64)};
  c.a[0] = 1, c.a[1] = 2, c.a[2] = 3, c.a[4] = 4;  // row 0
  c.a[32 + 31] = -127;                             // row 1
  for (size_t n = 0; n < 64; ++n) c.w[0 * 64 + n] = static_cast<int8_t>(n), c.w[4 * 64 + n] = -128;
  c.w[1 * 64 + 7] = 10, c.w[2 * 64 + 7] = 100, c.w[31 * 64 + 63] = -128;
  const std::vector<int32_t> acc = gemm_s8_everywhere("by hand", c).sums;
  EXPECT_EQ(acc[0], 4 * -128);
  EXPECT_EQ(acc[5], 1 * 5 + 4 * -128);
  EXPECT_EQ(acc[7], 1 * 7 + 2 * 10 + 3 * 100 + 4 * -128);
  EXPECT_EQ(acc[64 + 0], 0);
  EXPECT_EQ(acc[64 + 63], -127 * -128);
}

TEST(GemmS8, EveryRowCount) {
  Random random;
  for (int64_t rows = 1; rows <= 70; rows += rows < 16 ? 1 : kStride) {
    gemm_s8_everywhere("random", random_s8(random, rows, 96));
  }
}

TEST(GemmS8, EveryK) {
  Random random;
  for (int64_t k = 32; k <= 2048; k += 32 * kStride) gemm_s8_everywhere("random", random_s8(random, 1 + k / 32 % 7, k));
}

TEST(GemmS8, AgainstPlainSums) {
  Random random;
  const S8Case c = random_s8(random, 9, 160);
  std::vector<int32_t> expected;
  for (int64_t r = 0; r < c.rows; ++r) {
    for (int64_t n = 0; n < kPanelColumns; ++n) {
      int64_t sum = 0;
      for (int64_t i = 0; i < c.k; ++i) {
        sum += c.a[r * c.k + i] * c.w[i * 64 + n];
      }
      expected.push_back(static_cast<int32_t>(sum));
    }
  }
  EXPECT_EQ(gemm_s8_everywhere("random", c).sums, expected);
}

// Inputs that would saturate or wrap 16-bit pairs, the offset of the unsigned operand or its correction.
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

S8Case pattern_s8(const Pattern& pattern, int64_t rows, int64_t k) {
  S8Case c = {rows, k, {}, {}};
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t i = 0; i < k; ++i) c.a.push_back(static_cast<int8_t>(pattern.a(i)));
  }
  for (int64_t i = 0; i < k; ++i) {
    for (int64_t n = 0; n < kPanelColumns; ++n) c.w.push_back(static_cast<int8_t>(pattern.w(i, n)));
  }
  return c;
}

TEST(GemmS8, ExtremeCodes) {
  for (const Pattern& pattern : kPatterns) {
    for (int64_t rows : {1, 2, 3, 4, 7}) gemm_s8_everywhere(pattern.name, pattern_s8(pattern, rows, 64));
    gemm_s8_everywhere(pattern.name, pattern_s8(pattern, 7, 2048 / kStride / 32 * 32));
  }
}

TEST(GemmS8, LargestKIsExact) {
  for (int64_t rows = 1; rows <= 7; rows += 6 * kStride) {
    const Result low = gemm_s8_everywhere("+127 by -128", pattern_s8(kPatterns[3], rows, kMaxK));
    for (int32_t sum : low.sums) EXPECT_EQ(sum, 127 * -128 * int32_t{kMaxK});
    const Result high = gemm_s8_everywhere("-127 by -128", pattern_s8(kPatterns[2], rows, kMaxK));
    for (int32_t sum : high.sums) EXPECT_EQ(sum, 127 * 128 * int32_t{kMaxK});
  }
}

// k in steps of four, from the flat layout [K/4, N/4, 4, 4] of the public operations.
TEST(GemvS8, EveryFourthK) {
  Random random;
  for (int64_t k = 4; k <= 140; k += 4 * (kStride > 1 ? 3 : 1)) {
    const S8Case c = random_s8(random, 2, k);
    const S8Panel panel = pack(c);
    std::vector<Result> results;
    for (int64_t row_bytes : {256, 260, 1024}) {
      results.push_back(run_on_all_tables("k " + std::to_string(k), [&](const Kernels& kernels, Edge edge) {
        return gemv_s8(kernels, edge, c, panel, row_bytes);
      }));
      expect_same(results.back(), results.front(), "rows further apart");
    }
  }
}

// Element (r, i) of packed rows is at [r / block][i / group][r % block][i % group].
TEST(Pack, Layout) {
  Random random;
  constexpr int64_t kRows = 9, k = 45, padded_to = 64;
  const std::vector<int8_t> codes = random.codes(kRows * k);
  const std::vector<float> floats = random.floats(kRows * k);
  for (const Kernels* kernels : available_kernels()) {
    const int64_t g = kernels->s8_shape.group;
    const int8_t zero_code = [&] {
      int8_t packed[32 * kTileRows], zero = 0;
      kernels->pack_s8(&zero, 1, 1, 1, kernels->s8_shape.row_multiple, packed);
      return packed[1];  // padding
    }();
    for (int64_t wanted : {2, 4, 6, 16}) {
      const int64_t block = round_up(wanted, std::max(kernels->s8_shape.row_multiple, kernels->f32_shape.row_multiple));
      const int64_t rows = (kRows + block - 1) / block * block;
      const Guarded<int8_t> packed(rows * padded_to, Edge::end);
      const Guarded<float> packed_floats(rows * k, Edge::begin);
      kernels->pack_s8(codes.data(), k, kRows, k, block, packed.data);
      kernels->pack_f32(floats.data(), k, kRows, k, block, packed_floats.data);
      for (int64_t r = 0; r < rows; ++r) {
        for (int64_t i = 0; i < padded_to; ++i) {
          const bool real = r < kRows && i < k;
          const size_t from = real ? static_cast<size_t>(r * k + i) : 0;
          const int64_t at = r / block * block * padded_to + i / g * block * g + r % block * g + i % g;
          ASSERT_EQ(packed.data[at] ^ zero_code, real ? codes[from] : 0) << kernels->name << " row " << r << " k " << i;
          if (i >= k) continue;
          ASSERT_EQ(packed_floats.data[r / block * block * k + i * block + r % block], real ? floats[from] : 0.0f);
        }
      }
    }
  }
}

// Float problem: a [rows][k], w [k][64], which is also the layout of the panel, in bf16 and as the same floats.
struct Bf16Case {
  int64_t rows, k;
  std::vector<float> a;
  std::vector<bf16> w;
};

template <class T>
Result gemm_float(const Kernels& kernels, Edge edge, const Bf16Case& c, const Form& form) {
  const int64_t lda = c.k + 3;
  std::vector<T> w;
  for (bf16 v : c.w) {
    if constexpr (std::is_same_v<T, bf16>)
      w.push_back(v);
    else
      w.push_back(to_float(v));
  }
  const Guarded<float> a(spread_rows(c.a, c.rows, c.k, lda, kNan), edge);
  const Guarded<T> weights(w, edge);
  const Guarded<float> acc(c.rows * kPanelColumns, edge);
  const int64_t block = block_of(form, kernels.f32_shape, c.rows);
  const Guarded<float> packed((c.rows + block - 1) / block * block * c.k, edge);
  kernels.pack_f32(a.data, lda, c.rows, c.k, block, packed.data);

  std::vector<GemmTerm> terms;
  const std::vector<int64_t> bounds = cut(c.k, form.terms, 1);
  for (size_t i = 0; i + 1 < bounds.size(); ++i) {
    terms.push_back(
        {packed.data + bounds[i] * block, weights.data + bounds[i] * kPanelColumns, bounds[i + 1] - bounds[i]});
  }
  const auto gemm = std::is_same_v<T, bf16> ? kernels.gemm_bf16 : kernels.gemm_f32;
  gemm(terms.data(), std::ssize(terms), {block, block * c.k * 4}, c.rows, acc.data);
  return {.floats = acc.copy()};
}

// Sums by fma from 0 in the order of k.
void expect_sequential_fma(const std::string& name, const Bf16Case& c) {
  const std::string label = name + ", rows " + std::to_string(c.rows) + ", k " + std::to_string(c.k);
  Result expected;
  for (int64_t r = 0; r < c.rows; ++r) {
    for (int64_t n = 0; n < kPanelColumns; ++n) {
      float sum = 0;
      for (int64_t i = 0; i < c.k; ++i) {
        sum = std::fma(c.a[r * c.k + i], to_float(c.w[i * kPanelColumns + n]), sum);
      }
      expected.floats.push_back(sum);
    }
  }
  const Form& form = kForms[static_cast<size_t>(c.rows + c.k) % std::size(kForms)];
  expect_same(run_on_all_tables(label, [&](const Kernels& k, Edge edge) { return gemm_float<bf16>(k, edge, c, form); }),
              expected, "contract: " + label);
  expect_same(
      run_on_all_tables(label, [&](const Kernels& k, Edge edge) { return gemm_float<float>(k, edge, c, form); }),
      expected, "contract, floats: " + label);
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
    for (bf16& v : c.w) v = bf16{static_cast<uint16_t>(random.next())};  // including NaN and infinity
    expect_sequential_fma("every encoding", c);
    for (bf16& v : c.w) v = to_bf16(random.spread(-149, 0));
    expect_sequential_fma("no overflow", c);
  }
}

TEST(GemmBf16, HandWorked) {
  Bf16Case c = {1, 3, {2, 3, 0.5f}, std::vector<bf16>(3 * 64)};
  c.w[5] = to_bf16(10), c.w[64 + 5] = to_bf16(-1), c.w[2 * 64 + 5] = to_bf16(8);
  const auto run = [&](const Kernels& kernels, Edge edge) { return gemm_float<bf16>(kernels, edge, c, kForms[0]); };
  const std::vector<float> acc = run_on_all_tables("by hand", run).floats;
  EXPECT_EQ(acc[5], 2.0f * 10 - 3 + 4);
  EXPECT_EQ(acc[6], 0);
}

}  // namespace
}  // namespace pinion
