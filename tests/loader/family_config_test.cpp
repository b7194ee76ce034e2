// What single families add to a config.json: fields, rules, names. What all share is in model_config_test.
#include <gtest/gtest.h>

#include <cmath>
#include <string>

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

TEST(Olmo2, NormsWhatComesOut) {
  const ModelConfig config = read("Olmo2ForCausalLM");
  EXPECT_EQ(config.qk_norm, QkNorm::all_heads);
  EXPECT_EQ(config.names.attention_norm + config.names.mlp_norm, "");
  EXPECT_EQ(config.names.attention_out_norm, "model.layers.{}.post_attention_layernorm");
  EXPECT_EQ(config.names.mlp_out_norm, "model.layers.{}.post_feedforward_layernorm");
}

TEST(SmolLM3, LayersWithoutRope) {
  const auto ropes = [](const char* changes) { return read("SmolLM3ForCausalLM", changes).layer_ropes; };
  EXPECT_EQ(ropes("{}"), (Ropes{0, 0, 0, kNoRope}));
  EXPECT_EQ(ropes(R"({"no_rope_layer_interval": 2})"), (Ropes{0, kNoRope, 0, kNoRope}));
  EXPECT_EQ(ropes(R"({"no_rope_layers": [0, 1, 1, 0, 1], "no_rope_layer_interval": 2})"),
            (Ropes{kNoRope, 0, 0, kNoRope}));
  EXPECT_EQ(message("SmolLM3ForCausalLM", R"({"no_rope_layers": [1, 1]})"),
            "config.json: no_rope_layers: wrong length: want 4, have 2");
  EXPECT_EQ(message("SmolLM3ForCausalLM", R"({"no_rope_layers": [1, 1, 2, 1]})"),
            "config.json: no_rope_layers: out of range: want an integer from 0 to 1, have 2");
  EXPECT_EQ(read("SmolLM3ForCausalLM", R"({"use_sliding_window": true, "sliding_window": 9})").windows,
            (Windows{0, 0, 0, 9}));
  EXPECT_EQ(read("SmolLM3ForCausalLM", R"({"sliding_window": 9})").windows, (Windows{0, 0, 0, 0}));
  EXPECT_EQ(message("LlamaForCausalLM", R"({"no_rope_layers": [1, 1, 1, 1]})"), "")
      << "transformers' Llama does not read it";
}

TEST(Phi3, FusedTensorsAndPartialRotation) {
  const ModelConfig config = read("Phi3ForCausalLM", R"({"partial_rotary_factor": 0.75, "sliding_window": 20})");
  EXPECT_EQ(config.names.q, "model.layers.{}.self_attn.qkv_proj");
  EXPECT_EQ(config.names.k, config.names.q);
  EXPECT_EQ(config.names.v, config.names.q);
  EXPECT_EQ(config.names.gate, config.names.up);
  EXPECT_EQ(config.ropes[0].dims, 6);
  EXPECT_EQ(config.windows, (Windows{20, 20, 20, 20}));
  EXPECT_EQ(message("Phi3ForCausalLM", R"({"partial_rotary_factor": 0.4})"),
            "config.json: rope_parameters: partial_rotary_factor: out of range: want an even number of rotated "
            "elements, have 3");
  EXPECT_EQ(message("Phi3ForCausalLM", R"({"full_attn_mod": 2})"),
            "config.json: full_attn_mod: not supported: want 1, have 2");
}

TEST(Phi3, LongRope) {
  for (const char* name : {"longrope", "su"}) {
    const std::string changes = R"({"original_max_position_embeddings": 128, "rope_scaling": {"short_factor": [1, 1, 1],
        "long_factor": [1.5, 2, 4], "original_max_position_embeddings": 7, "type": ")" +
                                std::string(name) + R"("}, "partial_rotary_factor": 0.75})";
    const Rope rope = read("Phi3ForCausalLM", changes.c_str()).ropes[0];
    EXPECT_EQ(rope.kind, RopeKind::longrope);
    EXPECT_EQ(rope.long_factor, (std::vector<double>{1.5, 2, 4}));
    EXPECT_EQ(rope.short_factor, (std::vector<double>{1, 1, 1}));
    EXPECT_EQ(rope.original_max_positions, 128) << "what is outside rules";
    EXPECT_EQ(rope.factor, 4.0) << "512 / 128";
  }
}

TEST(Gemma2, ScalesCapsAndPattern) {
  const ModelConfig config = read("Gemma2ForCausalLM", R"({"hidden_act": "gelu"})");
  EXPECT_EQ(config.embedding_scale, 8.0f);
  EXPECT_EQ(config.score_scale, 0.0625f) << "query_pre_attn_scalar 256";
  EXPECT_EQ(config.score_cap, 50.0f);
  EXPECT_EQ(config.logit_cap, 30.0f);
  EXPECT_EQ(config.norm_offset, 1.0f);
  EXPECT_EQ(config.activation, Activation::gelu_tanh) << "hidden_activation, whatever hidden_act is";
  EXPECT_EQ(config.windows, (Windows{4096, 0, 4096, 0}));
  EXPECT_EQ(read("Gemma2ForCausalLM", R"({"attn_logit_softcapping": null})").score_cap, 0.0f);
  EXPECT_EQ(read("Gemma2ForCausalLM", R"({"sliding_window": 5, "layer_types": ["full_attention", "full_attention",
      "full_attention", "sliding_attention"]})")
                .windows,
            (Windows{0, 0, 0, 5}));
  EXPECT_EQ(message("Gemma2ForCausalLM", R"({"use_bidirectional_attention": true})"),
            "config.json: fields not supported for family gemma2: \"use_bidirectional_attention\"");
}

TEST(Gemma3, RopesByLayerTypeInBothSpellings) {
  const char* spellings[] = {
      R"({"sliding_window": 9, "sliding_window_pattern": 3, "rope_theta": 3e5, "rope_local_base_freq": 5000,
          "rope_scaling": {"rope_type": "linear", "factor": 8}})",
      R"({"sliding_window": 9, "_sliding_window_pattern": 6, "layer_types": ["sliding_attention", "sliding_attention",
          "full_attention", "sliding_attention"], "rope_parameters": {"full_attention": {"rope_type": "linear",
          "factor": 8, "rope_theta": 3e5}, "sliding_attention": {"rope_type": "default", "rope_theta": 5000}}})"};
  for (const char* spelling : spellings) {
    const ModelConfig config = read("Gemma3ForCausalLM", spelling);
    EXPECT_EQ(config.windows, (Windows{9, 9, 0, 9}));
    EXPECT_EQ(config.layer_ropes, (Ropes{1, 1, 0, 1}));
    ASSERT_EQ(config.ropes.size(), 2u);
    EXPECT_EQ(config.ropes[0].kind, RopeKind::linear);
    EXPECT_EQ(config.ropes[0].theta, 3e5);
    EXPECT_EQ(config.ropes[0].factor, 8.0);
    EXPECT_EQ(config.ropes[1].kind, RopeKind::none);
    EXPECT_EQ(config.ropes[1].theta, 5000.0);
    EXPECT_EQ(config.qk_norm, QkNorm::heads);
  }
  const ModelConfig plain = read("Gemma3ForCausalLM");
  EXPECT_EQ(plain.ropes[0].theta, 1e6);
  EXPECT_EQ(plain.ropes[1].theta, 1e4);
  EXPECT_EQ(message("Gemma3ForCausalLM", R"({"rope_parameters": {"rope_theta": 10000.0}})"),
            "config.json: rope_parameters: rope_theta: unknown layer type");
  EXPECT_EQ(message("Gemma3ForCausalLM", R"({"attn_logit_softcapping": 50.0})"),
            "config.json: fields not supported for family gemma3: \"attn_logit_softcapping\"")
      << "transformers ignores it; the training did not";
}

TEST(Gemma3, BesideAVisionModel) {
  const char* outer = R"({"architectures": ["Gemma3ForConditionalGeneration"], "model_type": "gemma3",
      "eos_token_id": [1, 106], "vision_config": {"hidden_size": 3}, "mm_tokens_per_image": 256, "torch_dtype":
      "bfloat16", "text_config": {"hidden_size": 96, "model_type": "gemma3_text", "num_hidden_layers": 7}})";
  ModelConfig config;
  ASSERT_EQ(parse_model_config(outer, "config.json", &config).message(), "");
  EXPECT_EQ(config.hidden_size, 96);
  EXPECT_EQ(config.layers, 7);
  EXPECT_EQ(config.heads, 8) << "the family's default";
  EXPECT_EQ(config.eos_ids, (std::vector<int64_t>{1, 106}));
  EXPECT_FALSE(config.tensors.skipped.empty() || config.tensors.renamed.empty());
  EXPECT_EQ(message("Gemma3ForConditionalGeneration", R"({"text_config": {"use_bidirectional_attention": true}})"),
            "config.json: fields not supported for family gemma3: \"use_bidirectional_attention\"");
  EXPECT_EQ(
      read("Gemma3ForConditionalGeneration", R"({"outer_note": 1, "text_config": {"new_thing": 1}})").ignored_fields,
      (std::vector<std::string>{"new_thing", "outer_note"}));
  EXPECT_EQ(message("Gemma3ForCausalLM", R"({"text_config": 3})"),
            "config.json: fields not supported for family gemma3: \"text_config\"");
}

// Two families have the same architecture where a vision model is beside them: text_config tells them apart.
TEST(Ministral3, IsKnownByItsTextConfig) {
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
  EXPECT_EQ(message("Mistral3ForConditionalGeneration", R"({"text_config": {"model_type": "qwen3"}})"),
            "config.json: model_type: does not fit Mistral3ForConditionalGeneration: want ministral3, mistral, have "
            "\"qwen3\"");
}

std::vector<bool> expert_layers(const char* changes) { return read("Qwen3MoeForCausalLM", changes).experts.layers; }

TEST(Qwen3Moe, ExpertsAndLayersWithoutThem) {
  const ModelConfig config = read("Qwen3MoeForCausalLM", R"({"num_experts": 6, "num_experts_per_tok": 2,
      "moe_intermediate_size": 40, "norm_topk_prob": true, "output_router_logits": true,
      "shared_expert_intermediate_size": 0, "use_qk_norm": true, "qkv_bias": false})");
  EXPECT_EQ(config.experts.count, 6);
  EXPECT_EQ(config.experts.per_token, 2);
  EXPECT_EQ(config.experts.inner_size, 40);
  EXPECT_TRUE(config.experts.normalised);
  EXPECT_FALSE(read("Qwen3MoeForCausalLM").experts.normalised) << "transformers' default";
  EXPECT_EQ(module_name(config.names.expert_down, 3, 5), "model.layers.3.mlp.experts.5.down_proj");
  EXPECT_EQ(module_name(config.names.router, 3), "model.layers.3.mlp.gate");
  EXPECT_EQ(config.windows, Windows(4, 0)) << "sliding_window means nothing without use_sliding_window";
  EXPECT_EQ(expert_layers("{}"), (std::vector<bool>{true, true, true, true}));
  EXPECT_EQ(expert_layers(R"({"decoder_sparse_step": 2})"), (std::vector<bool>{false, true, false, true}));
  EXPECT_EQ(expert_layers(R"({"decoder_sparse_step": 2, "mlp_only_layers": [0, 3]})"),
            (std::vector<bool>{false, true, false, false}));
  // The name that transformers 5 writes rules over the family's default, 128.
  EXPECT_EQ(read("Qwen3MoeForCausalLM", R"({"num_local_experts": 9})").experts.count, 9);
  EXPECT_EQ(read("Qwen3ForCausalLM").experts.count, 0);
}

TEST(Qwen3Moe, RefusesExpertsThatCannotBe) {
  const auto refusal = [](const char* changes) { return message("Qwen3MoeForCausalLM", changes); };
  EXPECT_EQ(refusal(R"({"num_experts": 4, "num_experts_per_tok": 5})"),
            "config.json: num_experts_per_tok: more than there are experts: want at most 4, have 5");
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

TEST(Mixtral, EveryLayerHasExperts) {
  const ModelConfig config = read("MixtralForCausalLM", R"({"num_local_experts": 6, "router_jitter_noise": 0.1})");
  EXPECT_EQ(config.experts.count, 6);
  EXPECT_EQ(config.experts.per_token, 2);
  EXPECT_EQ(config.experts.inner_size, config.intermediate_size);
  EXPECT_TRUE(config.experts.normalised);
  EXPECT_TRUE(config.has_experts(0) && config.has_experts(3));
  EXPECT_EQ(module_name(config.names.expert_up, 0, 5), "model.layers.0.block_sparse_moe.experts.5.w3");
  EXPECT_EQ(config.ropes.at(0).theta, 1e6);
  EXPECT_EQ(read("MixtralForCausalLM", R"({"sliding_window": 20})").windows, Windows(4, 20));
}

// gpt-oss-20b's own, but for the sizes.
constexpr const char* kGptOss = R"({"model_type": "gpt_oss", "attention_bias": true, "experts_per_token": 4, "head_dim":
    64, "hidden_act": "silu", "initial_context_length": 4096, "num_experts_per_tok": 4, "num_local_experts": 32,
    "quantization_config": {"modules_to_not_convert": ["model.layers.*.self_attn", "model.layers.*.mlp.router",
    "model.embed_tokens", "lm_head"], "quant_method": "mxfp4"}, "rope_scaling": {"beta_fast": 32.0, "beta_slow": 1.0,
    "factor": 32.0, "original_max_position_embeddings": 4096, "rope_type": "yarn", "truncate": false}, "rope_theta":
    150000, "router_aux_loss_coef": 0.9, "sliding_window": 128, "swiglu_limit": 7.0})";

TEST(GptOss, ConfigAsPublished) {
  const ModelConfig config = read("GptOssForCausalLM", kGptOss);
  EXPECT_EQ(config.family, "gpt_oss");
  EXPECT_EQ(config.activation, Activation::clamped_swiglu);
  EXPECT_EQ(config.activation_limit, 7.0f);
  EXPECT_TRUE(config.qkv_bias && config.o_bias && config.mlp_bias && config.experts.router_bias);
  EXPECT_TRUE(config.experts.fused && config.experts.mxfp4 && config.experts.normalised);
  EXPECT_EQ(config.experts.inner_size, 172);
  EXPECT_FALSE(config.quantization) << "that is for int8 codes";
  EXPECT_EQ(config.windows, (Windows{128, 0, 128, 0}));
  EXPECT_EQ(config.ropes[0].kind, RopeKind::yarn);
  EXPECT_FALSE(config.ropes[0].truncate);
  EXPECT_EQ(config.ropes[0].theta, 150000);
  EXPECT_EQ(module_name(config.names.sinks, 3), "model.layers.3.self_attn.sinks");
}

TEST(GptOss, DefaultsAreTransformers) {
  const ModelConfig config = read("GptOssForCausalLM");
  EXPECT_EQ(config.experts.count, 128);
  EXPECT_EQ(config.experts.per_token, 4);
  EXPECT_FALSE(config.experts.mxfp4);
  EXPECT_EQ(config.ropes[0].kind, RopeKind::yarn);
  EXPECT_EQ(config.ropes[0].factor, 32);
  EXPECT_EQ(config.ropes[0].theta, 150000);
  EXPECT_EQ(config.windows, (Windows{128, 0, 128, 0}));
  EXPECT_EQ(read("GptOssForCausalLM", R"({"swiglu_limit": 5.5})").activation_limit, 5.5f);
  EXPECT_EQ(read("GptOssForCausalLM", R"({"layer_types": ["full_attention", "full_attention", "full_attention",
      "sliding_attention"], "sliding_window": 9})")
                .windows,
            (Windows{0, 0, 0, 9}));
}

TEST(GptOss, RefusesOtherArithmetic) {
  const auto refusal = [](const char* changes) { return message("GptOssForCausalLM", changes); };
  EXPECT_EQ(refusal(R"({"hidden_act": "gelu_pytorch_tanh"})"),
            "config.json: hidden_act: not supported: want \"silu\", have \"gelu_pytorch_tanh\"");
  EXPECT_EQ(refusal(R"({"swiglu_alpha": 1.702})"), "");
  EXPECT_EQ(refusal(R"({"swiglu_alpha": 1.5})"), "config.json: swiglu_alpha: not supported: want 1.702, have 1.5");
  EXPECT_EQ(refusal(R"({"swiglu_limit": 0})"),
            "config.json: swiglu_limit: out of range: want a number from 0.001 to 1000000, have 0");
  EXPECT_EQ(
      refusal(R"({"quantization_config": {"quant_method": "mxfp4", "modules_to_not_convert": ["lm_head",
      "model.layers.3.mlp.experts"]}})"),
      "config.json: quantization_config: modules_to_not_convert: may mean experts, of which all have to be MXFP4: "
      "\"model.layers.3.mlp.experts\"");
  EXPECT_EQ(refusal(R"({"quantization_config": {"quant_method": "mxfp4", "block_size": 16}})"),
            "config.json: quantization_config: block_size: not supported");
  EXPECT_EQ(message("MixtralForCausalLM", R"({"quantization_config": {"quant_method": "mxfp4"}})"),
            "config.json: quantization_config: quant_method: not supported: want \"compressed-tensors\" or \"fp8\" or "
            "\"gptq\" or \"awq\" or \"bitnet\", have "
            "\"mxfp4\"")
      << "experts that share no tensors";
}

// Its rotation, its chunks, its routing: nothing here computes them.
TEST(Llama4, IsRefusedByName) {
  for (const char* name : {"Llama4ForCausalLM", "Llama4ForConditionalGeneration"}) {
    const std::string refusal = message(name, R"({"text_config": {"model_type": "llama4_text"}})");
    EXPECT_TRUE(
        refusal.starts_with("config.json: architectures: unknown architecture: want one that README.md lists, "
                            "perhaps LlamaForCausalLM"))
        << refusal;
    EXPECT_TRUE(refusal.ends_with(", have \"" + std::string(name) + "\"")) << refusal;
  }
  const std::string as_llama = message("LlamaForCausalLM", R"({"model_type": "llama4_text"})");
  EXPECT_EQ(as_llama, "config.json: model_type: does not fit LlamaForCausalLM: want llama, have \"llama4_text\"");
}

TEST(Hunyuan, AlphaStretchesTheBase) {
  const ModelConfig config =
      read("HunYuanDenseV1ForCausalLM", R"({"rope_theta": 10000.0, "rope_scaling": {"type": "dynamic", "alpha": 1000.0,
      "factor": 1.0, "beta_fast": 32, "beta_slow": 1, "mscale": 1.0, "mscale_all_dim": 1.0}})");
  EXPECT_EQ(config.qk_norm, QkNorm::rotated_heads);
  EXPECT_EQ(config.names.q_norm, "model.layers.{}.self_attn.query_layernorm");
  EXPECT_EQ(config.ropes[0].kind, RopeKind::none);
  EXPECT_NEAR(config.ropes[0].theta, 1e8, 1) << "1e4 * 1000^(8/6)";
  EXPECT_EQ(message("HunYuanDenseV1ForCausalLM", R"({"rope_scaling": {"type": "dynamic", "alpha": 0.5, "factor": 1}})"),
            "config.json: rope_scaling: alpha: out of range: want 0 or at least 1");
  EXPECT_EQ(message("HunYuanDenseV1ForCausalLM", R"({"use_cla": true})"),
            "config.json: use_cla: not supported: want false, have true");
}

}  // namespace
}  // namespace pinion
