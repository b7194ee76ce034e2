// Loading: a checkpoint that contradicts its config.json is an error that names the tensor.
#include "engine/runtime/load.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "engine/team/team.h"
#include "tests/temp_folder.h"

namespace pinion {
namespace {

namespace fs = std::filesystem;

// A writable copy of stories260k or of another folder.
struct Copy : TempFolder {
  explicit Copy(const std::string& name = "stories260k") { fs::copy(PINION_TEST_DATA "/" + name, path); }

  std::string read(const char* name) const {
    std::ifstream file(path / name, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  void write(const char* name, const std::string& bytes) const {
    fs::remove(path / name);
    std::ofstream(path / name, std::ios::binary) << bytes;
  }
  void replace(const char* name, const std::string& from, const std::string& to) const {
    std::string bytes = read(name);
    bytes.replace(bytes.find(from), from.size(), to);
    write(name, bytes);
  }
  std::string load(Quant quant = Quant::w8a8) const {
    std::unique_ptr<Model> model;
    return load_model(path.string(), {.quant = quant}, &model).message();
  }
};

TEST(Model, LoadsUnchanged) {
  const Copy folder;
  EXPECT_EQ(folder.load(), "");
  EXPECT_EQ(folder.load(Quant::none), "");
}

TEST(Model, UnexpectedTensorIsAnError) {
  const Copy folder;
  folder.replace("config.json", "\"num_hidden_layers\": 5", "\"num_hidden_layers\": 1");
  const std::string message = folder.load();
  EXPECT_NE(message.find("model.layers.1."), std::string::npos) << message;
  EXPECT_NE(message.find("does not have"), std::string::npos) << message;
}

TEST(Model, UnexpectedTensorsAreOneLine) {
  const Copy folder;
  folder.replace("config.json", "\"num_hidden_layers\": 5", "\"num_hidden_layers\": 3");
  EXPECT_EQ(
      folder.load(),
      folder.path.string() +
          "/model.safetensors: model.layers.3.input_layernorm.weight, and 17 more: tensor that a llama model of this "
          "config.json does not have");
}

TEST(Model, CodesNeedTheirScales) {
  const Copy folder("families/qwen3_codes");
  EXPECT_EQ(folder.load(), "");
  EXPECT_EQ(folder.load(Quant::none), "");
  const std::string scale = "model.layers.1.self_attn.q_proj.weight_scale";
  const std::string weights = folder.read("model.safetensors");
  folder.replace("model.safetensors", scale, "model.layers.1.self_attn.q_proj.weight_SCALE");
  EXPECT_EQ(folder.load(), folder.path.string() + "/model.safetensors: " + scale +
                               ": no such tensor: want the scales of 8-bit weights");
  folder.write("model.safetensors", weights);
  // Excludes the module from quantisation: its I8 tensor is then not a valid weight.
  folder.replace("config.json", "\"lm_head\"", "\"re:.*1.*q_proj\"");
  EXPECT_EQ(
      folder.load(),
      folder.path.string() +
          "/model.safetensors: model.layers.1.self_attn.q_proj.weight: type differs: want BF16, F16 or F32, have I8");
}

// A packed model, and the same model mapped from the cache file that the first load wrote.
struct RoundTrip {
  std::unique_ptr<Model> packed, mapped;

  RoundTrip(const Copy& folder, Quant quant) {
    const LoadOptions options{.quant = quant, .cache_folder = folder.path / "cache"};
    EXPECT_EQ(load_model(folder.path, options, &packed).message(), "");
    EXPECT_EQ(write_to_cache(*packed).message(), "");
    EXPECT_EQ(load_model(folder.path, options, &mapped).message(), "");
    EXPECT_FALSE(packed->from_cache());
    EXPECT_TRUE(mapped->from_cache());
    EXPECT_TRUE(std::ranges::equal(packed->packed(), mapped->packed()));
  }
};

struct CodesOfTheFile : testing::TestWithParam<std::string> {};

TEST_P(CodesOfTheFile, RoundTripThroughCache) {
  const Copy folder("families/" + GetParam());
  for (const Quant quant : {Quant::w8a8, Quant::none, Quant::w4a8}) RoundTrip(folder, quant);
}

INSTANTIATE_TEST_SUITE_P(Model, CodesOfTheFile,
                         testing::Values("llama_codes", "llama_gptq_order", "phi3_awq", "qwen3_moe_fp8_blocks"),
                         [](const auto& folder) { return folder.param; });

// config.json changes the meaning of the zero points; the tensors are the same.
TEST(Model, CacheOfOtherCodeFormatIsIgnored) {
  const Copy folder("families/llama_gptq");
  LoadOptions options{.quant = Quant::w8a8};
  options.cache_folder = folder.path / "cache";
  std::unique_ptr<Model> first, second;
  ASSERT_EQ(load_model(folder.path, options, &first).message(), "");
  ASSERT_EQ(write_to_cache(*first).message(), "");
  folder.replace("config.json", R"("bits": 4)", R"("bits": 4, "checkpoint_format": "gptq_v2")");
  ASSERT_EQ(load_model(folder.path, options, &second).message(), "");
  EXPECT_FALSE(second->from_cache());
  EXPECT_NE(std::memcmp(first->layers[0][MatrixRole::q].weight.panels, second->layers[0][MatrixRole::q].weight.panels,
                        static_cast<size_t>(first->weight_bytes)),
            0);
}

TEST(Model, ExpertsRoundTripThroughCache) {
  const Copy folder("families/qwen3_moe_mixed");
  const auto [packed, mapped] = RoundTrip(folder, Quant::w8a8);
  const auto offset = [](const Model& model, const Linear& linear) {
    return static_cast<const std::byte*>(linear.weight.panels) -
           static_cast<const std::byte*>(model.layers[0][MatrixRole::q].weight.panels);
  };
  for (size_t i = 0; i < 5; ++i) {
    EXPECT_EQ(offset(*packed, packed->layers[1].experts[i][MatrixRole::down]),
              offset(*mapped, mapped->layers[1].experts[i][MatrixRole::down]));
  }
}

// gate and up are interleaved if they have the same format.
TEST(Model, GateAndUpAreInterleaved) {
  LoadOptions options{.quant = Quant::w8a8};
  for (const std::string folder : {"llama", "phi3", "mixtral", "gpt_oss"}) {
    std::unique_ptr<Model> model;
    ASSERT_EQ(load_model(PINION_TEST_DATA "/families/" + folder, options, &model).message(), "") << folder;
    const Layer& layer = model->layers[1];
    const bool has_experts = !layer.experts.empty();
    const Matrix& gate = has_experts ? layer.experts[1][MatrixRole::gate].weight : layer[MatrixRole::gate].weight;
    const Matrix& up = has_experts ? layer.experts[1][MatrixRole::up].weight : layer[MatrixRole::up].weight;
    EXPECT_EQ(gate.interleaved, 2) << folder;
    EXPECT_EQ(up.interleaved, 2) << folder;
    EXPECT_EQ(panel_of(up, 0), panel_of(gate, 0) + panel_bytes(gate.format, gate.k)) << folder;
    EXPECT_EQ(layer[MatrixRole::o].weight.interleaved, 1) << folder;
  }
  options.keep = {"1.mlp.up_proj"};
  std::unique_ptr<Model> mixed;
  ASSERT_EQ(load_model(PINION_TEST_DATA "/families/llama", options, &mixed).message(), "");
  EXPECT_EQ(mixed->layers[0][MatrixRole::gate].weight.interleaved, 2);
  EXPECT_EQ(mixed->layers[1][MatrixRole::gate].weight.interleaved, 1);
  EXPECT_EQ(mixed->layers[1][MatrixRole::up].weight.interleaved, 1);
}

TEST(Model, UnmatchedKeepPatternIsAnError) {
  // A separate head, a tied head, fused experts.
  for (const char* folder : {"llama", "gemma2", "gpt_oss"}) {
    const auto failure = [&](const char* pattern) {
      std::unique_ptr<Model> model;
      return load_model(PINION_TEST_DATA "/families/" + std::string(folder), {.keep = {"o_proj", pattern}}, &model);
    };
    for (const char* right : {"lm_head", "layers.1."}) EXPECT_EQ(failure(right).message(), "") << folder;
    for (const char* wrong : {"lm_haed", "layers.99.", "layernorm"}) EXPECT_EQ(failure(wrong).actual, wrong) << folder;
  }
}

// One of 4 layers has 5 experts of 3 matrices of 20 x 36; a token uses 2 of them. Low halves of the head do not count.
TEST(Model, BytesPerPassCountActiveExperts) {
  std::unique_ptr<Model> model;
  ASSERT_EQ(load_model(PINION_TEST_DATA "/families/qwen3_moe_mixed", {.quant = Quant::w8a8}, &model).message(), "");
  const int64_t one_expert = 2 * packed_bytes(Format::w8, 20, 36) + packed_bytes(Format::w8, 36, 20);
  EXPECT_EQ(model->expert_bytes, 5 * one_expert);
  const int64_t low = padded_n(model->config.vocab_size) * 64 / 2, all = model->weight_bytes - low;
  EXPECT_EQ(model->bytes_per_pass(1), all - 3 * one_expert);
  EXPECT_EQ(model->bytes_per_pass(2), all - one_expert);
  EXPECT_EQ(model->bytes_per_pass(100), all);
  EXPECT_EQ(active_parameters(model->config), count_parameters(model->config).all - 3 * 3 * 20 * 36);
}

TEST(Model, ErrorNamesAssumedSizes) {
  const Copy folder("families/llama");
  folder.replace("config.json", "\"hidden_size\"", "\"hiden_size\"");
  const std::string file = folder.path.string() + "/model.safetensors: ";
  EXPECT_EQ(folder.load(), file +
                               "model.embed_tokens.weight: shape differs: want [152, 4096], have [152, 56]; "
                               "config.json lacks hidden_size (4096 assumed)");
  folder.replace("config.json", "\"hiden_size\"", "\"hidden_size\"");
  folder.replace("config.json", "num_hidden_layers", "n_layers");
  EXPECT_EQ(folder.load(), file +
                               "model.layers.2.input_layernorm.weight: no such tensor; "
                               "config.json lacks num_hidden_layers (32 assumed)");
}

TEST(Model, MissingExpertIsNamed) {
  const Copy folder("families/mixtral");
  folder.replace("config.json", "\"num_local_experts\": 5", "\"num_local_experts\": 6");
  EXPECT_EQ(
      folder.load(),
      folder.path.string() +
          "/model.safetensors: model.layers.0.block_sparse_moe.gate.weight: shape differs: want [6, 36], have [5, 36]");
  const std::string name = "model.layers.1.block_sparse_moe.experts.4.w2.weight";
  folder.replace("config.json", "\"num_local_experts\": 6", "\"num_local_experts\": 5");
  folder.replace("model.safetensors", name, "model.layers.1.block_sparse_moe.experts.7.w2.weight");
  EXPECT_EQ(folder.load(), folder.path.string() + "/model.safetensors: " + name + ": no such tensor");
  folder.write("model.safetensors.index.json", "{}");
  EXPECT_EQ(folder.load(), folder.path.string() + "/model.safetensors: " + name +
                               ": no such tensor; this file hides model.safetensors.index.json: remove one of the two");
}

TEST(Model, StackedExpertsOfWrongShape) {
  const Copy folder("families/granite_moe");
  const std::string module = "model.layers.1.block_sparse_moe.input_linear.weight";
  const std::string at = folder.path.string() + "/model.safetensors: " + module;
  EXPECT_EQ(folder.load(), "");
  const std::string weights = folder.read("model.safetensors");
  folder.replace("model.safetensors", module + "\":{\"dtype\":\"BF16\",\"shape\":[5,40,36]",
                 module + "\":{\"dtype\":\"BF16\",\"shape\":[5,36,40]");
  EXPECT_EQ(folder.load(), at + ": shape differs: want [5, 40, 36], have [5, 36, 40]");
  folder.write("model.safetensors", weights);
  folder.replace("model.safetensors", module, "model.layers.1.block_sparse_moe.INPUT_linear.weight");
  EXPECT_EQ(folder.load(), at + ": no such tensor");
}

TEST(Model, DamagedMxfp4ExpertsAreNamed) {
  const Copy folder("families/gpt_oss_mxfp4");
  const std::string module = "model.layers.1.mlp.experts.down_proj",
                    at = folder.path.string() + "/model.safetensors: " + module;
  const std::string weights = folder.read("model.safetensors"), config = folder.read("config.json");
  EXPECT_EQ(folder.load(), "");
  EXPECT_EQ(folder.load(Quant::none), "");
  const auto damaged = [&](const std::string& from, const std::string& to) {
    folder.write("model.safetensors", weights);
    folder.replace("model.safetensors", from, to);
    return folder.load();
  };
  EXPECT_EQ(damaged(module + "_scales", module + "_SCALES"), at + "_scales: no such tensor");
  EXPECT_EQ(damaged(module + "_blocks", module + "_BLOCKS"), at + "_blocks: no such tensor");
  EXPECT_EQ(damaged(module + "_bias", module + "_BIAS"), at + "_bias: no such tensor");
  EXPECT_EQ(damaged(module + "_blocks\":{\"dtype\":\"U8\",\"shape\":[4,64,1,16]",
                    module + "_blocks\":{\"dtype\":\"U8\",\"shape\":[4,16,4,16]"),
            at + "_blocks: shape differs: want [4, 64, 1, 16], have [4, 16, 4, 16]");
  EXPECT_EQ(damaged(module + "_scales\":{\"dtype\":\"U8\"", module + "_scales\":{\"dtype\":\"I8\""),
            at + "_scales: type differs: want U8, have I8");

  // Codes need quantization_config; without it, the float tensors are missing.
  folder.write("model.safetensors", weights);
  folder.replace("config.json", "\"quantization_config\"", "\"_name_or_path\"");
  EXPECT_EQ(folder.load(),
            folder.path.string() + "/model.safetensors: model.layers.0.mlp.experts.gate_up_proj: no such tensor");
  folder.write("config.json", config);
  folder.replace("config.json", "\"intermediate_size\": 32", "\"intermediate_size\": 33");
  EXPECT_NE(folder.load().find("gate_up_proj_blocks: shape differs"), std::string::npos) << folder.load();
}

// A scale of 255 is a NaN: in the up rows of expert 2, the odd ones.
TEST(Model, NanInMxfp4ScalesNamesTheRow) {
  const Copy folder("families/gpt_oss_mxfp4");
  std::string bytes = folder.read("model.safetensors");
  const std::string module = "model.layers.1.mlp.experts.gate_up_proj";
  const size_t offsets = bytes.find("data_offsets\":[", bytes.find(module + "_scales"));
  const size_t first = std::stoul(bytes.substr(offsets + 15));
  uint64_t header_bytes = 0;
  std::memcpy(&header_bytes, bytes.data(), sizeof header_bytes);
  constexpr size_t kRows = 64, kBlocks = 2, kRow = 2 * 5 + 1;
  bytes[sizeof header_bytes + header_bytes + first + (2 * kRows + kRow) * kBlocks + 1] = '\xff';
  folder.write("model.safetensors", bytes);
  EXPECT_EQ(folder.load(), folder.path.string() + "/model.safetensors: " + module + "[2] row " + std::to_string(kRow) +
                               ": NaN or infinity in the weights");
}

TEST(Model, FusedExpertsRoundTripThroughCache) {
  for (const char* name : {"families/gpt_oss", "families/gpt_oss_mxfp4"}) {
    const Copy folder(name);
    const auto [packed, mapped] = RoundTrip(folder, Quant::w8a8);
    EXPECT_EQ(packed->expert_bytes, mapped->expert_bytes);
  }
}

TEST(Model, WrongXieluParametersAreNamed) {
  const Copy folder("families/apertus");
  const std::string weights = folder.read("model.safetensors"), at = folder.path.string() + "/model.safetensors: ";
  EXPECT_EQ(folder.load(), "");
  folder.replace("model.safetensors", "layers.1.mlp.act_fn.beta", "layers.1.mlp.act_fn.BETA");
  EXPECT_EQ(folder.load(), at + "model.layers.1.mlp.act_fn.beta: no such tensor");
  folder.write("model.safetensors", weights);
  folder.replace("config.json", "\"hidden_act\": \"xielu\"", "\"hidden_act\": \"relu2\"");
  EXPECT_NE(folder.load().find("tensor that a apertus model of this config.json does not have"), std::string::npos)
      << folder.load();
}

TEST(Model, LayerKindsRoundTripThroughCache) {
  for (const char* name : {"families/apertus", "families/nemotron_bias", "families/granite_moe_shared", "families/phi",
                           "families/gpt_neox", "families/gpt_neox_gptq"}) {
    for (const Quant quant : {Quant::none, Quant::w8a8, Quant::w4a8}) RoundTrip(Copy(name), quant);
  }
}

TEST(Model, WrongHeadBiasIsNamed) {
  const Copy folder("families/phi");
  const std::string at = folder.path.string() + "/model.safetensors: lm_head.bias: ";
  EXPECT_EQ(folder.load(), "");
  const std::string weights = folder.read("model.safetensors");
  folder.replace("model.safetensors", "lm_head.bias", "lm_head.BIAS");
  EXPECT_EQ(folder.load(), at + "no such tensor");
  folder.write("model.safetensors", weights);
  folder.replace("config.json", "\"tie_word_embeddings\": false", "\"tie_word_embeddings\": true");
  EXPECT_EQ(folder.load(), "") << "a tied head has a bias too";
}

// Row 29 of a tensor [144, 48] in which each head has 8 rows of q, k and v: row 13 of q.
TEST(Model, NanInFusedQkvNamesTheRow) {
  const Copy folder("families/gpt_neox");
  std::string bytes = folder.read("model.safetensors");
  const std::string name = "gpt_neox.layers.1.attention.query_key_value.weight";
  const size_t offsets = bytes.find("data_offsets\":[", bytes.find(name));
  const size_t first = std::stoul(bytes.substr(offsets + 15));
  uint64_t header_bytes = 0;
  std::memcpy(&header_bytes, bytes.data(), sizeof header_bytes);
  bytes.replace(sizeof header_bytes + header_bytes + first + 29 * 48 * 2, 2, "\xff\xff");
  folder.write("model.safetensors", bytes);
  EXPECT_EQ(folder.load(),
            folder.path.string() + "/model.safetensors: " + name + " row 29: NaN or infinity in the weights");
}

TEST(Model, WrongHeadNormsAreNamed) {
  const Copy folder("families/stablelm_parallel");
  const std::string name = "model.layers.1.self_attn.k_layernorm.norms.1.weight";
  EXPECT_EQ(folder.load(), "");
  folder.replace("model.safetensors", name, "model.layers.1.self_attn.k_layernorm.norms.9.weight");
  EXPECT_EQ(folder.load(), folder.path.string() + "/model.safetensors: " + name + ": no such tensor");
}

TEST(Model, MissingTensorIsNamed) {
  const Copy folder;
  folder.replace("config.json", "\"num_hidden_layers\": 5", "\"num_hidden_layers\": 6");
  EXPECT_EQ(folder.load(),
            folder.path.string() + "/model.safetensors: model.layers.5.input_layernorm.weight: no such tensor");
}

TEST(Model, WrongShapeShowsBothShapes) {
  const Copy folder;
  folder.replace("config.json", "\"intermediate_size\": 172", "\"intermediate_size\": 171");
  EXPECT_EQ(
      folder.load(),
      folder.path.string() +
          "/model.safetensors: model.layers.0.mlp.gate_proj.weight: shape differs: want [171, 64], have [172, 64]");
}

TEST(Model, ErrorNamesTheShard) {
  const Copy folder("families/llama_sharded");
  folder.replace("config.json", "\"intermediate_size\": 60", "\"intermediate_size\": 7");
  const std::string message = folder.load();
  EXPECT_EQ(message.rfind(folder.path.string() +
                              "/model-00003-of-00003.safetensors: model.layers.0.mlp.gate_proj.weight: shape differs",
                          0),
            0u)
      << message;
}

// All bits set is a NaN in every floating-point type.
TEST(Model, NanInANormIsAnError) {
  const Copy folder;
  std::string bytes = folder.read("model.safetensors");
  bytes.replace(bytes.size() - 128, 128, std::string(128, '\xff'));  // the last tensor's end
  folder.write("model.safetensors", bytes);
  const std::string message = folder.load();
  EXPECT_NE(message.find("NaN or infinity in the weights"), std::string::npos) << message;
  EXPECT_EQ(message.rfind(folder.path.string(), 0), 0u) << message;
}

// A row of k in a fused q | k | v tensor.
TEST(Model, NanInAFusedTensorNamesTheRow) {
  const Copy folder("families/phi3");
  std::string bytes = folder.read("model.safetensors");
  const size_t offsets = bytes.find("data_offsets\":[", bytes.find("model.layers.1.self_attn.qkv_proj.weight"));
  const size_t first = std::stoul(bytes.substr(offsets + 15));
  uint64_t header_bytes = 0;
  std::memcpy(&header_bytes, bytes.data(), sizeof header_bytes);
  constexpr size_t kHidden = 32, kQueryRows = 32, kRow = 3;
  bytes.replace(sizeof header_bytes + header_bytes + first + (kQueryRows + kRow) * kHidden * 2, 2, "\xff\xff");
  folder.write("model.safetensors", bytes);
  EXPECT_EQ(
      folder.load(),
      folder.path.string() +
          "/model.safetensors: model.layers.1.self_attn.qkv_proj.weight[32:48] row 3: NaN or infinity in the weights");
}

}  // namespace
}  // namespace pinion
