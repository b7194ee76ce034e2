// Biases, norms, activations, scales and residual vectors of single families.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "tests/loader/small_config.h"

namespace pinion {
namespace {

TEST(Granite, Multipliers) {
  const ModelConfig config = read("GraniteForCausalLM", R"({"embedding_multiplier": 12, "attention_multiplier": 0.25,
      "residual_multiplier": 0.5, "logits_scaling": 8})");
  EXPECT_EQ(config.embedding_scale, 12.0f);
  EXPECT_EQ(config.score_scale, 0.25f);
  EXPECT_EQ(config.branch_scale, 0.5f);
  EXPECT_EQ(config.logit_scale, 0.125f);
  EXPECT_EQ(read("GraniteForCausalLM").score_scale, 1.0f) << "transformers' default";
  EXPECT_EQ(message("GraniteForCausalLM", R"({"logits_scaling": 0})"),
            "config.json: logits_scaling: out of range: want a number from 1e-09 to 1000000000, have 0");
}

TEST(Olmo2, NormsFollowTheBranches) {
  const ModelConfig config = read("Olmo2ForCausalLM");
  EXPECT_EQ(config.qk_norm, QkNorm::all_heads);
  EXPECT_EQ(config.name("attention_norm") + config.name("mlp_norm"), "");
  EXPECT_EQ(config.name("attention_out_norm"), "model.layers.{}.post_attention_layernorm");
  EXPECT_EQ(config.name("mlp_out_norm"), "model.layers.{}.post_feedforward_layernorm");
}

TEST(Gemma2, ScalesCapsAndPattern) {
  const ModelConfig config = read("Gemma2ForCausalLM", R"({"hidden_act": "gelu"})");
  EXPECT_EQ(config.embedding_scale, 8.0f);
  EXPECT_EQ(config.score_scale, 0.0625f) << "query_pre_attn_scalar 256";
  EXPECT_EQ(config.score_cap, 50.0f);
  EXPECT_EQ(config.logit_cap, 30.0f);
  EXPECT_EQ(config.norm_offset, 1.0f);
  EXPECT_EQ(config.activation, Activation::gelu_tanh) << "hidden_activation, not hidden_act";
  EXPECT_EQ(by_layer(config, &LayerConfig::window), (Windows{4096, 0, 4096, 0}));
  EXPECT_EQ(read("Gemma2ForCausalLM", R"({"attn_logit_softcapping": null})").score_cap, 0.0f);
  EXPECT_EQ(
      by_layer(read("Gemma2ForCausalLM", R"({"sliding_window": 5, "layer_types": ["full_attention", "full_attention",
      "full_attention", "sliding_attention"]})"),
               &LayerConfig::window),
      (Windows{0, 0, 0, 5}));
  EXPECT_EQ(message("Gemma2ForCausalLM", R"({"use_bidirectional_attention": true})"),
            "config.json: fields not supported for family gemma2: \"use_bidirectional_attention\"");
}

TEST(Gemma, GeluMeansTheTanhApproximation) {
  for (const char* name : {"gelu", "gelu_pytorch_tanh"}) {
    const std::string changes = R"({"hidden_act": ")" + std::string(name) + R"("})";
    EXPECT_EQ(read("GemmaForCausalLM", changes.c_str()).activation, Activation::gelu_tanh);
  }
  const ModelConfig config = read("GemmaForCausalLM", R"({"hidden_activation": "gelu_pytorch_tanh"})");
  EXPECT_EQ(config.embedding_scale, 8.0f);
  EXPECT_EQ(config.norm_offset, 1.0f);
  EXPECT_EQ(config.score_scale, 1.0f / std::sqrt(8.0f));
  EXPECT_EQ(message("GemmaForCausalLM", R"({"hidden_activation": "gelu"})"),
            "config.json: hidden_activation: not supported: want \"gelu_pytorch_tanh\", have \"gelu\"");
  EXPECT_EQ(
      message("GemmaForCausalLM", R"({"hidden_act": "gelu_new"})"),
      "config.json: hidden_act: not supported: want one of silu, gelu, gelu_pytorch_tanh, relu, relu2, xielu, have "
      "\"gelu_new\"");
  EXPECT_EQ(read("LlamaForCausalLM", R"({"hidden_act": "gelu"})").activation, Activation::gelu);
}

TEST(VaultGemma, TwoNormsPerLayer) {
  const ModelConfig config = read("VaultGemmaForCausalLM", R"({"sliding_window": 9})");
  EXPECT_EQ(config.name("attention_out_norm") + config.name("mlp_out_norm"), "");
  EXPECT_EQ(config.name("mlp_norm"), "model.layers.{}.pre_feedforward_layernorm");
  EXPECT_EQ(by_layer(config, &LayerConfig::window), (Windows{9, 0, 9, 0}));
  EXPECT_EQ(config.score_cap, 50.0f) << "transformers' default";
}

TEST(SeedOss, BiasesFromTwoFields) {
  const ModelConfig config = read("SeedOssForCausalLM", R"({"residual_dropout": 0.1})");
  EXPECT_TRUE(config.qkv_bias);
  EXPECT_FALSE(config.o_bias || config.mlp_bias);
  EXPECT_TRUE(read("SeedOssForCausalLM", R"({"attention_out_bias": true})").o_bias);
}

TEST(Arcee, MlpWithoutGate) {
  const char* as_published = R"({"hidden_act": "relu2", "mlp_bias": false, "rope_scaling": {"rope_type": "yarn",
      "factor": 20.0, "original_max_position_embeddings": 64, "beta_fast": 32.0, "beta_slow": 1.0, "mscale": 1.0}})";
  const ModelConfig config = read("ArceeForCausalLM", as_published);
  EXPECT_EQ(config.name("gate"), "");
  EXPECT_EQ(config.name("up"), "model.layers.{}.mlp.up_proj");
  EXPECT_EQ(config.activation, Activation::relu_squared);
  EXPECT_FALSE(config.layer_norm);
  EXPECT_EQ(config.ropes[0].kind, RopeKind::yarn);
  EXPECT_EQ(message("ArceeForCausalLM", R"({"hidden_act": "xielu"})"),
            "config.json: hidden_act: not supported for family arcee: \"xielu\"")
      << "no module holds its parameters";
}

TEST(Apertus, XieluPerLayer) {
  const ModelConfig config = read("ApertusForCausalLM", R"({"qk_norm": true, "post_norm": false, "mlp_bias": false})");
  EXPECT_EQ(config.name("gate"), "");
  EXPECT_EQ(config.name("xielu"), "model.layers.{}.mlp.act_fn");
  EXPECT_EQ(config.activation, Activation::xielu);
  EXPECT_EQ(config.qk_norm, QkNorm::heads);
  EXPECT_EQ(config.ropes[0].kind, RopeKind::llama3) << "transformers' default";
  EXPECT_EQ(config.ropes[0].theta, 12e6);
  const char* plain = R"({"rope_parameters": {"rope_type": "default", "rope_theta": 5e5}})";
  EXPECT_EQ(read("ApertusForCausalLM", plain).ropes[0].kind, RopeKind::none);
  EXPECT_EQ(message("ApertusForCausalLM", R"({"post_norm": true})"),
            "config.json: post_norm: not supported: want false, have true");
}

TEST(Nemotron, LayerNormWithOffset) {
  const ModelConfig config =
      read("NemotronForCausalLM", R"({"norm_eps": 1e-4, "head_dim": null, "rope_percent": 0.5})");
  EXPECT_TRUE(config.layer_norm && config.norm_bias);
  EXPECT_EQ(config.norm_offset, 1.0f);
  EXPECT_EQ(config.norm_eps, 1e-4f);
  EXPECT_EQ(config.ropes[0].dims, 4) << "half of a head, by default";
  EXPECT_EQ(config.activation, Activation::relu_squared);
  EXPECT_EQ(config.name("gate"), "");
}

constexpr const char* kArchitecture = "Gemma3nForCausalLM";
TEST(Gemma3n, Defaults) {
  const ModelConfig config = read(kArchitecture);
  EXPECT_EQ(config.altup.inputs, 4);
  EXPECT_EQ(config.altup.active, 0);
  EXPECT_TRUE(config.altup.scales);
  EXPECT_EQ(config.laurel_rank, 64);
  EXPECT_EQ(config.layer_input.size, 256);
  EXPECT_EQ(config.layer_input.vocab_size, 262144);
  EXPECT_EQ(config.score_scale, 1.0f) << "independent of head_dim";
  EXPECT_EQ(config.embedding_scale, 8.0f);
  EXPECT_EQ(config.norm_offset, 0.0f);
  EXPECT_EQ(config.logit_cap, 30.0f);
  EXPECT_TRUE(config.value_norm);
  EXPECT_EQ(by_layer(config, &LayerConfig::window), (Windows{512, 512, 512, 512}))
      << "only every fifth layer has full attention";
  EXPECT_EQ(by_layer(config, &LayerConfig::rope), (Ropes{1, 1, 1, 1}));
  EXPECT_EQ(config.ropes[0].theta, 1e6);
  EXPECT_EQ(config.ropes[1].theta, 1e4);
  EXPECT_EQ(config.layer[0].mlp_size, 172);
  EXPECT_EQ(by_layer(config, &LayerConfig::gate_sparsity), std::vector<float>(4, 0.0f))
      << "only models with more than ten layers are sparse";
  EXPECT_EQ(by_layer(config, &LayerConfig::kv_layer), Windows(4, kOwnKv)) << "15 of 4 layers would share";
  EXPECT_EQ(std::ranges::count(config.layer, true, &LayerConfig::owns_kv), 4);
}

TEST(Gemma3n, PublishedConfig) {
  const ModelConfig config = read(kArchitecture, R"({"num_hidden_layers": 30, "num_kv_shared_layers": 10})");
  EXPECT_EQ(std::ranges::count(config.layer, true, &LayerConfig::owns_kv), 20);
  EXPECT_TRUE(config.layer[19].owns_kv());
  EXPECT_FALSE(config.layer[20].owns_kv());
  for (const int64_t layer : {20, 21, 22, 23, 25, 28}) {
    EXPECT_EQ(config.layer[static_cast<size_t>(layer)].kv_layer, 18) << "the last sliding layer with its own";
  }
  for (const int64_t layer : {24, 29}) EXPECT_EQ(config.layer[static_cast<size_t>(layer)].kv_layer, 19);
  EXPECT_EQ(config.tensors.unread.size(), 30u) << "k_proj, v_proj and k_norm of ten layers";
  EXPECT_EQ(config.tensors.unread[0], "model.layers.20.self_attn.k_proj.");
  EXPECT_TRUE(config.layer[9].gate_sparsity > 0.0f);
  EXPECT_FALSE(config.layer[10].gate_sparsity > 0.0f);
  EXPECT_EQ(config.layer[0].gate_sparsity, 0.95f);
}

TEST(Gemma3n, TextConfigBesideOtherModels) {
  const char* outer = R"({"architectures": ["Gemma3nForConditionalGeneration"], "model_type": "gemma3n",
      "audio_config": {"hidden_size": 8}, "vision_config": {"hidden_size": 8}, "audio_soft_tokens_per_image": 188,
      "text_config": {"model_type": "gemma3n_text", "query_pre_attn_scalar": 256, "num_hidden_layers": 2,
                      "intermediate_size": [96, 128], "activation_sparsity_pattern": [0.95, 0.0],
                      "num_kv_shared_layers": 0}})";
  const ModelConfig config = read("Gemma3nForConditionalGeneration", outer);
  EXPECT_EQ(config.layers, 2);
  EXPECT_EQ(config.layer[0].mlp_size, 96);
  EXPECT_EQ(config.layer[1].mlp_size, 128);
  EXPECT_EQ(by_layer(config, &LayerConfig::kv_layer), Windows(2, kOwnKv));
  EXPECT_EQ(config.tensors.renamed.at(0).first, "model.language_model.");
}

TEST(Gemma3n, InvalidValuesAreErrors) {
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
