// Experts that share tensors: the elements of packed matrices.
#include "loader/quant/stored_weights.h"
#include "tests/crew.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "kernels/half.h"
#include "loader/checkpoint/number_formats.h"
#include "loader/config/model_config.h"
#include "loader/files/mapped_file.h"

namespace pinion {
namespace {

constexpr int64_t kExperts = 2, kN = 300, kK = 64;  // gate and up take three panels each

// Integers that bf16 represents.
float number(int64_t expert, int64_t n, int64_t k) { return static_cast<float>((7 * expert + 3 * n + k) % 251 - 125); }

// [experts, k, n]
std::vector<bf16> stored_numbers() {
  std::vector<bf16> numbers;
  for (int64_t i = 0; i < kExperts * kK * kN; ++i) {
    numbers.push_back(to_bf16(number(i / (kK * kN), i % kN, i / kN % kK)));
  }
  return numbers;
}

struct Packed {
  Matrix matrix;
  Arena arena;
  std::string name;

  float at(int64_t n, int64_t k) const {
    const auto* panel = static_cast<const bf16*>(matrix.panels) + n / kPanelColumns * padded_k(kK) * kPanelColumns;
    return to_float(panel[bf16_offset(k, n)]);
  }
};

void pack(const FusedMatrix& fused, int64_t expert, const SteppedRows& rows, Packed* out) {
  const PackJob job = expert_job(fused, expert, rows, Format::bf16, &out->matrix);
  out->name = job.source.name;
  ASSERT_EQ(allocate_arena(packed_bytes({&job, 1}), &out->arena).message(), "");
  ASSERT_EQ(pack_all(crew(3), {&job, 1}, out->arena.data).message(), "");
}

FusedMatrix fused_of(const std::vector<bf16>& numbers) {
  FusedMatrix fused{"experts.w", kN, kK, {}, {}, {}};
  fused.values = {"experts.w",
                  DType::bf16,
                  {kExperts, kK, kN},
                  reinterpret_cast<const std::byte*>(numbers.data()),
                  std::ssize(numbers) * 2};
  return fused;
}

TEST(FusedExperts, ColumnsOfNumbersBecomeRows) {
  const std::vector<bf16> numbers = stored_numbers();
  const FusedMatrix fused = fused_of(numbers);
  for (const int64_t step : {1, 2}) {
    for (int64_t first = 0; first < step; ++first) {
      Packed packed;
      ASSERT_NO_FATAL_FAILURE(pack(fused, 1, {first, step, kN / step}, &packed));
      ASSERT_EQ(packed.matrix.n, kN / step);
      for (int64_t n = 0; n < kN / step; ++n) {
        for (int64_t k = 0; k < kK; ++k) ASSERT_EQ(packed.at(n, k), number(1, first + n * step, k)) << n << " " << k;
      }
      EXPECT_EQ(packed.name,
                step == 1 ? "experts.w[1]"
                          : "experts.w[1] rows " + std::to_string(first) + ", " + std::to_string(first + 2) + ", ...");
    }
  }
}

TEST(FusedExperts, CodesBecomeRows) {
  constexpr int64_t kBlocks = kK / kMxGroup, kRows = kExperts * kN;
  std::vector<std::byte> codes, scales;
  for (int64_t i = 0; i < kRows * kBlocks * kMxGroupBytes; ++i) {
    codes.push_back(static_cast<std::byte>(i * 37 + i / 256));
  }
  for (int64_t i = 0; i < kRows * kBlocks; ++i) scales.push_back(static_cast<std::byte>(120 + i % 11));
  std::vector<float> numbers(kRows * kK);
  read_mxfp4(codes.data(), scales.data(), kRows * kBlocks, numbers.data());

  FusedMatrix fused{"experts.w", kN, kK, {}, {}, {}};
  fused.values = {"", DType::u8, {kExperts, kN, kBlocks, kMxGroupBytes}, codes.data(), std::ssize(codes)};
  fused.scales = {"", DType::u8, {kExperts, kN, kBlocks}, scales.data(), std::ssize(scales)};
  for (int64_t first = 0; first < 2; ++first) {
    Packed packed;
    ASSERT_NO_FATAL_FAILURE(pack(fused, 1, {first, 2, kN / 2}, &packed));
    for (int64_t n = 0; n < kN / 2; ++n) {
      const float* row = numbers.data() + (kN + first + 2 * n) * kK;
      for (int64_t k = 0; k < kK; ++k) ASSERT_EQ(packed.at(n, k), row[k]) << n << " " << k;
    }
  }
}

TEST(FusedExperts, RowSubsets) {
  const std::vector<bf16> numbers = stored_numbers();
  const FusedMatrix fused = fused_of(numbers);
  for (const SteppedRows& rows : {SteppedRows{2, 1, 3}, SteppedRows{3, 2, 2}}) {
    Packed packed;
    ASSERT_NO_FATAL_FAILURE(pack(fused, 1, rows, &packed));
    ASSERT_EQ(packed.matrix.n, rows.count);
    for (int64_t n = 0; n < rows.count; ++n) {
      for (int64_t k = 0; k < kK; ++k) ASSERT_EQ(packed.at(n, k), number(1, rows.first + n * rows.step, k));
    }
    EXPECT_EQ(packed.name, rows.step == 1 ? "experts.w[1][2:5]" : "experts.w[1] rows 3, 5, ...");
  }
}

TEST(FusedExperts, GateAndUpAreSplitByExpert) {
  std::vector<float> pairs = {0, 10, 1, 11, 2, 12, 3, 13, 4, 14, 5, 15};
  split_gate_up(3, pairs);
  EXPECT_EQ(pairs, (std::vector<float>{0, 1, 2, 10, 11, 12, 3, 4, 5, 13, 14, 15}));
}

// The tensors in the file decide between stacked and single experts.
TEST(StackedExperts, UsedIfTheFileHasThem) {
  ModelConfig c;
  c.layer = {{.has_experts = false}, {.has_experts = true}};
  c.names["expert_gate"] = "l.{}.e.{}.gate", c.names["expert_up"] = "l.{}.e.{}.up",
  c.names["expert_down"] = "l.{}.e.{}.down";
  c.names["stacked_gate_up"] = "l.{}.e.gate_up", c.names["stacked_down"] = "l.{}.e.down";
  Checkpoint checkpoint;
  checkpoint.tensors = {{"l.1.e.0.gate.weight", DType::bf16, {3, 2}, nullptr, 12}};
  find_stacked_experts(checkpoint, &c);
  EXPECT_FALSE(c.experts.stacked);
  EXPECT_EQ(c.name("expert_up"), "l.{}.e.{}.up");

  const std::vector<bf16> numbers(5 * 6 * 2);
  const auto* data = reinterpret_cast<const std::byte*>(numbers.data());
  checkpoint.tensors = {{"l.1.e.gate_up", DType::bf16, {5, 6, 2}, data, 120}};
  find_stacked_experts(checkpoint, &c);
  EXPECT_TRUE(c.experts.stacked);
  EXPECT_EQ(c.name("expert_gate"), "l.{}.e.gate_up");
  EXPECT_EQ(c.name("expert_up"), "l.{}.e.gate_up");
  EXPECT_EQ(c.name("expert_down"), "l.{}.e.down");

  LinearWeight found;
  ASSERT_FALSE(bind_stacked_experts(checkpoint, "l.1.e.gate_up", 5, 6, 2, &found));
  EXPECT_EQ(found.weight.shape, (std::vector<int64_t>{30, 2}));
  EXPECT_EQ(found.tensors, std::vector<std::string>{"l.1.e.gate_up"});
  EXPECT_EQ(rows_of(found, 6, 3).weight.data, data + 24);
  EXPECT_EQ(bind_stacked_experts(checkpoint, "l.1.e.gate_up", 5, 7, 2, &found).expected, "[5, 7, 2]");
  EXPECT_EQ(bind_stacked_experts(checkpoint, "l.1.e.down", 5, 2, 3, &found).what, "no such tensor");
}

}  // namespace
}  // namespace pinion
