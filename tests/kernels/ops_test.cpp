// The public operations: against definitions written out here (exact sums, double precision), the same bits from every
// table and for any number of workers, from buffers at guard pages; every mistake in the arguments is an error.
#include "kernels/ops.h"

#include <algorithm>
#include <functional>

#include "tests/kernels/crew.h"
#include "tests/kernels/guarded.h"

namespace pinion {
namespace {

// f(options, edge, label): every table, each with other workers and another edge than the time before.
template <class F>
void in_turn(F f) {
  static size_t turn = 0;
  size_t now = turn++;
  for (const Kernels* kernels : available_kernels()) {
    const int32_t workers = kCrews[now % std::size(kCrews)];
    const Edge edge = now / std::size(kCrews) % 2 ? Edge::begin : Edge::end;
    f(OpOptions{kernels, crew(workers)}, edge, std::string(kernels->name) + ", workers " + std::to_string(workers));
    ++now;
  }
}

// Likewise, every table with every number of workers.
template <class F>
void everywhere(F f) {
  for (const Kernels* kernels : available_kernels()) {
    for (int32_t workers : kCrews) {
      const std::string label = std::string(kernels->name) + ", workers " + std::to_string(workers);
      f(OpOptions{kernels, crew(workers)}, workers == 2 ? Edge::begin : Edge::end, label);
    }
  }
}

std::vector<bf16> to_bf16(const std::vector<float>& x) {
  std::vector<bf16> y;
  for (float v : x) y.push_back(pinion::to_bf16(v));
  return y;
}
std::vector<float> to_float(const std::vector<bf16>& x) {
  std::vector<float> y;
  for (bf16 v : x) y.push_back(pinion::to_float(v));
  return y;
}

void expect_refused(const Error& e, const std::string& operation, const std::string& what) {
  ASSERT_TRUE(e) << operation << ": " << what;
  EXPECT_NE(e.message().find(operation), std::string::npos) << e.message();
  EXPECT_NE(e.message().find(what), std::string::npos) << "want " << what << " in: " << e.message();
}

// --- sdot_pack_weights, sdot_gemv ----------------------------------------------------------------------------------

std::vector<int8_t> packed(const std::vector<int8_t>& b, int64_t k, int64_t n) {
  std::vector<int8_t> to(b.size());
  for (int64_t i = 0; i < k; ++i) {
    for (int64_t c = 0; c < n; ++c) {
      to[static_cast<size_t>(((i / 4 * (n / 4) + c / 4) * 4 + c % 4) * 4 + i % 4)] = b[static_cast<size_t>(i * n + c)];
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
  everywhere([&](const OpOptions& options, Edge edge, const std::string& label) {
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
      in_turn([&](const OpOptions& options, Edge edge, const std::string& label) {
        const Guarded<int8_t> from(b, edge), to(k * n, edge);
        EXPECT_FALSE(sdot_pack_weights(from.data, to.data, k, n, options));
        EXPECT_EQ(to.copy(), expected) << label << ", k " << k << ", n " << n;
      });
    }
  }
}

// a [k], b [k][n] row-major.
std::vector<int64_t> sums(const std::vector<int8_t>& a, const std::vector<int8_t>& b, int64_t n) {
  std::vector<int64_t> sum(static_cast<size_t>(n));
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
    everywhere(run);
  } else {
    in_turn(run);
  }
}

TEST(SdotGemv, HandWorked) {
  // Columns: 1 2 3 4 by x, x by 10, nothing, the extremes.
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
  expect_gemv(random.codes(516, -127), random.codes(516 * 1100, -128), 1100, true);   // several strips a piece
  expect_gemv(random.codes(36, -127), random.codes(36 * 20004, -128), 20004, false);  // more than 16
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

TEST(SdotGemv, NothingToSum) {
  expect_gemv({}, {}, 0, true);
  in_turn([](const OpOptions& options, Edge edge, const std::string& label) {
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

// --- sdot_gemv_fused_bf16 ------------------------------------------------------------------------------------------

// The whole row is quantised at once, sums are exact, then (float(sum) * x_scale) * w_scale.
std::vector<float> define_fused(const std::vector<bf16>& x, const std::vector<int8_t>& b, const std::vector<float>& w) {
  const int64_t k = std::ssize(x);
  const std::vector<float> floats = to_float(x);
  std::vector<int8_t> codes(static_cast<size_t>(padded_k(k)));
  float scale;
  scalar_kernels().quantize(floats.data(), k, codes.data(), &scale);
  codes.resize(static_cast<size_t>(k));
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
  const std::vector<float> expected = define_fused(x, b, w);
  const std::vector<int8_t> weights = packed(b, k, n);
  const auto run = [&](const OpOptions& options, Edge edge, const std::string& label) {
    const Guarded<bf16> in(x, edge), out(n, edge);
    const Guarded<int8_t> codes(weights, edge);
    const Guarded<float> scale(w, edge);
    EXPECT_FALSE(sdot_gemv_fused_bf16(in.data, codes.data, scale.data, out.data, k, n, options));
    EXPECT_TRUE(same_bits(to_float(out.copy()), expected)) << label << ", k " << k << ", n " << n;
  };
  if (all) {
    everywhere(run);
  } else {
    in_turn(run);
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
  // Several strips for each worker, more than one call takes; several pieces of x.
  expect_fused(to_bf16(random.floats(1028)), random.codes(1028 * 1100, -128), random.floats(1100), true);
  expect_fused(to_bf16(random.floats(12)), random.codes(12 * 20004, -128), random.floats(20004), false);
}

// The codes of x are kept kCodes = 16384 at a time.
TEST(SdotGemvFused, LongRows) {
  Random random;
  for (int64_t k : {int64_t{16380}, int64_t{16384}, int64_t{16384 + 4}, int64_t{40000}, kMaxK}) {
    if (kStride > 1 && k == kMaxK) continue;  // LargestSums goes as far
    std::vector<float> x = random.floats(k);
    const std::vector<int8_t> b = random.codes(k * 68, -128);
    x.back() = 3;  // the largest, of the last piece
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

TEST(SdotGemvFused, ZerosAndDamage) {
  Random random;
  for (int64_t k : {int64_t{40}, int64_t{16388}}) {
    const std::vector<int8_t> b = random.codes(k * 68, -128);
    const std::vector<float> w = random.floats(68);
    for (float v : {0.0f, -0.0f, 0x1p-120f, -0x1p-133f}) {  // too small for a scale
      const std::vector<bf16> x(static_cast<size_t>(k), pinion::to_bf16(v));
      for (float y : expect_fused(x, b, w, false)) EXPECT_EQ(y, 0) << v;
    }
    for (float bad : {kNan, -kNan, kInfinity, -kInfinity}) {
      for (size_t at : {size_t{0}, static_cast<size_t>(k) / 2, static_cast<size_t>(k) - 1}) {
        std::vector<float> x = random.floats(k);
        x[at] = bad;
        for (float y : expect_fused(to_bf16(x), b, w, false)) EXPECT_TRUE(std::isnan(y)) << bad << " at " << at;
      }
    }
    // Infinity and NaN in different places: neither hides the other.
    std::vector<float> x = random.floats(k);
    x.front() = kInfinity, x.back() = kNan;
    for (float y : expect_fused(to_bf16(x), b, w, false)) EXPECT_TRUE(std::isnan(y));
  }
}

// --- rms_norm, swiglu ----------------------------------------------------------------------------------------------

// Distance from the exact result in units of bf16's last place there. Rounded to nearest it is half a unit and what
// fp32 adds, far below one per cent of a unit; cut off it would be up to a whole one.
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
  in_turn([&](const OpOptions& options, Edge edge, const std::string& label) {
    const Guarded<bf16> from(in, edge), by(w, edge), out(d, edge), same(in, edge);
    EXPECT_FALSE(rms_norm(from.data, by.data, out.data, d, eps, options));
    EXPECT_FALSE(rms_norm(same.data, by.data, same.data, d, eps, options));  // in place
    const std::vector<float> result = to_float(out.copy());
    EXPECT_TRUE(same_bits(to_float(same.copy()), result)) << label << ", d " << d;
    if (first.empty()) first = result;
    EXPECT_TRUE(same_bits(result, first)) << label << ", d " << d;
    for (int64_t i = 0; i < d; ++i) {
      const double exact =
          pinion::to_float(in[static_cast<size_t>(i)]) * inverse * pinion::to_float(w[static_cast<size_t>(i)]);
      ASSERT_LE(bf16_ulps(out.data[i], exact), kRounded) << label << ", d " << d << ", element " << i;
    }
  });
}

TEST(RmsNorm, HandWorked) {
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
    std::vector<float> x(static_cast<size_t>(d));
    for (float& v : x) v = random.spread(-40, 60);  // squares far apart
    expect_rms_norm(x, random.floats(d), 1e-5f);
    for (float& v : x) v = random.spread(-30, -20);  // eps decides
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
  in_turn([&](const OpOptions& options, Edge edge, const std::string& label) {
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
  // silu(0) = 0; silu(x) = x and 0 far out; silu(1) = 0.731059 is 0.73046875 as bf16.
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
    std::vector<float> gate(static_cast<size_t>(n)), up(static_cast<size_t>(n));
    for (float& v : gate) v = std::max(random.spread(-60, 60), -80.0f);  // below, exp is no longer a normal number
    for (float& v : up) v = random.spread(-60, 60);
    expect_swiglu(gate, up);
  }
  expect_swiglu({}, {});
}

// On both sides of where the workers get their share; the last piece is short.
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

// --- flash_attn_decode ---------------------------------------------------------------------------------------------

float wide(float x) { return x; }
float wide(bf16 x) { return pinion::to_float(x); }
template <class T>
T number(float x) {
  if constexpr (std::is_same_v<T, bf16>) {
    return pinion::to_bf16(x);
  } else {
    return x;
  }
}
template <class T>
std::vector<T> numbers(const std::vector<float>& x) {
  std::vector<T> y;
  for (float v : x) y.push_back(number<T>(v));
  return y;
}
template <class T>
std::vector<float> floats(const std::vector<T>& x) {
  std::vector<float> y;
  for (T v : x) y.push_back(wide(v));
  return y;
}

// How K or V lies in memory: from a position, a kv head to the next.
struct Strides {
  int64_t n, h;
};

template <class T>
struct Attention {
  int64_t seq_len, head_dim, kv_heads, group;
  float scale;
  std::vector<T> q, k, v;  // q [heads][head_dim]; k, v dense [kv_heads][seq_len][head_dim]
  Strides ks, vs;
  bool default_heads;  // strides of heads are left to the operation

  int64_t heads() const { return kv_heads * group; }
  std::string describe() const {
    const auto text = [](int64_t i) { return std::to_string(i); };
    return std::string(sizeof(T) == 4 ? "float" : "bf16") + ", seq_len " + text(seq_len) + ", head_dim " +
           text(head_dim) + ", kv heads " + text(kv_heads) + ", group " + text(group) + ", strides " + text(ks.n) +
           " " + text(ks.h) + " " + text(vs.n) + " " + text(vs.h);
  }
};

struct Shape {
  int64_t seq_len, head_dim, kv_heads, group;
};

enum class Lay { dense, padded, heads_inside };

template <class T>
Attention<T> random_attention(Random& random, const Shape& s, Lay lay) {
  Attention<T> a = {.seq_len = s.seq_len,
                    .head_dim = s.head_dim,
                    .kv_heads = s.kv_heads,
                    .group = s.group,
                    .scale = 1 / std::sqrt(static_cast<float>(s.head_dim)),
                    .q = numbers<T>(random.floats(s.kv_heads * s.group * s.head_dim, -2, 2)),
                    .k = numbers<T>(random.floats(s.kv_heads * s.seq_len * s.head_dim, -2, 2)),
                    .v = numbers<T>(random.floats(s.kv_heads * s.seq_len * s.head_dim, -1, 1)),
                    .ks = {s.head_dim, s.seq_len * s.head_dim},
                    .vs = {s.head_dim, s.seq_len * s.head_dim},
                    .default_heads = true};
  if (lay == Lay::padded) {
    a.ks = {s.head_dim + 3, s.seq_len * (s.head_dim + 3) + 7};
    a.vs = {s.head_dim + 1, s.seq_len * (s.head_dim + 1)};
    a.default_heads = false;
  } else if (lay == Lay::heads_inside) {  // [position][head][head_dim]
    a.ks = a.vs = {s.kv_heads * s.head_dim, s.head_dim};
    a.default_heads = false;
  }
  return a;
}

// Softmax attention in double precision.
template <class T>
std::vector<double> define(const Attention<T>& a) {
  std::vector<double> out;
  const size_t d = static_cast<size_t>(a.head_dim);
  std::vector<double> weight(static_cast<size_t>(a.seq_len));
  for (int64_t h = 0; h < a.heads(); ++h) {
    const T* q = &a.q[static_cast<size_t>(h) * d];
    const size_t base = static_cast<size_t>(h / a.group * a.seq_len) * d;
    double max = -std::numeric_limits<double>::infinity(), sum = 0;
    for (size_t p = 0; p < weight.size(); ++p) {
      double dot = 0;
      for (size_t i = 0; i < d; ++i) dot += static_cast<double>(wide(q[i])) * wide(a.k[base + p * d + i]);
      weight[p] = dot * a.scale;
      max = std::max(max, weight[p]);
    }
    std::vector<double> acc(d);
    for (size_t p = 0; p < weight.size(); ++p) {
      const double w = std::exp(weight[p] - max);
      sum += w;
      for (size_t i = 0; i < d; ++i) acc[i] += w * wide(a.v[base + p * d + i]);
    }
    for (double value : acc) out.push_back(value / sum);
  }
  return out;
}

// As it lies in memory, up to the last element; NaN between the rows.
template <class T>
std::vector<T> lay_out(const Attention<T>& a, const std::vector<T>& dense, const Strides& strides) {
  const int64_t last = (a.kv_heads - 1) * strides.h + (a.seq_len - 1) * strides.n + a.head_dim;
  std::vector<T> x(static_cast<size_t>(last), number<T>(kNan));
  for (int64_t h = 0; h < a.kv_heads; ++h) {
    for (int64_t p = 0; p < a.seq_len; ++p) {
      std::copy_n(dense.begin() + (h * a.seq_len + p) * a.head_dim, a.head_dim,
                  x.begin() + h * strides.h + p * strides.n);
    }
  }
  return x;
}

template <class T>
std::vector<float> attend(const Attention<T>& a, const OpOptions& options, Edge edge) {
  const Guarded<T> q(a.q, edge), k(lay_out(a, a.k, a.ks), edge), v(lay_out(a, a.v, a.vs), edge),
      out(a.heads() * a.head_dim, edge);
  const FlashAttnDecode<T> args = {.q = q.data,
                                   .k = k.data,
                                   .v = v.data,
                                   .out = out.data,
                                   .seq_len = a.seq_len,
                                   .head_dim = a.head_dim,
                                   .sm_scale = a.scale,
                                   .num_heads = a.heads(),
                                   .num_kv_heads = a.kv_heads,
                                   .stride_kn = a.ks.n,
                                   .stride_vn = a.vs.n,
                                   .stride_kh = a.default_heads ? 0 : a.ks.h,
                                   .stride_vh = a.default_heads ? 0 : a.vs.h};
  const int64_t bytes = flash_attn_decode_scratch_bytes(args, options);
  EXPECT_EQ(bytes % kAlignmentBytes, 0);  // so that either edge of a page is aligned
  const Guarded<std::byte> scratch(bytes, edge);
  std::memset(scratch.data, 0xff, static_cast<size_t>(bytes));  // NaN: what is left from before must not count
  EXPECT_EQ(flash_attn_decode(args, {scratch.data, static_cast<size_t>(bytes)}, options).message(), "");
  return floats(out.copy());
}

double relative_error(const std::vector<float>& actual, const std::vector<double>& expected) {
  double error = 0, norm = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    error += std::pow(actual[i] - expected[i], 2);
    norm += std::pow(expected[i], 2);
  }
  return std::sqrt(error / norm);
}

template <class T>
void expect_attention(const Attention<T>& a, bool all) {
  const std::vector<float> first = attend(a, {&scalar_kernels()}, Edge::end);
  EXPECT_LE(relative_error(first, define(a)), sizeof(T) == 4 ? 1e-5 : 2e-3) << a.describe();
  const auto run = [&](const OpOptions& options, Edge edge, const std::string& label) {
    EXPECT_TRUE(same_bits(attend(a, options, edge), first)) << label << ": " << a.describe();
  };
  if (all) {
    everywhere(run);
  } else {
    in_turn(run);
  }
}

TEST(FlashAttnDecode, HandWorked) {
  // Two heads on one kv head of two positions. Head 0 sees scores 0 and 0: the mean. Head 1 sees ln 3 apart
  // (1.0986...): a quarter and three quarters.
  Attention<float> a = {.seq_len = 2,
                        .head_dim = 2,
                        .kv_heads = 1,
                        .group = 2,
                        .scale = 0.5f,
                        .q = {0, 0, 0, 2.1972246f},
                        .k = {1, 0, 5, 1},
                        .v = {1, 10, 5, 30},
                        .ks = {2, 4},
                        .vs = {2, 4},
                        .default_heads = true};
  const std::vector<float> out = attend(a, {}, Edge::end);
  EXPECT_FLOAT_EQ(out[0], 3);
  EXPECT_FLOAT_EQ(out[1], 20);
  EXPECT_FLOAT_EQ(out[2], 4);
  EXPECT_FLOAT_EQ(out[3], 25);
  expect_attention(a, true);
}

// Every head_dim with every length; the group, the kv heads and the layout vary along.
TEST(FlashAttnDecode, Shapes) {
  constexpr int64_t kDims[] = {1, 5, 16, 64, 80, 128, 256, 320};
  constexpr int64_t kLengths[] = {1, 15, 16, 17, 255, 256, 257, 1000};
  constexpr int64_t kGroups[] = {1, 2, 7, 20};
  constexpr Lay kLays[] = {Lay::dense, Lay::padded, Lay::heads_inside};
  Random random;
  for (size_t i = 0; i < 64; i += static_cast<size_t>(kStride)) {
    const Shape shape = {.seq_len = kLengths[i / 8],
                         .head_dim = kDims[i % 8],
                         .kv_heads = 1 + static_cast<int64_t>(i % 3),
                         .group = kGroups[(i + i / 8 + i / 32) % 4]};
    expect_attention(random_attention<bf16>(random, shape, kLays[i % 3]), false);
    expect_attention(random_attention<float>(random, shape, kLays[(i + 1) % 3]), false);
  }
}

// More tasks than workers and fewer, groups larger than one call of the kernel takes, for every crew and table.
TEST(FlashAttnDecode, Everywhere) {
  Random random;
  for (const Shape& shape : {Shape{300, 16, 3, 20}, {600, 24, 1, 7}, {40, 64, 1, 1}, {2100, 32, 2, 2}}) {
    expect_attention(random_attention<bf16>(random, shape, Lay::padded), true);
    expect_attention(random_attention<float>(random, shape, Lay::heads_inside), true);
  }
}

// The bits are those of the table's own steps: chunks from the first to the last, then one division.
TEST(FlashAttnDecode, ChunksAreMergedInOrder) {
  Random random;
  constexpr int64_t kLength = 900, kDim = 16;
  for (int i = 0; i < 10; ++i) {
    const Attention<float> a = random_attention<float>(random, {kLength, kDim, 1, 1}, Lay::dense);
    float max = 0, sum = 0, acc[kDim] = {};
    for (int64_t first = 0; first < kLength; first += kAttentionChunk) {
      const int64_t count = std::min<int64_t>(kAttentionChunk, kLength - first);
      std::vector<float> keys(kAttentionChunk * kDim);
      for (int64_t p = 0; p < count; ++p) {
        for (int64_t d = 0; d < kDim; ++d) {
          keys[static_cast<size_t>((p / kKeyBlock * kDim + d) * kKeyBlock + p % kKeyBlock)] =
              a.k[static_cast<size_t>((first + p) * kDim + d)];
        }
      }
      float next_max, next_sum, next_acc[kDim], scores[kAttentionChunk];
      const AttentionSpan span = {0, static_cast<int32_t>(count)};
      scalar_kernels().attend({keys.data(), &a.v[static_cast<size_t>(first * kDim)], kDim, true, kDim, a.scale},
                              a.q.data(), 1, &span, scores, {&next_max, &next_sum, next_acc});
      if (first == 0) {
        max = next_max, sum = next_sum;
        std::copy_n(next_acc, kDim, acc);
      } else {
        scalar_kernels().merge_attention({&max, &sum, acc}, {&next_max, &next_sum, next_acc}, 1, kDim);
      }
    }
    std::vector<float> expected;
    for (float v : acc) expected.push_back(v / sum);
    EXPECT_TRUE(same_bits(attend(a, {}, Edge::end), expected));
  }
}

// The largest score decides, wherever it is; exp of the distance underflows for the others.
TEST(FlashAttnDecode, LargeScores) {
  Random random;
  for (int64_t winner : {0, 255, 256, 599}) {
    for (float scale : {100.0f, 1e10f, 1e30f}) {
      Attention<float> a = random_attention<float>(random, {600, 16, 1, 2}, Lay::padded);
      a.scale = scale;
      std::fill(a.q.begin(), a.q.end(), 1.0f);
      std::fill(a.k.begin(), a.k.begin() + 300 * 16, -2.0f);  // far below: whole chunks vanish
      std::fill(a.k.begin() + 300 * 16, a.k.end(), -1.0f);
      std::fill_n(a.k.begin() + winner * 16, 16, 3.0f);
      expect_attention(a, false);
      const std::vector<float> out = attend(a, {}, Edge::end);
      for (size_t i = 0; i < out.size(); ++i) EXPECT_EQ(out[i], a.v[static_cast<size_t>(winner) * 16 + i % 16]);
    }
  }
  // All equal and large: the mean.
  Attention<bf16> a = random_attention<bf16>(random, {300, 16, 1, 2}, Lay::dense);
  a.scale = 1e20f;
  std::fill(a.k.begin(), a.k.end(), number<bf16>(-1e10f));
  std::fill(a.q.begin(), a.q.end(), number<bf16>(1));
  expect_attention(a, true);
}

// One position: its values, whatever the score.
// The positions behind the last one must not come in by way of the scale: -inf times 0 or -1.
TEST(FlashAttnDecode, AnyScale) {
  Random random;
  for (float scale : {0.0f, -1.0f, -0.125f}) {
    for (int64_t seq_len : {1, 5, 16, 300}) {
      Attention<float> a = random_attention<float>(random, {seq_len, 16, 1, 2}, Lay::dense);
      a.scale = scale;
      expect_attention(a, false);
    }
  }
}

TEST(FlashAttnDecode, OnePositionIsItsValues) {
  Random random;
  const Attention<bf16> a = random_attention<bf16>(random, {1, 80, 2, 3}, Lay::padded);
  const std::vector<float> out = attend(a, {}, Edge::end);
  for (size_t h = 0; h < 6; ++h) {
    for (size_t i = 0; i < 80; ++i) EXPECT_EQ(out[h * 80 + i], wide(a.v[h / 3 * 80 + i]));
  }
}

// The result may take the query's place.
TEST(FlashAttnDecode, InPlace) {
  Random random;
  const Attention<float> a = random_attention<float>(random, {20, 24, 1, 3}, Lay::dense);
  std::vector<float> q = a.q;
  alignas(64) static std::byte scratch[1 << 20];
  EXPECT_FALSE(flash_attn_decode<float>({.q = q.data(),
                                         .k = a.k.data(),
                                         .v = a.v.data(),
                                         .out = q.data(),
                                         .seq_len = 20,
                                         .head_dim = 24,
                                         .sm_scale = a.scale,
                                         .num_heads = 3,
                                         .num_kv_heads = 1,
                                         .stride_kn = 24,
                                         .stride_vn = 24},
                                        scratch));
  EXPECT_EQ(q, attend(a, {}, Edge::end));
}

TEST(FlashAttnDecode, Errors) {
  const auto refused = [](const std::string& what, const std::function<void(FlashAttnDecode<bf16>&)>& spoil) {
    std::vector<bf16> x(256), out(256, bf16{7});
    alignas(64) static std::byte scratch[1 << 20];
    FlashAttnDecode<bf16> args = {.q = x.data(),
                                  .k = x.data(),
                                  .v = x.data(),
                                  .out = out.data(),
                                  .seq_len = 4,
                                  .head_dim = 16,
                                  .num_heads = 4,
                                  .num_kv_heads = 2,
                                  .stride_kn = 16,
                                  .stride_vn = 16};
    spoil(args);
    const Error e = flash_attn_decode<bf16>(args, scratch);
    if (what.empty()) {
      EXPECT_FALSE(e) << e.message();
      return;
    }
    expect_refused(e, "flash_attn_decode", what);
    EXPECT_EQ(flash_attn_decode_scratch_bytes(args), 0);
    for (bf16 v : out) EXPECT_EQ(v.bits, 7);
  };
  refused("", [](auto&) {});
  refused("seq_len", [](auto& a) { a.seq_len = 0; });
  refused("seq_len", [](auto& a) { a.seq_len = -5; });
  refused("head_dim", [](auto& a) { a.head_dim = 0; });
  refused("num_kv_heads", [](auto& a) { a.num_kv_heads = 0; });
  refused("num_heads", [](auto& a) { a.num_heads = 5; });
  refused("num_heads", [](auto& a) { a.num_heads = 0; });
  refused("num_heads", [](auto& a) { a.num_heads = 1; });
  refused("stride_kn", [](auto& a) { a.stride_kn = 15; });
  refused("stride_vn", [](auto& a) { a.stride_vn = 15; });
  refused("stride_kh", [](auto& a) { a.stride_kh = -1; });
  refused("stride_vh", [](auto& a) { a.stride_vh = -1; });
  refused("null", [](auto& a) { a.q = nullptr; });
  refused("null", [](auto& a) { a.k = nullptr; });
  refused("null", [](auto& a) { a.v = nullptr; });
  refused("null", [](auto& a) { a.out = nullptr; });
}

TEST(FlashAttnDecode, ScratchMustSuffice) {
  std::vector<float> x(256), out(64, 7.0f);
  alignas(64) static std::byte scratch[1 << 20];
  const FlashAttnDecode<float> args = {.q = x.data(),
                                       .k = x.data(),
                                       .v = x.data(),
                                       .out = out.data(),
                                       .seq_len = 4,
                                       .head_dim = 16,
                                       .num_heads = 4,
                                       .num_kv_heads = 2,
                                       .stride_kn = 16,
                                       .stride_vn = 16};
  const size_t one = static_cast<size_t>(flash_attn_decode_scratch_bytes(args));
  const size_t two = static_cast<size_t>(flash_attn_decode_scratch_bytes(args, {.workers = crew(2)}));
  EXPECT_GT(two, one);
  ASSERT_LE(two, sizeof scratch - 32);
  expect_refused(flash_attn_decode(args, {scratch, one - 1}), "flash_attn_decode", "scratch");
  expect_refused(flash_attn_decode(args, {scratch + 32, one}), "flash_attn_decode", "scratch");
  expect_refused(flash_attn_decode(args, {}), "flash_attn_decode", "scratch");
  expect_refused(flash_attn_decode(args, {scratch, one}, {.workers = crew(2)}), "flash_attn_decode", "scratch");
  EXPECT_EQ(out, std::vector<float>(64, 7.0f));
  EXPECT_FALSE(flash_attn_decode(args, {scratch, one}));
  EXPECT_EQ(out, std::vector<float>(64, 0.0f));
}

// Workers that count nobody are the caller alone.
TEST(Ops, NobodyAtWorkIsTheCaller) {
  const OpOptions nobody = {.workers = {.count = 0}};
  const std::vector<int8_t> a = {1, 2, 3, 4}, b(4 * 4, 1);
  std::vector<int32_t> c(4);
  EXPECT_FALSE(sdot_gemv(a.data(), b.data(), c.data(), 4, 4, nobody));
  EXPECT_EQ(c, std::vector<int32_t>(4, 10));
}

}  // namespace
}  // namespace pinion
