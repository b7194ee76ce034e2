// rms_norm and swiglu on bf16 against double precision, rounded to nearest; the same bits for every table.
#include <algorithm>

#include "tests/kernels/ops.h"

namespace pinion {
namespace {

// Error in units in the last place of bf16. Rounding to nearest gives half a unit, and fp32 arithmetic adds far less
// than one per cent of a unit; truncation would give up to one unit.
double bf16_ulps(bf16 actual, double exact) {
  const double unit = std::ldexp(1.0, std::max(exact == 0 ? -126 : std::ilogb(exact), -126) - 7);
  return std::abs(pinion::to_float(actual) - exact) / unit;
}
constexpr double kRounded = 0.51;

void expect_rms_norm(const std::vector<float>& x, const std::vector<float>& weight, float eps) {
  const std::vector<bf16> in = to_bf16(x), w = to_bf16(weight);
  const int64_t d = std::ssize(x);
  double squares = 0;
  for (bf16 v : in) squares += std::pow(static_cast<double>(pinion::to_float(v)), 2);
  const double inverse = 1 / std::sqrt(squares / static_cast<double>(d) + eps);
  std::vector<float> first;
  for_each_table([&](const OpOptions& options, Edge edge, const std::string& label) {
    const Guarded<bf16> from(in, edge), by(w, edge), out(d, edge), same(in, edge);
    EXPECT_FALSE(rms_norm(from.data, by.data, out.data, d, eps, options));
    EXPECT_FALSE(rms_norm(same.data, by.data, same.data, d, eps, options));  // in place
    const std::vector<float> result = to_float(out.copy());
    EXPECT_TRUE(same_bits(to_float(same.copy()), result)) << label << ", d " << d;
    if (first.empty()) first = result;
    EXPECT_TRUE(same_bits(result, first)) << label << ", d " << d;
    for (int64_t i = 0; i < d; ++i) {
      const double exact = pinion::to_float(in[i]) * inverse * pinion::to_float(w[i]);
      ASSERT_LE(bf16_ulps(out.data[i], exact), kRounded) << label << ", d " << d << ", element " << i;
    }
  });
}

TEST(RmsNorm, HandWorkedInBf16) {
  // mean of squares (9 + 16 + 0 + 0) / 4 = 6.25, so x / 2.5.
  const std::vector<bf16> x = to_bf16({3, -4, 0, 0}), weight = to_bf16({5, 10, 7, 1});
  std::vector<bf16> out(4);
  EXPECT_FALSE(rms_norm(x.data(), weight.data(), out.data(), 4, 0));
  EXPECT_EQ(to_float(out), (std::vector<float>{6, -16, 0, 0}));
}

TEST(RmsNorm, AgainstDouble) {
  Random random;
  for (int64_t d : {1, 2, 15, 16, 17, 31, 33, 64, 100, 257, 896, 4096, 5001}) {
    expect_rms_norm(random.floats(d), random.floats(d, -2, 2), 1e-6f);
    expect_rms_norm(random.floats(d, -1e4f, 1e4f), random.floats(d, 0.5f, 2), 1e-5f);
    std::vector<float> x(d);
    for (float& v : x) v = random.spread(-40, 60);  // squares of very different size
    expect_rms_norm(x, random.floats(d), 1e-5f);
    for (float& v : x) v = random.spread(-30, -20);  // eps dominates
    expect_rms_norm(x, random.floats(d), 1e-5f);
  }
}

TEST(RmsNorm, Errors) {
  std::vector<bf16> x(8), out(8, bf16{7});
  expect_refused(rms_norm(x.data(), x.data(), out.data(), 0, 0), "rms_norm", "d");
  expect_refused(rms_norm(x.data(), x.data(), out.data(), -1, 0), "rms_norm", "d");
  expect_refused(rms_norm(nullptr, x.data(), out.data(), 8, 0), "rms_norm", "null");
  expect_refused(rms_norm(x.data(), nullptr, out.data(), 8, 0), "rms_norm", "null");
  expect_refused(rms_norm(x.data(), x.data(), nullptr, 8, 0), "rms_norm", "null");
  for (bf16 v : out) EXPECT_EQ(v.bits, 7);
}

void expect_swiglu(const std::vector<float>& gate, const std::vector<float>& up) {
  const std::vector<bf16> g = to_bf16(gate), u = to_bf16(up);
  const int64_t n = std::ssize(g);
  std::vector<double> exact;
  for (size_t i = 0; i < g.size(); ++i) {
    const double x = pinion::to_float(g[i]);
    exact.push_back(x / (1 + std::exp(-x)) * pinion::to_float(u[i]));
  }
  std::vector<float> first;
  for_each_table([&](const OpOptions& options, Edge edge, const std::string& label) {
    const Guarded<bf16> a(g, edge), b(u, edge), out(n, edge);
    EXPECT_FALSE(swiglu(a.data, b.data, out.data, n, options));
    const std::vector<float> result = to_float(out.copy());
    if (first.empty()) first = result;
    EXPECT_TRUE(same_bits(result, first)) << label << ", n " << n;
    for (size_t i = 0; i < exact.size(); ++i) {
      ASSERT_LE(bf16_ulps(out.data[i], exact[i]), kRounded)
          << label << ", n " << n << ": gate " << pinion::to_float(g[i]) << ", up " << pinion::to_float(u[i]);
    }
    const Guarded<bf16> over_gate(g, edge), over_up(u, edge);
    EXPECT_FALSE(swiglu(over_gate.data, b.data, over_gate.data, n, options));
    EXPECT_FALSE(swiglu(a.data, over_up.data, over_up.data, n, options));
    EXPECT_TRUE(same_bits(to_float(over_gate.copy()), result)) << label << ", out is gate, n " << n;
    EXPECT_TRUE(same_bits(to_float(over_up.copy()), result)) << label << ", out is up, n " << n;
  });
}

TEST(Swiglu, HandWorked) {
  // silu(0) = 0; for large |x| silu(x) is x or 0; silu(1) = 0.731059 is 0.73046875 in bf16.
  const std::vector<bf16> gate = to_bf16({0, 100, -200, 1}), up = to_bf16({5, -3, 1, 1});
  std::vector<bf16> out(4);
  EXPECT_FALSE(swiglu(gate.data(), up.data(), out.data(), 4));
  EXPECT_EQ(to_float(out), (std::vector<float>{0, -300, 0, 0.73046875f}));
}

TEST(Swiglu, AgainstDouble) {
  Random random;
  for (int64_t n : {1, 15, 16, 17, 63, 64, 65, 1000, 8191, 8192, 8193}) {
    expect_swiglu(random.floats(n, -6, 6), random.floats(n, -3, 3));
    expect_swiglu(random.floats(n, -100, 100), random.floats(n, -8, 8));
    std::vector<float> gate(n), up(n);
    for (float& v : gate) v = std::max(random.spread(-60, 60), -80.0f);  // exp is denormal below
    for (float& v : up) v = random.spread(-60, 60);
    expect_swiglu(gate, up);
  }
  expect_swiglu({}, {});
}

// Below and above kSwigluSharedElements; the last piece is short.
TEST(Swiglu, Shared) {
  Random random;
  for (int64_t n : {kSwigluSharedElements, kSwigluSharedElements + 1, 5 * kSwigluSharedElements / 2 + 3}) {
    expect_swiglu(random.floats(n, -6, 6), random.floats(n, -3, 3));
  }
}

TEST(Swiglu, Errors) {
  std::vector<bf16> x(8), out(8, bf16{7});
  expect_refused(swiglu(x.data(), x.data(), out.data(), -1), "swiglu", "n");
  expect_refused(swiglu(nullptr, x.data(), out.data(), 8), "swiglu", "null");
  expect_refused(swiglu(x.data(), nullptr, out.data(), 8), "swiglu", "null");
  expect_refused(swiglu(x.data(), x.data(), nullptr, 8), "swiglu", "null");
  for (bf16 v : out) EXPECT_EQ(v.bits, 7);
}

}  // namespace
}  // namespace pinion
