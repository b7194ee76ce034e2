// Activation codes: every variant against scalar, and scalar against the contract worked out independently.
#include <algorithm>

#include "tests/kernels/guarded.h"

namespace pinion {
namespace {

// x: rows of n, the last one possibly shorter.
Result quantize_rows(const Kernels& kernels, Edge edge, const std::vector<float>& x, int64_t n) {
  const int64_t total = static_cast<int64_t>(x.size());
  const int64_t rows = std::max<int64_t>(1, (total + n - 1) / n);
  const int64_t last = total - (rows - 1) * n;
  const Guarded<float> in(x, edge);
  const Guarded<int8_t> codes((rows - 1) * padded_k(n) + padded_k(last), edge);
  const Guarded<float> scale(rows, edge);
  for (int64_t r = 0; r < rows; ++r) {
    kernels.quantize(in.data + r * n, r + 1 < rows ? n : last, codes.data + r * padded_k(n), scale.data + r);
  }
  return {.codes = codes.copy(), .floats = scale.copy()};
}

Result quantize_everywhere(const std::string& label, const std::vector<float>& x, int64_t n) {
  return run_everywhere(label, [&](const Kernels& kernels, Edge edge) { return quantize_rows(kernels, edge, x, n); });
}

// The contract, word by word.
Result contract(const std::vector<float>& x, int64_t n) {
  Result result;
  for (size_t row = 0; row < x.size(); row += static_cast<size_t>(n)) {
    const size_t count = std::min(x.size() - row, static_cast<size_t>(n));
    double amax = 0;
    bool finite = true;
    for (size_t i = row; i < row + count; ++i) {
      finite &= std::isfinite(x[i]);
      amax = std::max(amax, std::abs(static_cast<double>(x[i])));
    }
    const bool zero = !finite || amax < 0x1p-119;
    const float scale = !finite ? kNan : zero ? 0 : static_cast<float>(amax) / 127.0f;
    result.floats.push_back(scale);
    for (size_t i = row; i < row + count; ++i) {
      const double code = zero ? 0 : std::nearbyint(static_cast<double>(x[i] / scale));
      result.codes.push_back(static_cast<int8_t>(std::clamp(code, -127.0, 127.0)));
    }
    result.codes.resize(result.codes.size() + static_cast<size_t>(padded_k(static_cast<int64_t>(count))) - count);
  }
  return result;
}

void expect_contract(const std::string& label, const std::vector<float>& x, int64_t n) {
  expect_same(quantize_everywhere(label, x, n), contract(x, n), "contract: " + label);
}

std::vector<float> every_bf16(uint32_t step) {
  std::vector<float> x;
  for (uint32_t i = 0; i < 65536; ++i) x.push_back(to_float(bf16{static_cast<uint16_t>(i * step)}));
  return x;
}

TEST(Quantize, HandWorked) {
  // amax 127 makes the scale 1. Ties go to the even neighbour.
  const std::vector<float> x = {127, 0.5f, 1.5f, 2.5f, -0.5f, -1.5f, -2.5f, 126.5f, -126.5f, 0.49999997f, 0.50000006f};
  const Result result = quantize_everywhere("ties", x, 11);
  std::vector<int8_t> codes = {127, 0, 2, 2, 0, -2, -2, 126, -126, 0, 1};
  codes.resize(32);
  EXPECT_EQ(result.codes, codes);
  EXPECT_EQ(result.floats, std::vector<float>{1});

  // The same times 2^k, exactly: scale 2^k, the same codes.
  for (int exponent : {-119, -60, 60, 120}) {
    std::vector<float> scaled = x;
    for (float& v : scaled) v = std::ldexp(v, exponent);
    const Result same = quantize_everywhere("ties times 2^" + std::to_string(exponent), scaled, 11);
    EXPECT_EQ(same.codes, codes) << exponent;
    EXPECT_EQ(same.floats[0], std::ldexp(1.0f, exponent));
  }
}

TEST(Quantize, EveryBf16EncodingAlone) { expect_contract("one encoding a row", every_bf16(1), 1); }

TEST(Quantize, EveryBf16EncodingInRows) {
  expect_contract("neighbours", every_bf16(1), 37);  // of similar magnitude
  expect_contract("mixed", every_bf16(0x9e37), 37);  // an odd step visits all, scattered; NaN and infinity among them
  expect_contract("mixed, few", every_bf16(0x9e37), 5);
}

TEST(Quantize, Lengths) {
  Random random;
  for (int64_t n : {1, 2, 15, 16, 17, 31, 32, 33, 47, 48, 49, 63, 64, 65, 100, 257, 2048}) {
    expect_contract("uniform, n " + std::to_string(n), random.floats(n), n);
    // The largest at each end: neither the first nor the last element may be missed.
    std::vector<float> x = random.floats(n);
    x.front() = 5;
    expect_contract("largest first, n " + std::to_string(n), x, n);
    x.back() = -7;
    expect_contract("largest last, n " + std::to_string(n), x, n);
  }
  const Result empty = quantize_everywhere("empty", {}, 1);
  EXPECT_TRUE(empty.codes.empty());
  EXPECT_EQ(empty.floats, std::vector<float>{0});
}

TEST(Quantize, Magnitudes) {
  constexpr float kLargest = std::numeric_limits<float>::max();
  constexpr float kDenormal = std::numeric_limits<float>::denorm_min();
  Random random;
  for (int64_t n : {7, 16, 45}) {
    const std::string label = ", n " + std::to_string(n);
    for (float amax : {kLargest, 0x1p-119f, std::nextafter(0x1p-119f, 1.0f), std::nextafter(0x1p-119f, 0.0f), 0x1p-126f,
                       kDenormal, 0.0f}) {
      std::vector<float> x = random.floats(n);
      for (float& v : x) v *= amax;
      x.back() = -amax;
      expect_contract("amax " + std::to_string(std::log2(amax)) + label, x, n);
    }
    std::vector<float> x;
    for (int64_t i = 0; i < n; ++i) x.push_back(random.spread(-149, 128));
    expect_contract("all magnitudes" + label, x, n);
  }
  expect_contract("minus zero", std::vector<float>(20, -0.0f), 20);
}

TEST(Quantize, DamageShows) {
  for (float bad : {kNan, -kNan, kInfinity, -kInfinity, bits_float(0x7f800001u), bits_float(0xffffffffu)}) {
    for (size_t at : {0u, 15u, 16u, 39u}) {
      std::vector<float> x(40, 1.0f);
      x[at] = bad;
      const Result result = quantize_everywhere("damage", x, 40);
      EXPECT_TRUE(std::isnan(result.floats[0]));
      EXPECT_EQ(result.codes, std::vector<int8_t>(64));
    }
  }
}

}  // namespace
}  // namespace pinion
