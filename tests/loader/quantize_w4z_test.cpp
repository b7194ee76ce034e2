// Weights into w4z: groups worked by hand, the gain over w4, and blocks of files that keep their codes.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/base/hash.h"
#include "loader/pack/pack.h"
#include "loader/pack/quantize.h"
#include "tests/crew.h"
#include "tests/kernels/guarded.h"

namespace pinion {
namespace {

float zero_of(const W4Group& group, Format format, size_t column) {
  return format == Format::w4z ? static_cast<float>(group.zero_points[column]) / kZeroSteps : 8.0f;
}

std::vector<float> restored(const W4Group& group, Format format, size_t column) {
  std::vector<float> weights;
  for (const auto& codes : group.codes) {
    weights.push_back((static_cast<float>(codes[column]) - zero_of(group, format, column)) *
                      to_float(group.scales[column]));
  }
  return weights;
}

// Every column has these weights, times column + 1.
W4Group group_of(const std::vector<float>& weights) {
  W4Group group = {};
  for (size_t i = 0; i < weights.size() * kW4Columns; ++i) {
    group.weights[i / kW4Columns][i % kW4Columns] = weights[i / kW4Columns] * static_cast<float>(i % kW4Columns + 1);
  }
  return group;
}

double error_of(const W4Group& group, Format format, size_t column) {
  const std::vector<float> other = restored(group, format, column);
  double sum = 0;
  for (size_t i = 0; i < 32; ++i) sum += std::pow(static_cast<double>(group.weights[i][column] - other[i]), 2);
  return sum;
}

// The squared errors of all columns: of w4z and of w4. No column's error is above that of w4.
std::pair<double, double> errors(W4Group group, bool may_clip) {
  W4Group symmetric = group;
  quantize_w4(&group, Format::w4z, may_clip);
  quantize_w4(&symmetric, Format::w4, may_clip);
  double sum = 0, of_w4 = 0;
  for (size_t c = 0; c < kW4Columns; ++c) {
    EXPECT_LE(group.zero_points[c], kZeroSteps * kMaxZero);
    EXPECT_LE(error_of(group, Format::w4z, c), error_of(symmetric, Format::w4, c) * 1.00001 + 1e-12);
    sum += error_of(group, Format::w4z, c), of_w4 += error_of(symmetric, Format::w4, c);
  }
  return {sum, of_w4};
}

TEST(QuantizeW4z, GridsOfEighthsAreExact) {
  for (const int zero : {0, 1, 37, 63, 120}) {
    std::vector<float> weights;
    for (int i = 0; i < 32; ++i) weights.push_back(static_cast<float>(8 * (i % 16) - zero) / 64);
    W4Group group = group_of(weights);
    quantize_w4(&group, Format::w4z, true);
    for (size_t c = 0; c < kW4Columns; ++c) {
      EXPECT_EQ(group.zero_points[c], zero);
      EXPECT_EQ(to_float(group.scales[c]), 0.125f * static_cast<float>(c + 1));
      for (size_t i = 0; i < 32; ++i) EXPECT_EQ(group.codes[i][c], i % 16);
    }
  }
}

TEST(QuantizeW4z, RandomGroupsGain) {
  for (const bool may_clip : {false, true}) {
    Random random;
    double sum = 0, of_w4 = 0;
    for (int i = 0; i < 300; ++i) {
      W4Group group;
      for (auto& row : group.weights) {
        for (float& w : row) w = random.uniform(-1, 1) + random.uniform(-1, 1) + random.uniform(-1, 1);
      }
      const auto [error, error_of_w4] = errors(group, may_clip);
      sum += error, of_w4 += error_of_w4;
    }
    EXPECT_LT(sum, (may_clip ? 0.82 : 0.88) * of_w4) << "of nearly normal weights";
  }
}

TEST(QuantizeW4z, OneSidedGroupsGainMost) {
  for (const float sign : {1.0f, -1.0f}) {
    Random random;
    double sum = 0, of_w4 = 0;
    for (int i = 0; i < 100; ++i) {
      W4Group group;
      for (auto& row : group.weights) {
        for (float& w : row) w = sign * random.uniform(0, 3);
      }
      const auto [error, error_of_w4] = errors(group, true);
      sum += error, of_w4 += error_of_w4;
    }
    EXPECT_LT(sum, 0.4 * of_w4) << "sign " << sign;
  }
}

// Zero points would leave their range; weights that all are equal, ties, and the tiniest numbers.
TEST(QuantizeW4z, HardGroups) {
  std::vector<float> shifted, ties, tiny(32, 0x1p-149f), one(32);
  for (int i = 0; i < 32; ++i) {
    shifted.push_back(3.0f + static_cast<float>(i) / 64);
    ties.push_back(static_cast<float>(i % 3) * 0.5f - 0.25f);
  }
  one[31] = -2.0f, tiny[3] = 0x1p-126f;
  for (const std::vector<float>& weights : {shifted, ties, tiny, one, std::vector<float>(32),
                                            std::vector<float>(32, 0.7f), std::vector<float>(32, -0.001f)}) {
    for (const bool may_clip : {false, true}) {
      errors(group_of(weights), may_clip);
      std::vector<float> negative;
      for (const float w : weights) negative.push_back(-w);
      errors(group_of(negative), may_clip);
    }
  }
  W4Group group = group_of(std::vector<float>(32));
  quantize_w4(&group, Format::w4z, true);
  for (const f16 scale : group.scales) EXPECT_EQ(scale.bits, 0);
}

// Any compiler and CPU must give this hash: sums have one order, and nothing is contracted.
TEST(QuantizeW4z, CodesAreTheSameEverywhere) {
  Random random;
  uint64_t hash = kHashSeed;
  for (int i = 0; i < 200; ++i) {
    W4Group group;
    for (auto& row : group.weights) {
      for (float& w : row) w = random.uniform(-1, 2) + random.uniform(-1, 1);
    }
    quantize_w4(&group, Format::w4z, i % 2 == 0);
    hash = hash_bytes(std::as_bytes(std::span(group.codes)), hash);
    hash = hash_bytes(std::as_bytes(std::span(group.scales)), hash);
    hash = hash_bytes(std::as_bytes(std::span(group.zero_points)), hash);
  }
  EXPECT_EQ(hash, 12292898589881711277u);
}

// Equally correlated inputs: later weights make up for the errors of earlier ones.
TEST(QuantizeW4z, FeedbackReducesTheErrorOfASum) {
  constexpr int64_t kK = 128;
  std::vector<float> moments(moments_elements(kK));
  for (int64_t i = 0; i < kK; ++i) {
    for (int64_t j = i; j < kK; ++j) moments[i * padded_n(kK) + j] = i == j ? 1.0f : 0.9f;
  }
  const Feedback feedback = make_feedback(&moments, kK);
  FeedbackRows rows(feedback);
  Random random;
  std::vector<double> alone(kW4Columns), fed(kW4Columns);
  for (int64_t k = 0; k < kK; k += kGroupK) {
    W4Group group;
    for (auto& row : group.weights) {
      for (float& w : row) w = random.uniform(-1, 2);
    }
    W4Group plain = group;
    const W4Group exact = group;
    quantize_w4(&plain, Format::w4z, true);
    rows.quantise(k, Format::w4z, true, nullptr, &group);
    for (size_t c = 0; c < kW4Columns; ++c) {
      for (size_t i = 0; i < 32; ++i) {
        const double w = static_cast<double>(exact.weights[i][c]);
        alone[c] += w - static_cast<double>(restored(plain, Format::w4z, c)[i]);
        fed[c] += w - static_cast<double>(restored(group, Format::w4z, c)[i]);
      }
    }
  }
  double before = 0, after = 0;
  for (size_t c = 0; c < kW4Columns; ++c) before += alone[c] * alone[c], after += fed[c] * fed[c];
  EXPECT_LT(after, 0.1 * before);
}

// The weights of packed w4z or w4, by the formula of layout.h.
float weight_of(const Matrix& m, int64_t n, int64_t k) {
  const std::byte* panel = panel_of(m, n / kPanelColumns);
  const std::byte* scales = panel + code_offset(m.format, k / 32 * 32, 0) + code_bytes(m.format);
  const int all = std::to_integer<int>(panel[code_offset(m.format, k, n)]);
  const int zero = m.format == Format::w4z ? std::to_integer<int>(scales[128 + n % 64]) : 8 * kZeroSteps;
  f16 scale;
  __builtin_memcpy(&scale, scales + n % 64 * 2, sizeof scale);
  const int eighths = kZeroSteps * (all >> code_shift(m.format, k) & 15) - zero;
  return static_cast<float>(eighths) / kZeroSteps * to_float(scale) * m.scale[n];
}

TEST(PackW4z, FloatsOfAnyShape) {
  for (const int64_t rows : {1, 17, 70}) {
    for (const int64_t k : {40, 256}) {
      Random random;
      std::vector<float> values;
      for (int64_t i = 0; i < rows * k; ++i) values.push_back(random.uniform(-1, 4));
      const TensorView view = {
          "w", DType::f32, {rows, k}, reinterpret_cast<const std::byte*>(values.data()), rows * k * 4};
      Matrix matrix;
      const PackJob job{view, Format::w4z, &matrix};
      std::vector<std::byte> arena(packed_bytes({&job, 1}) + kAlignmentBytes);
      void* start = arena.data();
      size_t space = arena.size();
      std::align(kAlignmentBytes, 1, start, space);
      ASSERT_EQ(pack_all(crew(2), {&job, 1}, static_cast<std::byte*>(start)).message(), "");
      for (int64_t i = 0; i < rows * k; ++i) {
        ASSERT_NEAR(weight_of(matrix, i / k, i % k), values[i], 0.25) << rows << " " << k << " " << i;
      }
    }
  }
}

TEST(W4Blocks, CodesStayAndZeroPointsAreRounded) {
  std::vector<uint8_t> codes;
  for (int i = 0; i < 192; ++i) codes.push_back(static_cast<uint8_t>(i * 7 % 16));
  const float tiny = 0x1p-24f;  // f16's smallest
  const W4Block blocks[] = {{0.25f, -2.0f}, {-0.5f, 4.0f}, {tiny, -8 * tiny},
                            {0.3f, -1.0f},  {0.25f, 0.0f}, {0.0f, -0.0f}};
  W4Rows rows;
  append_w4_row(blocks, codes.data(), &rows);
  append_w4_row(blocks, codes.data(), &rows);
  EXPECT_EQ(rows.codes.size(), 384u);
  EXPECT_TRUE(std::equal(codes.begin(), codes.end(), rows.codes.begin() + 192));
  EXPECT_EQ(rows.zero_points, (std::vector<uint8_t>{64, 64, 64, 27, 0, 0, 64, 64, 64, 27, 0, 0}));
  ASSERT_EQ(rows.scales.size(), 2u);
  for (size_t b : {0, 1, 2, 4, 5}) EXPECT_EQ(to_float(rows.group_scales[b]) * rows.scales[1], blocks[b].scale) << b;
  EXPECT_NEAR(to_float(rows.group_scales[3]) * rows.scales[0], 0.3f, 0.3f / 2048);
}

TEST(W4Blocks, ZeroPointsOutsideTheirRangeAreQuantisedAgain) {
  std::vector<uint8_t> codes;
  for (int i = 0; i < 128; ++i) codes.push_back(static_cast<uint8_t>(i % 16));
  const W4Block blocks[] = {{0.01f, -0.3f}, {0.01f, 0.1f}, {0.0f, -0.125f}, {0.0f, 0.0f}};
  W4Rows rows;
  append_w4_row(blocks, codes.data(), &rows);
  for (size_t i = 0; i < 128; ++i) {
    const size_t b = i / 32;
    const float zero = static_cast<float>(rows.zero_points[b]) / kZeroSteps;
    const float weight = (static_cast<float>(rows.codes[i]) - zero) * to_float(rows.group_scales[b]) * rows.scales[0];
    EXPECT_NEAR(weight, blocks[b].scale * codes[i] + blocks[b].minimum, b < 2 ? 0.012 : 1e-4) << i;
  }
}

}  // namespace
}  // namespace pinion
