// Windows and rotary embeddings of single families.
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "tests/loader/small_config.h"

namespace pinion {
namespace {

TEST(SmolLM3, LayersWithoutRope) {
  const auto ropes = [](const char* changes) {
    return by_layer(read("SmolLM3ForCausalLM", changes), &LayerConfig::rope);
  };
  EXPECT_EQ(ropes("{}"), (Ropes{0, 0, 0, kNoRope}));
  EXPECT_EQ(ropes(R"({"no_rope_layer_interval": 2})"), (Ropes{0, kNoRope, 0, kNoRope}));
  EXPECT_EQ(ropes(R"({"no_rope_layers": [0, 1, 1, 0, 1], "no_rope_layer_interval": 2})"),
            (Ropes{kNoRope, 0, 0, kNoRope}));
  EXPECT_EQ(message("SmolLM3ForCausalLM", R"({"no_rope_layers": [1, 1]})"),
            "config.json: no_rope_layers: wrong length: want 4, have 2");
  EXPECT_EQ(message("SmolLM3ForCausalLM", R"({"no_rope_layers": [1, 1, 2, 1]})"),
            "config.json: no_rope_layers: out of range: want an integer from 0 to 1, have 2");
  EXPECT_EQ(by_layer(read("SmolLM3ForCausalLM", R"({"use_sliding_window": true, "sliding_window": 9})"),
                     &LayerConfig::window),
            (Windows{0, 0, 0, 9}));
  EXPECT_EQ(by_layer(read("SmolLM3ForCausalLM", R"({"sliding_window": 9})"), &LayerConfig::window),
            (Windows{0, 0, 0, 0}));
  EXPECT_EQ(message("LlamaForCausalLM", R"({"no_rope_layers": [1, 1, 1, 1]})"), "")
      << "transformers' Llama does not read it";
}

TEST(Llama4, ChunksWhereRopeIs) {
  const char* as_scout = R"({"attention_chunk_size": 20, "no_rope_layers": [], "floor_scale": 16, "attn_scale": 0.3})";
  const ModelConfig config = read("Llama4ForCausalLM", as_scout);
  EXPECT_EQ(by_layer(config, &LayerConfig::window), (Windows{20, 20, 20, 0}));
  EXPECT_EQ(by_layer(config, &LayerConfig::rope), (Ropes{0, 0, 0, 1}));
  EXPECT_EQ(config.layer[0].first_seen(39), 20);
  EXPECT_EQ(config.layer[0].first_seen(40), 40);
  EXPECT_EQ(config.ropes[1].dims, 0) << "only scales queries";
  EXPECT_EQ(config.ropes[1].query_beta, 0.3);
  const ModelConfig untuned = read("Llama4ForCausalLM", R"({"attn_temperature_tuning": false})");
  EXPECT_EQ(by_layer(untuned, &LayerConfig::rope), (Ropes{0, 0, 0, kNoRope}));
  EXPECT_EQ(read("Llama4ForCausalLM", R"({"attention_chunk_size": null})").layer[0].window, 0);
  EXPECT_EQ(message("Llama4ForCausalLM", R"({"layer_types": ["sliding_attention", "full_attention", "full_attention",
      "full_attention"]})"),
            "config.json: layer_types: unknown layer type: \"sliding_attention\"");
  EXPECT_EQ(message("Llama4ForCausalLM", R"({"is_causal": false})"),
            "config.json: is_causal: not supported: want true, have false");
}

// Layers without a window scale queries in place of a rope, unless rope_parameters has theirs.
TEST(Beam, QueriesScaleWithoutRope) {
  const char* layers = R"({"sliding_window_pattern": 2, "num_experts": 16, "moe_intermediate_size": 20})";
  const ModelConfig config = read("BeamForCausalLM", layers);
  EXPECT_EQ(by_layer(config, &LayerConfig::window), (Windows{512, 0, 512, 0}));
  EXPECT_EQ(by_layer(config, &LayerConfig::rope), (Ropes{1, 2, 1, 2}));
  EXPECT_EQ(config.ropes[2].dims, 0) << "only scales queries";
  EXPECT_EQ(config.ropes[2].query_power, 0.1);
  EXPECT_EQ(config.ropes[2].query_beta, 0.0);
  EXPECT_EQ(by_layer(config, &LayerConfig::has_experts), (std::vector<bool>{false, false, false, true}));
  const char* rotated = R"({"num_experts": 16, "layer_types": ["sliding_attention", "full_attention",
      "full_attention", "full_attention"], "rope_parameters": {"full_attention": {"rope_theta": 2e5},
      "sliding_attention": {"rope_theta": 1e4}}})";
  EXPECT_EQ(by_layer(read("BeamForCausalLM", rotated), &LayerConfig::rope), (Ropes{1, 0, 0, 0}));
}

TEST(MiMoV2Flash, KvHeadsAndSinksByKindOfLayer) {
  const char* as_published = R"({"num_hidden_layers": 6, "v_head_dim": 6, "sliding_window": 128, "n_routed_experts": 4,
      "num_experts_per_tok": 2, "sliding_window_size": 128, "swa_rope_theta": 2000, "routed_scaling_factor": null})";
  const ModelConfig config = read("MiMoV2FlashForCausalLM", as_published);
  EXPECT_EQ(by_layer(config, &LayerConfig::window), (Windows{0, 129, 129, 129, 129, 0})) << "and the token itself";
  EXPECT_EQ(config.layer[0].kv_heads, 4);
  EXPECT_EQ(config.layer[1].kv_heads, 8);
  EXPECT_TRUE(config.layer[1].has_sinks && !config.layer[0].has_sinks);
  EXPECT_EQ(config.layer[0].value_dim, 6);
  EXPECT_EQ(config.output_scales.value, 0.707f);
  EXPECT_EQ(config.experts.scale, 1.0f);
  EXPECT_EQ(config.ropes[1].theta, 2000.0);
  EXPECT_EQ(config.ropes[0].dims, 2) << "0.334 of 8";
  EXPECT_EQ(message("MiMoV2FlashForCausalLM", R"({"num_key_value_heads": 8})"),
            "config.json: num_key_value_heads: does not divide num_attention_heads: 16 and 8");
  EXPECT_EQ(message("MiMoV2FlashForCausalLM", R"({"sliding_window_size": 64})"),
            "config.json: sliding_window_size: not supported: want 128, have 64");
}

TEST(CodeGen, HeadsInFourBlocks) {
  const char* heads = R"({"n_head": 6, "rotary_dim": 4, "num_key_value_heads": null})";
  EXPECT_EQ(message("CodeGenForCausalLM", heads),
            "config.json: qkv_blocks: does not divide num_attention_heads: 4 and 6");
}

TEST(Phi3, FusedTensorsAndPartialRotation) {
  const ModelConfig config = read("Phi3ForCausalLM", R"({"partial_rotary_factor": 0.75, "sliding_window": 20})");
  EXPECT_EQ(config.name("q"), "model.layers.{}.self_attn.qkv_proj");
  EXPECT_EQ(config.name("k"), config.name("q"));
  EXPECT_EQ(config.name("v"), config.name("q"));
  EXPECT_EQ(config.name("gate"), config.name("up"));
  EXPECT_EQ(config.ropes[0].dims, 6);
  EXPECT_EQ(by_layer(config, &LayerConfig::window), (Windows{20, 20, 20, 20}));
  EXPECT_EQ(message("Phi3ForCausalLM", R"({"partial_rotary_factor": 0.4})"),
            "config.json: rope_parameters: partial_rotary_factor: out of range: want an even number of rotated "
            "elements, have 3");
  EXPECT_EQ(message("Phi3ForCausalLM", R"({"full_attn_mod": 2})"),
            "config.json: full_attn_mod: not supported: want 1, have 2");
}

TEST(Phi3, LongRope) {
  for (const char* name : {"longrope", "su", "yarn"}) {  // the last two in older files
    const std::string changes = R"({"original_max_position_embeddings": 128, "rope_scaling": {"short_factor": [1, 1, 1],
        "long_factor": [1.5, 2, 4], "original_max_position_embeddings": 7, "type": ")" +
                                std::string(name) + R"("}, "partial_rotary_factor": 0.75})";
    const Rope rope = read("Phi3ForCausalLM", changes.c_str()).ropes[0];
    EXPECT_EQ(rope.kind, RopeKind::longrope);
    EXPECT_EQ(rope.long_factor, (std::vector<double>{1.5, 2, 4}));
    EXPECT_EQ(rope.short_factor, (std::vector<double>{1, 1, 1}));
    EXPECT_EQ(rope.original_max_positions, 128) << "the outer field wins";
    EXPECT_EQ(rope.factor, 4.0) << "512 / 128";
  }
  EXPECT_EQ(message("Phi3ForCausalLM", R"({"rope_scaling": {"type": "yarn", "factor": 4}})"),
            "config.json: rope_scaling: short_factor, long_factor: wrong length: want 4, have 0 and 0");
}

// Spellings for which transformers computes other frequencies than their first reading suggests.
TEST(Rope, SpellingsThatChangeMeaning) {
  const auto rope = [](const char* architecture, const char* changes) { return read(architecture, changes).ropes[0]; };
  EXPECT_EQ(
      message("LlamaForCausalLM", R"({"rope_scaling": {"type": "yarn", "original_max_position_embeddings": 64}})"),
      "config.json: rope_scaling: factor: missing in yarn: want a number, or null for max_position_embeddings / "
      "original_max_position_embeddings");
  EXPECT_EQ(message("LlamaForCausalLM", R"({"rope_scaling": {"type": "yarn", "short_factor": [1, 1, 1, 1],
      "long_factor": [2, 2, 2, 2]}})"),
            "config.json: rope_scaling: factor: missing in yarn: want a number, or null for max_position_embeddings / "
            "original_max_position_embeddings");
  const Rope zero = rope("LlamaForCausalLM", R"({"rope_scaling": {"type": "yarn", "factor": 2, "beta_fast": 0,
      "beta_slow": 0}})");
  EXPECT_EQ(zero.beta_fast, 32.0);
  EXPECT_EQ(zero.beta_slow, 1.0);
  EXPECT_EQ(rope("CwmForCausalLM", R"({"rope_parameters": null})").kind, RopeKind::llama3);
  EXPECT_EQ(rope("GptOssForCausalLM", R"({"rope_parameters": null, "num_local_experts": 4})").kind, RopeKind::yarn);
  EXPECT_EQ(rope("CwmForCausalLM", R"({"rope_scaling": {"type": "linear", "factor": 2}})").theta, 1e6);
  const ModelConfig olmo3 = read("Olmo3ForCausalLM", R"({"rope_theta": 70000, "rope_scaling": {"rope_type": "linear",
      "factor": 2}})");
  EXPECT_EQ(olmo3.ropes[0].theta, 70000.0);
  EXPECT_EQ(olmo3.ropes[1].theta, 70000.0) << "sliding layers";
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
    EXPECT_EQ(by_layer(config, &LayerConfig::window), (Windows{9, 9, 0, 9}));
    EXPECT_EQ(by_layer(config, &LayerConfig::rope), (Ropes{1, 1, 0, 1}));
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
  EXPECT_EQ(message("Gemma3ForCausalLM", R"({"attn_logit_softcapping": 50.0})"),
            "config.json: fields not supported for family gemma3: \"attn_logit_softcapping\"")
      << "transformers ignores it; the training did not";
}

// Transformers 5.12 wrote rope_parameters of all layers without layer types, or kept them beside these.
TEST(Rope, FlatParametersOfAllLayers) {
  const auto thetas = [](const char* architecture, const char* changes) {
    const std::vector<Rope> ropes = read(architecture, changes).ropes;
    return std::vector<double>{ropes[0].theta, ropes[1].theta};
  };
  constexpr const char* kFlat = R"({"rope_parameters": {"rope_theta": 70000.0, "rope_type": "default"}})";
  EXPECT_EQ(thetas("Olmo3ForCausalLM", kFlat), (std::vector{7e4, 7e4}));
  EXPECT_EQ(thetas("Olmo3ForCausalLM", R"({"rope_parameters": {"rope_theta": 70000}})"), (std::vector{7e4, 7e4}));
  EXPECT_EQ(thetas("Gemma3ForCausalLM", kFlat), (std::vector{7e4, 1e4})) << "rope_local_base_freq";
  constexpr const char* kBeside = R"({"rope_parameters": {"rope_theta": 70000.0, "rope_type": "default",
      "full_attention": {"rope_type": "default", "rope_theta": 3e5},
      "sliding_attention": {"rope_type": "default", "rope_theta": 5e3}}})";
  EXPECT_EQ(thetas("Olmo3ForCausalLM", kBeside), (std::vector{3e5, 5e3}));
  EXPECT_EQ(thetas("Gemma3ForCausalLM", kBeside), (std::vector{3e5, 5e3}));
  EXPECT_EQ(message("Olmo3ForCausalLM", R"({"rope_parameters": {"rope_type": "linear", "factor": 2}})"),
            "config.json: rope_parameters: rope_type: for which layers: want full_attention or sliding_attention "
            "around it");
  EXPECT_EQ(message("Olmo3ForCausalLM", R"({"rope_parameters": {"rope_theta": 7e4, "factor": 2}})"),
            "config.json: rope_parameters: factor: unknown layer type");
}

TEST(Exaone4, RopeOnlyInSlidingLayers) {
  const char* as_32b = R"({"sliding_window": 9, "sliding_window_pattern": "LLLG", "layer_types": ["sliding_attention",
      "sliding_attention", "sliding_attention", "full_attention"]})";
  const ModelConfig config = read("Exaone4ForCausalLM", as_32b);
  EXPECT_EQ(by_layer(config, &LayerConfig::window), (Windows{9, 9, 9, 0}));
  EXPECT_EQ(by_layer(config, &LayerConfig::rope), (Ropes{0, 0, 0, kNoRope}));
  EXPECT_EQ(config.qk_norm, QkNorm::heads);
  EXPECT_EQ(config.name("attention_norm") + config.name("mlp_norm"), "");
  const char* as_1_2b = R"({"sliding_window": null, "sliding_window_pattern": null, "layer_types": ["full_attention",
      "full_attention", "full_attention", "full_attention"]})";
  EXPECT_EQ(by_layer(read("Exaone4ForCausalLM", as_1_2b), &LayerConfig::window), Windows(4, 0));
  EXPECT_EQ(by_layer(read("Exaone4ForCausalLM", as_1_2b), &LayerConfig::rope), Ropes(4, 0))
      << "without a window all layers have a rope";
  EXPECT_EQ(by_layer(read("Exaone4ForCausalLM"), &LayerConfig::window), (Windows{4096, 4096, 4096, 0}))
      << "transformers' defaults";
  EXPECT_EQ(by_layer(read("Exaone4ForCausalLM"), &LayerConfig::rope), (Ropes{0, 0, 0, kNoRope}));
  EXPECT_EQ(message("Exaone4ForCausalLM", R"({"sliding_window_pattern": "LLLG"})"),
            "config.json: sliding_window_pattern: wrong type: want an integer from 1 to 1024, have \"LLLG\"")
      << "transformers fails, too";
  EXPECT_EQ(message("Exaone4ForCausalLM", R"({"sliding_window": null})"),
            "config.json: sliding_window: missing, but the family has sliding layers");
}

TEST(Olmo3, YarnOnlyInFullAttentionLayers) {
  const char* as_published = R"({"rope_theta": 500000, "sliding_window": 9, "rope_scaling": {"rope_type": "yarn",
      "factor": 8, "original_max_position_embeddings": 64, "attention_factor": 1.25, "beta_fast": 32, "beta_slow": 1}})";
  const ModelConfig config = read("Olmo3ForCausalLM", as_published);
  EXPECT_EQ(by_layer(config, &LayerConfig::window), (Windows{9, 9, 9, 0}));
  EXPECT_EQ(by_layer(config, &LayerConfig::rope), (Ropes{1, 1, 1, 0}));
  EXPECT_EQ(config.ropes[0].kind, RopeKind::yarn);
  EXPECT_EQ(config.ropes[0].original_max_positions, 64);
  EXPECT_EQ(config.ropes[1].kind, RopeKind::none);
  EXPECT_EQ(config.ropes[0].theta, 5e5);
  EXPECT_EQ(config.ropes[1].theta, 5e5);
  EXPECT_EQ(config.qk_norm, QkNorm::all_heads);
  EXPECT_EQ(config.name("attention_out_norm"), "model.layers.{}.post_attention_layernorm");
}

TEST(Cwm, EveryFourthLayerHasFullAttention) {
  const ModelConfig config = read("CwmForCausalLM", R"({"num_hidden_layers": 6, "rope_theta": 5000})");
  EXPECT_EQ(by_layer(config, &LayerConfig::window), (Windows{0, 8192, 8192, 8192, 0, 8192}));
  EXPECT_EQ(config.ropes[0].kind, RopeKind::llama3) << "transformers' default";
  EXPECT_EQ(config.ropes[0].theta, 1e6) << "including its base";
  EXPECT_EQ(config.eos_ids, (std::vector<int64_t>{128001, 128008, 128009}));
  const ModelConfig given = read("CwmForCausalLM", R"({"rope_theta": 5000, "rope_scaling": {"rope_type": "linear",
      "factor": 2}, "sliding_window": 9, "layer_types": ["sliding_attention", "full_attention", "full_attention",
      "sliding_attention"]})");
  EXPECT_EQ(given.ropes[0].kind, RopeKind::linear);
  EXPECT_EQ(given.ropes[0].theta, 5000);
  EXPECT_EQ(by_layer(given, &LayerConfig::window), (Windows{9, 0, 0, 9}));
}

TEST(RopeInterleaved, DependsOnTheFamily) {
  EXPECT_FALSE(read("LlamaForCausalLM").rope_interleaved);
  for (const char* name : {"Ernie4_5ForCausalLM", "Ernie4_5_ForCausalLM"}) {
    const ModelConfig ernie = read(name, R"({"model_type": "ernie4_5", "use_bias": true})");
    EXPECT_TRUE(ernie.rope_interleaved);
    EXPECT_TRUE(ernie.qkv_bias && ernie.o_bias && ernie.mlp_bias);
    EXPECT_EQ(ernie.ropes[0].theta, 5e5) << "transformers' default";
  }
  const ModelConfig helium = read("HeliumForCausalLM", R"({"attention_bias": true, "mlp_bias": true})");
  EXPECT_TRUE(helium.rope_interleaved && helium.qkv_bias && helium.mlp_bias);
  EXPECT_FALSE(helium.o_bias) << "independent of attention_bias";
}

TEST(Glm, HalfOfAHeadIsRotated) {
  for (const char* name : {"GlmForCausalLM", "Glm4ForCausalLM"}) {
    const ModelConfig config = read(name);
    EXPECT_TRUE(config.rope_interleaved && config.qkv_bias);
    EXPECT_EQ(config.ropes[0].dims, 4) << "transformers' default";
    EXPECT_EQ(read(name, R"({"partial_rotary_factor": 1.0})").ropes[0].dims, 8);
    EXPECT_FALSE(config.o_bias);
    EXPECT_EQ(config.name("gate"), config.name("up"));
    EXPECT_EQ(config.eos_ids, (std::vector<int64_t>{151329, 151336, 151338}));
  }
  EXPECT_EQ(read("GlmForCausalLM").name("attention_out_norm"), "");
  EXPECT_EQ(read("Glm4ForCausalLM").name("attention_out_norm"), "model.layers.{}.post_self_attn_layernorm");
  EXPECT_EQ(read("Glm4ForCausalLM").name("mlp_norm"), "model.layers.{}.post_attention_layernorm");
}

TEST(Hunyuan, AlphaScalesTheBase) {
  const ModelConfig config =
      read("HunYuanDenseV1ForCausalLM", R"({"rope_theta": 10000.0, "rope_scaling": {"type": "dynamic", "alpha": 1000.0,
      "factor": 1.0, "beta_fast": 32, "beta_slow": 1, "mscale": 1.0, "mscale_all_dim": 1.0}})");
  EXPECT_EQ(config.qk_norm, QkNorm::rotated_heads);
  EXPECT_EQ(config.name("q_norm"), "model.layers.{}.self_attn.query_layernorm");
  EXPECT_EQ(config.ropes[0].kind, RopeKind::none);
  EXPECT_NEAR(config.ropes[0].theta, 1e8, 1) << "1e4 * 1000^(8/6)";
  EXPECT_EQ(message("HunYuanDenseV1ForCausalLM", R"({"rope_scaling": {"type": "dynamic", "alpha": 0.5, "factor": 1}})"),
            "config.json: rope_scaling: alpha: out of range: want 0 or at least 1");
  EXPECT_EQ(message("HunYuanDenseV1ForCausalLM", R"({"use_cla": true})"),
            "config.json: use_cla: not supported: want false, have true");
}

// The shape of heads depends on two fields; a third is read only with one of them.
TEST(Falcon, KvHeadsAndNormsByVariant) {
  const auto falcon = [](const char* changes) {
    Json json = Json::parse(small("FalconForCausalLM", changes));
    json.erase("num_key_value_heads"), json.erase("intermediate_size");
    ModelConfig config;
    EXPECT_EQ(parse_model_config(json.dump(), "config.json", &config).message(), "");
    return config;
  };
  const ModelConfig one = falcon(R"({"num_kv_heads": 8})");
  EXPECT_EQ(one.layer[0].kv_heads, 1) << "multi_query, transformers' default";
  EXPECT_TRUE(one.parallel_branches && one.shared_norm);
  EXPECT_EQ(one.layer[0].mlp_size, 4 * one.hidden_size);
  EXPECT_EQ(falcon(R"({"num_kv_heads": 2, "multi_query": false})").layer[0].kv_heads, 8);
  const ModelConfig grouped = falcon(R"({"num_kv_heads": 2, "new_decoder_architecture": true,
      "num_ln_in_parallel_attn": null, "ffn_hidden_size": 100})");
  EXPECT_EQ(grouped.layer[0].kv_heads, 2);
  EXPECT_EQ(grouped.layer[0].mlp_size, 100);
  EXPECT_EQ(grouped.name("attention_norm"), "transformer.h.{}.ln_attn");
  EXPECT_EQ(grouped.name("mlp_norm"), "transformer.h.{}.ln_mlp");
  const ModelConfig shared = falcon(R"({"num_kv_heads": 2, "new_decoder_architecture": true,
      "num_ln_in_parallel_attn": 1})");
  EXPECT_TRUE(shared.shared_norm);
  EXPECT_EQ(message("FalconForCausalLM", R"({"alibi": true})"),
            "config.json: alibi: not supported: want false, have true");
}

TEST(GraniteSwa, ThetaByLayer) {
  const ModelConfig config = read("GraniteSWAForCausalLM", R"({"layer_rope_theta": [0, 500, 10000, 500]})");
  EXPECT_EQ(by_layer(config, &LayerConfig::rope), (Ropes{kNoRope, 1, 0, 1}));
  EXPECT_EQ(config.ropes[1].theta, 500.0);
  EXPECT_EQ(by_layer(config, &LayerConfig::window), (Windows{0, 128, 128, 128})) << "transformers' default";
  EXPECT_EQ(message("GraniteSWAForCausalLM", R"({"layer_rope_theta": [500]})"),
            "config.json: layer_rope_theta: wrong length: want 4, have 1");
}

TEST(MiniMaxM2, RotatedDimensions) {
  EXPECT_EQ(read("MiniMaxM2ForCausalLM", R"({"head_dim": 16, "rotary_dim": 8})").ropes[0].dims, 8);
  EXPECT_EQ(read("MiniMaxM2ForCausalLM", R"({"head_dim": 16})").ropes[0].dims, 16);
}

TEST(Phimoe, MagnitudesOfShortAndLongFactorsAreEqual) {
  const std::string common =
      R"({"num_experts_per_tok": 2, "rope_scaling": {"type": "longrope", "short_factor": [1, 1, 1,
      1], "long_factor": [1, 2, 3, 4], "original_max_position_embeddings": 64, "short_mscale": 1.25, "long_mscale": )";
  EXPECT_EQ(read("PhimoeForCausalLM", (common + "1.25}}").c_str()).ropes[0].attention_factor, 1.25);
  EXPECT_NE(message("PhimoeForCausalLM", (common + "1.5}}").c_str()).find("long_mscale: out of range"),
            std::string::npos);
}

// Full layers have heads of their own: by two fields, or by layer since transformers 5.24.
TEST(Gemma4, HeadsOfFullLayersInBothSpellings) {
  const std::string common = R"("num_hidden_layers": 6, "sliding_window": 9, "attention_k_eq_v": true,)"
                             R"("hidden_size_per_layer_input": 0, )";
  const std::string published = common + R"("global_head_dim": 24, "num_global_key_value_heads": 1)";
  const std::string listed = common + R"("per_layer_config": {"5": {"head_dim": 24, "num_key_value_heads": 1}})";
  const std::string padded = common + R"("per_layer_config": {"05": {"head_dim": 24, "num_key_value_heads": 1}})";
  for (const std::string& changes : {published, listed, padded}) {
    const ModelConfig config = read("Gemma4ForCausalLM", ("{" + changes + "}").c_str());
    EXPECT_EQ(by_layer(config, &LayerConfig::head_dim), (Windows{8, 8, 8, 8, 8, 24}));
    EXPECT_EQ(by_layer(config, &LayerConfig::value_dim), (Windows{8, 8, 8, 8, 8, 24}));
    EXPECT_EQ(by_layer(config, &LayerConfig::kv_heads), (Windows{4, 4, 4, 4, 4, 1}));
    EXPECT_EQ(by_layer(config, &LayerConfig::window), (Windows{9, 9, 9, 9, 9, 0}));
    EXPECT_EQ(by_layer(config, &LayerConfig::rope), (Ropes{1, 1, 1, 1, 1, 0}));
    EXPECT_TRUE(config.layer[5].values_are_keys && !config.layer[4].values_are_keys);
    EXPECT_EQ(config.ropes[0].kind, RopeKind::proportional);
    EXPECT_EQ(config.ropes[0].dims, 24);
    EXPECT_EQ(config.ropes[0].turning, 6) << "a quarter";
    EXPECT_EQ(config.ropes[1].dims, 8);
    EXPECT_EQ(config.experts.count, 0);
  }
  EXPECT_EQ(read("Gemma4ForCausalLM", R"({"num_global_key_value_heads": 1, "num_hidden_layers": 6})").layer[5].kv_heads,
            4)
      << "only if values are keys";
  EXPECT_NE(
      message("Gemma4ForCausalLM", R"({"per_layer_config": {"1": {"sliding_window": 3}}})").find("sliding_window"),
      std::string::npos);
  EXPECT_NE(message("Gemma4ForCausalLM", R"({"per_layer_config": {"4": {"head_dim": 16}}})").find("no such layer"),
            std::string::npos);
  EXPECT_NE(message("Gemma4ForCausalLM", R"({"per_layer_config": {"3": {"num_key_value_heads": 3}}})")
                .find("does not divide"),
            std::string::npos);
  EXPECT_NE(message("Gemma4ForCausalLM", R"({"per_layer_config": {"2": {"head_dim": 4}}})").find("share a rope"),
            std::string::npos);
  EXPECT_NE(
      message("Gemma4ForCausalLM", R"({"use_bidirectional_attention": "all"})").find("use_bidirectional_attention"),
      std::string::npos);
}

// E2B: the last layers share keys and values and have mlps of twice the width.
TEST(Gemma4, SharedLayersHaveWiderMlps) {
  const char* changes = R"({"num_kv_shared_layers": 2, "use_double_wide_mlp": true, "num_hidden_layers": 4,
      "layer_types": ["sliding_attention", "full_attention", "sliding_attention", "full_attention"]})";
  const ModelConfig config = read("Gemma4ForCausalLM", changes);
  EXPECT_EQ(by_layer(config, &LayerConfig::kv_layer), (Windows{kOwnKv, kOwnKv, 0, 1}));
  EXPECT_EQ(by_layer(config, &LayerConfig::mlp_size), (Windows{172, 172, 344, 344}));
  EXPECT_EQ(config.layer_input.size, 256);
  EXPECT_EQ(by_layer(read("Gemma4ForCausalLM"), &LayerConfig::window), (Windows{512, 512, 512, 0}))
      << "the last is full";
  EXPECT_EQ(read("Gemma4ForCausalLM", R"({"use_double_wide_mlp": true})").layer[3].mlp_size, 172) << "none shares";
}

}  // namespace
}  // namespace pinion
