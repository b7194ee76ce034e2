// Packing of heads by halves (Format::w8h).
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "loader/files/mapped_file.h"
#include "loader/pack/pack.h"
#include "tests/crew.h"

namespace pinion {
namespace {

struct PackedHead {
  Arena arena;
  Matrix matrix;
};

PackedHead pack_head(DType dtype, int64_t n, int64_t k, const std::vector<float>& values, Format format) {
  const int64_t size = dtype == DType::f32 ? 4 : 2;
  std::vector<std::byte> bytes(n * k * size);
  for (int64_t i = 0; i < n * k; i++) {
    const uint16_t bits = dtype == DType::bf16 ? to_bf16(values[i]).bits : to_f16(values[i]).bits;
    std::memcpy(bytes.data() + i * size, dtype == DType::f32 ? static_cast<const void*>(&values[i]) : &bits, size);
  }
  PackedHead packed;
  const PackJob job{{"w", dtype, {n, k}, bytes.data(), n * k * size}, format, &packed.matrix};
  EXPECT_FALSE(allocate_arena(packed_bytes({&job, 1}), &packed.arena));
  std::memset(packed.arena.data, 0x55, packed.arena.bytes);  // padding must be written
  EXPECT_EQ(pack_all(crew(2), {&job, 1}, packed.arena.data).message(), "");
  return packed;
}

// Both halves of each weight make the code of w8, and the spread is that of the low halves.
void check_halves(const Matrix& w8, const Matrix& m) {
  const int64_t half = padded_k(m.k) / 2;
  for (int64_t row = 0; row < padded_n(m.n); row++) {
    ASSERT_EQ(m.scale[row], w8.scale[row]) << "row " << row;
    const int64_t panel = row / kPanelColumns;
    double aa = 0, ab = 0, bb = 0;
    for (int64_t i = 0; i < 2 * half; i++) {
      const auto pair = static_cast<int>(panel_of(m, panel)[code_offset(Format::w8h, i, row)]);
      const int high = (pair >> code_shift(Format::w8h, i) & 15) - 8;
      const int low = m.low[row * half + i % half] >> (i < half ? 0 : 4) & 15;
      const int code = reinterpret_cast<const int8_t*>(panel_of(w8, panel))[w8_offset(i, row)];
      ASSERT_EQ(16 * high + low, code) << "row " << row << " k " << i;
      if (i >= m.k) continue;
      const double a = 16 * high + 7.5, b = low - 7.5;
      aa += a * a, ab += a * b, bb += b * b;
    }
    const double factor = ab / aa, deviation = std::sqrt(std::max(0.0, bb - factor * ab) / static_cast<double>(m.k));
    ASSERT_NEAR(to_float(m.spread[row].first), factor, std::fabs(factor) / 256) << "row " << row;
    ASSERT_NEAR(to_float(m.spread[row].second), deviation, deviation / 256 + 1e-6) << "row " << row;
  }
}

TEST(PackHalves, ShapesAroundGroupAndPanelSizes) {
  std::mt19937 random(7);
  std::normal_distribution<float> normal(0.0f, 0.02f);
  for (const DType dtype : {DType::bf16, DType::f16, DType::f32}) {
    for (const int64_t n : {1, 15, 16, 17, 63, 64, 65, 129}) {
      for (const int64_t k : {1, 3, 4, 31, 32, 33, 255, 256, 257, 300}) {
        SCOPED_TRACE(std::string(dtype_name(dtype)) + " " + std::to_string(n) + "x" + std::to_string(k));
        std::vector<float> values(n * k);
        for (float& value : values) value = normal(random);
        const PackedHead w8 = pack_head(dtype, n, k, values, Format::w8);
        check_halves(w8.matrix, pack_head(dtype, n, k, values, Format::w8h).matrix);
        if (HasFatalFailure()) return;
      }
    }
  }
}

// A row of +-127: high halves 7 and -8, low halves 15 and 1. (16 high + 7.5) is 119.5 and -120.5, (low - 7.5) 7.5 and
// -6.5: their products sum to 1679.5 and the squares to 28800.5 and 98.5, so the factor is 0.0583, and 0.56 / 2
// remains.
TEST(PackHalves, LowHalvesThatFollowTheHighOnesLeaveASmallDeviation) {
  std::vector<float> row(512);
  for (size_t i = 0; i < row.size(); ++i) row[i] = i % 2 == 0 ? 1.0f : -1.0f;
  const PackedHead packed = pack_head(DType::f32, 1, 512, row, Format::w8h);
  EXPECT_NEAR(to_float(packed.matrix.spread[0].first), 0.0583, 0.0003);
  EXPECT_NEAR(to_float(packed.matrix.spread[0].second), 0.529, 0.003);
}

}  // namespace
}  // namespace pinion
