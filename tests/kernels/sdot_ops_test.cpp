// The int8 operations against exact sums and the definition of a quantised row: the same bits for every table and
// number of workers, with buffers at guard pages; every wrong argument is an error.
#include <algorithm>

#include "tests/kernels/ops.h"

namespace pinion {
namespace {

std::vector<int8_t> packed(const std::vector<int8_t>& b, int64_t k, int64_t n) {
  std::vector<int8_t> to(b.size());
  for (int64_t i = 0; i < k; ++i) {
    for (int64_t c = 0; c < n; ++c) {
      to[((i / 4 * (n / 4) + c / 4) * 4 + c % 4) * 4 + i % 4] = b[i * n + c];
    }
  }
  return to;
}

TEST(SdotPackWeights, HandWorked) {
  // k = 8, n = 4; row i holds 10 i + column.
  std::vector<int8_t> b;
  for (int i = 0; i < 8; ++i) {
    for (int c = 0; c < 4; ++c) b.push_back(static_cast<int8_t>(10 * i + c));
  }
  const std::vector<int8_t> by_hand = {0,  10, 20, 30, 1,  11, 21, 31, 2,  12, 22, 32, 3,  13, 23, 33,
                                       40, 50, 60, 70, 41, 51, 61, 71, 42, 52, 62, 72, 43, 53, 63, 73};
  EXPECT_EQ(packed(b, 8, 4), by_hand);
  for_each_table_and_crew([&](const OpOptions& options, Edge edge, const std::string& label) {
    const Guarded<int8_t> from(b, edge), to(32, edge);
    EXPECT_FALSE(sdot_pack_weights(from.data, to.data, 8, 4, options));
    EXPECT_EQ(to.copy(), by_hand) << label;
  });
}

TEST(SdotPackWeights, Shapes) {
  Random random;
  for (int64_t n : {4, 12, 60, 64, 68, 128, 132}) {
    for (int64_t k : {4, 8, 36}) {
      const std::vector<int8_t> b = random.codes(k * n, -128), expected = packed(b, k, n);
      for_each_table([&](const OpOptions& options, Edge edge, const std::string& label) {
        const Guarded<int8_t> from(b, edge), to(k * n, edge);
        EXPECT_FALSE(sdot_pack_weights(from.data, to.data, k, n, options));
        EXPECT_EQ(to.copy(), expected) << label << ", k " << k << ", n " << n;
      });
    }
  }
}

// a [k], b [k][n] row-major.
std::vector<int64_t> sums(const std::vector<int8_t>& a, const std::vector<int8_t>& b, int64_t n) {
  std::vector<int64_t> sum(n);
  for (size_t i = 0; i < a.size(); ++i) {
    for (size_t c = 0; c < sum.size(); ++c) sum[c] += a[i] * b[i * sum.size() + c];
  }
  return sum;
}

void expect_gemv(const std::vector<int8_t>& a, const std::vector<int8_t>& b, int64_t n, bool all) {
  const int64_t k = std::ssize(a);
  const std::vector<int64_t> exact = sums(a, b, n);
  const std::vector<int32_t> expected(exact.begin(), exact.end());
  const std::vector<int8_t> weights = packed(b, k, n);
  const auto run = [&](const OpOptions& options, Edge edge, const std::string& label) {
    const Guarded<int8_t> x(a, edge), w(weights, edge);
    const Guarded<int32_t> c(n, edge);
    EXPECT_FALSE(sdot_gemv(x.data, w.data, c.data, k, n, options));
    EXPECT_EQ(c.copy(), expected) << label << ", k " << k << ", n " << n;
  };
  if (all) {
    for_each_table_and_crew(run);
  } else {
    for_each_table(run);
  }
}

TEST(SdotGemv, HandWorked) {
  // Columns: 1 2 3 4, ten times x, zero, extremes.
  const std::vector<int8_t> a = {1, 2, 3, -127};
  expect_gemv(a, {1, 10, 0, 127, 2, 10, 0, 127, 3, 10, 0, 127, 4, 10, 0, -128}, 4, true);
  EXPECT_EQ(sums(a, {1, 10, 0, 127, 2, 10, 0, 127, 3, 10, 0, 127, 4, 10, 0, -128}, 4),
            (std::vector<int64_t>{1 + 4 + 9 - 508, 60 - 1270, 0, 6 * 127 + 127 * 128}));
}

TEST(SdotGemv, Shapes) {
  Random random;
  for (int64_t n = 4; n <= 200; n += 4 * kStride) {
    for (int64_t k : {4, 12, 28, 64, 124, 128, 132, 260}) {
      expect_gemv(random.codes(k, -127), random.codes(k * n, -128), n, false);
    }
  }
  for (int64_t k = 4; k <= 280; k += 4 * kStride) {
    expect_gemv(random.codes(k, -127), random.codes(k * 76, -128), 76, false);
  }
  expect_gemv(random.codes(516, -127), random.codes(516 * 1100, -128), 1100, true);   // several strips per piece
  expect_gemv(random.codes(36, -127), random.codes(36 * 20004, -128), 20004, false);  // more than 16 strips per piece
}

TEST(SdotGemv, LargestSumsAreExact) {
  struct Extreme {
    int8_t a, w;
  };
  for (const Extreme& extreme : {Extreme{127, -128}, {-127, -128}, {-127, 127}}) {
    expect_gemv(std::vector<int8_t>(kMaxK, extreme.a), std::vector<int8_t>(kMaxK * 68, extreme.w), 68, false);
    if (kStride > 1) break;
  }
}

TEST(SdotGemv, EmptySums) {
  expect_gemv({}, {}, 0, true);
  for_each_table([](const OpOptions& options, Edge edge, const std::string& label) {
    const Guarded<int8_t> none(0, edge);
    const Guarded<int32_t> c(68, edge);
    EXPECT_FALSE(sdot_gemv(none.data, none.data, c.data, 0, 68, options));
    EXPECT_EQ(c.copy(), std::vector<int32_t>(68)) << label;
  });
}

TEST(SdotErrors, NothingIsWritten) {
  std::vector<int8_t> a(64), b(4096), to(4096, 5);
  std::vector<int32_t> c(64, 7);
  std::vector<bf16> x(64), out(64, bf16{7});
  std::vector<float> scale(64);
  struct Wrong {
    int64_t k, n;
    const char* what;
  };
  for (const Wrong& wrong : {Wrong{6, 8, "k"}, {-4, 8, "k"}, {kMaxK + 4, 8, "k"}, {8, 6, "n"}, {8, -4, "n"}}) {
    const std::string what = std::string(": ") + wrong.what + ": ";
    expect_refused(sdot_pack_weights(b.data(), to.data(), wrong.k, wrong.n), "sdot_pack_weights", what);
    expect_refused(sdot_gemv(a.data(), b.data(), c.data(), wrong.k, wrong.n), "sdot_gemv", what);
    expect_refused(sdot_gemv_fused_bf16(x.data(), b.data(), scale.data(), out.data(), wrong.k, wrong.n),
                   "sdot_gemv_fused_bf16", what);
  }
  expect_refused(sdot_pack_weights(nullptr, to.data(), 8, 8), "sdot_pack_weights", "null");
  expect_refused(sdot_pack_weights(b.data(), nullptr, 8, 8), "sdot_pack_weights", "null");
  expect_refused(sdot_gemv(nullptr, b.data(), c.data(), 8, 8), "sdot_gemv", "null");
  expect_refused(sdot_gemv(a.data(), nullptr, c.data(), 8, 8), "sdot_gemv", "null");
  expect_refused(sdot_gemv(a.data(), b.data(), nullptr, 8, 8), "sdot_gemv", "null");
  for (int missing = 0; missing < 4; ++missing) {
    expect_refused(
        sdot_gemv_fused_bf16(missing == 0 ? nullptr : x.data(), missing == 1 ? nullptr : b.data(),
                             missing == 2 ? nullptr : scale.data(), missing == 3 ? nullptr : out.data(), 8, 8),
        "sdot_gemv_fused_bf16", "null");
  }
  EXPECT_EQ(to, std::vector<int8_t>(4096, 5));
  EXPECT_EQ(c, std::vector<int32_t>(64, 7));
  for (bf16 v : out) EXPECT_EQ(v.bits, 7);
}

// The definition: the row is quantised as a whole, sums are exact, the result is (float(sum) * x_scale) * w_scale.
std::vector<float> fused_definition(const std::vector<bf16>& x, const std::vector<int8_t>& b,
                                    const std::vector<float>& w) {
  const int64_t k = std::ssize(x);
  const std::vector<float> floats = to_float(x);
  std::vector<int8_t> codes(padded_k(k));
  float scale;
  scalar_kernels().quantize(floats.data(), k, codes.data(), &scale);
  codes.resize(k);
  std::vector<float> out;
  const std::vector<int64_t> exact = sums(codes, b, std::ssize(w));
  for (size_t c = 0; c < w.size(); ++c) {
    out.push_back(pinion::to_float(pinion::to_bf16((static_cast<float>(exact[c]) * scale) * w[c])));
  }
  return out;
}

std::vector<float> expect_fused(const std::vector<bf16>& x, const std::vector<int8_t>& b, const std::vector<float>& w,
                                bool all) {
  const int64_t k = std::ssize(x), n = std::ssize(w);
  const std::vector<float> expected = fused_definition(x, b, w);
  const std::vector<int8_t> weights = packed(b, k, n);
  const auto run = [&](const OpOptions& options, Edge edge, const std::string& label) {
    const Guarded<bf16> in(x, edge), out(n, edge);
    const Guarded<int8_t> codes(weights, edge);
    const Guarded<float> scale(w, edge);
    EXPECT_FALSE(sdot_gemv_fused_bf16(in.data, codes.data, scale.data, out.data, k, n, options));
    EXPECT_TRUE(same_bits(to_float(out.copy()), expected)) << label << ", k " << k << ", n " << n;
  };
  if (all) {
    for_each_table_and_crew(run);
  } else {
    for_each_table(run);
  }
  return expected;
}

TEST(SdotGemvFused, HandWorked) {
  // max 254: scale 2, codes 127, -1 (the tie -0.5 would be 0), 2 (1.5 is a tie), 0.
  const std::vector<bf16> x = to_bf16({254, -2, 3, 1});
  const std::vector<int8_t> b = {1, 0, 0, 3, 0, 1, 0, 3, 0, 0, 1, 3, 0, 0, 0, 3};
  EXPECT_EQ(expect_fused(x, b, {1, 1, 0.5f, 4}, true), (std::vector<float>{254, -2, 2, 3072}));  // 384 * 2 * 4
}

TEST(SdotGemvFused, Shapes) {
  Random random;
  for (int64_t n = 4; n <= 200; n += 4 * kStride) {
    for (int64_t k : {4, 20, 60, 132}) {
      expect_fused(to_bf16(random.floats(k, -3, 3)), random.codes(k * n, -128), random.floats(n, 0.001f, 0.1f), false);
    }
  }
  // More strips per worker than one call takes; x longer than the codes on the stack.
  expect_fused(to_bf16(random.floats(1028)), random.codes(1028 * 1100, -128), random.floats(1100), true);
  expect_fused(to_bf16(random.floats(12)), random.codes(12 * 20004, -128), random.floats(20004), false);
}

// The stack holds kStackCodes = 16384 codes of x at a time.
TEST(SdotGemvFused, LongRows) {
  Random random;
  for (int64_t k : {int64_t{16380}, int64_t{16384}, int64_t{16384 + 4}, int64_t{40000}, kMaxK}) {
    if (kStride > 1 && k == kMaxK) continue;  // LargestSums covers it
    std::vector<float> x = random.floats(k);
    const std::vector<int8_t> b = random.codes(k * 68, -128);
    x.back() = 3;  // the largest element comes last
    expect_fused(to_bf16(x), b, random.floats(68), k == 16384 + 4);
    x.front() = -5;
    expect_fused(to_bf16(x), b, random.floats(68), false);
  }
}

TEST(SdotGemvFused, LargestSums) {
  const std::vector<float> out = expect_fused(to_bf16(std::vector<float>(kMaxK, -127)),
                                              std::vector<int8_t>(kMaxK * 4, -128), {1, 1, 1, 0x1p-20f}, false);
  EXPECT_EQ(out[0], 127 * 128 * 131072.0f);
}

TEST(SdotGemvFused, ZerosAndNan) {
  Random random;
  for (int64_t k : {int64_t{40}, int64_t{16388}}) {
    const std::vector<int8_t> b = random.codes(k * 68, -128);
    const std::vector<float> w = random.floats(68);
    for (float v : {0.0f, -0.0f, 0x1p-120f, -0x1p-133f}) {  // too small for a scale
      const std::vector<bf16> x(k, pinion::to_bf16(v));
      for (float y : expect_fused(x, b, w, false)) EXPECT_EQ(y, 0) << v;
    }
    for (float bad : {kNan, -kNan, kInfinity, -kInfinity}) {
      for (size_t at : {size_t{0}, static_cast<size_t>(k) / 2, static_cast<size_t>(k) - 1}) {
        std::vector<float> x = random.floats(k);
        x[at] = bad;
        for (float y : expect_fused(to_bf16(x), b, w, false)) EXPECT_TRUE(std::isnan(y)) << bad << " at " << at;
      }
    }
    // Infinity and NaN at different positions: neither hides the other.
    std::vector<float> x = random.floats(k);
    x.front() = kInfinity, x.back() = kNan;
    for (float y : expect_fused(to_bf16(x), b, w, false)) EXPECT_TRUE(std::isnan(y));
  }
}

// A worker count of zero means the calling thread alone.
TEST(Ops, ZeroWorkersMeanTheCaller) {
  const OpOptions nobody = {.workers = {.count = 0}};
  const std::vector<int8_t> a = {1, 2, 3, 4}, b(4 * 4, 1);
  std::vector<int32_t> c(4);
  EXPECT_FALSE(sdot_gemv(a.data(), b.data(), c.data(), 4, 4, nobody));
  EXPECT_EQ(c, std::vector<int32_t>(4, 10));
}

}  // namespace
}  // namespace pinion
