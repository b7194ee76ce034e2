// As family_config_test, of models with several streams (Gemma 3n).
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/loader/small_config.h"

namespace pinion {
namespace {

constexpr const char* kArchitecture = "Gemma3nForCausalLM";

TEST(Gemma3n, HasDefaults) {
  const ModelConfig config = read(kArchitecture);
  EXPECT_EQ(config.altup.streams, 4);
  EXPECT_EQ(config.altup.active, 0);
  EXPECT_TRUE(config.altup.scales);
  EXPECT_EQ(config.laurel_rank, 64);
  EXPECT_EQ(config.layer_input.size, 256);
  EXPECT_EQ(config.layer_input.vocab_size, 262144);
  EXPECT_EQ(config.score_scale, 1.0f) << "whatever head_dim is";
  EXPECT_EQ(config.embedding_scale, 8.0f);
  EXPECT_EQ(config.norm_offset, 0.0f);
  EXPECT_EQ(config.logit_cap, 30.0f);
  EXPECT_TRUE(config.value_norm);
  EXPECT_EQ(config.windows, (Windows{512, 512, 512, 512})) << "every fifth layer sees everything";
  EXPECT_EQ(config.layer_ropes, (Ropes{1, 1, 1, 1}));
  EXPECT_EQ(config.ropes[0].theta, 1e6);
  EXPECT_EQ(config.ropes[1].theta, 1e4);
  EXPECT_EQ(config.intermediate_size, 172);
  EXPECT_TRUE(config.intermediate_sizes.empty());
  EXPECT_EQ(config.gate_sparsity, std::vector<float>(4, 0.0f)) << "only models of more than ten layers have some";
  EXPECT_TRUE(config.kv_layers.empty()) << "15 layers of 4 would share";
  EXPECT_EQ(cached_layers(config), 4);
}

TEST(Gemma3n, AsPublished) {
  const ModelConfig config = read(kArchitecture, R"({"num_hidden_layers": 30, "num_kv_shared_layers": 10})");
  EXPECT_EQ(cached_layers(config), 20);
  EXPECT_TRUE(config.owns_kv(19));
  EXPECT_FALSE(config.owns_kv(20));
  for (const int64_t layer : {20, 21, 22, 23, 25, 28}) {
    EXPECT_EQ(config.kv_layers[static_cast<size_t>(layer)], 18) << "the last own one that slides";
  }
  for (const int64_t layer : {24, 29}) EXPECT_EQ(config.kv_layers[static_cast<size_t>(layer)], 19);
  EXPECT_EQ(config.tensors.unread.size(), 30u) << "k_proj, v_proj and k_norm of ten layers";
  EXPECT_EQ(config.tensors.unread[0], "model.layers.20.self_attn.k_proj.");
  EXPECT_TRUE(config.has_sparse_gate(9));
  EXPECT_FALSE(config.has_sparse_gate(10));
  EXPECT_EQ(config.gate_sparsity[0], 0.95f);
}

TEST(Gemma3n, BesideOtherModels) {
  const char* outer = R"({"architectures": ["Gemma3nForConditionalGeneration"], "model_type": "gemma3n",
      "audio_config": {"hidden_size": 8}, "vision_config": {"hidden_size": 8}, "audio_soft_tokens_per_image": 188,
      "text_config": {"model_type": "gemma3n_text", "query_pre_attn_scalar": 256, "num_hidden_layers": 2,
                      "intermediate_size": [96, 128], "activation_sparsity_pattern": [0.95, 0.0],
                      "num_kv_shared_layers": 0}})";
  const ModelConfig config = read("Gemma3nForConditionalGeneration", outer);
  EXPECT_EQ(config.layers, 2);
  EXPECT_EQ(config.mlp_size(0), 96);
  EXPECT_EQ(config.mlp_size(1), 128);
  EXPECT_EQ(config.intermediate_size, 128);
  EXPECT_TRUE(config.kv_layers.empty());
  EXPECT_EQ(config.tensors.renamed.at(0).first, "model.language_model.");
}

TEST(Gemma3n, MistakesAreErrors) {
  EXPECT_EQ(message(kArchitecture, R"({"intermediate_size": [172, 172]})"),
            "config.json: intermediate_size: wrong length: want 1 or 4, have 2");
  EXPECT_EQ(message("Gemma3ForCausalLM", R"({"intermediate_size": [172, 172, 172, 172]})"),
            "config.json: intermediate_size: wrong type: want an integer from 1 to 131072, have an array of 4");
  EXPECT_EQ(message(kArchitecture, R"({"activation_sparsity_pattern": [0.95]})"),
            "config.json: activation_sparsity_pattern: wrong length: want 4, have 1");
  EXPECT_EQ(message(kArchitecture, R"({"activation_sparsity_pattern": [1.0, 0, 0, 0]})").substr(0, 47),
            "config.json: activation_sparsity_pattern: out o");
  EXPECT_EQ(message(kArchitecture, R"({"altup_num_inputs": 3, "altup_active_idx": 3})"),
            "config.json: altup_active_idx: out of range: want below altup_num_inputs, have 3");
  EXPECT_EQ(message(kArchitecture, R"({"altup_num_inputs": 9})"),
            "config.json: altup_num_inputs: out of range: want an integer from 1 to 8, have 9");
  EXPECT_EQ(message(kArchitecture, R"({"num_kv_shared_layers": 2, "layer_types": ["sliding_attention",
      "sliding_attention", "sliding_attention", "full_attention"]})"),
            "config.json: num_kv_shared_layers: no earlier layer has keys and values for layer 3");
  EXPECT_EQ(message(kArchitecture, R"({"hidden_size_per_layer_input": 60000})"),
            "config.json: hidden_size_per_layer_input: too wide: want at most 131072 for all layers, have 240000");
}

}  // namespace
}  // namespace pinion
