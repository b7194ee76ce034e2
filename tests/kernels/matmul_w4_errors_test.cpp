// Arguments of matmul_w4: each wrong one is an error that names it, and nothing is written.
#include <algorithm>
#include <functional>

#include "kernels/ops/matmul_w4.h"
#include "tests/kernels/ops.h"

namespace pinion {
namespace {

// A valid product on the scalar table, with row blocks of four rows, that each test invalidates in one way.
struct ValidCall {
  MatmulW4 mm = {.m = 10, .n = 130, .k = 40, .kernels = &scalar_kernels()};
  std::vector<uint8_t> codes = std::vector<uint8_t>(130 * 20, 0x88), zeros = std::vector<uint8_t>(260, 8);
  std::vector<f16> scales = std::vector<f16>(260, to_f16(1));
  std::vector<float> x = std::vector<float>(400, 1.0f), out = std::vector<float>(1300, 7.0f);
  alignas(64) std::byte lhs[2048], rhs[16384];
  MatmulW4Weights weights = {.codes = codes.data(), .scales = scales.data()};
  int64_t m0 = 4, m1 = 10, ldx = 40;
  const float* rows = x.data();
  std::byte* packed_lhs = lhs;
  std::byte* packed_rhs = rhs;
  MatmulW4Part part = {.m0 = 4, .m1 = 10, .n0 = 64, .n1 = 130, .lhs = lhs, .rhs = rhs, .out = out.data(), .ldo = 66};
  int64_t dst_m0 = 4, dst_n0 = 64, dst_ldo = 130;

  ValidCall() {
    std::ranges::fill(lhs, std::byte{5});
    std::ranges::fill(rhs, std::byte{5});
  }
  // The operations by name.
  Error call(const std::string& operation) {
    MatmulW4Sizes sizes;
    int64_t offset;
    if (operation == "matmul_w4_sizes") return matmul_w4_sizes(mm, &sizes);
    if (operation == "matmul_w4_lhs_packed_offset") return matmul_w4_lhs_packed_offset(mm, dst_m0, &offset);
    if (operation == "matmul_w4_rhs_packed_offset") return matmul_w4_rhs_packed_offset(mm, dst_n0, &offset);
    if (operation == "matmul_w4_dst_offset") return matmul_w4_dst_offset(mm, dst_m0, dst_n0, dst_ldo, &offset);
    if (operation == "matmul_w4_pack_rhs") return matmul_w4_pack_rhs(mm, weights, packed_rhs);
    if (operation == "matmul_w4_pack_lhs") return matmul_w4_pack_lhs(mm, m0, m1, rows, ldx, packed_lhs);
    return matmul_w4(mm, part);
  }
};

constexpr const char* kOperations[] = {"matmul_w4_sizes",
                                       "matmul_w4_lhs_packed_offset",
                                       "matmul_w4_rhs_packed_offset",
                                       "matmul_w4_dst_offset",
                                       "matmul_w4_pack_rhs",
                                       "matmul_w4_pack_lhs",
                                       "matmul_w4"};

void expect_refused(const std::string& operation, const std::string& argument,
                    const std::function<void(ValidCall&)>& invalidate) {
  ValidCall s;
  invalidate(s);
  expect_refused(s.call(operation), operation + ": ", argument + ": ");
  EXPECT_EQ(s.out, std::vector<float>(1300, 7.0f));
  EXPECT_TRUE(std::ranges::all_of(s.lhs, [](std::byte b) { return b == std::byte{5}; })) << operation;
  EXPECT_TRUE(std::ranges::all_of(s.rhs, [](std::byte b) { return b == std::byte{5}; })) << operation;
}

TEST(MatmulW4Errors, ValidProductIsAccepted) {
  ValidCall s;
  for (const char* operation : kOperations) EXPECT_EQ(s.call(operation).message(), "") << operation;
  EXPECT_EQ(s.out[0], 0);
  EXPECT_EQ(s.out[6 * 66], 7);
}

TEST(MatmulW4Errors, Sizes) {
  for (const char* operation : kOperations) {
    for (int64_t bad : {int64_t{-1}, int64_t{INT32_MAX} + 1}) {
      expect_refused(operation, "m", [=](ValidCall& s) { s.mm.m = bad; });
      expect_refused(operation, "n", [=](ValidCall& s) { s.mm.n = bad; });
      expect_refused(operation, "k", [=](ValidCall& s) { s.mm.k = bad; });
    }
    expect_refused(operation, "k", [](ValidCall& s) { s.mm.k = 0; });
  }
}

TEST(MatmulW4Errors, Edges) {
  for (int64_t bad : {-4, 5, 11, 12}) {
    const auto m0 = [=](ValidCall& s) { s.dst_m0 = s.m0 = s.part.m0 = bad; };
    for (const char* operation :
         {"matmul_w4_lhs_packed_offset", "matmul_w4_dst_offset", "matmul_w4_pack_lhs", "matmul_w4"}) {
      expect_refused(operation, "m0", m0);
    }
  }
  for (int64_t bad : {0, 9, 11, 12}) {
    for (const char* operation : {"matmul_w4_pack_lhs", "matmul_w4"}) {
      expect_refused(operation, "m1", [=](ValidCall& s) { s.m1 = s.part.m1 = bad; });
    }
  }
  for (int64_t bad : {-64, 1, 129, 192}) {
    for (const char* operation : {"matmul_w4_rhs_packed_offset", "matmul_w4_dst_offset", "matmul_w4"}) {
      expect_refused(operation, "n0", [=](ValidCall& s) { s.dst_n0 = s.part.n0 = bad; });
    }
  }
  for (int64_t bad : {0, 129, 131, 192}) {
    expect_refused("matmul_w4", "n1", [=](ValidCall& s) { s.part.n1 = bad; });
  }
}

TEST(MatmulW4Errors, Strides) {
  expect_refused("matmul_w4_dst_offset", "ldo", [](ValidCall& s) { s.dst_ldo = 129; });
  expect_refused("matmul_w4_dst_offset", "ldo", [](ValidCall& s) { s.dst_ldo = int64_t{1} << 62; });
  expect_refused("matmul_w4_pack_lhs", "ldx", [](ValidCall& s) { s.ldx = 39; });
  expect_refused("matmul_w4", "ldo", [](ValidCall& s) { s.part.ldo = 65; });
  expect_refused("matmul_w4", "ops.gate_stride",
                 [](ValidCall& s) { s.part.ops.gate = s.rows, s.part.ops.gate_stride = 65; });
}

TEST(MatmulW4Errors, Pointers) {
  expect_refused("matmul_w4_pack_rhs", "codes", [](ValidCall& s) { s.weights.codes = nullptr; });
  expect_refused("matmul_w4_pack_rhs", "scales", [](ValidCall& s) { s.weights.scales = nullptr; });
  expect_refused("matmul_w4_pack_rhs", "packed", [](ValidCall& s) { s.packed_rhs = nullptr; });
  expect_refused("matmul_w4_pack_rhs", "packed", [](ValidCall& s) { s.packed_rhs = s.rhs + 32; });
  expect_refused("matmul_w4_pack_lhs", "x", [](ValidCall& s) { s.rows = nullptr; });
  expect_refused("matmul_w4_pack_lhs", "packed", [](ValidCall& s) { s.packed_lhs = nullptr; });
  expect_refused("matmul_w4_pack_lhs", "packed", [](ValidCall& s) { s.packed_lhs = s.lhs + 4; });
  expect_refused("matmul_w4", "lhs", [](ValidCall& s) { s.part.lhs = nullptr; });
  expect_refused("matmul_w4", "lhs", [](ValidCall& s) { s.part.lhs = s.lhs + 4; });
  expect_refused("matmul_w4", "rhs", [](ValidCall& s) { s.part.rhs = nullptr; });
  expect_refused("matmul_w4", "rhs", [](ValidCall& s) { s.part.rhs = s.rhs + 1; });
  expect_refused("matmul_w4", "out", [](ValidCall& s) { s.part.out = nullptr; });
  expect_refused("matmul_w4", "ops", [](ValidCall& s) { s.part.ops.row_scale = s.rows; });
  expect_refused("matmul_w4", "ops", [](ValidCall& s) { s.part.ops.column_scale = s.rows; });
}

TEST(MatmulW4Errors, Weights) {
  for (int64_t bad : {0, 16, 48, -32}) {
    expect_refused("matmul_w4_pack_rhs", "group", [=](ValidCall& s) { s.weights.group = bad; });
  }
  expect_refused("matmul_w4_pack_rhs", "zero_points", [](ValidCall& s) { s.weights.zero_points = s.zeros.data(); });
  expect_refused("matmul_w4_pack_rhs", "zero_points", [](ValidCall& s) { s.mm.has_zero_points = true; });
  expect_refused("matmul_w4_pack_rhs", "zero_points[259]", [](ValidCall& s) {
    s.mm.has_zero_points = true, s.weights.zero_points = s.zeros.data(), s.zeros[259] = kMaxZero + 1;
  });
  for (const f16 bad : {f16{0x7c00}, f16{0xfc00}, f16{0x7e00}}) {
    expect_refused("matmul_w4_pack_rhs", "scales[259]", [=](ValidCall& s) { s.scales[259] = bad; });
    expect_refused("matmul_w4_pack_rhs", "column_scale[129]",
                   [=](ValidCall& s) { s.x[129] = to_float(bad), s.weights.column_scale = s.x.data(); });
  }
}

}  // namespace
}  // namespace pinion
