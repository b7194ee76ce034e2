// Activation codes: every variant against scalar, and scalar against an independent version of the contract.
#include <algorithm>

#include "tests/kernels/guarded.h"

namespace pinion {
namespace {

// x: rows of n elements; the last one may be shorter.
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

Result quantize_on_all_tables(const std::string& label, const std::vector<float>& x, int64_t n) {
  return run_on_all_tables(label,
                           [&](const Kernels& kernels, Edge edge) { return quantize_rows(kernels, edge, x, n); });
}

// The contract of quantize.
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

// The two steps of quantize over a row, without padding.
Result encode_row(const Kernels& kernels, Edge edge, const std::vector<float>& x, float scale) {
  const int64_t n = static_cast<int64_t>(x.size());
  const Guarded<float> in(x, edge);
  const Guarded<int8_t> codes(n, edge);
  const float largest = kernels.max_magnitude(in.data, n);
  kernels.encode(in.data, n, scale, codes.data);
  const Guarded<float> place(x, edge);
  kernels.encode(place.data, n, scale, reinterpret_cast<int8_t*>(place.data));
  EXPECT_EQ(std::memcmp(place.data, codes.data, n), 0) << kernels.name << ": in place";
  return {.codes = codes.copy(), .floats = {largest}};
}

Result encode_on_all_tables(const std::string& label, const std::vector<float>& x, float scale) {
  return run_on_all_tables(label,
                           [&](const Kernels& kernels, Edge edge) { return encode_row(kernels, edge, x, scale); });
}

void expect_contract(const std::string& label, const std::vector<float>& x, int64_t n) {
  expect_same(quantize_on_all_tables(label, x, n), contract(x, n), "contract: " + label);
}

std::vector<float> every_bf16(uint32_t step) {
  std::vector<float> x;
  for (uint32_t i = 0; i < 65536; ++i) x.push_back(to_float(bf16{static_cast<uint16_t>(i * step)}));
  return x;
}

TEST(Quantize, HandWorked) {
  // max|x| 127 makes the scale 1. Ties go to even.
  const std::vector<float> x = {127, 0.5f, 1.5f, 2.5f, -0.5f, -1.5f, -2.5f, 126.5f, -126.5f, 0.49999997f, 0.50000006f};
  const Result result = quantize_on_all_tables("ties", x, 11);
  std::vector<int8_t> codes = {127, 0, 2, 2, 0, -2, -2, 126, -126, 0, 1};
  codes.resize(32);
  EXPECT_EQ(result.codes, codes);
  EXPECT_EQ(result.floats, std::vector<float>{1});

  // The same row times 2^k has scale 2^k and the same codes.
  for (int exponent : {-119, -60, 60, 120}) {
    std::vector<float> scaled = x;
    for (float& v : scaled) v = std::ldexp(v, exponent);
    const Result same = quantize_on_all_tables("ties times 2^" + std::to_string(exponent), scaled, 11);
    EXPECT_EQ(same.codes, codes) << exponent;
    EXPECT_EQ(same.floats[0], std::ldexp(1.0f, exponent));
  }
}

TEST(Quantize, Bf16EncodingsAlone) { expect_contract("one encoding a row", every_bf16(1), 1); }

TEST(Quantize, Bf16EncodingsInRows) {
  expect_contract("neighbours", every_bf16(1), 37);  // of similar magnitude
  expect_contract("mixed", every_bf16(0x9e37), 37);  // an odd step visits all encodings, including NaN and infinity
  expect_contract("mixed, few", every_bf16(0x9e37), 5);
}

TEST(Quantize, Lengths) {
  Random random;
  for (int64_t n : {1, 2, 15, 16, 17, 31, 32, 33, 47, 48, 49, 63, 64, 65, 100, 257, 2048}) {
    expect_contract("uniform, n " + std::to_string(n), random.floats(n), n);
    // The largest element is the first or the last one.
    std::vector<float> x = random.floats(n);
    x.front() = 5;
    expect_contract("largest first, n " + std::to_string(n), x, n);
    x.back() = -7;
    expect_contract("largest last, n " + std::to_string(n), x, n);
  }
  const Result empty = quantize_on_all_tables("empty", {}, 1);
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

TEST(Quantize, NanPropagates) {
  for (float bad : {kNan, -kNan, kInfinity, -kInfinity, bits_float(0x7f800001u), bits_float(0xffffffffu)}) {
    for (size_t at : {0u, 15u, 16u, 39u}) {
      std::vector<float> x(40, 1.0f);
      x[at] = bad;
      const Result result = quantize_on_all_tables("damage", x, 40);
      EXPECT_TRUE(std::isnan(result.floats[0]));
      EXPECT_EQ(result.codes, std::vector<int8_t>(64));
    }
  }
}

// max_magnitude and encode together give the scale and codes of quantize.
void expect_halves_agree(const std::string& label, const std::vector<float>& x) {
  const int64_t n = static_cast<int64_t>(x.size());
  Result whole = quantize_on_all_tables(label, x, std::max<int64_t>(1, n));
  whole.codes.resize(x.size());
  const Result halves = encode_on_all_tables(label, x, whole.floats[0]);
  EXPECT_EQ(halves.codes, whole.codes) << label;
  EXPECT_TRUE(same_bits(code_scale(halves.floats[0]), whole.floats[0])) << label;
}

TEST(QuantizeSteps, AgreeWithQuantize) {
  Random random;
  for (int64_t n = 0; n <= 70; ++n) {
    const std::string label = "halves, n " + std::to_string(n);
    std::vector<float> x = random.floats(n, -3, 3);
    expect_halves_agree(label, x);
    if (n == 0) continue;
    for (float v : {0.0f, -0.0f, 0x1p-119f, 0x1p-120f, std::numeric_limits<float>::max(), kInfinity, kNan}) {
      x[static_cast<size_t>(n) / 2] = v;
      expect_halves_agree(label, x);
      std::fill(x.begin(), x.end(), v);
      expect_halves_agree(label + ", all the same", x);
    }
  }
}

TEST(MaxMagnitude, HandWorked) {
  const auto largest = [](const std::vector<float>& x) { return encode_on_all_tables("largest", x, 0).floats[0]; };
  EXPECT_EQ(largest({}), 0);
  EXPECT_EQ(largest({1, -3, 2}), 3);
  EXPECT_EQ(float_bits(largest({-0.0f})), 0u);
  EXPECT_EQ(largest({5, -kInfinity, 7}), kInfinity);
  for (size_t at : {0u, 3u, 15u, 16u, 18u}) {
    std::vector<float> x(19, 1);
    x[at] = -2;
    EXPECT_EQ(largest(x), 2) << at;
    x[(at + 5) % 19] = kInfinity;
    x[at] = -kNan;  // NaN > infinity
    EXPECT_TRUE(std::isnan(largest(x))) << at;
  }
}

// With a scale from another row, values out of range become the largest code.
TEST(Encode, HandWorked) {
  const std::vector<float> x = {1, -1, 3, 5, -5, 253, 254, 255, -400, 1e30f, -1e38f, 0, 0.99f};
  EXPECT_EQ(encode_on_all_tables("by hand", x, 2).codes,
            (std::vector<int8_t>{0, 0, 2, 2, -2, 126, 127, 127, -127, 127, -127, 0, 0}));
  EXPECT_EQ(encode_on_all_tables("no scale", x, 0).codes, std::vector<int8_t>(13));
  EXPECT_EQ(encode_on_all_tables("damage", x, kNan).codes, std::vector<int8_t>(13));
}

// All 65,280 finite encodings by one scale, and by quantize up to the largest that has this scale; the others give NaN
// and zero codes.
TEST(Quantize, Bf16EncodingsByOneScale) {
  std::vector<float> finite;
  for (float v : every_bf16(0x9e37)) {
    if (std::isfinite(v)) finite.push_back(v);
  }
  ASSERT_EQ(finite.size(), 65536u - 2 * 128u);
  for (float amax : {0x1p-119f, 0x1.fep-60f, 0.0078125f, 1.0f, 3.359375f, 127.0f, 448.0f, 0x1.3p99f, 0x1.fep127f}) {
    const std::string label = "every encoding, largest " + std::to_string(std::log2(amax));
    const float scale = amax / 127.0f;
    std::vector<int8_t> expected, expected_up_to;
    std::vector<float> up_to;
    for (float v : finite) {
      const double code = std::clamp(std::nearbyint(static_cast<double>(v / scale)), -127.0, 127.0);
      expected.push_back(static_cast<int8_t>(code));
      if (std::abs(v) > amax) continue;
      up_to.push_back(v);
      expected_up_to.push_back(expected.back());
    }
    EXPECT_EQ(encode_on_all_tables(label, finite, scale).codes, expected);
    Result result = quantize_on_all_tables(label, up_to, std::ssize(up_to));
    result.codes.resize(up_to.size());
    EXPECT_EQ(result.codes, expected_up_to) << label;
    EXPECT_EQ(result.floats[0], scale) << label;
    EXPECT_EQ(*std::max_element(expected_up_to.begin(), expected_up_to.end()), 127);
    if (kStride > 1 && amax == 1.0f) break;
  }
  const Result damaged = quantize_on_all_tables("every encoding in one row", every_bf16(1), 65536);
  EXPECT_TRUE(std::isnan(damaged.floats[0]));
  EXPECT_EQ(damaged.codes, std::vector<int8_t>(65536));
}

}  // namespace
}  // namespace pinion
