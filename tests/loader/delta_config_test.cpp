// Qwen3.5's config.json: which layers keep a state, its shape, and what of a multimodal model's fields matters.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "loader/config/json.h"
#include "loader/config/model_config.h"

namespace pinion {
namespace {

constexpr const char* kSmall = R"({"architectures": ["Qwen3_5ForCausalLM"], "model_type": "qwen3_5_text",
    "hidden_size": 64, "intermediate_size": 172, "num_hidden_layers": 5, "head_dim": 16, "num_attention_heads": 4,
    "num_key_value_heads": 2, "vocab_size": 512, "max_position_embeddings": 512, "linear_num_key_heads": 2,
    "linear_num_value_heads": 4, "linear_key_head_dim": 24, "linear_value_head_dim": 40})";

std::string message(const char* changes, ModelConfig* config) {
  Json json = Json::parse(kSmall);
  json.update(Json::parse(changes));
  return parse_model_config(json.dump(), "config.json", config).message();
}

std::string message(const char* changes) {
  ModelConfig config;
  return message(changes, &config);
}

ModelConfig read(const char* changes = "{}") {
  ModelConfig config;
  EXPECT_EQ(message(changes, &config), "");
  return config;
}

using Layers = std::vector<bool>;

TEST(Qwen35, LayersAndTheirShape) {
  const ModelConfig config = read();
  EXPECT_EQ(config.recurrent, (Layers{true, true, true, false, true}));
  EXPECT_EQ(attention_layers(config), 1);
  EXPECT_EQ(config.delta.key_heads, 2);
  EXPECT_EQ(config.delta.value_heads, 4);
  EXPECT_EQ(config.delta.key_width(), 48);
  EXPECT_EQ(config.delta.value_width(), 160);
  EXPECT_EQ(config.delta.channels(), 256);
  EXPECT_EQ(config.delta.taps, 4);
  EXPECT_TRUE(config.attention_gate);
  EXPECT_EQ(config.norm_offset, 1.0f);
  EXPECT_EQ(config.names.delta_rate, "model.layers.{}.linear_attn.A_log");
}

TEST(Qwen35, WhichLayersAttend) {
  EXPECT_EQ(read(R"({"full_attention_interval": 2})").recurrent, (Layers{true, false, true, false, true}));
  const char* types = R"({"full_attention_interval": 2, "layer_types": ["full_attention", "linear_attention",
      "linear_attention", "full_attention", "full_attention"]})";
  EXPECT_EQ(read(types).recurrent, (Layers{false, true, true, false, false})) << "layer_types rules";
  EXPECT_EQ(message(R"({"layer_types": ["full_attention"]})"),
            "config.json: layer_types: wrong length: want 5, have 1");
  EXPECT_EQ(message(R"({"layer_types": ["full_attention", "sliding_attention", "full_attention", "full_attention",
                        "full_attention"]})"),
            "config.json: layer_types: unknown layer type: want linear_attention or full_attention, have "
            "\"sliding_attention\"");
  EXPECT_EQ(message(R"({"full_attention_interval": 0})"),
            "config.json: full_attention_interval: out of range: want an integer from 1 to 1024, have 0");
}

TEST(Qwen35, RotatedPartInEitherPlace) {
  EXPECT_EQ(read().ropes[0].dims, 4) << "a quarter of a head is the default";
  EXPECT_EQ(read(R"({"partial_rotary_factor": 0.5})").ropes[0].dims, 8);
  const ModelConfig inside = read(R"({"partial_rotary_factor": 0.5, "rope_parameters": {"rope_theta": 1e7,
      "partial_rotary_factor": 0.75, "rope_type": "default", "mrope_section": [11, 11, 10], "mrope_interleaved": true}})");
  EXPECT_EQ(inside.ropes[0].dims, 12) << "that of rope_parameters rules";
  EXPECT_EQ(inside.ropes[0].theta, 1e7);
}

TEST(Qwen35, BesideVision) {
  Json json = {{"architectures", {"Qwen3_5ForConditionalGeneration"}}, {"model_type", "qwen3_5"}};
  json["text_config"] = Json::parse(kSmall);
  json["text_config"].erase("architectures");
  json["text_config"].update(Json::parse(R"({"attn_output_gate": true, "mamba_ssm_dtype": "float32",
      "mtp_num_hidden_layers": 1, "mtp_use_dedicated_embeddings": false, "tie_word_embeddings": true,
      "mlp_only_layers": []})"));
  json.update(Json::parse(R"({"image_token_id": 1, "video_token_id": 2, "vision_start_token_id": 3,
      "vision_end_token_id": 4, "vision_config": {"depth": 12}, "tie_word_embeddings": true})"));
  ModelConfig config;
  ASSERT_EQ(parse_model_config(json.dump(), "config.json", &config).message(), "");
  EXPECT_EQ(config.family, "qwen3_5");
  EXPECT_EQ(config.layers, 5);
  EXPECT_TRUE(config.tied_head);
  ASSERT_EQ(config.tensors.renamed.size(), 2u);
  EXPECT_EQ(config.tensors.renamed[0].first, "model.language_model.");
  EXPECT_EQ(config.tensors.renamed[1].first, "model.mtp.");
}

TEST(Qwen35, RefusesWhatItDoesNotCompute) {
  EXPECT_EQ(message(R"({"attn_output_gate": false})"),
            "config.json: attn_output_gate: not supported: want true, have false");
  EXPECT_EQ(message(R"({"hidden_act": "gelu_pytorch_tanh"})"),
            "config.json: hidden_act: not supported: want \"silu\", have \"gelu_pytorch_tanh\"")
      << "the convolution's too";
  EXPECT_EQ(message(R"({"mamba_ssm_dtype": "bfloat16"})"),
            "config.json: mamba_ssm_dtype: not supported: want \"float32\", have \"bfloat16\"");
  EXPECT_EQ(message(R"({"per_layer_config": {"0": {"head_dim": 64}}})"),
            "config.json: fields not supported for family qwen3_5: \"per_layer_config\"");
  EXPECT_EQ(message(R"({"linear_num_key_heads": 3})"),
            "config.json: linear_num_key_heads: does not divide linear_num_value_heads: 3 and 4");
  EXPECT_EQ(message(R"({"linear_num_value_heads": 0})").substr(0, 50),
            "config.json: linear_num_value_heads: out of range:");
  EXPECT_EQ(message(R"({"linear_conv_kernel_dim": 17})"),
            "config.json: linear_conv_kernel_dim: out of range: want an integer from 1 to 16, have 17");
  EXPECT_NE(message(R"({"linear_num_value_heads": 65536, "linear_value_head_dim": 1024})").find("too wide"),
            std::string::npos);
  ModelConfig llama;
  const Error e = parse_model_config(R"({"architectures": ["LlamaForCausalLM"], "hidden_size": 64,
      "intermediate_size": 172, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 512,
      "rope_scaling": {"rope_type": "default", "mrope_section": [1, 1, 0]}})",
                                     "config.json", &llama);
  EXPECT_NE(e.message().find("mrope_section"), std::string::npos) << "other families: " << e.message();
}

}  // namespace
}  // namespace pinion
