// Errors for tensors of codes that contradict config.json, and for rows with invalid codes.
#include <cmath>
#include <nlohmann/json.hpp>

#include "tests/loader/coded_checkpoint.h"

namespace pinion {
namespace {

// The message for GPTQ tensors with one of them replaced.
std::string with(size_t index, const Tensor& tensor, const char* config = kGptq) {
  std::vector<Tensor> tensors = gptq_tensors();
  tensors[index] = tensor;
  return Bound(config, 8, 8, tensors).failure;
}

TEST(StoredWeightsErrors, ZeroBiasBesideGptqIsIgnored) {
  std::vector<Tensor> tensors = gptq_tensors();
  tensors.push_back(floats("m.bias", "[8]", Values(8)));
  EXPECT_EQ(Bound(kGptq, 8, 8, tensors).weight.tensors.size(), 5);
  tensors.back() = floats("m.bias", "[8]", Values(8, 1.0f));
  EXPECT_EQ(Bound(kGptq, 8, 8, tensors).weight.tensors.size(), 4);
}

TEST(StoredWeightsErrors, MismatchedGptqTensors) {
  const std::vector<uint32_t> two(2, 0);
  EXPECT_EQ(with(0, words("m.qweight", "[1, 2]", two)), "m.qweight: shape differs: want [1, 8], have [1, 2]");
  EXPECT_EQ(with(0, {"m.qweight", "I64", "[1, 8]", std::string(64, '\0')}),
            "m.qweight: type differs: want I32, have I64");
  EXPECT_EQ(with(1, words("m.qzeros", "[1, 2]", two)), "m.qzeros: shape differs: want [2, 1], have [1, 2]");
  EXPECT_EQ(with(2, words("m.scales", "[1, 2]", two)), "m.scales: shape differs: want [2, 8], have [1, 2]");
  EXPECT_EQ(with(2, words("m.scales", "[2, 8]", std::vector<uint32_t>(16))),
            "m.scales: type differs: want BF16, F16 or F32, have I32");
  EXPECT_EQ(with(2, words("m.other", "[1, 2]", two)), "m.scales: no such tensor");
  EXPECT_EQ(with(3, words("m.g_idx", "[2]", two)), "m.g_idx: shape differs: want [8], have [2]");
  EXPECT_EQ(with(3, words("m.g_idx", "[8]", {0, 0, 0, 0, 1, 1, 1, 2})),
            "m.g_idx: no such group: want less than 2, have 2");
  EXPECT_EQ(with(3, words("m.g_idx", "[8]", {0, 0, 0, 0, 1, 1, 1, ~0u})),
            "m.g_idx: no such group: want less than 2, have -1");
  EXPECT_EQ(with(3, words("m.other", "[1, 2]", two),
                 R"({"quant_method": "gptq", "bits": 4, "group_size": 4, "desc_act": true})"),
            "m.g_idx: no such tensor");
  EXPECT_EQ(Bound(kGptq, 8, 4, gptq_tensors()).failure,
            "m: codes do not fill their words: want inputs a multiple of 8, have 4");
  EXPECT_EQ(Bound(kGptq, 4, 8, gptq_tensors()).failure,
            "m: codes do not fill their words: want outputs a multiple of 8, have 4");
}

TEST(StoredWeightsErrors, MismatchedPackedTensors) {
  const std::vector<int64_t> shape = {2, 10}, other = {10, 2};
  const Tensor codes = words("m.weight_packed", "[2, 2]", std::vector<uint32_t>(4));
  const Tensor scale = floats("m.weight_scale", "[2, 2]", Values(4));
  const std::string config = packed_config(4, "group", 5, true);
  const auto message = [](const std::string& text, const std::vector<Tensor>& tensors) {
    return Bound(text, 2, 10, tensors).failure;
  };
  EXPECT_EQ(message(config, {codes, scale}), "m.weight_shape: no such tensor");
  EXPECT_EQ(message(config, {codes, scale, {"m.weight_shape", "I64", "[2]", bytes(other)}}),
            "m.weight_shape: stores another shape: want [2, 10], have [10, 2]");
  EXPECT_EQ(message(config, {codes, {"m.weight_shape", "I64", "[2]", bytes(shape)}}), "m.weight_scale: no such tensor");
  EXPECT_EQ(
      message(packed_config(4, "group", 5, false), {codes, scale, {"m.weight_shape", "I64", "[2]", bytes(shape)}}),
      "m.weight_zero_point: no such tensor");
  EXPECT_EQ(message(packed_config(8, "group", 5, true), {codes, scale, {"m.weight_shape", "I64", "[2]", bytes(shape)}}),
            "m.weight_packed: shape differs: want [2, 3], have [2, 2]");
  EXPECT_EQ(message(config, {codes,
                             scale,
                             {"m.weight_shape", "I64", "[2]", bytes(shape)},
                             words("m.weight_g_idx", "[10]", {0, 0, 0, 0, 0, 1, 1, 1, 1, 1})}),
            "");
  const auto with_order = [&](const std::vector<uint32_t>& groups) {
    return message(config, {codes,
                            scale,
                            {"m.weight_shape", "I64", "[2]", bytes(shape)},
                            words("m.weight_g_idx", "[" + std::to_string(groups.size()) + "]", groups)});
  };
  EXPECT_EQ(with_order({1, 0, 0, 0, 0, 0, 1, 1, 1, 1}), "");
  EXPECT_EQ(with_order(std::vector<uint32_t>(10, -1u)), "") << "never set";
  EXPECT_EQ(with_order({1, 0, 0, 0, 0, 1, 1, 1, 1, 1}),
            "m.weight_g_idx: groups of different sizes: want 5 inputs each, have 4 in group 0");
  EXPECT_EQ(with_order({1, 0, 0, 0, 0, 0, 1, 1, 1, 2}), "m.weight_g_idx: no such group: want less than 2, have 2");
  EXPECT_EQ(with_order({1, 0, 0, 0, 0, 0, 1, 1, 1, -2u}), "m.weight_g_idx: no such group: want less than 2, have -2");
  EXPECT_EQ(with_order({1, 0}), "m.weight_g_idx: shape differs: want [10], have [2]");
}

TEST(StoredWeightsErrors, MismatchedByteTensors) {
  const Tensor codes = integers("m.weight", "[2, 4]", std::vector<int8_t>(8)),
               scale = floats("m.weight_scale", "[2, 2]", Values(4, 1.0f));
  const std::string config = bytes_config(4, "group", 2, true), with_zeros = bytes_config(4, "group", 2, false);
  const auto message = [](const std::string& text, const std::vector<Tensor>& tensors) {
    return Bound(text, 2, 4, tensors).failure;
  };
  EXPECT_EQ(message(config, {codes, scale}), "");
  EXPECT_EQ(message(config, {scale}), "m.weight: no such tensor");
  EXPECT_EQ(message(config, {codes}), "m.weight_scale: no such tensor");
  EXPECT_EQ(message(config, {floats("m.weight", "[2, 4]", Values(8)), scale}),
            "m.weight: type differs: want I8, have F32");
  EXPECT_EQ(message(config, {integers("m.weight", "[2, 3]", std::vector<int8_t>(6)), scale}),
            "m.weight: shape differs: want [2, 4], have [2, 3]");
  EXPECT_EQ(message(config, {codes, floats("m.weight_scale", "[2, 1]", Values(2))}),
            "m.weight_scale: shape differs: want [2, 2], have [2, 1]");
  EXPECT_EQ(message(config, {codes, integers("m.weight_scale", "[2, 2]", std::vector<int8_t>(4))}),
            "m.weight_scale: type differs: want BF16, F16 or F32, have I8");
  EXPECT_EQ(message(bytes_config(4, "channel", 0, true), {codes, floats("m.weight_scale", "[2]", Values(2))}),
            "m.weight_scale: shape differs: want [2, 1], have [2]");
  EXPECT_EQ(message(with_zeros, {codes, scale}), "m.weight_zero_point: no such tensor");
  EXPECT_EQ(message(with_zeros, {codes, scale, floats("m.weight_zero_point", "[2, 2]", Values(4))}),
            "m.weight_zero_point: type differs: want I8, have F32");
  EXPECT_EQ(message(with_zeros, {codes, scale, integers("m.weight_zero_point", "[2]", std::vector<int8_t>(2))}),
            "m.weight_zero_point: shape differs: want [2, 2], have [2]");
  EXPECT_EQ(message(config, {codes, scale, words("m.weight_g_idx", "[4]", {0, 0, 1, 1})}), "");
  EXPECT_EQ(message(config, {codes, scale, words("m.weight_g_idx", "[4]", {0, 1, 0, 1})}), "");
  EXPECT_EQ(message(config, {codes, scale, words("m.weight_g_idx", "[4]", {0, 1, 1, 1})}),
            "m.weight_g_idx: groups of different sizes: want 2 inputs each, have 1 in group 0");
}

TEST(StoredWeightsErrors, MismatchedFp8Tensors) {
  const std::string config = R"({"quant_method": "fp8"})",
                    blocks = R"({"quant_method": "fp8", "weight_block_size": [2, 2]})";
  const Tensor codes = {"m.weight", "F8_E4M3", "[2, 3]", kFp8Codes};
  EXPECT_EQ(Bound(config, 2, 3, {codes}).failure, "m.weight_scale: no such tensor: want the scales of 8-bit weights");
  EXPECT_EQ(Bound(config, 2, 3, {codes, floats("m.weight_scale_inv", "[1, 2]", {1, 2})}).failure,
            "m.weight_scale_inv: shape differs: want [2, 1], [2] or one number, have [1, 2]");
  EXPECT_EQ(Bound(blocks, 2, 3, {codes, floats("m.weight_scale_inv", "[2, 1]", {1, 2})}).failure,
            "m.weight_scale_inv: shape differs: want [1, 2], have [2, 1]");
  EXPECT_EQ(Bound(blocks, 2, 3, {codes, {"m.weight_scale_inv", "F8_E8M0", "[1, 2]", "ab"}}).failure,
            "m.weight_scale_inv: type differs: want BF16, F16 or F32, have F8_E8M0");
  EXPECT_EQ(Bound(config, 2, 3, {{"m.weight", "F8_E5M2", "[2, 3]", kFp8Codes}}).failure,
            "m.weight: type differs: want BF16, F16 or F32, have F8_E5M2");
}

TEST(StoredWeightsErrors, InvalidRowsAreErrorsWhenPacked) {
  std::vector<Tensor> tensors = gptq_tensors();
  EXPECT_EQ(pack_message(Bound(kGptq, 8, 8, tensors)), "");
  tensors[1] = words("m.qzeros", "[2, 1]", {0x66666666, 0x66f66666});
  EXPECT_EQ(
      pack_message(Bound(kGptq, 8, 8, tensors)),
      "m.qzeros column 5: a zero point of 0, which tools read differently: want stored less one: below 15, have 15");
  tensors = gptq_tensors();
  tensors[2] = floats("m.scales", "[2, 8]", {1, 1, 1, 1, INFINITY, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1});
  EXPECT_EQ(pack_message(Bound(kGptq, 8, 8, tensors)), "m.qweight row 4: NaN or infinity in the weights");
  const auto bytes_failure = [](std::vector<int8_t> codes, const std::vector<int8_t>& zeros) {
    return pack_message(
        Bound(bytes_config(4, "group", 2, false), 3, 4,
              {integers("m.weight", "[3, 4]", codes), floats("m.weight_scale", "[3, 2]", Values(6, 1.0f)),
               integers("m.weight_zero_point", "[3, 2]", zeros)}));
  };
  EXPECT_EQ(bytes_failure({-8, 7, 0, 0, -8, 7, 0, 0, -8, 7, 0, 0}, {-8, 7, 0, 0, 0, 0}), "");
  EXPECT_EQ(bytes_failure(std::vector<int8_t>(12, 8), std::vector<int8_t>(6)),
            "m.weight row 0: out of range: want -8 to 7, have 8");
  for (const int8_t code : std::vector<int8_t>{-128, -9, 8, 127}) {
    const std::string have = ": out of range: want -8 to 7, have " + std::to_string(code);
    EXPECT_EQ(bytes_failure({0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, code}, {0, 0, 0, 0, 0, 0}), "m.weight row 2" + have);
    EXPECT_EQ(bytes_failure(std::vector<int8_t>(12), {0, 0, 0, code, 0, 0}), "m.weight_zero_point row 1" + have);
  }
  const Bound fp8(
      R"({"quant_method": "fp8"})", 2, 3,
      {{"m.weight", "F8_E4M3", "[2, 3]", std::string(5, '\x38') + "\x7f"}, floats("m.weight_scale", "[]", {1})});
  EXPECT_EQ(pack_message(fp8), "m.weight row 1: NaN or infinity in the weights");
}

}  // namespace
}  // namespace pinion
