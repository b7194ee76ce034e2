// RMSNorm and LayerNorm: every table gives the bits of the contract.
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "tests/kernels/guarded.h"

namespace pinion {
namespace {

Result rms_norm(const Kernels& kernels, Edge edge, const std::vector<float>& x, const std::vector<float>& weight,
                float eps, bool in_place) {
  const int64_t n = static_cast<int64_t>(x.size());
  const Guarded<float> in(x, edge), w(weight, edge), fresh(n, edge);
  const Guarded<float>& out = in_place ? in : fresh;
  kernels.rms_norm(in.data, w.data, n, eps, out.data);
  return {.floats = out.copy()};
}

// Sixteen partial sums folded 8, 4, 2, 1 apart.
template <class F>
float folded(const std::vector<float>& x, F add) {
  float lane[16] = {};
  for (size_t i = 0; i < x.size(); ++i) lane[i % 16] = add(lane[i % 16], x[i]);
  for (int width : {8, 4, 2, 1}) {
    for (int i = 0; i < width; ++i) lane[i] += lane[i + width];
  }
  return lane[0];
}

float folded_squares(const std::vector<float>& x) {
  return folded(x, [](float sum, float v) { return std::fma(v, v, sum); });
}

void check_rms_norm(const std::string& label, const std::vector<float>& x, const std::vector<float>& weight,
                    float eps) {
  const float inverse = 1.0f / std::sqrt(folded_squares(x) / static_cast<float>(x.size()) + eps);
  Result expected;
  for (size_t i = 0; i < x.size(); ++i) expected.floats.push_back(x[i] * inverse * weight[i]);
  for (bool in_place : {false, true}) {
    const auto run = [&](const Kernels& kernels, Edge edge) {
      return rms_norm(kernels, edge, x, weight, eps, in_place);
    };
    expect_same(run_on_all_tables(label, run), expected, "contract: " + label);
  }
}

TEST(RmsNorm, Lengths) {
  Random random;
  for (int64_t n = 1; n <= 300; n += n < 70 ? 1 : 13) {
    check_rms_norm("n " + std::to_string(n), random.floats(n, -3, 3), random.floats(n, 0, 2), 1e-6f);
  }
}

TEST(RmsNorm, Values) {
  Random random;
  const std::vector<float> weight = random.floats(45, -2, 2);
  check_rms_norm("zeros", std::vector<float>(45), weight, 1e-5f);
  check_rms_norm("denormals", std::vector<float>(45, 1e-40f), weight, 1e-5f);
  check_rms_norm("squares overflow", std::vector<float>(45, 3e38f), weight, 1e-5f);
  check_rms_norm("damage", with_special_values(random, 45), weight, 1e-5f);
  check_rms_norm("no eps, zeros", std::vector<float>(45), weight, 0);
}

TEST(RmsNorm, HandWorked) {
  // The mean square is 4, so every x becomes 1 and the weights are the result.
  const auto run = [&](const Kernels& kernels, Edge edge) {
    return rms_norm(kernels, edge, {2, -2, 2, 2}, {1, 2, 3, 4}, 0, false);
  };
  EXPECT_EQ(run_on_all_tables("by hand", run).floats, (std::vector<float>{1, -2, 3, 4}));
}

Result layer_norm(const Kernels& kernels, Edge edge, const std::vector<float>& x, const std::vector<float>& weight,
                  const std::vector<float>& bias, float eps, bool in_place) {
  const int64_t n = static_cast<int64_t>(x.size());
  const Guarded<float> in(x, edge), w(weight, edge), b(bias, edge), fresh(n, edge);
  const Guarded<float>& out = in_place ? in : fresh;
  kernels.layer_norm(in.data, w.data, bias.empty() ? nullptr : b.data, n, eps, out.data);
  return {.floats = out.copy()};
}

void check_layer_norm(const std::string& label, const std::vector<float>& x, const std::vector<float>& weight,
                      const std::vector<float>& bias) {
  const auto n = static_cast<float>(x.size());
  const float mean = folded(x, [](float sum, float v) { return sum + v; }) / n;
  std::vector<float> centred = x;
  for (float& v : centred) v -= mean;
  const float inverse = 1.0f / std::sqrt(folded_squares(centred) / n + 1e-5f);
  Result expected;
  for (size_t i = 0; i < x.size(); ++i) {
    const float scaled = centred[i] * inverse * weight[i];
    expected.floats.push_back(bias.empty() ? scaled : scaled + bias[i]);
  }
  for (bool in_place : {false, true}) {
    const auto run = [&](const Kernels& kernels, Edge edge) {
      return layer_norm(kernels, edge, x, weight, bias, 1e-5f, in_place);
    };
    expect_same(run_on_all_tables(label, run), expected, "contract: " + label);
  }
}

TEST(LayerNorm, Lengths) {
  Random random;
  for (int64_t n = 1; n <= 300; n += n < 70 ? 1 : 13) {
    const std::vector<float> x = random.floats(n, -3, 5), weight = random.floats(n, 0, 2);
    check_layer_norm("n " + std::to_string(n), x, weight, random.floats(n));
    check_layer_norm("without a bias, n " + std::to_string(n), x, weight, {});
  }
}

TEST(LayerNorm, Values) {
  Random random;
  const std::vector<float> weight = random.floats(45, -2, 2), bias = random.floats(45);
  check_layer_norm("of one value", std::vector<float>(45, 0.75f), weight, bias);
  check_layer_norm("overflows", std::vector<float>(45, 3e38f), weight, bias);
  check_layer_norm("damage", with_special_values(random, 45), weight, bias);
}

TEST(LayerNorm, HandWorked) {
  // The mean is 5, all deviations are 2.
  const auto run = [&](const Kernels& kernels, Edge edge) {
    return layer_norm(kernels, edge, {7, 3, 7, 3}, {1, 2, 3, 4}, {0, 10, 20, 30}, 0, false);
  };
  EXPECT_EQ(run_on_all_tables("by hand", run).floats, (std::vector<float>{1, 8, 23, 26}));
}

}  // namespace
}  // namespace pinion
