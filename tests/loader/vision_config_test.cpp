// Configs of vision-language models, and text_config as the key to the family.
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "tests/loader/small_config.h"

namespace pinion {
namespace {

TEST(Gemma3, TextConfigBesideAVisionModel) {
  const char* outer = R"({"architectures": ["Gemma3ForConditionalGeneration"], "model_type": "gemma3",
      "eos_token_id": [1, 106], "vision_config": {"hidden_size": 3}, "mm_tokens_per_image": 256, "torch_dtype":
      "bfloat16", "text_config": {"hidden_size": 96, "model_type": "gemma3_text", "num_hidden_layers": 7}})";
  ModelConfig config;
  ASSERT_EQ(parse_model_config(outer, "config.json", &config).message(), "");
  EXPECT_EQ(config.hidden_size, 96);
  EXPECT_EQ(config.layers, 7);
  EXPECT_EQ(config.layer[0].heads, 8) << "the family's default";
  EXPECT_EQ(config.eos_ids, (std::vector<int64_t>{1, 106}));
  EXPECT_FALSE(config.tensors.skipped.empty() || config.tensors.renamed.empty());
  config = read("Gemma3ForConditionalGeneration", R"({"text_config": {"use_bidirectional_attention": true}})");
  EXPECT_TRUE(config.attends_both_ways && config.has_head);
  EXPECT_EQ(
      read("Gemma3ForConditionalGeneration", R"({"outer_note": 1, "text_config": {"new_thing": 1}})").ignored_fields,
      (std::vector<std::string>{"new_thing", "outer_note"}));
  EXPECT_EQ(message("Gemma3ForCausalLM", R"({"text_config": 3})"),
            "config.json: fields not supported for family gemma3: \"text_config\"");
}

// Two families share an architecture with a vision model; text_config tells them apart.
TEST(Ministral3, TextConfigSelectsTheFamily) {
  const auto beside_vision = [](const char* type) {
    return read("Mistral3ForConditionalGeneration", (R"({"model_type": "mistral3", "vision_config": {}, "text_config":
        {"model_type": ")" + std::string(type) + R"("}})")
                                                        .c_str());
  };
  EXPECT_EQ(beside_vision("mistral").family, "mistral");
  EXPECT_EQ(beside_vision("mistral").ropes[0].query_beta, 0.0);
  const ModelConfig ministral3 = beside_vision("ministral3");
  EXPECT_EQ(ministral3.family, "ministral3");
  EXPECT_EQ(ministral3.ropes[0].kind, RopeKind::yarn) << "transformers' default";
  EXPECT_EQ(ministral3.ropes[0].query_beta, 0.1);
  EXPECT_EQ(ministral3.ropes[0].original_max_positions, 16384);
  EXPECT_EQ(
      message("Mistral3ForConditionalGeneration", R"({"text_config": {"model_type": "qwen3"}})"),
      "config.json: model_type: does not fit Mistral3ForConditionalGeneration: want ministral3, mistral, mistral4, "
      "have \"qwen3\"");
}

// The language model's fields may be at the top level, as published, or in text_config.
TEST(Qwen2Vl, MropeIsAPlainRopeForText) {
  const char* spellings[] = {
      R"({"model_type": "qwen2_5_vl", "rope_theta": 3e5, "rope_scaling": {"type": "mrope", "mrope_section": [1, 2, 1]},
          "vision_config": {"depth": 2}, "vision_token_id": 3, "sliding_window": 9, "use_sliding_window": false})",
      R"({"model_type": "qwen2_5_vl", "vision_config": {"depth": 2}, "text_config": {"model_type": "qwen2_5_vl_text",
          "rope_parameters": {"rope_theta": 3e5, "rope_type": "default", "mrope_section": [1, 2, 1]},
          "layer_types": ["full_attention", "full_attention", "full_attention", "full_attention"]}})"};
  for (const char* spelling : spellings) {
    const ModelConfig config = read("Qwen2_5_VLForConditionalGeneration", spelling);
    EXPECT_EQ(config.family, "qwen2_vl");
    EXPECT_EQ(config.ropes[0].kind, RopeKind::none);
    EXPECT_EQ(config.ropes[0].theta, 3e5);
    EXPECT_TRUE(config.qkv_bias && !config.o_bias);
    EXPECT_EQ(by_layer(config, &LayerConfig::window), Windows(4, 0));
  }
  EXPECT_EQ(by_layer(read("Qwen2VLForConditionalGeneration", R"({"use_sliding_window": true, "sliding_window": 9,
      "max_window_layers": 2})"),
                     &LayerConfig::window),
            (Windows{0, 0, 9, 9}));
  EXPECT_EQ(message("Qwen2ForCausalLM", R"({"rope_scaling": {"type": "mrope", "mrope_section": [1, 2, 1]}})"),
            "config.json: rope_scaling: rope_type: unknown kind: want default, linear, dynamic, yarn, llama3, "
            "longrope or proportional, have \"mrope\"");
}

TEST(Qwen3Vl, NoWindows) {
  const ModelConfig config = read("Qwen3VLForConditionalGeneration", R"({"model_type": "qwen3_vl", "vision_config": {},
      "text_config": {"model_type": "qwen3_vl_text", "rope_theta": 5e6, "rope_scaling": {"mrope_interleaved": true,
      "mrope_section": [2, 1, 1], "rope_type": "default"}}})");
  EXPECT_EQ(config.ropes[0].theta, 5e6);
  EXPECT_EQ(config.qk_norm, QkNorm::heads);
  EXPECT_EQ(by_layer(config, &LayerConfig::window), Windows(4, 0));
  EXPECT_FALSE(config.tensors.skipped.empty() || config.tensors.renamed.empty());
}

TEST(SmolVlm, ContainsALlama) {
  for (const char* name : {"SmolVLMForConditionalGeneration", "Idefics3ForConditionalGeneration"}) {
    const ModelConfig config = read(name, R"({"model_type": "smolvlm", "scale_factor": 4, "vision_config": {},
        "image_token_id": 3, "text_config": {"model_type": "llama", "rms_norm_eps": 1e-5, "rope_theta": 3e5,
        "qk_layer_norms": false, "perceiver_config": {"depth": 3}}})");
    EXPECT_EQ(config.family, "llama");
    EXPECT_EQ(config.ropes[0].theta, 3e5);
    EXPECT_EQ(config.ignored_fields, std::vector<std::string>{"perceiver_config"});
  }
  EXPECT_EQ(message("SmolVLMForConditionalGeneration", R"({"text_config": {"model_type": "mistral"}})"),
            "config.json: model_type: does not fit SmolVLMForConditionalGeneration: want llama, have "
            "\"mistral\"");
}

TEST(Llama4, IsNoLlama) {
  const std::string as_llama = message("LlamaForCausalLM", R"({"model_type": "llama4_text"})");
  EXPECT_EQ(as_llama,
            "config.json: model_type: does not fit LlamaForCausalLM: want exaone, internlm3, iquestcoder, llama, "
            "have \"llama4_text\"");
}

}  // namespace
}  // namespace pinion
