// Recurrent layers: Qwen3.5 with and without vision, LFM2, and the families with Mamba 1 or 2.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "loader/config/model_config.h"
#include "loader/files/json.h"
#include "tests/loader/by_layer.h"

namespace pinion {
namespace {

constexpr const char* kSmall = R"({"architectures": ["Qwen3_5ForCausalLM"], "model_type": "qwen3_5_text",
    "hidden_size": 64, "intermediate_size": 172, "num_hidden_layers": 5, "head_dim": 16, "num_attention_heads": 4,
    "num_key_value_heads": 2, "vocab_size": 512, "max_position_embeddings": 512, "linear_num_key_heads": 2,
    "linear_num_value_heads": 4, "linear_key_head_dim": 24, "linear_value_head_dim": 40})";

std::string message(const char* changes, ModelConfig* config, const char* base = kSmall) {
  Json json = Json::parse(base);
  json.update(Json::parse(changes));
  return parse_model_config(json.dump(), "config.json", config).message();
}

std::string message(const char* changes, const char* base = kSmall) {
  ModelConfig config;
  return message(changes, &config, base);
}

ModelConfig read(const char* changes = "{}", const char* base = kSmall) {
  ModelConfig config;
  EXPECT_EQ(message(changes, &config, base), "");
  return config;
}

using Layers = std::vector<bool>;

TEST(Qwen35, LayersAndTheirShape) {
  const ModelConfig config = read();
  EXPECT_EQ(by_layer(config, &LayerConfig::recurrent), (Layers{true, true, true, false, true}));
  EXPECT_EQ(attention_layers(config), 1);
  EXPECT_EQ(config.recurrence.key_heads, 2);
  EXPECT_EQ(config.recurrence.value_heads, 4);
  EXPECT_EQ(config.recurrence.key_width(), 48);
  EXPECT_EQ(config.recurrence.value_width(), 160);
  EXPECT_EQ(config.recurrence.channels(), 256);
  EXPECT_EQ(config.recurrence.taps, 4);
  EXPECT_TRUE(config.attention_gate);
  EXPECT_EQ(config.norm_offset, 1.0f);
  EXPECT_EQ(config.name("state_rate"), "model.layers.{}.linear_attn.A_log");
}

TEST(Qwen35, AttentionLayers) {
  EXPECT_EQ(by_layer(read(R"({"full_attention_interval": 2})"), &LayerConfig::recurrent),
            (Layers{true, false, true, false, true}));
  const char* types = R"({"full_attention_interval": 2, "layer_types": ["full_attention", "linear_attention",
      "linear_attention", "full_attention", "full_attention"]})";
  EXPECT_EQ(by_layer(read(types), &LayerConfig::recurrent), (Layers{false, true, true, false, false}))
      << "layer_types wins";
  EXPECT_EQ(message(R"({"layer_types": ["full_attention"]})"),
            "config.json: layer_types: wrong length: want 5, have 1");
  EXPECT_EQ(message(R"({"layer_types": ["full_attention", "sliding_attention", "full_attention", "full_attention",
                        "full_attention"]})"),
            "config.json: layer_types: unknown layer type: want linear_attention or full_attention, have "
            "\"sliding_attention\"");
  EXPECT_EQ(message(R"({"full_attention_interval": 0})"),
            "config.json: full_attention_interval: out of range: want an integer from 1 to 1024, have 0");
}

TEST(Qwen35, PartialRotationInEitherPlace) {
  EXPECT_EQ(read().ropes[0].dims, 4) << "a quarter of a head is the default";
  EXPECT_EQ(read(R"({"partial_rotary_factor": 0.5})").ropes[0].dims, 8);
  const ModelConfig inside = read(R"({"partial_rotary_factor": 0.5, "rope_parameters": {"rope_theta": 1e7,
      "partial_rotary_factor": 0.75, "rope_type": "default", "mrope_section": [11, 11, 10], "mrope_interleaved": true}})");
  EXPECT_EQ(inside.ropes[0].dims, 12) << "rope_parameters wins";
  EXPECT_EQ(inside.ropes[0].theta, 1e7);
}

TEST(Qwen35, TextConfigBesideVision) {
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

TEST(Qwen35, UnsupportedSettingsAreErrors) {
  EXPECT_EQ(message(R"({"attn_output_gate": false})"),
            "config.json: attn_output_gate: not supported: want true, have false");
  EXPECT_EQ(message(R"({"hidden_act": "gelu_pytorch_tanh"})"),
            "config.json: hidden_act: not supported: want \"silu\", have \"gelu_pytorch_tanh\"")
      << "also the convolution's activation";
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

// The config of LFM2 350M with other sizes.
constexpr const char* kLfm2 =
    R"({"architectures": ["Lfm2ForCausalLM"], "model_type": "lfm2", "block_auto_adjust_ff_dim":
    true, "block_dim": 64, "block_ff_dim": 416, "block_ffn_dim_multiplier": 1.0, "block_multiple_of": 16,
    "block_norm_eps": 1e-05, "block_use_swiglu": true, "conv_L_cache": 3, "conv_bias": false, "conv_dim": 64,
    "conv_dim_out": 64, "full_attn_idxs": [2, 4], "hidden_size": 64, "norm_eps": 1e-05, "num_attention_heads": 4,
    "num_heads": 4, "num_hidden_layers": 5, "num_key_value_heads": 2, "use_pos_enc": true, "vocab_size": 512})";

TEST(Lfm2, PublishedConfig) {
  const ModelConfig config = read("{}", kLfm2);
  EXPECT_EQ(by_layer(config, &LayerConfig::recurrent), (Layers{true, true, false, true, false}));
  EXPECT_EQ(by_layer(config, &LayerConfig::attends), (Layers{false, false, true, false, true}));
  EXPECT_EQ(config.recurrence.kind, RecurrenceKind::short_conv);
  EXPECT_EQ(config.recurrence.channels(), 64);
  EXPECT_EQ(config.recurrence.value_width(), 64);
  EXPECT_EQ(config.recurrence.taps, 3);
  EXPECT_FALSE(config.recurrence.has_heads() || config.recurrence.conv_bias);
  EXPECT_EQ(config.layer[0].mlp_size, 288) << "two thirds of 416, rounded up to a multiple of 16";
  EXPECT_TRUE(config.tied_head);
  EXPECT_EQ(config.ropes[0].theta, 1e6);
  EXPECT_EQ(config.norm_eps, 1e-5f);
}

TEST(Lfm2, RenamedFields) {
  const char* newer = R"({"layer_types": ["conv", "full_attention", "conv", "conv", "full_attention"],
      "block_auto_adjust_ff_dim": false, "tie_embedding": false, "conv_bias": true})";
  const ModelConfig config = read(newer, kLfm2);
  EXPECT_EQ(by_layer(config, &LayerConfig::recurrent), (Layers{true, false, true, true, false})) << "layer_types wins";
  EXPECT_EQ(config.layer[0].mlp_size, 416);
  EXPECT_FALSE(config.tied_head);
  EXPECT_TRUE(config.recurrence.conv_bias && config.recurrence.proj_bias && config.recurrence.out_bias);
  EXPECT_EQ(read(R"({"block_ffn_dim_multiplier": 1.5})", kLfm2).layer[0].mlp_size, 416) << "415.5 before rounding";
  EXPECT_EQ(read(R"({"block_ffn_dim_multiplier": null})", kLfm2).layer[0].mlp_size, 277) << "nothing is rounded up";
  EXPECT_EQ(message(R"({"layer_types": ["conv", "linear_attention", "conv", "conv", "full_attention"]})", kLfm2),
            "config.json: layer_types: unknown layer type: want conv or full_attention, have \"linear_attention\"");
  EXPECT_EQ(message(R"({"full_attn_idxs": [7]})", kLfm2), "config.json: layer_types: no attention layer");
  EXPECT_EQ(message(R"({"conv_L_cache": 0})", kLfm2),
            "config.json: conv_L_cache: out of range: want an integer from 1 to 16, have 0");
}

TEST(Lfm2Moe, FirstLayersHaveNoExperts) {
  const char* changes = R"({"architectures": ["Lfm2MoeForCausalLM"], "model_type": "lfm2_moe", "num_experts": 8,
      "num_experts_per_tok": 2, "moe_intermediate_size": 24, "num_dense_layers": 2, "routed_scaling_factor": 1.5})";
  const ModelConfig config = read(changes, kLfm2);
  EXPECT_EQ(by_layer(config, &LayerConfig::has_experts), (Layers{false, false, true, true, true}));
  EXPECT_TRUE(config.experts.sigmoid && config.experts.normalised);
  EXPECT_EQ(config.experts.scale, 1.5f);
}

// The config of Granite 4.0 H Micro with other sizes.
constexpr const char* kGraniteH =
    R"({"architectures": ["GraniteMoeHybridForCausalLM"], "model_type": "granitemoehybrid",
    "hidden_size": 64, "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 512,
    "layer_types": ["mamba", "attention", "mamba"], "mamba_chunk_size": 256, "mamba_conv_bias": true, "mamba_d_conv": 4,
    "mamba_d_head": 16, "mamba_d_state": 32, "mamba_expand": 2, "mamba_n_groups": 1, "mamba_n_heads": 8,
    "mamba_proj_bias": false, "num_local_experts": 0, "num_experts_per_tok": 0, "shared_intermediate_size": 40,
    "normalization_function": "rmsnorm", "position_embedding_type": "nope"})";

TEST(Mamba2, GraniteConfig) {
  const ModelConfig config = read("{}", kGraniteH);
  const Recurrence& r = config.recurrence;
  EXPECT_EQ(by_layer(config, &LayerConfig::recurrent), (Layers{true, false, true}));
  EXPECT_EQ(by_layer(config, &LayerConfig::attends), (Layers{false, true, false}));
  EXPECT_EQ(r.kind, RecurrenceKind::mamba2);
  EXPECT_EQ(r.value_width(), 128);
  EXPECT_EQ(r.channels(), 128 + 2 * 32);
  EXPECT_EQ(r.norm_groups, 1);
  EXPECT_EQ(r.norm_width(), 128);
  EXPECT_TRUE(r.conv_bias && !r.proj_bias && !r.out_bias);
  EXPECT_EQ(by_layer(config, &LayerConfig::has_mlp), Layers(3, true));
  EXPECT_EQ(config.experts.count, 0);
  EXPECT_EQ(read(R"({"mamba_d_head": "auto"})", kGraniteH).recurrence.value_dim, 16);
  EXPECT_EQ(read(R"({"num_local_experts": 6, "num_experts_per_tok": 2, "intermediate_size": 24})", kGraniteH)
                .experts.shared_size,
            40);
}

TEST(Mamba2, InconsistentSizesAreErrors) {
  EXPECT_EQ(message(R"({"mamba_n_groups": 3})", kGraniteH),
            "config.json: mamba_n_groups: does not divide mamba_n_heads: 3 and 8");
  EXPECT_EQ(message(R"({"mamba_d_head": 15})", kGraniteH),
            "config.json: mamba_d_head: contradicts the width of all heads: want 128, have 8 times 15");
  EXPECT_EQ(message(R"({"layer_types": ["mamba", "mamba", "mamba"]})", kGraniteH),
            "config.json: layer_types: no attention layer");
  EXPECT_EQ(message(R"({"layer_types": ["mamba", "mlp", "attention"]})", kGraniteH),
            "config.json: layer_types: unknown layer type: want mamba or linear_attention or attention or "
            "full_attention, have \"mlp\"");
  EXPECT_EQ(message(R"({"time_step_limit": [0.0, 0.1]})", kGraniteH),
            "config.json: time_step_limit: not supported: want 0 to infinity");
  EXPECT_EQ(message(R"({"time_step_limit": [0.0, {"__float__": "Infinity"}]})", kGraniteH), "")
      << "as transformers 5 writes it";
}

// In transformers the field also sets the activation of the convolution, or has no effect.
TEST(Mamba2, OtherActivationsAreRefused) {
  const char* other = R"({"hidden_act": "gelu"})";
  for (const char* base : {kLfm2, kGraniteH}) {
    EXPECT_EQ(message(other, base), R"(config.json: hidden_act: not supported: want "silu", have "gelu")");
  }
}

// Python's Infinity is not JSON.
TEST(Mamba2, InfiniteNumbers) {
  std::string text = kGraniteH;
  text.insert(1, R"("time_step_limit": [0.0, Infinity], "_name_or_path": "\"Infinity", )");
  ModelConfig config;
  EXPECT_EQ(parse_model_config(text, "config.json", &config).message(), "");
  EXPECT_NE(parse_model_config("Infinit", "config.json", &config).message(), "");
  EXPECT_NE(parse_model_config("\"\\", "config.json", &config).message(), "");
}

TEST(FalconH1, AllLayersHaveAttentionAndRecurrence) {
  const char* changes = R"({"architectures": ["FalconH1ForCausalLM"], "model_type": "falcon_h1", "layer_types": null,
      "intermediate_size": 44, "mamba_d_ssm": 128, "attention_in_multiplier": 2.0, "attention_out_multiplier": 0.5,
      "key_multiplier": 0.25, "lm_head_multiplier": 0.125, "embedding_multiplier": 4.0, "mlp_multipliers": [3.0, 5.0],
      "ssm_in_multiplier": 2.0, "ssm_multipliers": [1.0, 2.0, 3.0, 4.0, 5.0], "ssm_out_multiplier": 0.75,
      "normalization_function": null, "position_embedding_type": null, "num_local_experts": null,
      "num_experts_per_tok": null, "shared_intermediate_size": null})";
  const ModelConfig config = read(changes, kGraniteH);
  EXPECT_EQ(by_layer(config, &LayerConfig::attends), Layers(3, true));
  EXPECT_EQ(by_layer(config, &LayerConfig::recurrent), Layers(3, true));
  const Recurrence& r = config.recurrence;
  EXPECT_EQ(r.norm_width(), 0) << "without mamba_rms_norm";
  const OutputScales& s = config.output_scales;
  EXPECT_EQ((std::vector<float>{s.qkv, s.key, s.o, s.gate, s.down, s.state_in, s.state_z, s.state_a, s.state_out}),
            (std::vector<float>{2, 0.25, 0.5, 3, 5, 2, 1, 5, 0.75}));
  EXPECT_EQ(r.input_scale(0), 2);
  EXPECT_EQ(r.input_scale(128), 3);
  EXPECT_EQ(r.input_scale(128 + 32), 4);
  EXPECT_EQ(config.logit_scale, 0.125f);
  Json norm = Json::parse(changes);
  norm["mamba_rms_norm"] = true;
  EXPECT_TRUE(read(norm.dump().c_str(), kGraniteH).recurrence.norm_before_gate);
  norm["mamba_norm_before_gate"] = false;
  EXPECT_FALSE(read(norm.dump().c_str(), kGraniteH).recurrence.norm_before_gate);
  EXPECT_EQ(read(norm.dump().c_str(), kGraniteH).recurrence.norm_width(), 128);
  norm["ssm_multipliers"] = {1.0};
  EXPECT_EQ(message(norm.dump().c_str(), kGraniteH), "config.json: ssm_multipliers: wrong length: want 5, have 1");
}

// The config of Nemotron-H 8B with other sizes.
constexpr const char* kNemotronH = R"({"architectures": ["NemotronHForCausalLM"], "model_type": "nemotron_h",
    "attention_bias": false, "attention_head_dim": 16, "chunk_size": 128, "conv_kernel": 4, "expand": 2, "head_dim": 16,
    "hidden_size": 64, "hybrid_override_pattern": "M-M*-", "intermediate_size": 60, "layer_norm_epsilon": 1e-05,
    "mamba_head_dim": 20, "mamba_hidden_act": "silu", "mamba_num_heads": 8, "mamba_proj_bias": false, "mlp_bias": false,
    "mlp_hidden_act": "relu2", "n_groups": 2, "num_attention_heads": 4, "num_hidden_layers": 5, "num_key_value_heads": 2,
    "num_logits_to_keep": 1, "rescale_prenorm_residual": true, "residual_in_fp32": false, "ssm_state_size": 32,
    "time_step_floor": 0.0001, "time_step_max": 0.1, "time_step_min": 0.001, "use_bias": false, "use_conv_bias": true,
    "use_mamba_kernels": true, "vocab_size": 512})";

TEST(NemotronH, LayersHaveOneBranch) {
  const ModelConfig config = read("{}", kNemotronH);
  EXPECT_EQ(by_layer(config, &LayerConfig::recurrent), (Layers{true, false, true, false, false}));
  EXPECT_EQ(by_layer(config, &LayerConfig::attends), (Layers{false, false, false, true, false}));
  EXPECT_EQ(by_layer(config, &LayerConfig::has_mlp), (Layers{false, true, false, false, true}));
  EXPECT_EQ(config.recurrence.value_width(), 160) << "whatever expand says";
  EXPECT_EQ(config.recurrence.norm_groups, 2);
  EXPECT_EQ(config.activation, Activation::relu_squared);
  EXPECT_EQ(by_layer(config, &LayerConfig::rope), std::vector<int32_t>(5, kNoRope));
  EXPECT_EQ(config.experts.count, 0);
  const ModelConfig mixture = read(R"({"hybrid_override_pattern": "MEM*E", "n_routed_experts": 6,
      "num_experts_per_tok": 3, "moe_intermediate_size": 24, "moe_shared_expert_intermediate_size": 40,
      "routed_scaling_factor": 2.5})",
                                   kNemotronH);
  EXPECT_EQ(by_layer(mixture, &LayerConfig::has_experts), (Layers{false, true, false, false, true}));
  EXPECT_EQ(by_layer(mixture, &LayerConfig::has_mlp), by_layer(mixture, &LayerConfig::has_experts));
  EXPECT_EQ(mixture.experts.shared_size, 40);
  EXPECT_EQ(mixture.name("expert_gate"), "");
  const char* listed = R"({"hybrid_override_pattern": null, "num_hidden_layers": null,
      "layers_block_type": ["linear_attention", "mlp", "full_attention"]})";
  EXPECT_EQ(read(listed, kNemotronH).layers, 3) << "transformers 5 writes no number";
  EXPECT_EQ(message(R"({"hybrid_override_pattern": "MX*"})", kNemotronH),
            "config.json: layer_pattern: not supported: want layers M, *, - and E, have \"X\"");
  EXPECT_EQ(message(R"({"hybrid_override_pattern": "M*-"})", kNemotronH),
            "config.json: layer_types: wrong length: want 5, have 3");
}

// Mamba 1 has runs of channels in place of heads, and no layer attends.
TEST(Mamba, ChannelsAreDividedInRuns) {
  const char* mamba = R"({"architectures": ["MambaForCausalLM"], "model_type": "mamba", "hidden_size": 40,
      "num_hidden_layers": 3, "state_size": 12, "vocab_size": 120, "time_step_rank": "auto"})";
  const ModelConfig config = read("{}", mamba);
  EXPECT_EQ(by_layer(config, &LayerConfig::recurrent), Layers(3, true));
  EXPECT_EQ(by_layer(config, &LayerConfig::attends), Layers(3, false));
  EXPECT_EQ(by_layer(config, &LayerConfig::has_mlp), Layers(3, false));
  EXPECT_EQ(config.recurrence.value_heads, 5) << "80 channels in runs of 16";
  EXPECT_EQ(config.recurrence.channels(), 80);
  EXPECT_EQ(config.recurrence.step_rank, 3) << "a sixteenth of the hidden size, rounded up";
  EXPECT_EQ(read(R"({"time_step_rank": 7})", mamba).recurrence.step_rank, 7);
  EXPECT_EQ(message(R"({"hidden_size": 36})", mamba),
            "config.json: mamba_expand: width out of range: want a multiple of 16, have 72");
}

// Periods and offsets give the layers that attend and those with experts.
TEST(Jamba, LayersByPeriods) {
  const char* jamba = R"({"architectures": ["JambaForCausalLM"], "model_type": "jamba", "hidden_size": 48,
      "num_attention_heads": 4, "num_key_value_heads": 2, "num_hidden_layers": 5, "attn_layer_period": 4,
      "attn_layer_offset": 2, "expert_layer_period": 3, "expert_layer_offset": 1})";
  const ModelConfig config = read("{}", jamba);
  EXPECT_EQ(by_layer(config, &LayerConfig::attends), (Layers{false, false, true, false, false}));
  EXPECT_EQ(by_layer(config, &LayerConfig::recurrent), (Layers{true, true, false, true, true}));
  EXPECT_EQ(by_layer(config, &LayerConfig::has_experts), (Layers{false, true, false, false, true}));
  EXPECT_EQ(by_layer(read(R"({"num_experts": 1})", jamba), &LayerConfig::has_experts), Layers(5, false));
}

// The lists of layers count from 1, and the sizes of the states are in an object of their own.
TEST(KimiLinear, LayersFromOneOn) {
  const char* kimi = R"({"architectures": ["KimiLinearForCausalLM"], "model_type": "kimi_linear", "hidden_size": 48,
      "num_attention_heads": 4, "num_key_value_heads": 4, "num_hidden_layers": 4, "head_dim": 12, "num_experts": 8,
      "linear_attn_config": {"full_attn_layers": [2], "kda_layers": [1, 3, 4], "head_dim": 16, "num_heads": 3,
      "short_conv_kernel_size": 5}})";
  const ModelConfig config = read("{}", kimi);
  EXPECT_EQ(by_layer(config, &LayerConfig::attends), (Layers{false, true, false, false}));
  EXPECT_EQ(by_layer(config, &LayerConfig::has_experts), (Layers{false, true, true, true}));
  EXPECT_EQ(config.layer[1].rope, kNoRope);
  const Recurrence& r = config.recurrence;
  EXPECT_EQ((std::vector<int64_t>{r.key_heads, r.value_heads, r.key_dim, r.value_dim, r.taps, r.decays(), r.step_rank}),
            (std::vector<int64_t>{3, 3, 16, 16, 5, 16, 16}));
  const char* types = R"({"linear_attn_config": null, "linear_head_dim": 20, "linear_num_heads": 2, "layer_types":
      ["full_attention", "full_attention", "linear_attention", "linear_attention"], "linear_conv_kernel_dim": 3})";
  const ModelConfig listed = read(types, kimi);
  EXPECT_EQ(by_layer(listed, &LayerConfig::attends), (Layers{true, true, false, false}));
  EXPECT_EQ(listed.recurrence.key_width(), 40);
  EXPECT_EQ(message(R"({"linear_attn_config": {"full_attn_layers": [2], "kda_layers": [1, 3]}})", kimi),
            "config.json: kda_layers: wrong length: want 3, have 2");
  EXPECT_EQ(message(R"({"linear_attn_config": {}})", kimi), "config.json: layer_types: missing field");
  EXPECT_EQ(message(R"({"mla_use_nope": false})", kimi),
            "config.json: mla_use_nope: not supported: want true, have false");
}

// The last layer of each group attends; head_dim is that of the states.
TEST(BailingHybrid, GroupsAndBounds) {
  const char* bailing = R"({"architectures": ["BailingMoeV3ForCausalLM"], "model_type": "bailing_hybrid",
      "hidden_size": 48, "num_attention_heads": 4, "num_key_value_heads": 4, "num_hidden_layers": 5, "head_dim": 12,
      "qk_rope_head_dim": 8, "qk_nope_head_dim": 16, "layer_group_size": 2, "num_experts": 8, "n_group": 2,
      "topk_group": 1, "num_experts_per_tok": 2, "partial_rotary_factor": 0.5})";
  const ModelConfig config = read("{}", bailing);
  EXPECT_EQ(config.family, "bailing_hybrid");
  EXPECT_EQ(by_layer(config, &LayerConfig::attends), (Layers{false, true, false, true, false}));
  const Recurrence& r = config.recurrence;
  EXPECT_EQ((std::vector<int64_t>{r.key_heads, r.value_heads, r.key_dim, r.taps, r.step_rank}),
            (std::vector<int64_t>{4, 4, 12, 4, 0}));
  EXPECT_EQ(r.decay_bound, -5);
  EXPECT_EQ(read(R"({"kda_safe_gate": false})", bailing).recurrence.decay_bound, 0);
  EXPECT_EQ(config.ropes[0].dims, 8) << "all of the elements that may be rotated";
  EXPECT_TRUE(config.gate_by_head && config.rope_interleaved);
  EXPECT_EQ(message(R"({"no_kda_lora": false})", bailing),
            "config.json: no_kda_lora: not supported: want true, have false");
}

// A theta of null leaves attention without positions. Outputs have an eps of their own.
TEST(OlmoHybrid, ThetaAndGates) {
  const char* olmo = R"({"architectures": ["OlmoHybridForCausalLM"], "model_type": "olmo_hybrid", "hidden_size": 48,
      "num_attention_heads": 4, "num_hidden_layers": 5, "linear_num_key_heads": 2, "linear_num_value_heads": 4,
      "linear_key_head_dim": 12, "linear_value_head_dim": 20, "rms_norm_eps": 1e-6})";
  const ModelConfig config = read("{}", olmo);
  EXPECT_EQ(by_layer(config, &LayerConfig::attends), (Layers{false, false, false, true, false}));
  EXPECT_EQ(config.layer[3].rope, 0) << "a theta by default";
  EXPECT_EQ(config.recurrence.write_scale, 2);
  EXPECT_EQ(config.recurrence.norm_eps, 1e-5f);
  EXPECT_EQ(config.norm_eps, 1e-6f);
  EXPECT_EQ(read(R"({"rope_theta": null})", olmo).layer[3].rope, kNoRope);
  EXPECT_EQ(read(R"({"rope_parameters": {"rope_theta": null, "rope_type": "default"}})", olmo).layer[3].rope, kNoRope);
  const char* given = R"({"rope_theta": null, "rope_parameters": {"rope_theta": 5e5, "rope_type": "default"}})";
  EXPECT_EQ(read(given, olmo).layer[3].rope, 0);
  EXPECT_EQ(read(given, olmo).ropes[0].theta, 5e5);
  EXPECT_EQ(read(R"({"linear_allow_neg_eigval": false})", olmo).recurrence.write_scale, 1);
  EXPECT_EQ(read().recurrence.norm_eps, read().norm_eps);
}

// A block before a recurrence is a layer of its own, with the number and names of that one.
TEST(Zamba2, BlocksAreLayers) {
  const char* zamba = R"({"architectures": ["Zamba2ForCausalLM"], "model_type": "zamba2", "hidden_size": 48,
      "num_attention_heads": 4, "attention_head_dim": 24, "num_hidden_layers": 4, "n_mamba_heads": 6, "mamba_ngroups": 2,
      "num_mem_blocks": 2, "layers_block_type": ["mamba", "hybrid", "hybrid", "hybrid"]})";
  const ModelConfig config = read("{}", zamba);
  EXPECT_EQ(config.layers, 7);
  const Layers blocks = {false, true, false, true, false, true, false};
  EXPECT_EQ(by_layer(config, &LayerConfig::is_block), blocks);
  EXPECT_EQ(by_layer(config, &LayerConfig::attends), blocks);
  EXPECT_EQ(by_layer(config, &LayerConfig::has_mlp), blocks);
  EXPECT_EQ(by_layer(config, &LayerConfig::follows_block), (Layers{false, false, true, false, true, false, true}));
  EXPECT_EQ(config.layer[5].number, 3);
  EXPECT_EQ(config.layer[5].rope, kNoRope);
  EXPECT_EQ(config.layer[0].mlp_size, 192);
  EXPECT_NEAR(config.score_scale, std::sqrt(2.0 / 24), 1e-7);
  EXPECT_EQ(config.recurrence.value_dim, 16);
  const auto& copied = config.tensors.copied;
  ASSERT_EQ(copied.size(), 1u) << "the third use has the first block";
  EXPECT_EQ(copied[0].first, "model.layers.1.shared_transformer.");
  EXPECT_EQ(copied[0].second, "model.layers.3.shared_transformer.");
  const std::string change = "model.layers.1.shared_transformer.feed_forward.gate_up_proj_adapter_list.2.1.weight";
  const auto renamed = std::ranges::find(config.tensors.renamed, change, &std::pair<std::string, std::string>::first);
  ASSERT_NE(renamed, config.tensors.renamed.end());
  EXPECT_EQ(renamed->second, "model.layers.3.shared_transformer.feed_forward.gate_up_proj.lora_B.own");
  EXPECT_EQ(read(R"({"use_mem_rope": true})", zamba).layer[1].rope, 0);
  EXPECT_EQ(message(R"({"use_long_context": true})", zamba),
            "config.json: use_long_context: not supported: want false, have true");
  const char* wide = R"({"hidden_size": 70000, "intermediate_size": 96, "mamba_expand": 1, "n_mamba_heads": 70})";
  EXPECT_EQ(message(wide, zamba),
            "config.json: hidden_size: too wide: want at most 131072 for the stream and the embedding, have 140000");
}

// A list of types repeats; half of the field's number is the mlp's width.
TEST(RecurrentGemma, TypesRepeat) {
  const char* gemma = R"({"architectures": ["RecurrentGemmaForCausalLM"], "model_type": "recurrent_gemma",
      "hidden_size": 48, "intermediate_size": 144, "num_attention_heads": 4, "num_hidden_layers": 5, "lru_width": 96,
      "attention_window_size": 64})";
  const ModelConfig config = read("{}", gemma);
  EXPECT_EQ(by_layer(config, &LayerConfig::attends), (Layers{false, false, true, false, false}));
  EXPECT_EQ(by_layer(config, &LayerConfig::recurrent), (Layers{true, true, false, true, true}));
  EXPECT_EQ(config.layer[2].window, 64);
  EXPECT_EQ(config.layer[2].mlp_size, 72);
  EXPECT_EQ(config.ropes[0].dims, 6);
  EXPECT_EQ(config.embedding_scale, 6.9375f) << "rounded to bf16";
  const Recurrence& r = config.recurrence;
  EXPECT_EQ((std::vector<int64_t>{r.value_heads, r.value_dim, r.taps, r.channels(), r.decays(), r.head_floats()}),
            (std::vector<int64_t>{4, 24, 4, 96, 24, 32}));
  EXPECT_EQ(by_layer(read(R"({"block_types": ["attention", "recurrent"]})", gemma), &LayerConfig::attends),
            (Layers{true, false, true, false, true}));
  EXPECT_EQ(message(R"({"lru_width": 90})", gemma),
            "config.json: num_attention_heads: does not divide lru_width: 4 and 90");
}

}  // namespace
}  // namespace pinion
