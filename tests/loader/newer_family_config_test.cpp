// As family_config_test, of families that came later.
#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "tests/loader/small_config.h"

namespace pinion {
namespace {

TEST(Exaone4, KnowsPositionsWhereItSlides) {
  const char* as_32b = R"({"sliding_window": 9, "sliding_window_pattern": "LLLG", "layer_types": ["sliding_attention",
      "sliding_attention", "sliding_attention", "full_attention"]})";
  const ModelConfig config = read("Exaone4ForCausalLM", as_32b);
  EXPECT_EQ(config.windows, (Windows{9, 9, 9, 0}));
  EXPECT_EQ(config.layer_ropes, (Ropes{0, 0, 0, kNoRope}));
  EXPECT_EQ(config.qk_norm, QkNorm::heads);
  EXPECT_EQ(config.names.attention_norm + config.names.mlp_norm, "");
  const char* as_1_2b = R"({"sliding_window": null, "sliding_window_pattern": null, "layer_types": ["full_attention",
      "full_attention", "full_attention", "full_attention"]})";
  EXPECT_EQ(read("Exaone4ForCausalLM", as_1_2b).windows, Windows(4, 0));
  EXPECT_EQ(read("Exaone4ForCausalLM", as_1_2b).layer_ropes, Ropes(4, 0)) << "without a window all have a rope";
  EXPECT_EQ(read("Exaone4ForCausalLM").windows, (Windows{4096, 4096, 4096, 0})) << "transformers' defaults";
  EXPECT_EQ(read("Exaone4ForCausalLM").layer_ropes, (Ropes{0, 0, 0, kNoRope}));
  EXPECT_EQ(message("Exaone4ForCausalLM", R"({"sliding_window_pattern": "LLLG"})"),
            "config.json: sliding_window_pattern: wrong type: want an integer from 1 to 1024, have \"LLLG\"")
      << "transformers fails, too";
  EXPECT_EQ(message("Exaone4ForCausalLM", R"({"sliding_window": null})"),
            "config.json: sliding_window: absent, though the family's layers slide");
}

TEST(Olmo3, OnlyLayersThatSeeEverythingAreStretched) {
  const char* as_published = R"({"rope_theta": 500000, "sliding_window": 9, "rope_scaling": {"rope_type": "yarn",
      "factor": 8, "original_max_position_embeddings": 64, "attention_factor": 1.25, "beta_fast": 32, "beta_slow": 1}})";
  const ModelConfig config = read("Olmo3ForCausalLM", as_published);
  EXPECT_EQ(config.windows, (Windows{9, 9, 9, 0}));
  EXPECT_EQ(config.layer_ropes, (Ropes{1, 1, 1, 0}));
  EXPECT_EQ(config.ropes[0].kind, RopeKind::yarn);
  EXPECT_EQ(config.ropes[0].original_max_positions, 64);
  EXPECT_EQ(config.ropes[1].kind, RopeKind::none);
  EXPECT_EQ(config.ropes[0].theta, 5e5);
  EXPECT_EQ(config.ropes[1].theta, 5e5);
  EXPECT_EQ(config.qk_norm, QkNorm::all_heads);
  EXPECT_EQ(config.names.attention_out_norm, "model.layers.{}.post_attention_layernorm");
}

TEST(Olmoe, EveryLayerHasExperts) {
  const ModelConfig config = read("OlmoeForCausalLM", R"({"clip_qkv": null, "num_experts": 6, "num_local_experts": 6,
      "num_experts_per_tok": 2, "router_aux_loss_coef": 0.01})");
  EXPECT_EQ(config.experts.count, 6);
  EXPECT_EQ(config.experts.inner_size, config.intermediate_size);
  EXPECT_FALSE(config.experts.normalised);
  EXPECT_EQ(config.qk_norm, QkNorm::all_heads);
  EXPECT_EQ(read("OlmoeForCausalLM").experts.per_token, 8) << "transformers' default";
  EXPECT_EQ(message("OlmoeForCausalLM", R"({"clip_qkv": 8.0})"),
            "config.json: fields not supported for family olmoe: \"clip_qkv\"");
}

TEST(Gemma, GeluIsTheOneWithTanh) {
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
  EXPECT_EQ(message("GemmaForCausalLM", R"({"hidden_act": "gelu_new"})"),
            "config.json: hidden_act: not supported: want one of silu, gelu, gelu_pytorch_tanh, relu2, xielu, have "
            "\"gelu_new\"");
  EXPECT_EQ(read("LlamaForCausalLM", R"({"hidden_act": "gelu"})").activation, Activation::gelu);
}

TEST(VaultGemma, HasTwoNormsALayer) {
  const ModelConfig config = read("VaultGemmaForCausalLM", R"({"sliding_window": 9})");
  EXPECT_EQ(config.names.attention_out_norm + config.names.mlp_out_norm, "");
  EXPECT_EQ(config.names.mlp_norm, "model.layers.{}.pre_feedforward_layernorm");
  EXPECT_EQ(config.windows, (Windows{9, 0, 9, 0}));
  EXPECT_EQ(config.score_cap, 50.0f) << "transformers' default";
}

TEST(SeedOss, BiasesAreOfTwoFields) {
  const ModelConfig config = read("SeedOssForCausalLM", R"({"residual_dropout": 0.1})");
  EXPECT_TRUE(config.qkv_bias);
  EXPECT_FALSE(config.o_bias || config.mlp_bias);
  EXPECT_TRUE(read("SeedOssForCausalLM", R"({"attention_out_bias": true})").o_bias);
}

TEST(Cwm, TheFirstLayerOfFourSeesEverything) {
  const ModelConfig config = read("CwmForCausalLM", R"({"num_hidden_layers": 6, "rope_theta": 5000})");
  EXPECT_EQ(config.windows, (Windows{0, 8192, 8192, 8192, 0, 8192}));
  EXPECT_EQ(config.ropes[0].kind, RopeKind::llama3) << "transformers' default";
  EXPECT_EQ(config.ropes[0].theta, 1e6) << "which comes with its base";
  EXPECT_EQ(config.eos_ids, (std::vector<int64_t>{128001, 128008, 128009}));
  const ModelConfig given = read("CwmForCausalLM", R"({"rope_theta": 5000, "rope_scaling": {"rope_type": "linear",
      "factor": 2}, "sliding_window": 9, "layer_types": ["sliding_attention", "full_attention", "full_attention",
      "sliding_attention"]})");
  EXPECT_EQ(given.ropes[0].kind, RopeKind::linear);
  EXPECT_EQ(given.ropes[0].theta, 5000);
  EXPECT_EQ(given.windows, (Windows{9, 0, 0, 9}));
}

// Both spellings: the language model's fields beside the vision model's, as published, or in text_config.
TEST(Qwen2Vl, MropeIsAPlainRopeToTexts) {
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
    EXPECT_EQ(config.windows, Windows(4, 0));
  }
  EXPECT_EQ(read("Qwen2VLForConditionalGeneration", R"({"use_sliding_window": true, "sliding_window": 9,
      "max_window_layers": 2})")
                .windows,
            (Windows{0, 0, 9, 9}));
  EXPECT_EQ(message("Qwen2ForCausalLM", R"({"rope_scaling": {"type": "mrope", "mrope_section": [1, 2, 1]}})"),
            "config.json: rope_scaling: rope_type: unknown kind: want default, linear, dynamic, yarn, llama3 or "
            "longrope, have \"mrope\"");
}

TEST(Qwen3Vl, HasNoWindows) {
  const ModelConfig config = read("Qwen3VLForConditionalGeneration", R"({"model_type": "qwen3_vl", "vision_config": {},
      "text_config": {"model_type": "qwen3_vl_text", "rope_theta": 5e6, "rope_scaling": {"mrope_interleaved": true,
      "mrope_section": [2, 1, 1], "rope_type": "default"}}})");
  EXPECT_EQ(config.ropes[0].theta, 5e6);
  EXPECT_EQ(config.qk_norm, QkNorm::heads);
  EXPECT_EQ(config.windows, Windows(4, 0));
  EXPECT_FALSE(config.tensors.skipped.empty() || config.tensors.renamed.empty());
}

TEST(SmolVlm, HoldsALlama) {
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

TEST(GraniteMoe, ExpertsAreStacked) {
  const ModelConfig config = read("GraniteMoeForCausalLM", R"({"num_local_experts": 6, "num_experts_per_tok": 3,
      "residual_multiplier": 0.5, "router_aux_loss_coef": 0.01})");
  EXPECT_TRUE(config.experts.stacked && config.experts.normalised && !config.experts.fused);
  EXPECT_EQ(config.experts.count, 6);
  EXPECT_EQ(config.branch_scale, 0.5f);
  EXPECT_EQ(config.names.expert_gate, config.names.expert_up);
}

// Granite 4.0 Micro's own, but for the sizes.
TEST(GraniteMoeHybrid, WithoutMambaAndExperts) {
  const char* published = R"({"num_local_experts": 0, "num_experts_per_tok": 0, "shared_intermediate_size": 40,
      "layer_types": ["attention", "attention", "attention", "attention"], "position_embedding_type": "rope",
      "mamba_n_heads": 4, "mamba_d_head": 32, "normalization_function": "rmsnorm", "attention_multiplier": 0.015625})";
  const ModelConfig config = read("GraniteMoeHybridForCausalLM", published);
  EXPECT_EQ(config.intermediate_size, 40) << "the other is experts'";
  EXPECT_EQ(config.names.gate, config.names.up);
  EXPECT_EQ(config.layer_ropes, Ropes(4, 0));
  EXPECT_EQ(config.experts.count, 0);
  EXPECT_EQ(config.ignored_fields, std::vector<std::string>{"normalization_function"});
  EXPECT_EQ(recurrent_layers(config), 0);
  const char* types = R"({"layer_types": ["attention", "attention", "attention", "attention"]})";
  EXPECT_EQ(read("GraniteMoeHybridForCausalLM", types).layer_ropes, Ropes(4, kNoRope)) << "transformers' default";
  EXPECT_EQ(message("GraniteMoeHybridForCausalLM", "{}"), "config.json: layer_types: missing field")
      << "transformers then has Mamba only";
}

TEST(RopeOfNeighbours, IsTheFamilys) {
  EXPECT_FALSE(read("LlamaForCausalLM").rope_of_neighbours);
  for (const char* name : {"Ernie4_5ForCausalLM", "Ernie4_5_ForCausalLM"}) {
    const ModelConfig ernie = read(name, R"({"model_type": "ernie4_5", "use_bias": true})");
    EXPECT_TRUE(ernie.rope_of_neighbours);
    EXPECT_TRUE(ernie.qkv_bias && ernie.o_bias && ernie.mlp_bias);
    EXPECT_EQ(ernie.ropes[0].theta, 5e5) << "transformers' default";
  }
  const ModelConfig helium = read("HeliumForCausalLM", R"({"attention_bias": true, "mlp_bias": true})");
  EXPECT_TRUE(helium.rope_of_neighbours && helium.qkv_bias && helium.mlp_bias);
  EXPECT_FALSE(helium.o_bias) << "whatever attention_bias says";
}

TEST(Glm, HalfOfAHeadIsRotated) {
  for (const char* name : {"GlmForCausalLM", "Glm4ForCausalLM"}) {
    const ModelConfig config = read(name);
    EXPECT_TRUE(config.rope_of_neighbours && config.qkv_bias);
    EXPECT_EQ(config.ropes[0].dims, 4) << "transformers' default";
    EXPECT_EQ(read(name, R"({"partial_rotary_factor": 1.0})").ropes[0].dims, 8);
    EXPECT_FALSE(config.o_bias);
    EXPECT_EQ(config.names.gate, config.names.up);
    EXPECT_EQ(config.eos_ids, (std::vector<int64_t>{151329, 151336, 151338}));
  }
  EXPECT_EQ(read("GlmForCausalLM").names.attention_out_norm, "");
  EXPECT_EQ(read("Glm4ForCausalLM").names.attention_out_norm, "model.layers.{}.post_self_attn_layernorm");
  EXPECT_EQ(read("Glm4ForCausalLM").names.mlp_norm, "model.layers.{}.post_attention_layernorm");
}

TEST(Arcee, HasNoGate) {
  const char* as_published = R"({"hidden_act": "relu2", "mlp_bias": false, "rope_scaling": {"rope_type": "yarn",
      "factor": 20.0, "original_max_position_embeddings": 64, "beta_fast": 32.0, "beta_slow": 1.0, "mscale": 1.0}})";
  const ModelConfig config = read("ArceeForCausalLM", as_published);
  EXPECT_EQ(config.names.gate, "");
  EXPECT_EQ(config.names.up, "model.layers.{}.mlp.up_proj");
  EXPECT_EQ(config.activation, Activation::relu_squared);
  EXPECT_FALSE(config.layer_norm);
  EXPECT_EQ(config.ropes[0].kind, RopeKind::yarn);
  EXPECT_EQ(message("ArceeForCausalLM", R"({"hidden_act": "xielu"})"),
            "config.json: hidden_act: not supported for family arcee: \"xielu\"")
      << "no layer holds its numbers";
}

TEST(Apertus, HasACurveOfEachLayer) {
  const ModelConfig config = read("ApertusForCausalLM", R"({"qk_norm": true, "post_norm": false, "mlp_bias": false})");
  EXPECT_EQ(config.names.gate, "");
  EXPECT_EQ(config.names.xielu, "model.layers.{}.mlp.act_fn");
  EXPECT_EQ(config.activation, Activation::xielu);
  EXPECT_EQ(config.qk_norm, QkNorm::heads);
  EXPECT_EQ(config.ropes[0].kind, RopeKind::llama3) << "transformers' default";
  EXPECT_EQ(config.ropes[0].theta, 12e6);
  const char* plain = R"({"rope_parameters": {"rope_type": "default", "rope_theta": 5e5}})";
  EXPECT_EQ(read("ApertusForCausalLM", plain).ropes[0].kind, RopeKind::none);
  EXPECT_EQ(message("ApertusForCausalLM", R"({"post_norm": true})"),
            "config.json: post_norm: not supported: want false, have true");
}

TEST(Nemotron, HasLayerNormByOnePlusW) {
  const ModelConfig config =
      read("NemotronForCausalLM", R"({"norm_eps": 1e-4, "head_dim": null, "rope_percent": 0.5})");
  EXPECT_TRUE(config.layer_norm && config.norm_bias);
  EXPECT_EQ(config.norm_offset, 1.0f);
  EXPECT_EQ(config.norm_eps, 1e-4f);
  EXPECT_EQ(config.ropes[0].dims, 4) << "half of a head, by default";
  EXPECT_EQ(config.activation, Activation::relu_squared);
  EXPECT_EQ(config.names.gate, "");
}

TEST(Qwen2Moe, EveryTokenGoesToOneMoreExpert) {
  const ModelConfig config = read("Qwen2MoeForCausalLM", R"({"num_experts": 6, "num_experts_per_tok": 2,
      "moe_intermediate_size": 24, "shared_expert_intermediate_size": 40, "mlp_only_layers": [1], "max_window_layers": 2,
      "sliding_window": 9, "use_sliding_window": false})");
  EXPECT_EQ(config.experts.inner_size, 24);
  EXPECT_EQ(config.experts.shared_size, 40);
  EXPECT_FALSE(config.experts.normalised);
  EXPECT_FALSE(config.experts.sigmoid);
  EXPECT_TRUE(config.has_experts(0) && !config.has_experts(1));
  EXPECT_EQ(config.names.shared_weight, "model.layers.{}.mlp.shared_expert_gate");
  EXPECT_TRUE(config.qkv_bias && !config.o_bias) << "transformers' defaults";
  EXPECT_EQ(message("Qwen2MoeForCausalLM", R"({"use_sliding_window": true})"),
            "config.json: use_sliding_window: not supported: want false, have true");
  EXPECT_EQ(message("Qwen2MoeForCausalLM", R"({"shared_expert_intermediate_size": -1})"),
            "config.json: shared_expert_intermediate_size: out of range: want an integer from 0 to 131072, have -1");
}

TEST(GraniteMoeShared, MayDoWithoutASharedExpert) {
  EXPECT_EQ(read("GraniteMoeSharedForCausalLM", R"({"shared_intermediate_size": 40})").experts.shared_size, 40);
  EXPECT_EQ(read("GraniteMoeSharedForCausalLM").experts.shared_size, 0) << "transformers' default";
}

TEST(HunyuanMoe, SaysOfEachLayerTheSame) {
  const char* as_published =
      R"({"num_experts": 6, "moe_topk": [2, 2, 2, 2], "moe_intermediate_size": [172, 172, 172, 172],
      "num_shared_expert": [1, 1, 1, 1], "use_qk_norm": true, "n_group": false, "routed_scaling_factor": false})";
  const ModelConfig config = read("HunYuanMoEV1ForCausalLM", as_published);
  EXPECT_EQ(config.experts.per_token, 2);
  EXPECT_EQ(config.experts.inner_size, 172);
  EXPECT_EQ(config.experts.shared_size, 172);
  EXPECT_EQ(config.names.shared_weight, "");
  EXPECT_EQ(read("HunYuanMoEV1ForCausalLM", R"({"num_experts": 6, "moe_topk": 3})").experts.per_token, 3);
  EXPECT_EQ(message("HunYuanMoEV1ForCausalLM", R"({"num_experts": 6, "moe_topk": [2, 2, 3, 2]})"),
            "config.json: moe_topk: differs from layer to layer");
  EXPECT_EQ(message("HunYuanMoEV1ForCausalLM", R"({"num_experts": 2, "moe_topk": 3})"),
            "config.json: moe_topk: more than there are experts: want at most 2, have 3");
}

TEST(Glm4Moe, ChoosesBySigmoids) {
  const char* as_air = R"({"n_routed_experts": 6, "num_experts_per_tok": 2, "n_shared_experts": 2, "n_group": 1,
      "moe_intermediate_size": 24, "routed_scaling_factor": 1.5, "first_k_dense_replace": 1, "attention_bias": true,
      "num_nextn_predict_layers": 1, "use_qk_norm": false, "topk_group": 1, "rope_scaling": null})";
  const ModelConfig config = read("Glm4MoeForCausalLM", as_air);
  EXPECT_EQ(config.experts.count, 6);
  EXPECT_EQ(config.experts.shared_size, 48);
  EXPECT_TRUE(config.experts.sigmoid && config.experts.normalised);
  EXPECT_EQ(config.experts.scale, 1.5f);
  EXPECT_EQ(config.experts.layers, (std::vector<bool>{false, true, true, true}));
  EXPECT_EQ(config.qk_norm, QkNorm::none);
  EXPECT_TRUE(config.qkv_bias && !config.o_bias);
  EXPECT_EQ(config.ropes[0].dims, 4);
  EXPECT_EQ(config.tensors.skipped, std::vector<std::string>{"model.layers.4."}) << "predicts one token more";
  EXPECT_EQ(read("Glm4MoeForCausalLM", R"({"use_qk_norm": true})").qk_norm, QkNorm::heads);
  EXPECT_TRUE(read("Glm4MoeForCausalLM", R"({"num_nextn_predict_layers": 0})").tensors.skipped.empty());
  EXPECT_EQ(message("Glm4MoeForCausalLM", R"({"n_group": 2})"), "config.json: n_group: not supported: want 1, have 2");
  EXPECT_EQ(message("Glm4MoeForCausalLM", R"({"first_k_dense_replace": 4})"),
            "config.json: mlp_only_layers: leaves no layer with experts");
}

TEST(Qwen35Moe, HasExpertsInAllLayers) {
  const ModelConfig config = read("Qwen3_5MoeForCausalLM", R"({"num_experts": 6, "num_experts_per_tok": 2,
      "moe_intermediate_size": 24, "shared_expert_intermediate_size": 40, "mtp_num_hidden_layers": 1})");
  EXPECT_EQ(config.experts.inner_size, 24);
  EXPECT_EQ(config.experts.shared_size, 40);
  EXPECT_TRUE(config.experts.normalised);
  EXPECT_TRUE(config.recurrent[0] && !config.recurrent[3]);
  EXPECT_EQ(config.norm_offset, 1.0f);
  EXPECT_EQ(config.names.stacked_gate_up, "model.layers.{}.mlp.experts.gate_up_proj");
  EXPECT_EQ(config.names.mtp_fc, "") << "its layer that predicts one token more has experts, too: not read";
}

}  // namespace
}  // namespace pinion
