// Block types of GGUF: the values of gguf-py, bit by bit (tools/reference/make_gguf_blocks.py).

#include <gtest/gtest.h>

#include <bit>
#include <cmath>

#include "loader/checkpoint/number_formats.h"
#include "loader/gguf/gguf.h"
#include "tests/loader/gguf_files.h"
#include "tests/loader/make_files.h"

namespace pinion {
namespace {

bool same(float a, float b) { return std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b) || (a != a && b != b); }

struct Blocks {
  TensorView codes;
  std::vector<float> values;
};

class GgufBlocks : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(open_gguf(PINION_TEST_DATA "/gguf/blocks.gguf", &files_, &file_).message(), "");
    for (size_t i = 0; i < file_.tensors.size(); i += 2) {
      const TensorView &codes = file_.tensors[i], &values = file_.tensors[i + 1];
      ASSERT_EQ(values.name, codes.name + ".values");
      ASSERT_EQ(values.shape, codes.shape);
      Blocks& type = types_.emplace_back(codes);
      type.values.resize(values.elements());
      read_floats(values, type.values.data());
    }
  }

  std::vector<MappedFile> files_;
  GgufFile file_;
  std::vector<Blocks> types_;
};

TEST_F(GgufBlocks, EveryTypeHasTheValuesOfGgufPy) {
  size_t kinds = 0;
  for (int dtype = 0; dtype <= static_cast<int>(DType::q1_0); ++dtype) {
    if (block_format(static_cast<DType>(dtype))) ++kinds;
  }
  EXPECT_EQ(types_.size(), kinds) << "types without values";
  for (const auto& [codes, values] : types_) {
    EXPECT_EQ(dtype_name(codes.dtype), codes.name);
    std::vector<float> read(values.size());
    read_floats(codes, read.data());
    for (size_t i = 0; i < values.size(); ++i) {
      ASSERT_TRUE(same(read[i], values[i])) << codes.name << " " << i << ": " << read[i] << ", not " << values[i];
    }
  }
}

TEST_F(GgufBlocks, RangesAndRowsEqualTheWhole) {
  for (const auto& [codes, values] : types_) {
    const int64_t step = codes.shape[1];
    EXPECT_EQ(block_format(codes.dtype)->elements, step) << codes.name;
    for (int64_t row = 0; row < codes.shape[0]; ++row) {
      const bool two = row + 1 < codes.shape[0];
      std::vector<float> rows(step * (two ? 2 : 1));
      if (two) read_floats(codes, row * step, 2 * step, rows.data());
      if (!two) read_row(codes, row, rows.data());
      for (size_t i = 0; i < rows.size(); ++i) ASSERT_TRUE(same(rows[i], values[row * step + i])) << codes.name << i;
    }
  }
}

// The scale of the first block is 2, ties are rounded to even; the second block is 0; the scale of the third is
// rounded.
TEST(GgufBlocksByHand, Q8_0IsWritten) {
  std::vector<float> numbers(96);
  numbers[0] = 254, numbers[1] = 3, numbers[2] = -5, numbers[31] = -254;
  numbers[64] = 1.0f;
  std::vector<std::byte> blocks(3 * 34);
  write_q8_0(numbers.data(), 3, blocks.data());
  EXPECT_EQ(blocks[0], std::byte{0x00});  // 2 as f16
  EXPECT_EQ(blocks[1], std::byte{0x40});
  std::vector<float> read(96);
  ggml_type(kQ8_0)->read(blocks.data(), 3, read.data());
  EXPECT_EQ(read[0], 254.0f);
  EXPECT_EQ(read[1], 4.0f);
  EXPECT_EQ(read[2], -4.0f);
  EXPECT_EQ(read[31], -254.0f);
  for (size_t i = 32; i < 64; ++i) EXPECT_EQ(read[i], 0.0f);
  EXPECT_EQ(read[64], 127 * to_float(to_f16(1.0f / 127)));
}

TEST(GgufBlocksByHand, SmallBlocks) {
  const std::string one("\x00\x3c", 2), minus_two("\x00\xc0", 2);
  const auto first = [](DType dtype, const std::string& block) {
    std::vector<float> out(block_format(dtype)->elements);
    EXPECT_EQ(std::ssize(block), block_format(dtype)->bytes);
    block_format(dtype)->read(as_bytes(block).data(), 1, out.data());
    return out;
  };
  std::vector<float> out = first(DType::q4_0, one + "\x1f" + std::string(15, '\x88'));
  EXPECT_EQ(out[0], 7);
  EXPECT_EQ(out[16], -7);
  EXPECT_EQ(out[1], 0);
  out = first(DType::q1_0, minus_two + "\x05" + std::string(15, '\0'));
  EXPECT_EQ((std::vector<float>(out.begin(), out.begin() + 4)), (std::vector<float>{-2, 2, -2, 2}));
  EXPECT_EQ(out[127], 2);
  out = first(DType::mxfp4, "\x80\x72" + std::string(15, '\0'));
  EXPECT_EQ(out[0], 2);
  EXPECT_EQ(out[16], 12);
}

}  // namespace
}  // namespace pinion
