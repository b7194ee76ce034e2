// Ternary weights: recognised by their numbers and packed exactly.
#include "loader/pack/quantize.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "kernels/half.h"
#include "loader/checkpoint/number_formats.h"
#include "loader/files/mapped_file.h"
#include "loader/pack/pack.h"
#include "tests/crew.h"

namespace pinion {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

// Groups of 128: the first weights as given, the others 0.
std::vector<float> row_of(const std::vector<std::vector<float>>& groups) {
  std::vector<float> row;
  for (const std::vector<float>& group : groups) {
    row.insert(row.end(), group.begin(), group.end());
    row.resize((row.size() + 127) / 128 * 128);
  }
  return row;
}

std::vector<float> scales_of(const std::vector<float>& row) {
  std::vector<float> scales(row.size() / 128);
  return find_ternary_scales(row, scales.data()) ? scales : std::vector<float>{};
}

TEST(Ternary, ScalesByHand) {
  EXPECT_EQ(scales_of(row_of({{0.5f, -0.5f, 0, -0.0f}, {-3, 3, 3}})), (std::vector<float>{0.5f, 3}));
  EXPECT_EQ(scales_of(row_of({{-0.25f}, {0}})), (std::vector<float>{0.25f, 0})) << "a group of zeros";
  EXPECT_EQ(scales_of(std::vector<float>(128, -2.0f)), (std::vector<float>{2})) << "no zero";
  std::vector<float> last_differs(256, 1.0f);
  last_differs.back() = 1.0001f;
  for (const auto& row : {row_of({{0.5f, 0.25f}}), row_of({{1}, {1, -1, 0.999f}}), row_of({{kNan, 1}}),
                          row_of({{1}, {-1, kNan}}), row_of({{kInfinity, 0}}), last_differs}) {
    EXPECT_TRUE(scales_of(row).empty());
  }
}

// f16 scales are kept; others become f16 when divided by a scale of the column, or are unsupported.
TEST(Ternary, ScalesFitF16) {
  EXPECT_EQ(ternary_column_scale(std::vector<float>{0.1f, 0.3f}), 0.0f) << "too many bits";
  EXPECT_EQ(ternary_column_scale(std::vector<float>{0.1f, 0.0f, 0.1f}), 0.1f) << "all the same";
  EXPECT_EQ(ternary_column_scale(std::vector<float>{0.1f, 0.05f}), 0.1f) << "a half of it";
  const float tenth = to_float(to_f16(0.1f)), least = 0x1p-24f;
  EXPECT_EQ(ternary_column_scale(std::vector<float>{tenth, least, 65504.0f, 0.0f}), 1.0f);
  EXPECT_EQ(ternary_column_scale(std::vector<float>{0.0f, 0.0f}), 1.0f);
  EXPECT_EQ(ternary_column_scale(std::vector<float>{0x1.004p-30f, 0x1.8p-33f}), 0x1p-45f);
  EXPECT_EQ(ternary_column_scale(std::vector<float>{0x1.004p20f, 0x1.04p3f}), 0x1p5f);
  EXPECT_EQ(ternary_column_scale(std::vector<float>{0x1p20f, 0x1p-20f}), 0.0f) << "too far apart";
  EXPECT_EQ(ternary_column_scale(std::vector<float>{0x1.004p-120f, 0x1p-121f}), 0.0f);
  EXPECT_EQ(ternary_column_scale(std::vector<float>{kInfinity}), 0.0f);
}

// Rows of random ternary weights; every seventh group is all zero.
struct Source {
  std::vector<std::byte> storage;
  TensorView view;

  Source(DType dtype, int64_t n, int64_t k, float least_scale = 0x1p-7f) {
    const int64_t size = dtype == DType::f32 ? 4 : 2;
    storage.resize(n * k * size + 1);  // unaligned
    view = {"w", dtype, {n, k}, storage.data() + 1, n * k * size};
    uint32_t state = 1;
    float scale = 0;
    for (int64_t i = 0; i < n * k; ++i) {
      state = state * 1664525u + 1013904223u;
      if (i % 128 == 0) scale = i / 128 % 7 == 6 ? 0 : std::ldexp(least_scale, static_cast<int>(state >> 29)) * 1.25f;
      set(i, static_cast<float>(static_cast<int>(state >> 16) % 3 - 1) * scale);
    }
  }

  void set(int64_t i, float value) {
    const f16 half = to_f16(value);
    const bf16 narrow = to_bf16(value);
    std::byte* first = storage.data() + 1;
    if (view.dtype == DType::f32) std::memcpy(first + i * 4, &value, 4);
    if (view.dtype == DType::f16) std::memcpy(first + i * 2, &half, 2);
    if (view.dtype == DType::bf16) std::memcpy(first + i * 2, &narrow, 2);
  }
};

struct PackedW2 {
  Arena arena;
  Matrix matrix;
  Error failure;

  std::string bytes() const { return {reinterpret_cast<const char*>(arena.data), static_cast<size_t>(arena.bytes)}; }
  // Decodes the layout in kernels/layout.h.
  float weight(int64_t n, int64_t k) const {
    const std::byte* record = panel_of(matrix, n / 64) + k / 128 * (2048 + 128);
    const int byte = std::to_integer<int>(record[k % 128 / 16 * 256 + n % 64 * 4 + k % 4]);
    f16 scale;
    std::memcpy(&scale, record + 2048 + n % 64 * 2, sizeof scale);
    return static_cast<float>((byte >> k / 4 % 4 * 2 & 3) - 1) * to_float(scale) * matrix.scale[n];
  }
};

PackedW2 pack(const TensorView& view, int threads = 2) {
  PackedW2 packed;
  const PackJob job{view, Format::w2, &packed.matrix};
  EXPECT_FALSE(allocate_arena(packed_bytes({&job, 1}), &packed.arena));
  std::memset(packed.arena.data, 0x55, packed.arena.bytes);  // padding must be written
  packed.failure = pack_all(crew(threads), {&job, 1}, packed.arena.data);
  return packed;
}

TEST(PackW2, WeightsAreExact) {
  for (const DType dtype : {DType::bf16, DType::f16, DType::f32}) {
    for (const int64_t n : {1, 16, 17, 64, 65}) {
      for (const int64_t k : {128, 256, 384}) {
        SCOPED_TRACE(std::to_string(n) + "x" + std::to_string(k) + " " + std::string(dtype_name(dtype)));
        const Source source(dtype, n, k);
        const PackedW2 packed = pack(source.view);
        ASSERT_EQ(packed.failure.message(), "");
        EXPECT_EQ(packed.matrix.column_sum, nullptr);
        EXPECT_EQ(packed.matrix.rotation, 1);
        std::vector<float> values(n * k);
        read_floats(source.view, values.data());
        for (int64_t row = 0; row < padded_n(n); ++row) {
          for (int64_t i = 0; i < k; ++i) {
            ASSERT_EQ(packed.weight(row, i), row < n ? values[row * k + i] : 0.0f) << row << " " << i;
          }
        }
        for (const int threads : {1, 3}) EXPECT_EQ(pack(source.view, threads).bytes(), packed.bytes());
      }
    }
  }
}

TEST(PackW2, ScalesBelowF16) {
  const Source source(DType::bf16, 3, 256, 0x1p-60f);
  const PackedW2 packed = pack(source.view);
  ASSERT_EQ(packed.failure.message(), "");
  std::vector<float> values(3 * 256);
  read_floats(source.view, values.data());
  for (int64_t i = 0; i < 3 * 256; ++i) EXPECT_EQ(packed.weight(i / 256, i % 256), values[i]);
}

TEST(PackW2, UnsupportedRowsAreErrors) {
  Source source(DType::f32, 100, 256);
  source.set(77 * 256 + 200, 0x1.8p-3f);
  EXPECT_EQ(pack(source.view).failure.message(), "w row 77: not ternary: want -s, 0 and s in groups of 128");
  EXPECT_EQ(pack(source.view).failure.what, kNotTernary);
  Matrix matrix;
  const TensorView narrow = {"w", DType::f32, {1, 64}, source.storage.data() + 1, 256};
  const PackJob job{narrow, Format::w2, &matrix};
  EXPECT_EQ(place_all({&job, 1}, nullptr).message(),
            "w: cannot pack this shape: want k a multiple of 128, have [1, 64]");
}

TEST(LooksTernary, SampledRowsDecide) {
  for (const DType dtype : {DType::bf16, DType::f16, DType::f32}) {
    for (const int64_t n : {1, 2, 50}) EXPECT_TRUE(looks_ternary(Source(dtype, n, 256).view)) << n;
  }
  const auto with = [](int64_t at, float value) {
    Source source(DType::f32, 50, 256);
    source.set(at, value);
    return looks_ternary(source.view);
  };
  EXPECT_FALSE(with(3, 0.3f)) << "in the first group";
  EXPECT_FALSE(with(200, 0.3f)) << "in the first row";
  EXPECT_FALSE(with(49 * 256, 0.3f)) << "in the last row";
  EXPECT_TRUE(with(2 * 256, 0.3f)) << "not in a sampled row";
}

TEST(LooksTernary, OnlyMatricesForW2) {
  Source source(DType::f32, 50, 256);
  for (int64_t i = 0; i < 50 * 256; ++i) source.set(i, 0.0f);
  EXPECT_FALSE(looks_ternary(source.view)) << "all zeros may be anything";
  source.set(49 * 256 + 255, 1.0f);
  EXPECT_TRUE(looks_ternary(source.view));
  source.set(49 * 256, 0.1f);
  EXPECT_FALSE(looks_ternary(source.view)) << "a scale that f16 cannot hold";
  Source codes(DType::f32, 4, 128);
  codes.view.dtype = DType::i32;
  EXPECT_FALSE(looks_ternary(codes.view)) << "no floats";
  const TensorView narrow = {"w", DType::f32, {4, 100}, codes.view.data, 1600};
  EXPECT_FALSE(looks_ternary(narrow)) << "no multiple of 128";
}

}  // namespace
}  // namespace pinion
