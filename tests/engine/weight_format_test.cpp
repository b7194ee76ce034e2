// Formats of matrices by hand, and models whose files have 4-bit codes.
#include "engine/model/load_options.h"
#include "engine/runtime/load.h"
#include "loader/config/layer_tensors.h"
#include "loader/quant/stored_weights.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "tests/engine/one_result.h"
#include "tests/loader/wide_groups.h"

namespace pinion {
namespace {

const std::string kFamilies = PINION_TEST_DATA "/families/";

LoadOptions mode(Quant quant) { return {.quant = quant}; }

ModelConfig config_of(int bits) {
  ModelConfig config;
  config.names["head"] = "head";
  config.quantization.emplace().groups.push_back({{}, {.bits = bits}});
  return config;
}

LinearWeight float_weight() {
  LinearWeight weight;
  weight.weight.shape = {64, 96};
  return weight;
}

// A matrix of int8 codes.
LinearWeight int8_weight() {
  static constexpr std::byte kNothing = {};
  LinearWeight weight = float_weight();
  weight.stored_as = "int8";
  weight.scale.data = &kNothing;
  return weight;
}

TEST(WeightFormat, FloatsBeside4BitCodesBecomeInt8) {
  LoadOptions w4a8 = mode(Quant::w4a8);
  w4a8.keep = {"kept"};
  const auto format = [&](int bits, const std::string& module, const LinearWeight& weight) {
    return packing_of(w4a8, config_of(bits), module == "head" ? MatrixRole::head : MatrixRole::v, module, weight);
  };
  EXPECT_EQ(format(4, "m", float_weight()).format, Format::w8);
  EXPECT_FALSE(format(4, "m", float_weight()).as_stored);
  EXPECT_EQ(format(4, "m", int8_weight()).format, Format::w8);
  EXPECT_TRUE(format(4, "m", int8_weight()).as_stored);
  EXPECT_EQ(format(4, "kept", float_weight()).format, Format::bf16);
  EXPECT_EQ(format(4, "head", float_weight()).format, Format::w8h);
  EXPECT_EQ(format(8, "m", float_weight()).format, Format::w4n) << "no 4-bit codes in that file";
  EXPECT_EQ(format(8, "m", int8_weight()).format, Format::w4n);
  EXPECT_FALSE(format(8, "m", int8_weight()).as_stored);
  ModelConfig plain;
  EXPECT_EQ(packing_of(w4a8, plain, MatrixRole::q, "m", float_weight()).format, Format::w4n);
  EXPECT_EQ(packing_of(mode(Quant::w8a8), config_of(4), MatrixRole::q, "m", int8_weight()).as_stored, true);
  EXPECT_EQ(packing_of(mode(Quant::none), config_of(4), MatrixRole::q, "m", float_weight()).format, Format::bf16);
}

TEST(WeightFormat, ModeW4a8Plus) {
  const LoadOptions plus = mode(Quant::w4a8_plus);
  ModelConfig plain;
  EXPECT_EQ(packing_of(plus, plain, MatrixRole::q, "m", float_weight()).format, Format::w4n);
  EXPECT_EQ(packing_of(plus, plain, MatrixRole::q, "m", int8_weight()).format, Format::w4n);
  EXPECT_EQ(packing_of(plus, config_of(8), MatrixRole::head, "head", float_weight()).format, Format::w8h);
  EXPECT_EQ(packing_of(plus, config_of(4), MatrixRole::q, "m", float_weight()).format, Format::w8)
      << "beside 4-bit codes";
}

// SmolLM2 135M has 3,538,944 weights a layer: 110,592 in v, 884,736 in down. Of all, w4a8 may take a 70th as int8 (13
// matrices v), w4a8+ a seventh (30 matrices v and 13 down).
TEST(WeightFormat, Int8MatricesFitTheirBits) {
  const TempFolder folder;
  std::ofstream(folder.path / "config.json") << R"({"model_type": "llama", "hidden_size": 576, "num_hidden_layers": 30,
    "num_attention_heads": 9, "num_key_value_heads": 3, "intermediate_size": 1536, "vocab_size": 49152})";
  ModelConfig config;
  ASSERT_EQ(read_model_config(folder.path, &config).message(), "");
  const auto layers_of = [&](Quant quant, MatrixRole role) {
    std::vector<int64_t> layers;
    for (const auto& [layer, each] : int8_matrices(quant, config)) {
      if (each == role) layers.push_back(layer);
    }
    return layers;
  };
  using Layers = std::vector<int64_t>;
  EXPECT_EQ(layers_of(Quant::w4a8, MatrixRole::v), (Layers{0, 1, 2, 3, 4, 5, 6, 24, 25, 26, 27, 28, 29}));
  EXPECT_EQ(layers_of(Quant::w4a8, MatrixRole::down), Layers{});
  EXPECT_EQ(layers_of(Quant::w4a8_plus, MatrixRole::v).size(), 30u);
  EXPECT_EQ(layers_of(Quant::w4a8_plus, MatrixRole::down), (Layers{0, 1, 2, 3, 4, 5, 6, 24, 25, 26, 27, 28, 29}));
  EXPECT_TRUE(int8_matrices(Quant::w8a8, config).empty());
  EXPECT_TRUE(int8_matrices(Quant::none, config).empty());
}

// The rotation size is the largest power of two that divides k.
TEST(WeightFormat, OwnQuantisationIsRotated) {
  const auto rotation = [](const LoadOptions& options, const LinearWeight& weight) {
    return packing_of(options, ModelConfig{}, MatrixRole::q, "m", weight).rotation;
  };
  for (const Quant quant : {Quant::w8a8, Quant::w4a8}) {
    LoadOptions options = mode(quant);
    EXPECT_EQ(rotation(options, float_weight()), 32);
    EXPECT_EQ(rotation(options, int8_weight()), quant == Quant::w8a8 ? 1 : 32) << "kept codes are not rotated";
    options.keep = {"m"};
    EXPECT_EQ(rotation(options, float_weight()), 1) << "bf16";
    options.keep.clear();
    options.rotate = false;
    EXPECT_EQ(rotation(options, float_weight()), 1);
  }
  EXPECT_EQ(rotation(mode(Quant::none), float_weight()), 1);
  EXPECT_EQ(rotation_of(1024), 1024);
  EXPECT_EQ(rotation_of(3072), 1024);
  EXPECT_EQ(rotation_of(576), 64);
  EXPECT_EQ(rotation_of(35), 1);
}

TEST(WeightFormat, HeadFormatOption) {
  for (const Format head : {Format::bf16, Format::w8, Format::w4}) {
    LoadOptions options = mode(Quant::w4a8);
    options.head = head;
    EXPECT_EQ(packing_of(options, config_of(4), MatrixRole::head, "head", float_weight()).format, head);
  }
}

TEST(WeightFormat, KeepContradictsHeadFormat) {
  LoadOptions options = mode(Quant::w8a8);
  EXPECT_FALSE(check_head_format(options, config_of(4)));
  options.keep = {"head"};
  EXPECT_FALSE(check_head_format(options, config_of(4))) << "no head format given";
  options.head = Format::bf16;
  EXPECT_FALSE(check_head_format(options, config_of(4))) << "the same format twice";
  options.head = Format::w8;
  EXPECT_EQ(check_head_format(options, config_of(4)).message(),
            "head.weight: kept by the pattern \"head\", but given another format: want bf16, have w8");
}

std::unique_ptr<Model> load(const std::string& folder, const LoadOptions& options) {
  std::unique_ptr<Model> model;
  EXPECT_EQ(load_model(folder, options, &model).message(), "");
  return model;
}

std::set<Format> body_formats(const Model& model) {
  std::set<Format> formats;
  for (const Layer& l : model.layers) {
    using enum MatrixRole;
    for (const MatrixRole role : {q, k, v, o}) formats.insert(l[role].weight.format);
    for (const Expert& e : l.experts) {
      for (const Linear& one : e.matrix) formats.insert(one.weight.format);
    }
    if (!l.experts.empty()) continue;
    for (const MatrixRole role : {gate, up, down}) formats.insert(l[role].weight.format);
  }
  return formats;
}

// Relative L2 distance of the logits.
double distance_from_none(const std::string& folder, const Model& model) {
  const auto none = load(folder, mode(Quant::none));
  const std::vector<int32_t> ids = some_tokens(40, model.config.vocab_size);
  const std::vector<float> have = all_logits(model, ids, 40, {2, {KvType::f32}}),
                           want = all_logits(*none, ids, 40, {2, {KvType::f32}});
  double difference = 0, size = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    difference += std::pow(static_cast<double>(have[i] - want[i]), 2);
    size += std::pow(static_cast<double>(want[i]), 2);
  }
  return std::sqrt(difference / size);
}

void expect_as_stored(const std::string& folder) {
  const auto model = load(folder, mode(Quant::w4a8));
  ASSERT_TRUE(model);
  EXPECT_TRUE(model->conversions.empty());
  EXPECT_EQ(body_formats(*model), std::set{Format::w4z});
  EXPECT_EQ(model->head.weight.format, Format::w8h);
  expect_one_result(*model, 20, KvType::q8);
  // Both round activations; w8a8 rounds the weights too. Measured ratio: 0.5 to 1.13.
  const auto w8a8 = load(folder, mode(Quant::w8a8));
  EXPECT_LT(distance_from_none(folder, *model), 1.3 * distance_from_none(folder, *w8a8));
}

TEST(FourBitFiles, SameBitsForAnyRun) {
  expect_as_stored(kFamilies + "llama_gptq");
  for (const std::string family : {"phi3_awq", "mixtral_awq", "qwen3_packed"}) {
    SCOPED_TRACE(family);
    const TempFolder folder;
    ASSERT_NO_FATAL_FAILURE(write_wide_groups(family, folder));
    expect_as_stored(folder.path);
  }
}

// Only matrices that would be quantised to 4 bits here: others keep their format.
TEST(WeightFormat, Int8MatricesOfAModel) {
  const auto plus = load(kFamilies + "llama_gqa", mode(Quant::w4a8_plus));
  std::set<std::pair<int64_t, MatrixRole>> int8;
  for (const MatrixTensor& tensor : all_matrices(plus->config)) {
    if (matrix_of(*plus, tensor).weight.format == Format::w8) int8.insert({tensor.layer, tensor.role});
  }
  EXPECT_EQ(int8, int8_matrices(Quant::w4a8_plus, plus->config));
  EXPECT_FALSE(int8.empty());
  EXPECT_EQ(body_formats(*plus), (std::set{Format::w8, Format::w4n}));
  LoadOptions kept = mode(Quant::w4a8_plus);
  kept.keep = {"v_proj"};
  EXPECT_EQ(load(kFamilies + "llama_gqa", kept)->layers[0][MatrixRole::v].weight.format, Format::bf16);
  EXPECT_EQ(body_formats(*load(kFamilies + "llama_gptq", mode(Quant::w4a8_plus))), std::set{Format::w4z});
  expect_one_result(*plus, 20, KvType::q8);
}

TEST(FourBitFiles, RequantisedCodesAreReported) {
  const auto model = load(kFamilies + "phi3_awq", mode(Quant::w4a8));
  EXPECT_EQ(body_formats(*model), std::set{Format::w4n});
  ASSERT_EQ(model->conversions.size(), 1u);
  const Conversion& one = model->conversions[0];
  EXPECT_EQ(one.from, "AWQ, 4 bits, groups of 4");
  EXPECT_EQ(one.requantised_because, "groups that are no multiple of 32");
  EXPECT_EQ(one.to, Format::w4n);
  EXPECT_EQ(one.module, "model.layers.0.self_attn.qkv_proj");
  EXPECT_EQ(one.modules, 8);
}

TEST(FourBitFiles, OtherModesDequantise) {
  LoadOptions options = mode(Quant::w4a8);
  options.keep = {"q_proj"};
  const auto kept = load(kFamilies + "llama_gptq", options);
  EXPECT_EQ(body_formats(*kept), (std::set{Format::bf16, Format::w4z}));
  ASSERT_EQ(kept->conversions.size(), 1u);
  EXPECT_EQ(kept->conversions[0].to, Format::bf16);
  EXPECT_EQ(kept->conversions[0].modules, 2);
  expect_one_result(*kept, 20, KvType::q8);
  const auto w8 = load(kFamilies + "llama_gptq", mode(Quant::w8a8));
  EXPECT_EQ(body_formats(*w8), std::set{Format::w8});
  ASSERT_EQ(w8->conversions.size(), 1u);
  EXPECT_EQ(w8->conversions[0].requantised_because, "");
}

TEST(FourBitFiles, RoundTripThroughCache) {
  const TempFolder cache;
  LoadOptions options = mode(Quant::w4a8);
  options.cache_folder = cache.path;
  const auto packed = load(kFamilies + "llama_gptq", options);
  EXPECT_FALSE(packed->from_cache());
  ASSERT_EQ(write_to_cache(*packed).message(), "");
  const auto cached = load(kFamilies + "llama_gptq", options);
  EXPECT_TRUE(cached->from_cache());
  EXPECT_TRUE(std::ranges::equal(cached->packed(), packed->packed()));
  EXPECT_EQ(body_formats(*cached), std::set{Format::w4z});
}

}  // namespace
}  // namespace pinion
