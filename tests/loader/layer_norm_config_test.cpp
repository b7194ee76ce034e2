// Families with LayerNorm, most with parallel branches.
#include <gtest/gtest.h>

#include <string>

#include "tests/loader/small_config.h"

namespace pinion {
namespace {

// The config of StarCoder2 3B with other sizes.
TEST(Starcoder2, LayerNormWithoutGate) {
  const char* published = R"({"hidden_act": "gelu_pytorch_tanh", "norm_epsilon": 1e-4, "norm_type": "layer_norm",
      "mlp_type": "default", "embedding_dropout": 0.1, "residual_dropout": 0.1, "attention_softmax_in_fp32": true,
      "sliding_window": 9, "rope_theta": 999999.4, "use_bias": true})";
  const ModelConfig config = read("Starcoder2ForCausalLM", published);
  EXPECT_TRUE(config.layer_norm && config.norm_bias && !config.parallel_branches);
  EXPECT_EQ(config.norm_eps, 1e-4f);
  EXPECT_TRUE(config.qkv_bias && config.o_bias && config.mlp_bias && !config.head_bias);
  EXPECT_EQ(config.name("gate"), "");
  EXPECT_EQ(config.name("up"), "model.layers.{}.mlp.c_fc");
  EXPECT_EQ(config.activation, Activation::gelu_tanh);
  EXPECT_EQ(by_layer(config, &LayerConfig::window), Windows(4, 9));
  EXPECT_TRUE(config.tied_head) << "transformers' default";
  EXPECT_EQ(by_layer(read("Starcoder2ForCausalLM"), &LayerConfig::window), Windows(4, 0));
  EXPECT_FALSE(read("Starcoder2ForCausalLM", R"({"use_bias": false})").mlp_bias);
}

// The config of Phi-2 with other sizes.
TEST(Phi, BranchesShareANorm) {
  const char* published = R"({"hidden_act": "gelu_new", "head_dim": 40, "layer_norm_eps": 1e-5,
      "partial_rotary_factor": 0.4, "qk_layernorm": false, "resid_pdrop": 0.1, "embd_pdrop": 0.0,
      "num_key_value_heads": null, "rope_scaling": null, "tie_word_embeddings": false})";
  const ModelConfig config = read("PhiForCausalLM", published);
  EXPECT_TRUE(config.parallel_branches && config.shared_norm && config.layer_norm && config.norm_bias);
  EXPECT_TRUE(config.head_bias && config.qkv_bias && config.o_bias && config.mlp_bias);
  EXPECT_EQ(config.layer[0].kv_heads, config.layer[0].heads);
  EXPECT_EQ(config.ropes[0].dims, 16);
  EXPECT_EQ(config.activation, Activation::gelu_tanh);
  EXPECT_EQ(read("PhiForCausalLM").ropes[0].dims, 4) << "half of a head, by default";
  EXPECT_EQ(message("PhiForCausalLM", R"({"qk_layernorm": true})"),
            "config.json: qk_layernorm: not supported: want false, have true");
}

// The config of Command R with other sizes.
TEST(Cohere, LogitsAreScaled) {
  const char* published = R"({"logit_scale": 0.25, "layer_norm_eps": 1e-5, "model_max_length": 131072,
      "num_key_value_heads": 8, "pad_token_id": 0, "rope_theta": 8000000.0, "use_qk_norm": false})";
  const ModelConfig config = read("CohereForCausalLM", published);
  EXPECT_TRUE(config.parallel_branches && config.shared_norm && config.layer_norm && config.tied_head);
  EXPECT_FALSE(config.norm_bias || config.head_bias || config.qkv_bias);
  EXPECT_TRUE(config.rope_interleaved);
  EXPECT_EQ(config.logit_scale, 0.25f);
  EXPECT_EQ(config.qk_norm, QkNorm::none);
  EXPECT_EQ(config.ignored_fields, std::vector<std::string>{"model_max_length"});
  EXPECT_EQ(read("CohereForCausalLM").ropes[0].theta, 5e5) << "transformers' default";
  const ModelConfig plus = read("CohereForCausalLM", R"({"use_qk_norm": true, "attention_bias": true})");
  EXPECT_EQ(plus.qk_norm, QkNorm::layer_norm_heads);
  EXPECT_EQ(plus.qk_norm_rows(8), 8);
  EXPECT_TRUE(plus.qkv_bias && plus.o_bias);
}

// The config of Command R7B with other sizes; current transformers writes layer_types instead of the pattern.
TEST(Cohere2, FullAttentionLayersHaveNoRope) {
  const char* published = R"({"layer_switch": 4, "order_of_interleaved_layers": "local_attn_first", "rotary_pct": 1.0,
      "position_embedding_type": "rope_gptj", "rope_theta": 50000, "sliding_window": 9, "sliding_window_pattern": 4,
      "use_embedding_sharing": true, "use_gated_activation": true, "use_parallel_block": true, "use_qk_norm": false,
      "cache_implementation": "hybrid", "logit_scale": 0.25, "rope_scaling": null})";
  const ModelConfig config = read("Cohere2ForCausalLM", published);
  EXPECT_EQ(by_layer(config, &LayerConfig::window), (Windows{9, 9, 9, 0}));
  EXPECT_EQ(by_layer(config, &LayerConfig::rope), (Ropes{0, 0, 0, kNoRope}));
  EXPECT_TRUE(config.parallel_branches && config.shared_norm && config.rope_interleaved);
  EXPECT_EQ(by_layer(read("Cohere2ForCausalLM"), &LayerConfig::window), (Windows{4096, 4096, 4096, 0}))
      << "transformers' defaults";
  const char* types = R"({"sliding_window": 9, "layer_types": ["full_attention", "sliding_attention",
      "sliding_attention", "full_attention"]})";
  EXPECT_EQ(by_layer(read("Cohere2ForCausalLM", types), &LayerConfig::rope), (Ropes{kNoRope, 0, 0, kNoRope}));
  const char* full = R"({"sliding_window": null, "layer_types": ["full_attention", "full_attention", "full_attention",
      "full_attention"]})";
  EXPECT_EQ(by_layer(read("Cohere2ForCausalLM", full), &LayerConfig::rope), Ropes(4, kNoRope))
      << "with or without a window";
}

TEST(StableLm, ParallelBranchesByField) {
  const ModelConfig config = read("StableLmForCausalLM", R"({"head_dim": 16, "use_qkv_bias": true,
      "layer_norm_eps": 1e-5, "hidden_dropout": 0.0, "qk_layernorm": false, "use_parallel_residual": false})");
  EXPECT_FALSE(config.parallel_branches || config.shared_norm || config.o_bias);
  EXPECT_TRUE(config.layer_norm && config.norm_bias && config.qkv_bias);
  EXPECT_EQ(config.ropes[0].dims, 4) << "a quarter, by default";
  EXPECT_EQ(config.name("mlp_norm"), "model.layers.{}.post_attention_layernorm");
  const ModelConfig parallel = read("StableLmForCausalLM", R"({"qk_layernorm": true, "use_parallel_residual": true})");
  EXPECT_TRUE(parallel.parallel_branches && parallel.shared_norm);
  EXPECT_EQ(parallel.name("mlp_norm"), "model.layers.{}.input_layernorm");
  EXPECT_EQ(parallel.qk_norm, QkNorm::layer_norm_heads);
}

// The config of Pythia with other sizes.
TEST(GptNeox, QkvRowsAlternateByHead) {
  const char* published = R"({"hidden_act": "gelu", "head_dim": null, "rotary_pct": 0.5,
      "rotary_emb_base": 20000, "layer_norm_eps": 1e-5, "use_parallel_residual": true, "classifier_dropout": 0.1})";
  const ModelConfig config = read("GPTNeoXForCausalLM", published);
  EXPECT_TRUE(config.qkv_by_head && config.parallel_branches && !config.shared_norm);
  EXPECT_TRUE(config.qkv_bias && config.o_bias && config.mlp_bias && !config.head_bias);
  EXPECT_EQ(config.activation, Activation::gelu);
  EXPECT_EQ(config.ropes[0].dims, 4);
  EXPECT_EQ(config.ropes[0].theta, 20000);
  EXPECT_EQ(config.name("q"), config.name("v"));
  EXPECT_EQ(config.name("gate"), "");
  const char* dolly = R"({"hidden_act": "gelu_fast", "use_parallel_residual": false,
      "attention_bias": false})";
  const ModelConfig other = read("GPTNeoXForCausalLM", dolly);
  EXPECT_FALSE(other.parallel_branches || other.qkv_bias || other.o_bias);
  EXPECT_TRUE(other.mlp_bias);
  EXPECT_EQ(other.activation, Activation::gelu_tanh);
  EXPECT_EQ(other.ropes[0].dims, 2) << "a quarter, by default";
  const ModelConfig ignores = read("GPTNeoXForCausalLM", R"({"num_key_value_heads": 4})");
  EXPECT_EQ(ignores.layer[0].kv_heads, 8) << "transformers does not read the field";
  EXPECT_EQ(ignores.ignored_fields, std::vector<std::string>{"num_key_value_heads"});
}

}  // namespace
}  // namespace pinion
