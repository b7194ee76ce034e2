// Experts that share tensors: the elements of packed matrices.
#include "loader/quant/stored_weights.h"
#include "tests/crew.h"

#include <gtest/gtest.h>

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "kernels/half.h"
#include "loader/checkpoint/number_formats.h"
#include "loader/config/model_config.h"
#include "loader/files/mapped_file.h"
#include "loader/gguf/gguf.h"

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

TensorView view(const char* name, DType dtype, std::vector<int64_t> shape, const auto& data) {
  const auto bytes = std::as_bytes(std::span(data));
  return {name, dtype, std::move(shape), bytes.data(), std::ssize(bytes)};
}

// Packs rows [first, first + count) of all experts' rows.
void expect_rows(const LinearWeight& whole, int64_t first, int64_t count,
                 const std::function<float(int64_t n, int64_t k)>& expected) {
  const LinearWeight rows = rows_of(whole, first, count);
  Matrix matrix;
  Arena arena;
  PackJob job = {.source = rows.weight, .format = Format::bf16, .out = &matrix, .reader = rows.reader};
  ASSERT_EQ(allocate_arena(packed_bytes({&job, 1}), &arena).message(), "");
  ASSERT_EQ(pack_all(crew(3), {&job, 1}, arena.data).message(), "");
  ASSERT_EQ(matrix.n, count);
  for (int64_t n = 0; n < count; ++n) {
    const auto* panel = reinterpret_cast<const bf16*>(matrix.panels) + n / kPanelColumns * padded_k(kK) * kPanelColumns;
    for (int64_t k = 0; k < kK; ++k) ASSERT_EQ(to_float(panel[bf16_offset(k, n)]), expected(n, k)) << n << " " << k;
  }
}

TEST(FusedExperts, ColumnsOfNumbersBecomeRows) {
  const std::vector<bf16> numbers = stored_numbers();
  Checkpoint checkpoint;
  checkpoint.tensors = {view("experts.w", DType::bf16, {kExperts, kK, kN}, numbers)};
  for (const bool halves : {false, true}) {
    for (const bool is_gate_up : {false, true}) {
      LinearWeight whole;
      const ExpertsConfig experts = {.count = kExperts, .fused = true, .halves = halves};
      ASSERT_EQ(bind_shared_experts(checkpoint, experts, "experts.w", is_gate_up, kN, kK, &whole).message(), "");
      EXPECT_EQ(whole.weight.shape, (std::vector<int64_t>{kExperts * kN, kK}));
      EXPECT_EQ(whole.tensors, std::vector<std::string>{"experts.w"});
      const int64_t step = is_gate_up && !halves ? 2 : 1;
      const auto up_row = [&](int64_t n) { return step == 2 ? 2 * n + 1 : kN / 2 + n; };
      expect_rows(whole, kN, kN / 2, [&](int64_t n, int64_t k) { return number(1, n * step, k); });
      expect_rows(whole, kN + kN / 2, kN / 2, [&](int64_t n, int64_t k) { return number(1, up_row(n), k); });
      expect_rows(whole, kN + 3, 5, [&](int64_t n, int64_t k) { return number(1, (3 + n) * step, k); });
    }
  }
}

// Rows of several heads in one call: 27 of the first to 176 of the second.
TEST(FusedExperts, ColumnsOfAllHeadsAreOneMatrix) {
  const std::vector<bf16> numbers = stored_numbers();
  Checkpoint checkpoint;
  checkpoint.tensors = {view("k_b", DType::bf16, {kExperts, kK, kN}, numbers)};
  LinearWeight whole;
  ASSERT_EQ(bind_columns(checkpoint, "k_b", kExperts, kN, kK, &whole).message(), "");
  EXPECT_EQ(whole.weight.shape, (std::vector<int64_t>{kExperts * kN, kK}));
  std::vector<float> rows(450 * kK);
  whole.reader.read(27, 450, rows.data());
  for (int64_t i = 0; i < std::ssize(rows); ++i) {
    const int64_t row = 27 + i / kK;
    ASSERT_EQ(rows[i], number(row / kN, row % kN, i % kK)) << i;
  }
  // Blocks of Q8_0, which is type 8, with scales of 1.
  constexpr int64_t kColumns = 64, kCodes = 32;
  std::string blocks;
  for (int64_t i = 0; i < kExperts * kK * kColumns; ++i) {
    if (i % kCodes == 0) blocks += std::string("\0\x3c", 2);
    blocks += static_cast<char>((5 * i + i / kColumns) % 255 - 127);
  }
  checkpoint.tensors = {view("k_b", ggml_type(8)->dtype, {kExperts, kK, kColumns}, blocks)};
  ASSERT_EQ(bind_columns(checkpoint, "k_b", kExperts, kColumns, kK, &whole).message(), "");
  EXPECT_EQ(whole.stored_as, "Q8_0");
  std::vector<float> stored(kExperts * kK * kColumns), columns(100 * kK);
  read_floats(checkpoint.tensors[0], stored.data());
  whole.reader.read(13, 100, columns.data());
  for (int64_t i = 0; i < std::ssize(columns); ++i) {
    const int64_t row = 13 + i / kK;
    ASSERT_EQ(columns[i], stored[(row / kColumns * kK + i % kK) * kColumns + row % kColumns]) << i;
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

  Checkpoint checkpoint;
  checkpoint.tensors = {view("experts.w_blocks", DType::u8, {kExperts, kN, kBlocks, kMxGroupBytes}, codes),
                        view("experts.w_scales", DType::u8, {kExperts, kN, kBlocks}, scales)};
  const ExpertsConfig experts = {.count = kExperts, .fused = true, .mxfp4 = true};
  for (const bool is_gate_up : {false, true}) {
    LinearWeight whole;
    ASSERT_EQ(bind_shared_experts(checkpoint, experts, "experts.w", is_gate_up, kN, kK, &whole).message(), "");
    EXPECT_EQ(whole.stored_as, "MXFP4");
    const auto row = [&](int64_t n, int64_t k) { return numbers[(kN + n) * kK + k]; };
    const int64_t step = is_gate_up ? 2 : 1, up = is_gate_up ? 1 : kN / 2;
    expect_rows(whole, kN, kN / 2, [&](int64_t n, int64_t k) { return row(n * step, k); });
    expect_rows(whole, kN + kN / 2, kN / 2, [&](int64_t n, int64_t k) { return row(up + n * step, k); });
  }
  LinearWeight whole;
  EXPECT_EQ(bind_shared_experts(checkpoint, experts, "experts.w", true, kN, kK + 1, &whole).expected,
            "a multiple of 32");
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
  c.experts.count = 5;
  ASSERT_FALSE(bind_shared_experts(checkpoint, c.experts, "l.1.e.gate_up", true, 6, 2, &found));
  EXPECT_EQ(found.weight.shape, (std::vector<int64_t>{30, 2}));
  EXPECT_EQ(found.tensors, std::vector<std::string>{"l.1.e.gate_up"});
  EXPECT_EQ(rows_of(found, 6, 3).weight.data, data + 24);
  EXPECT_EQ(bind_shared_experts(checkpoint, c.experts, "l.1.e.gate_up", true, 7, 2, &found).expected, "[5, 7, 2]");
  EXPECT_EQ(bind_shared_experts(checkpoint, c.experts, "l.1.e.down", false, 2, 3, &found).what, "no such tensor");
}

}  // namespace
}  // namespace pinion
