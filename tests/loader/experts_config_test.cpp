// Mixtures of experts of single families.
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "tests/loader/small_config.h"

namespace pinion {
namespace {

std::vector<bool> expert_layers(const char* changes) {
  return by_layer(read("Qwen3MoeForCausalLM", changes), &LayerConfig::has_experts);
}
TEST(Qwen3Moe, ExpertLayers) {
  const ModelConfig config = read("Qwen3MoeForCausalLM", R"({"num_experts": 6, "num_experts_per_tok": 2,
      "moe_intermediate_size": 40, "norm_topk_prob": true, "output_router_logits": true,
      "shared_expert_intermediate_size": 0, "use_qk_norm": true, "qkv_bias": false})");
  EXPECT_EQ(config.experts.count, 6);
  EXPECT_EQ(config.experts.per_token, 2);
  EXPECT_EQ(config.experts.inner_size, 40);
  EXPECT_TRUE(config.experts.normalised);
  EXPECT_FALSE(read("Qwen3MoeForCausalLM").experts.normalised) << "transformers' default";
  EXPECT_EQ(module_name(config.name("expert_down"), 3, 5), "model.layers.3.mlp.experts.5.down_proj");
  EXPECT_EQ(module_name(config.name("router"), 3), "model.layers.3.mlp.gate");
  EXPECT_EQ(by_layer(config, &LayerConfig::window), Windows(4, 0)) << "sliding_window needs use_sliding_window";
  EXPECT_EQ(expert_layers("{}"), (std::vector<bool>{true, true, true, true}));
  EXPECT_EQ(expert_layers(R"({"decoder_sparse_step": 2})"), (std::vector<bool>{false, true, false, true}));
  EXPECT_EQ(expert_layers(R"({"decoder_sparse_step": 2, "mlp_only_layers": [0, 3]})"),
            (std::vector<bool>{false, true, false, false}));
  // The name that transformers 5 writes overrides the family's default, 128.
  EXPECT_EQ(read("Qwen3MoeForCausalLM", R"({"num_local_experts": 9})").experts.count, 9);
  EXPECT_EQ(read("Qwen3ForCausalLM").experts.count, 0);
}

TEST(Qwen3Moe, InvalidExpertsAreErrors) {
  const auto refusal = [](const char* changes) { return message("Qwen3MoeForCausalLM", changes); };
  EXPECT_EQ(refusal(R"({"num_experts": 4, "num_experts_per_tok": 5})"),
            "config.json: num_experts_per_tok: exceeds the number of experts: want at most 4, have 5");
  EXPECT_EQ(refusal(R"({"num_experts": 0})"),
            "config.json: num_experts: out of range: want an integer from 1 to 4096, have 0");
  EXPECT_EQ(refusal(R"({"num_experts_per_tok": 0})"),
            "config.json: num_experts_per_tok: out of range: want an integer from 1 to 4096, have 0");
  EXPECT_EQ(refusal(R"({"moe_intermediate_size": 0})"),
            "config.json: moe_intermediate_size: out of range: want an integer from 1 to 131072, have 0");
  EXPECT_EQ(refusal(R"({"decoder_sparse_step": 5})"), "config.json: mlp_only_layers: leaves no layer with experts");
  EXPECT_EQ(refusal(R"({"use_sliding_window": true})"),
            "config.json: use_sliding_window: not supported: want false, have true");
  EXPECT_EQ(refusal(R"({"shared_expert_intermediate_size": 64})"),
            "config.json: shared_expert_intermediate_size: not supported: want 0, have 64");
}

TEST(Mixtral, AllLayersHaveExperts) {
  const ModelConfig config = read("MixtralForCausalLM", R"({"num_local_experts": 6, "router_jitter_noise": 0.1})");
  EXPECT_EQ(config.experts.count, 6);
  EXPECT_EQ(config.experts.per_token, 2);
  EXPECT_EQ(config.experts.inner_size, config.layer[0].mlp_size);
  EXPECT_TRUE(config.experts.normalised);
  EXPECT_TRUE(config.layer[0].has_experts && config.layer[3].has_experts);
  EXPECT_EQ(module_name(config.name("expert_up"), 0, 5), "model.layers.0.block_sparse_moe.experts.5.w3");
  EXPECT_EQ(config.ropes.at(0).theta, 1e6);
  EXPECT_EQ(by_layer(read("MixtralForCausalLM", R"({"sliding_window": 20})"), &LayerConfig::window), Windows(4, 20));
}

// The config of gpt-oss-20b with other sizes.
constexpr const char* kGptOss = R"({"model_type": "gpt_oss", "attention_bias": true, "experts_per_token": 4, "head_dim":
    64, "hidden_act": "silu", "initial_context_length": 4096, "num_experts_per_tok": 4, "num_local_experts": 32,
    "quantization_config": {"modules_to_not_convert": ["model.layers.*.self_attn", "model.layers.*.mlp.router",
    "model.embed_tokens", "lm_head"], "quant_method": "mxfp4"}, "rope_scaling": {"beta_fast": 32.0, "beta_slow": 1.0,
    "factor": 32.0, "original_max_position_embeddings": 4096, "rope_type": "yarn", "truncate": false}, "rope_theta":
    150000, "router_aux_loss_coef": 0.9, "sliding_window": 128, "swiglu_limit": 7.0})";
TEST(GptOss, PublishedConfig) {
  const ModelConfig config = read("GptOssForCausalLM", kGptOss);
  EXPECT_EQ(config.family, "gpt_oss");
  EXPECT_EQ(config.activation, Activation::clamped_swiglu);
  EXPECT_EQ(config.activation_limit, 7.0f);
  EXPECT_TRUE(config.qkv_bias && config.o_bias && config.mlp_bias && config.experts.router_bias);
  EXPECT_TRUE(config.experts.fused && config.experts.mxfp4 && config.experts.normalised);
  EXPECT_EQ(config.experts.inner_size, 172);
  EXPECT_FALSE(config.quantization) << "MXFP4 experts are no Quantization";
  EXPECT_EQ(by_layer(config, &LayerConfig::window), (Windows{128, 0, 128, 0}));
  EXPECT_EQ(config.ropes[0].kind, RopeKind::yarn);
  EXPECT_FALSE(config.ropes[0].truncate);
  EXPECT_EQ(config.ropes[0].theta, 150000);
  EXPECT_EQ(module_name(config.name("sinks"), 3), "model.layers.3.self_attn.sinks");
}

TEST(GptOss, DefaultsMatchTransformers) {
  const ModelConfig config = read("GptOssForCausalLM");
  EXPECT_EQ(config.experts.count, 128);
  EXPECT_EQ(config.experts.per_token, 4);
  EXPECT_FALSE(config.experts.mxfp4);
  EXPECT_EQ(config.ropes[0].kind, RopeKind::yarn);
  EXPECT_EQ(config.ropes[0].factor, 32);
  EXPECT_EQ(config.ropes[0].theta, 150000);
  EXPECT_EQ(by_layer(config, &LayerConfig::window), (Windows{128, 0, 128, 0}));
  EXPECT_EQ(read("GptOssForCausalLM", R"({"swiglu_limit": 5.5})").activation_limit, 5.5f);
  EXPECT_EQ(by_layer(read("GptOssForCausalLM", R"({"layer_types": ["full_attention", "full_attention", "full_attention",
      "sliding_attention"], "sliding_window": 9})"),
                     &LayerConfig::window),
            (Windows{0, 0, 0, 9}));
}

TEST(GptOss, OtherArithmeticIsAnError) {
  const auto refusal = [](const char* changes) { return message("GptOssForCausalLM", changes); };
  EXPECT_EQ(refusal(R"({"hidden_act": "gelu_pytorch_tanh"})"),
            "config.json: hidden_act: not supported: want \"silu\", have \"gelu_pytorch_tanh\"");
  EXPECT_EQ(refusal(R"({"swiglu_alpha": 1.702})"), "");
  EXPECT_EQ(refusal(R"({"swiglu_alpha": 1.5})"), "config.json: swiglu_alpha: not supported: want 1.702, have 1.5");
  EXPECT_EQ(refusal(R"({"swiglu_limit": 0})"),
            "config.json: swiglu_limit: out of range: want a number from 0.001 to 1000000, have 0");
  EXPECT_EQ(refusal(R"({"quantization_config": {"quant_method": "mxfp4", "modules_to_not_convert": ["lm_head",
      "model.layers.3.mlp.experts"]}})"),
            "config.json: quantization_config: modules_to_not_convert: may include experts, which must all be MXFP4: "
            "\"model.layers.3.mlp.experts\"");
  EXPECT_EQ(refusal(R"({"quantization_config": {"quant_method": "mxfp4", "block_size": 16}})"),
            "config.json: quantization_config: block_size: not supported");
  EXPECT_EQ(message("MixtralForCausalLM", R"({"quantization_config": {"quant_method": "mxfp4"}})"),
            "config.json: quantization_config: quant_method: not supported: want \"compressed-tensors\" or \"fp8\" or "
            "\"gptq\" or \"awq\" or \"auto-round\" or \"bitnet\", have \"mxfp4\"")
      << "experts do not share tensors";
}

TEST(Olmoe, AllLayersHaveExperts) {
  const ModelConfig config = read("OlmoeForCausalLM", R"({"clip_qkv": null, "num_experts": 6, "num_local_experts": 6,
      "num_experts_per_tok": 2, "router_aux_loss_coef": 0.01})");
  EXPECT_EQ(config.experts.count, 6);
  EXPECT_EQ(config.experts.inner_size, config.layer[0].mlp_size);
  EXPECT_FALSE(config.experts.normalised);
  EXPECT_EQ(config.qk_norm, QkNorm::all_heads);
  EXPECT_EQ(read("OlmoeForCausalLM").experts.per_token, 8) << "transformers' default";
  EXPECT_EQ(config.qkv_limit, 0.0f);
  EXPECT_EQ(read("OlmoeForCausalLM", R"({"clip_qkv": 8.0})").qkv_limit, 8.0f);
}

TEST(Ernie4_5Moe, ARangeOfLayersHasExperts) {
  const auto with = [](const char* changes) {
    return by_layer(read("Ernie4_5_MoeForCausalLM", changes), &LayerConfig::has_experts);
  };
  EXPECT_EQ(with("{}"), (std::vector<bool>{false, true, true, true})) << "transformers' default";
  EXPECT_EQ(with(R"({"moe_layer_end_index": -1})"), (std::vector<bool>{false, true, true, true}));
  EXPECT_EQ(with(R"({"moe_layer_start_index": 2, "moe_layer_end_index": 2})"),
            (std::vector<bool>{false, false, true, false}));
  EXPECT_EQ(with(R"({"moe_layer_interval": 2})"), (std::vector<bool>{false, true, false, true}));
  EXPECT_EQ(message("Ernie4_5_MoeForCausalLM", R"({"use_bias": true})"),
            "config.json: use_bias: not supported: want false, have true");
}

TEST(GraniteMoe, ExpertsAreStacked) {
  const ModelConfig config = read("GraniteMoeForCausalLM", R"({"num_local_experts": 6, "num_experts_per_tok": 3,
      "residual_multiplier": 0.5, "router_aux_loss_coef": 0.01})");
  EXPECT_TRUE(config.experts.stacked && config.experts.normalised && !config.experts.fused);
  EXPECT_EQ(config.experts.count, 6);
  EXPECT_EQ(config.branch_scale, 0.5f);
  EXPECT_EQ(config.name("expert_gate"), config.name("expert_up"));
}

// The config of Granite 4.0 Micro with other sizes.
TEST(GraniteMoeHybrid, WithoutMambaAndExperts) {
  const char* published = R"({"num_local_experts": 0, "num_experts_per_tok": 0, "shared_intermediate_size": 40,
      "layer_types": ["attention", "attention", "attention", "attention"], "position_embedding_type": "rope",
      "mamba_n_heads": 4, "mamba_d_head": 32, "normalization_function": "rmsnorm", "attention_multiplier": 0.015625})";
  const ModelConfig config = read("GraniteMoeHybridForCausalLM", published);
  EXPECT_EQ(config.layer[0].mlp_size, 40) << "intermediate_size is the experts' size";
  EXPECT_EQ(config.name("gate"), config.name("up"));
  EXPECT_EQ(by_layer(config, &LayerConfig::rope), Ropes(4, 0));
  EXPECT_EQ(config.experts.count, 0);
  EXPECT_EQ(config.ignored_fields, std::vector<std::string>{"normalization_function"});
  EXPECT_EQ(recurrent_layers(config), 0);
  const char* types = R"({"layer_types": ["attention", "attention", "attention", "attention"]})";
  EXPECT_EQ(by_layer(read("GraniteMoeHybridForCausalLM", types), &LayerConfig::rope), Ropes(4, kNoRope))
      << "transformers' default";
  EXPECT_EQ(message("GraniteMoeHybridForCausalLM", "{}"), "config.json: layer_types: missing field")
      << "transformers would make all layers Mamba";
}

TEST(Qwen2Moe, SharedExpert) {
  const ModelConfig config = read("Qwen2MoeForCausalLM", R"({"num_experts": 6, "num_experts_per_tok": 2,
      "moe_intermediate_size": 24, "shared_expert_intermediate_size": 40, "mlp_only_layers": [1], "max_window_layers": 2,
      "sliding_window": 9, "use_sliding_window": false})");
  EXPECT_EQ(config.experts.inner_size, 24);
  EXPECT_EQ(config.experts.shared_size, 40);
  EXPECT_FALSE(config.experts.normalised);
  EXPECT_FALSE(config.experts.sigmoid);
  EXPECT_TRUE(config.layer[0].has_experts && !config.layer[1].has_experts);
  EXPECT_EQ(config.name("shared_weight"), "model.layers.{}.mlp.shared_expert_gate");
  EXPECT_TRUE(config.qkv_bias && !config.o_bias) << "transformers' defaults";
  EXPECT_EQ(message("Qwen2MoeForCausalLM", R"({"use_sliding_window": true})"),
            "config.json: use_sliding_window: not supported: want false, have true");
  EXPECT_EQ(message("Qwen2MoeForCausalLM", R"({"shared_expert_intermediate_size": -1})"),
            "config.json: shared_expert_intermediate_size: out of range: want an integer from 0 to 131072, have -1");
}

TEST(GraniteMoeShared, SharedExpertIsOptional) {
  EXPECT_EQ(read("GraniteMoeSharedForCausalLM", R"({"shared_intermediate_size": 40})").experts.shared_size, 40);
  EXPECT_EQ(read("GraniteMoeSharedForCausalLM").experts.shared_size, 0) << "transformers' default";
}

TEST(HunyuanMoe, UniformListsAreAccepted) {
  const char* as_published =
      R"({"num_experts": 6, "moe_topk": [2, 2, 2, 2], "moe_intermediate_size": [172, 172, 172, 172],
      "num_shared_expert": [1, 1, 1, 1], "use_qk_norm": true, "n_group": false, "routed_scaling_factor": false})";
  const ModelConfig config = read("HunYuanMoEV1ForCausalLM", as_published);
  EXPECT_EQ(config.experts.per_token, 2);
  EXPECT_EQ(config.experts.inner_size, 172);
  EXPECT_EQ(config.experts.shared_size, 172);
  EXPECT_EQ(config.name("shared_weight"), "");
  EXPECT_EQ(read("HunYuanMoEV1ForCausalLM", R"({"num_experts": 6, "moe_topk": 3})").experts.per_token, 3);
  EXPECT_EQ(message("HunYuanMoEV1ForCausalLM", R"({"num_experts": 6, "moe_topk": [2, 2, 3, 2]})"),
            "config.json: moe_topk: differs from layer to layer");
  EXPECT_EQ(message("HunYuanMoEV1ForCausalLM", R"({"num_experts": 2, "moe_topk": 3})"),
            "config.json: moe_topk: exceeds the number of experts: want at most 2, have 3");
}

TEST(Glm4Moe, SigmoidRouting) {
  const char* as_air = R"({"n_routed_experts": 6, "num_experts_per_tok": 2, "n_shared_experts": 2, "n_group": 1,
      "moe_intermediate_size": 24, "routed_scaling_factor": 1.5, "first_k_dense_replace": 1, "attention_bias": true,
      "num_nextn_predict_layers": 1, "use_qk_norm": false, "topk_group": 1, "rope_scaling": null})";
  const ModelConfig config = read("Glm4MoeForCausalLM", as_air);
  EXPECT_EQ(config.experts.count, 6);
  EXPECT_EQ(config.experts.shared_size, 48);
  EXPECT_TRUE(config.experts.sigmoid && config.experts.normalised);
  EXPECT_EQ(config.experts.scale, 1.5f);
  EXPECT_EQ(by_layer(config, &LayerConfig::has_experts), (std::vector<bool>{false, true, true, true}));
  EXPECT_EQ(config.qk_norm, QkNorm::none);
  EXPECT_TRUE(config.qkv_bias && !config.o_bias);
  EXPECT_EQ(config.ropes[0].dims, 4);
  EXPECT_EQ(config.tensors.skipped, std::vector<std::string>{"model.layers.4."}) << "the MTP layer";
  EXPECT_EQ(read("Glm4MoeForCausalLM", R"({"use_qk_norm": true})").qk_norm, QkNorm::heads);
  EXPECT_TRUE(read("Glm4MoeForCausalLM", R"({"num_nextn_predict_layers": 0})").tensors.skipped.empty());
  EXPECT_EQ(config.experts.groups, 1);
  EXPECT_EQ(read("Glm4MoeForCausalLM", R"({"n_group": 2})").experts.groups, 2);
  EXPECT_EQ(message("Glm4MoeForCausalLM", R"({"first_k_dense_replace": 4})"),
            "config.json: mlp_only_layers: leaves no layer with experts");
}

TEST(Llama4, LayersWithExperts) {
  const ModelConfig config = read("Llama4ForCausalLM", R"({"interleave_moe_layer_step": 2, "intermediate_size": 20})");
  EXPECT_EQ(by_layer(config, &LayerConfig::has_experts), (std::vector<bool>{false, true, false, true}));
  EXPECT_TRUE(config.experts.sigmoid && config.experts.scales_inputs && !config.experts.normalised);
  EXPECT_EQ(config.experts.inner_size, 20);
  EXPECT_EQ(config.experts.shared_size, 20);
  EXPECT_EQ(config.layer[0].mlp_size, 16384) << "of dense layers";
  const ModelConfig listed = read("Llama4ForCausalLM", R"({"moe_layers": [0, 3], "interleave_moe_layer_step": 2})");
  EXPECT_EQ(by_layer(listed, &LayerConfig::has_experts), (std::vector<bool>{true, false, false, true}));
}

TEST(Cohere2Moe, DenseLayersSeeEverythingAndRotate) {
  const char* as_dense = R"({"first_k_dense_replace": 2, "prefix_dense_intermediate_size": 40, "num_shared_experts": 1,
      "sliding_window_pattern": 2, "rms_norm_eps": 1e-6})";
  const ModelConfig config = read("Cohere2MoeForCausalLM", as_dense);
  EXPECT_EQ(by_layer(config, &LayerConfig::has_experts), (std::vector<bool>{false, false, true, true}));
  EXPECT_EQ(by_layer(config, &LayerConfig::window), (std::vector<int64_t>{0, 0, 4096, 0}));
  EXPECT_EQ(by_layer(config, &LayerConfig::rope), (std::vector<int32_t>{0, 0, 0, kNoRope}));
  EXPECT_EQ(config.output_scales.experts, 0.5f) << "the average";
  EXPECT_FALSE(config.layer_norm || config.shared_norm);
  EXPECT_EQ(config.layer[0].mlp_size, 40);
  const ModelConfig sum = read("Cohere2MoeForCausalLM", R"({"shared_expert_combination_strategy": "sum",
      "num_shared_experts": 1, "expert_selection_fn": "sigmoid", "norm_topk_prob": false})");
  EXPECT_EQ(sum.output_scales.experts, 1.0f);
  EXPECT_TRUE(sum.layer_norm && sum.experts.sigmoid && !sum.experts.normalised);
}

TEST(Qwen35Moe, AllLayersHaveExperts) {
  const ModelConfig config = read("Qwen3_5MoeForCausalLM", R"({"num_experts": 6, "num_experts_per_tok": 2,
      "moe_intermediate_size": 24, "shared_expert_intermediate_size": 40, "mtp_num_hidden_layers": 1})");
  EXPECT_EQ(config.experts.inner_size, 24);
  EXPECT_EQ(config.experts.shared_size, 40);
  EXPECT_TRUE(config.experts.normalised);
  EXPECT_TRUE(config.layer[0].recurrent && !config.layer[3].recurrent);
  EXPECT_EQ(config.norm_offset, 1.0f);
  EXPECT_EQ(config.name("stacked_gate_up"), "model.layers.{}.mlp.experts.gate_up_proj");
  EXPECT_EQ(config.name("mtp_fc"), "") << "its MTP layer has experts, which are not supported";
}

TEST(Gemma4, ExpertsBesideTheMlp) {
  const ModelConfig config = read("Gemma4ForCausalLM", R"({"enable_moe_block": true, "num_experts": 8,
      "top_k_experts": 2, "moe_intermediate_size": 20, "hidden_size_per_layer_input": 0})");
  EXPECT_EQ(by_layer(config, &LayerConfig::has_experts), std::vector<bool>(4, true));
  EXPECT_EQ(config.experts.count, 8);
  EXPECT_EQ(config.experts.per_token, 2);
  EXPECT_EQ(config.experts.inner_size, 20);
  EXPECT_EQ(config.experts.shared_size, 172) << "the mlp";
  EXPECT_EQ(config.output_scales.router, 0.125f) << "1 / sqrt(64)";
  const char* unused = R"({"num_experts": 8, "top_k_experts": 2, "moe_intermediate_size": 20})";
  EXPECT_EQ(read("Gemma4ForCausalLM", unused).experts.count, 0) << "enable_moe_block is false";
  EXPECT_NE(message("Gemma4ForCausalLM", R"({"enable_moe_block": true})").find("num_local_experts"), std::string::npos);
}

}  // namespace
}  // namespace pinion
