// Weights into w4: groups worked by hand, the gain of the search, and the bytes of whole matrices.
#include "loader/pack/quantize.h"
#include "tests/crew.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "kernels/base/hash.h"
#include "loader/files/mapped_file.h"
#include "loader/pack/pack.h"
#include "loader/pack/pack_cache.h"
#include "tests/kernels/guarded.h"

namespace pinion {
namespace {

// Approximately normal and the same on every machine: the sum of twelve uniform numbers.
float normal(Random& random) {
  float sum = -6.0f;
  for (int i = 0; i < 12; ++i) sum += random.uniform(0, 1);
  return sum;
}

W4Group random_group(Random& random) {
  W4Group group;
  for (auto& row : group.weights) {
    for (float& w : row) w = normal(random) * 0.5f;
  }
  return group;
}

// Column 0 has these weights, the others zeros.
W4Group quantised(const std::vector<float>& weights, Format format = Format::w4) {
  W4Group group = {};
  for (size_t i = 0; i < weights.size(); ++i) group.weights[i][0] = weights[i];
  quantize_w4(&group, format, true);
  return group;
}

std::vector<float> restored(const W4Group& group, size_t column = 0, Format format = Format::w4) {
  std::vector<float> weights;
  for (const auto& codes : group.codes) {
    const int number = format == Format::w4n ? kW4nLevels[codes[column]] : codes[column] - 8;
    weights.push_back(static_cast<float>(number) * to_float(group.scales[column]));
  }
  return weights;
}

TEST(QuantizeW4, HandWorked) {
  std::vector<float> weights(32);
  for (size_t i = 0; i < 16; ++i) weights[2 * i] = static_cast<float>(i) * 0.25f - 2.0f;
  W4Group group = quantised(weights);
  EXPECT_EQ(to_float(group.scales[0]), 0.25f);
  for (size_t i = 0; i < 32; ++i) EXPECT_EQ(group.codes[i][0], i % 2 ? 8 : i / 2) << i;
  EXPECT_EQ(restored(group), weights);
  for (size_t i = 0; i < 32; ++i) EXPECT_EQ(group.codes[i][15], 8);
  EXPECT_EQ(group.scales[15].bits, 0);

  for (float& w : weights) w = -w;  // 8 exists with the other sign only
  group = quantised(weights);
  EXPECT_EQ(to_float(group.scales[0]), -0.25f);
  EXPECT_EQ(restored(group), weights);
}

TEST(QuantizeW4, RepresentableWeightsAreExact) {
  for (const std::vector<float>& weights :
       {std::vector<float>{1.0f}, {-3.0f}, {0.0f, 0.5f, 0.25f}, {7.0f / 8, -7.0f / 8, 1.0f / 8}, {2.0f, 2.0f, 2.0f}}) {
    std::vector<float> all = weights;
    all.resize(32);
    EXPECT_EQ(restored(quantised(weights)), all) << weights[0];
  }
}

TEST(QuantizeW4, TiniestWeightsBecomeZeros) {
  for (const float tiny : {0.0f, 0x1p-149f, 0x1p-130f, 0x1p-40f}) {
    EXPECT_EQ(restored(quantised({tiny, -tiny})), std::vector<float>(32)) << tiny;
  }
}

double squared_error(const W4Group& group, size_t column, const std::vector<float>& other) {
  double sum = 0;
  for (size_t i = 0; i < 32; ++i) sum += std::pow(static_cast<double>(group.weights[i][column] - other[i]), 2);
  return sum;
}

// llama.cpp's Q4_0: the largest weight gets code 0.
std::vector<float> by_largest(const W4Group& group, size_t column) {
  float largest = 0;
  for (const auto& row : group.weights) {
    if (std::fabs(row[column]) > std::fabs(largest)) largest = row[column];
  }
  const float scale = to_float(to_f16(largest / -8.0f));
  std::vector<float> out;
  for (const auto& row : group.weights) out.push_back(std::min(7.0f, std::nearbyintf(row[column] / scale)) * scale);
  return out;
}

TEST(QuantizeW4, SearchReducesTheError) {
  Random random;
  double found = 0, plain = 0;
  for (int i = 0; i < 1000; ++i) {
    W4Group group = random_group(random);
    quantize_w4(&group, Format::w4, true);
    for (size_t c = 0; c < kW4Columns; ++c) {
      found += squared_error(group, c, restored(group, c));
      plain += squared_error(group, c, by_largest(group, c));
    }
  }
  EXPECT_LT(found, 0.9 * plain);
}

TEST(QuantizeW4, LevelsStay) {
  std::vector<float> weights;
  for (int i = 0; i < 32; ++i) weights.push_back(static_cast<float>(kW4nLevels[i * 5 % 16]) / 64);
  W4Group group = quantised(weights, Format::w4n);
  for (int i = 0; i < 32; ++i) EXPECT_EQ(group.codes[i][0], i * 5 % 16) << i;
  EXPECT_EQ(restored(group, 0, Format::w4n), weights);
  EXPECT_EQ(group.scales[15].bits, 0);
  for (float& w : weights) w = -w;
  group = quantised(weights, Format::w4n);
  EXPECT_EQ(to_float(group.scales[0]), -1.0f / 64);
  EXPECT_EQ(restored(group, 0, Format::w4n), weights);
}

// The inverse of the largest weight is infinite, and infinity times 0 is no number.
TEST(QuantizeW4, TinyWeightsBecomeZero) {
  std::vector<float> weights(32);
  weights[3] = 1e-40f, weights[4] = -2e-40f;
  for (const Format format : {Format::w4, Format::w4n}) {
    const W4Group group = quantised(weights, format);
    EXPECT_EQ(to_float(group.scales[0]), 0.0f) << traits_of(format).name;
    for (const auto& codes : group.codes) EXPECT_LE(codes[0], 15);
  }
}

// Each weight has the nearest level, and the error of normally distributed ones is below w4's.
TEST(QuantizeW4, LevelsAreTheNearest) {
  Random random;
  double levels = 0, steps = 0;
  for (int i = 0; i < 300; ++i) {
    W4Group group = random_group(random);
    quantize_w4(&group, Format::w4n, i % 2 == 0);
    for (size_t c = 0; c < kW4Columns; ++c) {
      const std::vector<float> weights = restored(group, c, Format::w4n);
      levels += squared_error(group, c, weights);
      const float scale = to_float(group.scales[c]);
      for (size_t k = 0; k < weights.size(); ++k) {
        const float distance = std::abs(group.weights[k][c] - weights[k]);
        for (const int8_t level : kW4nLevels) {  // half a step of the levels decides
          EXPECT_LE(distance, std::abs(group.weights[k][c] - level * scale) + 1.01f * std::abs(scale));
        }
      }
    }
    quantize_w4(&group, Format::w4, i % 2 == 0);
    for (size_t c = 0; c < kW4Columns; ++c) steps += squared_error(group, c, restored(group, c));
  }
  EXPECT_LT(levels, 0.85 * steps);
}

// Without clipping the largest weight is off by half a step at most; with clipping it may be off by more.
TEST(QuantizeW4, LargestWeightIsClippedOnlyIfAllowed) {
  Random random;
  bool was_clipped = false;
  for (int i = 0; i < 200; ++i) {
    W4Group group = random_group(random);
    for (const bool may_clip : {false, true}) {
      quantize_w4(&group, Format::w4, may_clip);
      for (size_t c = 0; c < kW4Columns; ++c) {
        size_t largest = 0;
        for (size_t k = 0; k < size_t{kGroupK}; ++k) {
          if (std::abs(group.weights[k][c]) > std::abs(group.weights[largest][c])) largest = k;
        }
        const float step = to_float(group.scales[c]);
        const float short_of = std::abs(group.weights[largest][c] - restored(group, c)[largest]) / std::abs(step);
        if (!may_clip) {
          EXPECT_LT(short_of, 0.75f) << "half a step, plus the change of the scale by the fit";
        }
        was_clipped |= may_clip && short_of > 0.75f;
      }
    }
  }
  EXPECT_TRUE(was_clipped);
}

struct PackedW4 {
  Arena arena;
  Matrix matrix;
  Error failure;

  std::span<const std::byte> bytes() const { return {arena.data, static_cast<size_t>(arena.bytes)}; }
  // Decodes the layout in kernels/layout.h.
  float weight(int64_t n, int64_t k) const {
    const auto* record = static_cast<const std::byte*>(matrix.panels) + n / 64 * panel_bytes(Format::w4, matrix.k) +
                         k / 32 * (1024 + 128);
    const int both = static_cast<int>(record[k % 32 / 8 * 256 + n % 64 * 4 + k % 4]);
    const int code = k % 8 < 4 ? both & 15 : both >> 4;
    f16 scale;
    std::memcpy(&scale, record + 1024 + n % 64 * 2, sizeof scale);
    return static_cast<float>(code - 8) * to_float(scale) * matrix.scale[n];
  }
};

PackedW4 pack(const std::vector<float>& values, int64_t n, int64_t k, int threads = 2) {
  PackedW4 packed;
  const TensorView view = {"w", DType::f32, {n, k}, reinterpret_cast<const std::byte*>(values.data()), n * k * 4};
  const PackJob job{view, Format::w4, &packed.matrix};
  EXPECT_FALSE(allocate_arena(packed_bytes({&job, 1}), &packed.arena));
  std::memset(packed.arena.data, 0x55, packed.arena.bytes);  // padding must be written
  packed.failure = pack_all(crew(threads), {&job, 1}, packed.arena.data);
  return packed;
}

// Rows of very different magnitudes.
std::vector<float> random_rows(int64_t n, int64_t k) {
  Random random;
  std::vector<float> values;
  for (int64_t i = 0; i < n * k; ++i) {
    values.push_back(std::ldexp(normal(random), static_cast<int>(i / k % 9) * 20 - 90));
  }
  return values;
}

TEST(PackW4, ShapesAroundGroupAndPanelSizes) {
  for (const int64_t n : {1, 16, 17, 64, 65}) {
    for (const int64_t k : {1, 31, 32, 33, 64, 100}) {
      SCOPED_TRACE(std::to_string(n) + "x" + std::to_string(k));
      const std::vector<float> values = random_rows(n, k);
      const PackedW4 packed = pack(values, n, k);
      ASSERT_EQ(packed.failure.message(), "");
      EXPECT_EQ(packed.matrix.column_sum, nullptr);
      for (int64_t row = 0; row < padded_n(n); ++row) {
        double error = 0, size = 0;
        for (int64_t i = 0; i < padded_k(k); ++i) {
          const bool inside = row < n && i < k;
          const double w = inside ? static_cast<double>(values[row * k + i]) : 0;
          const auto have = static_cast<double>(packed.weight(row, i));
          ASSERT_TRUE(inside || have == 0.0);
          error += (w - have) * (w - have);
          size += w * w;
        }
        ASSERT_LE(error, 0.02 * size) << "row " << row;
        int exponent = 0;
        ASSERT_EQ(std::frexp(packed.matrix.scale[row], &exponent), row < n ? 0.5f : 0.0f) << "a power of two";
      }
    }
  }
}

TEST(PackW4, SmallestAndLargestRows) {
  const float largest = std::numeric_limits<float>::max();
  const PackedW4 packed = pack({0x1p-119f, 0, 0, 0, 0x1p-120f, 0, 0, 0, largest, -largest, 0, 0, 0, 0, 0, 0}, 4, 4);
  EXPECT_EQ(packed.weight(0, 0), 0x1p-119f);
  EXPECT_EQ(packed.weight(1, 0), 0.0f) << "as w8";
  EXPECT_EQ(packed.matrix.scale[1], 0.0f);
  EXPECT_NEAR(packed.weight(2, 0) / largest, 1.0f, 1e-3f);
  EXPECT_EQ(packed.weight(2, 0), -packed.weight(2, 1));
  EXPECT_EQ(packed.weight(3, 0), 0.0f);
}

// Any compiler and CPU must give this hash: sums have one order, and nothing is contracted.
TEST(PackW4, BytesAreTheSameEverywhere) {
  const std::vector<float> values = random_rows(300, 700);
  for (const int threads : {1, 2, 3}) {
    EXPECT_EQ(hash_bytes(pack(values, 300, 700, threads).bytes()), 17634171877612905679u) << threads << " threads";
  }
}

// A row with subnormal scales becomes 0, whatever its codes.
TEST(PackW4, CodesWithTheSmallestScales) {
  const std::vector<int8_t> codes = {-128, 64, 0, 96, 7, -7, 1, 0};
  const std::vector<float> scales = {0x1p-149f, 1.0f};
  const TensorView view = {"w", DType::i8, {2, 4}, reinterpret_cast<const std::byte*>(codes.data()), 8};
  const TensorView scale = {"s", DType::f32, {2, 1}, reinterpret_cast<const std::byte*>(scales.data()), 8};
  PackedW4 packed;
  const PackJob job{view, Format::w4, &packed.matrix, scale};
  ASSERT_FALSE(allocate_arena(packed_bytes({&job, 1}), &packed.arena));
  ASSERT_EQ(pack_all(crew(1), {&job, 1}, packed.arena.data).message(), "");
  for (int64_t i = 0; i < 4; ++i) EXPECT_EQ(packed.weight(0, i), 0.0f);
  EXPECT_EQ(packed.weight(1, 0), 7.0f);
}

// The same numbers as BF16, F16, F32 and from a reader.
TEST(PackW4, BytesDoNotDependOnTheSourceType) {
  constexpr int64_t n = 70, k = 100;
  std::vector<float> values = random_rows(n, k);
  std::vector<bf16> narrow;
  std::vector<f16> half;
  for (float& value : values) {
    value = std::round(std::remainder(value, 4.0f) * 32.0f) / 32.0f;  // few enough bits for all types
    value = to_float(to_bf16(value));
    narrow.push_back(to_bf16(value));
    half.push_back(to_f16(value));
    ASSERT_EQ(to_float(half.back()), value);
  }
  const PackedW4 wanted = pack(values, n, k);
  const auto view = [&](DType dtype, const void* data, int64_t element_bytes) {
    return TensorView{"w", dtype, {n, k}, static_cast<const std::byte*>(data), n * k * element_bytes};
  };
  const RowReader reader = {.stored_as = "test",
                            .read = [&](int64_t first, int64_t count,
                                        float* rows) { std::copy_n(values.data() + first * k, count * k, rows); },
                            .explain_nan = {},
                            .scattered = false};
  PackedW4 packed;
  const PackJob jobs[] = {{view(DType::bf16, narrow.data(), 2), Format::w4, &packed.matrix, {}, {}},
                          {view(DType::f16, half.data(), 2), Format::w4, &packed.matrix, {}, {}},
                          {view(DType::u8, half.data(), 1), Format::w4, &packed.matrix, {}, reader}};
  for (const PackJob& job : jobs) {
    ASSERT_FALSE(allocate_arena(packed_bytes({&job, 1}), &packed.arena));
    ASSERT_EQ(pack_all(crew(2), {&job, 1}, packed.arena.data).message(), "");
    EXPECT_EQ(hash_bytes(packed.bytes()), hash_bytes(wanted.bytes())) << dtype_name(job.source.dtype);
  }
}

TEST(PackW4, Int8CodesAreDecoded) {
  const std::vector<int8_t> codes = {-128, 64, 0, 96, 7, -7, 1, 0};
  const std::vector<float> scales = {0.5f, 3.0f};
  const TensorView view = {"w", DType::i8, {2, 4}, reinterpret_cast<const std::byte*>(codes.data()), 8};
  const TensorView scale = {"s", DType::f32, {2, 1}, reinterpret_cast<const std::byte*>(scales.data()), 8};
  PackedW4 packed;
  const PackJob job{view, Format::w4, &packed.matrix, scale};
  ASSERT_FALSE(allocate_arena(packed_bytes({&job, 1}), &packed.arena));
  ASSERT_EQ(pack_all(crew(1), {&job, 1}, packed.arena.data).message(), "");
  const float wanted[] = {-64, 32, 0, 48, 21, -21, 3, 0};
  for (int64_t i = 0; i < 8; ++i) EXPECT_EQ(packed.weight(i / 4, i % 4), wanted[i]) << i;
}

TEST(PackW4, RefusesNan) {
  std::vector<float> values = random_rows(100, 40);
  values[77 * 40 + 39] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(pack(values, 100, 40).failure.message(), "w row 77: NaN or infinity in the weights");
}

}  // namespace
}  // namespace pinion
