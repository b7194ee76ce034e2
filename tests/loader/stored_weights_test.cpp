// Codes of every format: worked by hand, packed, and whole files against the reference.
#include "loader/quant/stored_weights.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <deque>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <random>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "kernels/base/hash.h"
#include "loader/checkpoint/number_formats.h"
#include "loader/config/model_config.h"
#include "loader/pack/pack_cache.h"
#include "tests/loader/coded_checkpoint.h"

namespace pinion {
namespace {

TEST(StoredWeights, GptqWordsRunDownTheInputs) {
  const Bound v1(kGptq, 8, 8, gptq_tensors());
  ASSERT_EQ(v1.failure, "");
  EXPECT_EQ(v1.rows(5, 1), (Values{-7, -6, -5, -4, -30, -20, -10, 0}));  // zero 6 + 1
  const Bound v2(R"({"quant_method": "gptq", "bits": 4, "group_size": 4, "checkpoint_format": "gptq_v2"})", 8, 8,
                 gptq_tensors());
  ASSERT_EQ(v2.failure, "");
  EXPECT_EQ(v2.rows(5, 1), (Values{-6, -5, -4, -3, -20, -10, 0, 10}));
  EXPECT_EQ(v2.weight.tensors, (std::vector<std::string>{"m.qweight", "m.scales", "m.qzeros", "m.g_idx"}));
}

TEST(StoredWeights, GptqZerosRunAlongTheOutputs) {
  std::vector<Tensor> tensors = gptq_tensors();
  tensors[1] = words("m.qzeros", "[2, 1]", {0x01234567, 0x89abcdeb});
  const Bound bound(kGptq, 8, 8, tensors);
  ASSERT_EQ(bound.failure, "");
  EXPECT_EQ(bound.rows(0, 1), (Values{-8, -7, -6, -5, -80, -70, -60, -50}));  // 7 + 1, 11 + 1
  EXPECT_EQ(bound.rows(7, 1), (Values{-1, 0, 1, 2, -50, -40, -30, -20}));     // 0 + 1, 8 + 1
}

TEST(StoredWeights, GptqActOrder) {
  std::vector<Tensor> tensors = gptq_tensors();
  tensors[3] = words("m.g_idx", "[8]", {1, 0, 1, 0, 1, 0, 1, 0});
  const Bound bound(kGptq, 8, 8, tensors);
  ASSERT_EQ(bound.failure, "");
  EXPECT_EQ(bound.rows(2, 1), (Values{-70, -6, -50, -4, -30, -2, -10, 0}));
}

TEST(StoredWeights, GptqOfEightBits) {
  const Bound bound(R"({"quant_method": "gptq", "bits": 8, "group_size": -1})", 4, 4,
                    {words("m.qweight", "[1, 4]", {0x80ff0100, 0, 0, 0}), words("m.qzeros", "[1, 1]", {0x7f7f7f7f}),
                     floats("m.scales", "[1, 4]", {2, 1, 1, 1})});
  ASSERT_EQ(bound.failure, "");
  EXPECT_EQ(bound.rows(0, 1), (Values{-256, -254, 254, 0}));
}

TEST(StoredWeights, AwqInterleavesEvenAndOddOutputs) {
  const Bound bound(kAwq, 8, 2,
                    {words("m.qweight", "[2, 1]", {0x76543210, 0xfedcba98}), words("m.qzeros", "[1, 1]", {0x87654321}),
                     floats("m.scales", "[1, 8]", {1, 1, 1, 1, 1, 1, 1, 10})});
  ASSERT_EQ(bound.failure, "");
  // The columns 0 2 4 6 1 3 5 7 have the codes 0 to 7, then 8 to 15, and the zeros 1 to 8.
  EXPECT_EQ(bound.rows(0, 8), (Values{-1, 7, -1, 7, -1, 7, -1, 7, -1, 7, -1, 7, -1, 7, -10, 70}));
  const Bound plain(kAwq, 8, 2,
                    {words("m.qweight", "[2, 1]", {0x76543210, 0xfedcba98}), words("m.qzeros", "[1, 1]", {0}),
                     floats("m.scales", "[1, 8]", {1, 1, 1, 1, 1, 1, 1, 1})});
  EXPECT_EQ(plain.rows(0, 8), (Values{0, 8, 4, 12, 1, 9, 5, 13, 2, 10, 6, 14, 3, 11, 7, 15}));
}

TEST(StoredWeights, PackedWordsRunAlongARow) {
  const std::vector<int64_t> shape = {2, 10};
  const Bound bound(packed_config(4, "group", 5, true), 2, 10,
                    {words("m.weight_packed", "[2, 2]", {0x76543210, 0x98, 0xfedcba98, 0x10}),
                     floats("m.weight_scale", "[2, 2]", {1, 10, 1, 10}),
                     {"m.weight_shape", "I64", "[2]", bytes(shape)}});
  ASSERT_EQ(bound.failure, "");
  EXPECT_EQ(bound.rows(0, 1), (Values{-8, -7, -6, -5, -4, -30, -20, -10, 0, 10}));
  EXPECT_EQ(bound.rows(1, 1), (Values{0, 1, 2, 3, 4, 50, 60, 70, -80, -70}));
}

TEST(StoredWeights, PackedZerosRunDownTheRows) {
  const std::vector<int64_t> shape = {2, 4};
  const Bound bound(packed_config(4, "group", 2, false), 2, 4,
                    {words("m.weight_packed", "[2, 1]", {0x3210, 0x7654}),
                     floats("m.weight_scale", "[2, 2]", {1, 1, 1, 10}),
                     words("m.weight_zero_point", "[1, 2]", {0x21, 0x43}),
                     {"m.weight_shape", "I64", "[2]", bytes(shape)}});
  ASSERT_EQ(bound.failure, "");
  EXPECT_EQ(bound.rows(0, 2), (Values{-1, 0, -1, 0, 2, 3, 20, 30}));
}

TEST(StoredWeights, PackedActOrder) {
  const std::vector<int64_t> shape = {2, 4};
  const Bound bound(packed_config(4, "group", 2, false), 2, 4,
                    {words("m.weight_packed", "[2, 1]", {0x3210, 0x7654}),
                     floats("m.weight_scale", "[2, 2]", {1, 10, 1, 100}),
                     words("m.weight_zero_point", "[1, 2]", {0x21, 0x43}),
                     words("m.weight_g_idx", "[4]", {1, 0, 0, 1}),
                     {"m.weight_shape", "I64", "[2]", bytes(shape)}});
  ASSERT_EQ(bound.failure, "");
  EXPECT_EQ(bound.rows(0, 2), (Values{-30, 0, 1, 0, 0, 3, 4, 300}));
  EXPECT_EQ(bound.weight.tensors.back(), "m.weight_g_idx");
}

TEST(StoredWeights, PackedOfEightBits) {
  const std::vector<int32_t> shape = {1, 5};
  const Bound bound(packed_config(8, "channel", 0, true), 1, 5,
                    {words("m.weight_packed", "[1, 2]", {0xff807f00, 0x81}),
                     floats("m.weight_scale", "[1, 1]", {0.5f}),
                     {"m.weight_shape", "I32", "[2]", bytes(shape)}});
  ASSERT_EQ(bound.failure, "");
  EXPECT_EQ(bound.rows(0, 1), (Values{-64, -0.5f, 0, 63.5f, 0.5f}));
}

TEST(StoredWeights, BytesAreSignedIntegers) {
  const Tensor codes = integers("m.weight", "[2, 4]", {-8, -1, 0, 7, 1, 2, 3, -4});
  const Bound symmetric(bytes_config(4, "group", 2, true), 2, 4,
                        {codes, floats("m.weight_scale", "[2, 2]", {1, 10, 1, 0.5f})});
  ASSERT_EQ(symmetric.failure, "");
  EXPECT_EQ(symmetric.weight.stored_as, "int-quantized, 4 bits, groups of 2");
  EXPECT_EQ(symmetric.rows(0, 2), (Values{-8, -1, 0, 70, 1, 2, 1.5f, -2}));
  const Bound channels(bytes_config(4, "channel", 0, true), 2, 4, {codes, floats("m.weight_scale", "[2, 1]", {1, 10})});
  ASSERT_EQ(channels.failure, "");
  EXPECT_EQ(channels.rows(0, 2), (Values{-8, -1, 0, 7, 10, 20, 30, -40}));
  const Bound zeros(bytes_config(4, "group", 2, false), 2, 4,
                    {codes, floats("m.weight_scale", "[2, 2]", {1, 10, 1, 0.5f}),
                     integers("m.weight_zero_point", "[2, 2]", {-8, 7, 2, 0}), floats("m.input_scale", "[]", {1})});
  ASSERT_EQ(zeros.failure, "");
  EXPECT_EQ(zeros.rows(0, 2), (Values{0, 7, -70, 0, -1, 0, 1.5f, -2}));
  EXPECT_EQ(zeros.weight.tensors,
            (std::vector<std::string>{"m.weight", "m.weight_scale", "m.weight_zero_point", "m.input_scale"}));
}

TEST(StoredWeights, BytesActOrder) {
  const Bound bound(
      bytes_config(4, "group", 2, true), 2, 4,
      {integers("m.weight", "[2, 4]", {-8, -1, 0, 7, 1, 2, 3, -4}),
       floats("m.weight_scale", "[2, 2]", {1, 10, 1, 0.5f}), words("m.weight_g_idx", "[4]", {0, 1, 0, 1})});
  ASSERT_EQ(bound.failure, "");
  EXPECT_EQ(bound.rows(0, 2), (Values{-8, -10, 0, 70, 1, 1, 3, -2}));
}

TEST(StoredWeights, BytesOfEightBits) {
  const Tensor codes = integers("m.weight", "[1, 4]", {-128, -1, 0, 127}),
               scale = floats("m.weight_scale", "[1, 2]", {1, 0.5f});
  const Bound groups(bytes_config(8, "group", 2, true), 1, 4, {codes, scale});
  ASSERT_EQ(groups.failure, "");
  EXPECT_EQ(groups.rows(0, 1), (Values{-128, -1, 0, 63.5f}));
  const Bound zeros(bytes_config(8, "group", 2, false), 1, 4,
                    {codes, scale, integers("m.weight_zero_point", "[1, 2]", {-128, 127})});
  ASSERT_EQ(zeros.failure, "");
  EXPECT_EQ(zeros.rows(0, 1), (Values{0, 127, -63.5f, 0}));
}

TEST(StoredWeights, AllFp8Codes) {
  for (int code = 0; code < 256; ++code) {
    const int exponent = code >> 3 & 15, mantissa = code & 7;
    const double size = exponent > 0 ? std::ldexp(8 + mantissa, exponent - 10) : std::ldexp(mantissa, -9);
    const float value = f8_e4m3_to_float(static_cast<uint8_t>(code));
    if ((code & 0x7f) == 0x7f) {
      EXPECT_TRUE(std::isnan(value));
    } else {
      EXPECT_EQ(value, code < 128 ? size : -size) << code;
      EXPECT_EQ(std::signbit(value), code >= 128);
    }
  }
}

TEST(StoredWeights, Fp8ScalesPerTensorRowOrTile) {
  const std::string config = R"({"quant_method": "fp8", "activation_scheme": "static"})";
  const Tensor codes = {"m.weight", "F8_E4M3", "[2, 3]", kFp8Codes};
  const Bound whole(config, 2, 3,
                    {codes, floats("m.weight_scale_inv", "[]", {2}), floats("m.activation_scale", "[]", {7})});
  ASSERT_EQ(whole.failure, "");
  EXPECT_EQ(whole.rows(0, 2), (Values{2, -4, 896, 0x1p-8f, 0x1p-5f, 2}));
  EXPECT_EQ(whole.weight.tensors, (std::vector<std::string>{"m.weight", "m.activation_scale", "m.weight_scale_inv"}));
  const Bound by_row(config, 2, 3, {codes, floats("m.weight_scale", "[2, 1]", {1, 4})});
  ASSERT_EQ(by_row.failure, "");
  EXPECT_EQ(by_row.rows(1, 1), (Values{0x1p-7f, 0x1p-4f, 4}));
  const Bound blocks(R"({"quant_method": "fp8", "weight_block_size": [1, 2]})", 2, 3,
                     {codes, floats("m.weight_scale_inv", "[2, 2]", {1, 2, 3, 4})});
  ASSERT_EQ(blocks.failure, "");
  EXPECT_EQ(blocks.rows(0, 2), (Values{1, -2, 896, 3 * 0x1p-9f, 3 * 0x1p-6f, 4}));
}

constexpr const char* kNvfp4 =
    R"({"quant_method": "compressed-tensors", "format": "nvfp4-pack-quantized", "config_groups":
    {"group_0": {"targets": ["Linear"], "weights": {"num_bits": 4, "type": "float", "strategy": "tensor_group",
    "group_size": 16}, "input_activations": {"num_bits": 4, "type": "float", "strategy": "tensor_group",
    "dynamic": "local", "group_size": 16}}}})";

// 32 inputs of two outputs: all numbers forwards, then backwards. Scales of 1, 1.5, 2 and 0.5, divided by 4.
std::vector<Tensor> nvfp4_tensors() {
  const std::vector<uint32_t> up = {0x76543210, 0xfedcba98}, down = {0x89abcdef, 0x01234567};
  std::vector<uint32_t> codes;
  for (const auto& part : {up, up, up, down}) codes.insert(codes.end(), part.begin(), part.end());
  return {{"m.weight_packed", "U8", "[2, 16]", bytes(codes)},
          {"m.weight_scale", "F8_E4M3", "[2, 2]", bytes(std::vector<uint8_t>{0x38, 0x3c, 0x40, 0x30})},
          floats("m.weight_global_scale", "[1]", {4}),
          floats("m.input_global_scale", "[1]", {7})};
}

TEST(StoredWeights, Nvfp4ScalesPerGroupAndDivisor) {
  const Bound bound(kNvfp4, 2, 32, nvfp4_tensors());
  ASSERT_EQ(bound.failure, "");
  EXPECT_EQ(bound.weight.stored_as, "NVFP4, groups of 16");
  const Values numbers = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6, -0.0f, -0.5f, -1, -1.5f, -2, -3, -4, -6};
  Values wanted;
  for (const float scale : {0.25f, 0.375f, 0.5f}) {
    for (const float number : numbers) wanted.push_back(number * scale);
  }
  for (size_t i = numbers.size(); i-- > 0;) wanted.push_back(numbers[i] * 0.125f);
  EXPECT_EQ(bound.rows(0, 2), wanted);
  EXPECT_EQ(bound.rows(1, 1), Values(wanted.begin() + 32, wanted.end()));
  EXPECT_EQ(bound.weight.tensors, (std::vector<std::string>{"m.weight_packed", "m.weight_scale",
                                                            "m.weight_global_scale", "m.input_global_scale"}));
}

TEST(StoredWeights, Nvfp4MismatchesAreErrors) {
  std::vector<Tensor> tensors = nvfp4_tensors();
  EXPECT_EQ(Bound(kNvfp4, 2, 24, tensors).failure,
            "m: codes do not fill their words: want inputs a multiple of 16, have 24");
  tensors[2] = floats("m.weight_global_scale", "[1]", {0});
  EXPECT_EQ(Bound(kNvfp4, 2, 32, tensors).failure,
            "m.weight_global_scale: out of range: want above 0 and finite, have 0.000000");
  tensors[2] = floats("m.weight_global_scale", "[1]", {INFINITY});
  EXPECT_EQ(Bound(kNvfp4, 2, 32, tensors).failure,
            "m.weight_global_scale: out of range: want above 0 and finite, have inf");
  tensors[1].dtype = "U8";
  EXPECT_EQ(Bound(kNvfp4, 2, 32, tensors).failure, "m.weight_scale: type differs: want F8_E4M3, have U8");
}

TEST(StoredWeights, RowRangesReadTheSameRows) {
  std::vector<Tensor> tensors = gptq_tensors();
  tensors[1] = words("m.qzeros", "[2, 1]", {0x01234567, 0x89abcdeb});
  const Bound bound(kGptq, 8, 8, tensors);
  ASSERT_EQ(bound.failure, "");
  const LinearWeight part = rows_of(bound.weight, 3, 4);
  EXPECT_EQ(part.weight.name, "m.qweight[3:7]");
  EXPECT_EQ(part.weight.shape, (std::vector<int64_t>{4, 8}));
  Values values(32);
  read_rows(part.coded, 0, 4, values.data());
  EXPECT_EQ(values, bound.rows(3, 4));
}

TEST(StoredWeights, ModuleWithoutCodesIsFloatingPoint) {
  const Bound gptq(kGptq, 1, 2, {floats("m.weight", "[1, 2]", {1, 2})});
  EXPECT_EQ(gptq.failure, "");
  EXPECT_FALSE(gptq.weight.coded.format);
  const Bound fp8(R"({"quant_method": "fp8"})", 1, 2, {floats("m.weight", "[1, 2]", {1, 2})});
  EXPECT_EQ(fp8.failure, "");
  EXPECT_FALSE(fp8.weight.coded.format);
}

// Two rows of four bytes hold eight rows of codes. Code 3, which no tool writes, decodes to 2.
TEST(StoredWeights, BitnetHasFourRowsInAByte) {
  const std::vector<uint8_t> codes = {0b10'01'00'10, 0b00'00'00'11, 0, 0xaa, 0b01'01'01'01, 0b10'00'01'01, 0x55, 0xff};
  const std::vector<Tensor> tensors = {{"m.weight", "U8", "[2, 4]", bytes(codes)},
                                       floats("m.weight_scale", "[1]", {0.5f})};
  const Bound bound(R"({"quant_method": "bitnet", "linear_class": "autobitlinear"})", 8, 4, tensors);
  ASSERT_EQ(bound.failure, "");
  EXPECT_EQ(bound.weight.stored_as, "BitNet, 2 bits");
  EXPECT_EQ(bound.rows(0, 2), (Values{0.5f, 1, -0.5f, 0.5f, 0, 0, 0, 1}));
  EXPECT_EQ(bound.rows(3, 1), (Values{0, 0, 0, 1})) << "the next bits of the second row";
  EXPECT_EQ(bound.rows(6, 1), (Values{0.5f, -0.5f, -0.5f, 0.5f}));
  const Bound divided(R"({"quant_method": "bitnet"})", 8, 4, tensors);
  EXPECT_EQ(divided.rows(6, 1), (Values{2, -2, -2, 2}));
  EXPECT_EQ(divided.weight.stored_as, "BitNet, 2 bits, divided by the scale");
  for (const float scale : {0.0f, -0.5f, 1e-42f, INFINITY, NAN}) {
    const std::vector<Tensor> unfit = {tensors[0], floats("m.weight_scale", "[1]", {scale})};
    const Bound bad(R"({"quant_method": "bitnet"})", 8, 4, unfit);
    EXPECT_NE(bad.failure.find("m.weight_scale: invalid scale"), std::string::npos) << scale << ": " << bad.failure;
  }
  const Bound odd(R"({"quant_method": "bitnet"})", 6, 4, tensors);
  EXPECT_NE(odd.failure.find("outputs a multiple of 4"), std::string::npos) << odd.failure;
}

std::vector<uint32_t> random_words(size_t count) {
  std::mt19937 random(static_cast<uint32_t>(count));
  std::vector<uint32_t> values(count);
  for (uint32_t& value : values) value = static_cast<uint32_t>(random()) & 0x7777'7777;  // no invalid zero point
  return values;
}

std::vector<int8_t> random_integers(size_t count, int bits) {
  std::mt19937 random(static_cast<uint32_t>(count));
  std::vector<int8_t> values(count);
  for (int8_t& value : values)
    value = static_cast<int8_t>(static_cast<int>(random() % (1u << bits)) - (1 << (bits - 1)));
  return values;
}

// More than two panels; the inputs end inside a group of the layout.
constexpr int64_t kN = 136, kK = 72;

std::deque<Bound> random_weights() {
  std::deque<Bound> all;
  const auto scales = [](size_t count) {
    Values values(count);
    for (size_t i = 0; i < count; ++i) values[i] = 0.01f * static_cast<float>(1 + i % 7);
    return values;
  };
  const Tensor columns = floats("m.scales", "[3, 136]", scales(3 * kN)),
               zeros = words("m.qzeros", "[3, 17]", random_words(51));
  all.emplace_back(R"({"quant_method": "gptq", "bits": 4, "group_size": 32})", kN, kK,
                   std::vector{words("m.qweight", "[9, 136]", random_words(9 * kN)), columns, zeros});
  all.emplace_back(R"({"quant_method": "awq", "bits": 4, "group_size": 32})", kN, kK,
                   std::vector{words("m.qweight", "[72, 17]", random_words(kK * 17)), columns, zeros});
  const std::vector<int64_t> shape = {kN, kK};
  all.emplace_back(packed_config(4, "group", 24, false), kN, kK,
                   std::vector<Tensor>{words("m.weight_packed", "[136, 9]", random_words(kN * 9)),
                                       floats("m.weight_scale", "[136, 3]", scales(3 * kN)),
                                       words("m.weight_zero_point", "[17, 3]", random_words(51)),
                                       {"m.weight_shape", "I64", "[2]", bytes(shape)}});
  for (const int bits : {4, 8}) {
    all.emplace_back(bytes_config(bits, "group", 24, false), kN, kK,
                     std::vector<Tensor>{integers("m.weight", "[136, 72]", random_integers(kN * kK, bits)),
                                         floats("m.weight_scale", "[136, 3]", scales(3 * kN)),
                                         integers("m.weight_zero_point", "[136, 3]", random_integers(3 * kN, bits))});
  }
  all.emplace_back(R"({"quant_method": "fp8", "weight_block_size": [100, 50]})", kN, kK,
                   std::vector<Tensor>{{"m.weight", "F8_E4M3", "[136, 72]", bytes(random_words(kN * kK / 4))},
                                       floats("m.weight_scale_inv", "[2, 2]", scales(4))});
  return all;
}

TEST(StoredWeights, PackedCodesEqualPackedNumbers) {
  for (const Bound& bound : random_weights()) {
    ASSERT_EQ(bound.failure, "");
    const Values values = bound.rows(0, kN);
    LinearWeight plain;
    plain.weight = {"w", DType::f32, {kN, kK}, reinterpret_cast<const std::byte*>(values.data()), kN * kK * 4};
    for (const Format format : {Format::w8, Format::bf16}) {
      Arena expected;
      ASSERT_EQ(pack(plain, format, 1, &expected), "");
      for (const int threads : {1, 3}) {
        Arena packed;
        ASSERT_EQ(pack(bound.weight, format, threads, &packed), "");
        ASSERT_EQ(packed.bytes, expected.bytes);
        EXPECT_EQ(std::memcmp(packed.data, expected.data, expected.bytes), 0);
      }
    }
  }
}

TEST(StoredWeights, CacheKeyNamesTheFormat) {
  const auto header = [](const char* config) {
    const Bound bound(config, 8, 8, gptq_tensors());
    Matrix matrix;
    const PackJob job{bound.weight.weight, Format::w8, &matrix, bound.weight.scale, reader_of(bound.weight, false)};
    const std::string text = pack_cache_of("/cache", bound.checkpoint, {&job, 1}).header;
    const size_t from = text.find("at 0 ");
    return text.substr(from, text.find('\n', from) - from);
  };
  EXPECT_EQ(header(kGptq), "at 0 m.qweight, GPTQ, 4 bits, groups of 4: w8 [8, 8]");
  EXPECT_EQ(header(R"({"quant_method": "gptq", "bits": 4, "group_size": 4, "checkpoint_format": "gptq_v2"})"),
            "at 0 m.qweight, GPTQ v2, 4 bits, groups of 4: w8 [8, 8]");
}

// The numbers that PyTorch decodes from the files in tests/data/families (tools/reference/stored_codes.py).
TEST(StoredWeights, WholeFilesMatchTheReference) {
  std::set<StoredAs> formats;
  for (const auto& entry : std::filesystem::directory_iterator(PINION_TEST_DATA "/families")) {
    Json expected;
    ASSERT_EQ(read_json_file(entry.path() / "expected.json", &expected).message(), "");
    if (!expected.contains("decoded")) continue;
    ModelConfig config;
    Checkpoint checkpoint;
    ASSERT_EQ(read_model_config(entry.path(), &config).message(), "");
    ASSERT_EQ(open_checkpoint(entry.path(), &checkpoint).message(), "");
    ASSERT_EQ(select_tensors(config.tensors, &checkpoint).message(), "");
    formats.insert(config.quantization->groups[0].scheme.stored_as);
    for (const auto& [name, recorded] : expected["decoded"].items()) {
      const std::string module = name.substr(0, name.rfind('.'));
      const int64_t n = recorded[0], k = recorded[1];
      LinearWeight weight;
      ASSERT_EQ(bind_linear(checkpoint, config.quantization, module, n, k, &weight).message(), "");
      Values values(n * k);
      read_rows(weight.coded, 0, n, values.data());
      EXPECT_EQ(hash_bytes(std::as_bytes(std::span(values))), std::stoull(recorded[2].get<std::string>(), nullptr, 16))
          << name;
    }
  }
  EXPECT_EQ(formats, (std::set{StoredAs::fp8, StoredAs::bytes, StoredAs::packed, StoredAs::gptq, StoredAs::awq,
                               StoredAs::nvfp4, StoredAs::bitnet}));
}

}  // namespace
}  // namespace pinion
