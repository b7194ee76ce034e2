// Families with latent attention.
#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "tests/loader/small_config.h"

namespace pinion {
namespace {

constexpr const char* kV2Lite = R"({"num_key_value_heads": 8, "q_lora_rank": null, "kv_lora_rank": 48,
    "qk_nope_head_dim": 16, "qk_rope_head_dim": 8, "v_head_dim": 20, "n_routed_experts": 8, "n_shared_experts": 2,
    "num_experts_per_tok": 3, "moe_intermediate_size": 24, "first_k_dense_replace": 1, "n_group": 1, "topk_group": 1,
    "scoring_func": "softmax", "moe_layer_freq": 1, "ep_size": 1, "seq_aux": true, "aux_loss_alpha": 0.001,
    "rope_theta": 10000, "rope_scaling": {"type": "yarn", "factor": 40, "original_max_position_embeddings": 64,
    "beta_fast": 32, "beta_slow": 1, "mscale": 0.707, "mscale_all_dim": 0.707}})";

std::string changed(const char* config, const char* changes) {
  Json json = Json::parse(config);
  json.update(Json::parse(changes));
  return json.dump();
}

TEST(DeepseekV2, AttentionAndExperts) {
  const ModelConfig config = read("DeepseekV2ForCausalLM", kV2Lite);
  EXPECT_EQ(config.layer[0].head_dim, 56) << "of the cached key, 8 and the latent; the field head_dim is ignored";
  EXPECT_EQ(config.layer[0].value_dim, 48) << "the latent";
  EXPECT_EQ(config.layer[0].kv_heads, 1);
  EXPECT_EQ(config.layer[0].attended(), 8 * 20);
  EXPECT_EQ(config.query_stride(config.layer[0]), 24);
  EXPECT_EQ(config.latent.rank, 48);
  EXPECT_EQ(config.latent.query_rank, 0);
  EXPECT_EQ(config.latent.rope_dims, 8);
  EXPECT_EQ(config.latent.norm_eps, 1e-6f);
  EXPECT_EQ(config.ropes[0].dims, 8);
  EXPECT_TRUE(config.rope_interleaved);
  const double magnitude = 0.1 * 0.707 * std::log(40.0) + 1.0;
  EXPECT_NEAR(config.score_scale, magnitude * magnitude / std::sqrt(24.0), 1e-6);
  EXPECT_EQ(by_layer(config, &LayerConfig::has_experts), (std::vector<bool>{false, true, true, true}));
  EXPECT_EQ(config.experts.shared_size, 48);
  EXPECT_EQ(config.experts.groups, 1);
  EXPECT_FALSE(config.experts.normalised);
  EXPECT_FALSE(config.experts.sigmoid);
  const std::string plain = changed(kV2Lite, R"({"rope_scaling": null, "v_head_dim": null, "q_lora_rank": 40})");
  const ModelConfig other = read("DeepseekV2ForCausalLM", plain.c_str());
  EXPECT_EQ(other.score_scale, 1.0f / std::sqrt(24.0f));
  EXPECT_EQ(other.layer[0].latent_values, 8) << "hidden_size / heads";
  EXPECT_EQ(other.latent.query_rank, 40);
}

TEST(DeepseekV2, GroupsOfExperts) {
  const auto with = [](const char* changes) { return changed(kV2Lite, changes); };
  const std::string grouped = with(R"({"topk_method": "group_limited_greedy", "n_group": 4, "topk_group": 2})");
  const ModelConfig config = read("DeepseekV2ForCausalLM", grouped.c_str());
  EXPECT_EQ(config.experts.groups, 4);
  EXPECT_EQ(config.experts.groups_kept, 2);
  EXPECT_EQ(config.experts.group_best, 1);
  const std::string greedy = with(R"({"topk_method": "greedy", "n_group": 4, "topk_group": 2})");
  EXPECT_EQ(read("DeepseekV2ForCausalLM", greedy.c_str()).experts.groups, 1);
  const auto message_of = [&](const char* changes) { return message("DeepseekV2ForCausalLM", with(changes).c_str()); };
  EXPECT_EQ(message_of(R"({"topk_method": "noaux_tc"})"),
            "config.json: topk_method: not supported: want group_limited_greedy or greedy, have \"noaux_tc\"");
  const std::string wanted =
      "config.json: n_group: groups of experts out of range: want equal groups of at least 1, "
      "with enough experts in the kept ones, have ";
  EXPECT_EQ(message_of(R"({"topk_method": "group_limited_greedy", "n_group": 3, "topk_group": 2})"),
            wanted + "3 groups, 2 kept");
  EXPECT_EQ(message_of(R"({"topk_method": "group_limited_greedy", "n_group": 4, "topk_group": 1})"),
            wanted + "4 groups, 1 kept");
  EXPECT_EQ(message_of(R"({"topk_method": "group_limited_greedy", "n_group": 2, "topk_group": 3})"),
            "config.json: topk_group: out of range: want an integer from 1 to 2, have 3");
}

TEST(DeepseekV2, OtherArithmeticIsAnError) {
  const auto message_of = [](const char* changes) {
    return message("DeepseekV2ForCausalLM", changed(kV2Lite, changes).c_str());
  };
  EXPECT_EQ(message_of(R"({"num_key_value_heads": 2})"),
            "config.json: num_key_value_heads: not supported with latent attention: want 8, have 2");
  EXPECT_EQ(message_of(R"({"norm_topk_prob": true})"),
            "config.json: norm_topk_prob: not supported: want false, have true");
  EXPECT_TRUE(read("DeepseekV2ForCausalLM", changed(kV2Lite, R"({"attention_bias": true})").c_str()).qkv_bias);
  EXPECT_EQ(message_of(R"({"scoring_func": "sigmoid"})"),
            "config.json: scoring_func: not supported: want \"softmax\", have \"sigmoid\"");
  EXPECT_EQ(message_of(R"({"kv_lora_rank": 47})"),
            "config.json: head_dim: out of range: want an even number from 2 to 1024, have 55");
  EXPECT_EQ(message_of(R"({"v_head_dim": 131072})"),
            "config.json: v_head_dim: out of range: want an integer from 1 to 1024, have 131072");
}

constexpr const char* kV3 = R"({"num_key_value_heads": 8, "q_lora_rank": 40, "kv_lora_rank": 48, "qk_nope_head_dim": 16,
    "qk_rope_head_dim": 8, "v_head_dim": 16, "n_routed_experts": 8, "num_experts_per_tok": 2, "n_group": 4,
    "topk_group": 2, "moe_intermediate_size": 24, "first_k_dense_replace": 2, "topk_method": "noaux_tc",
    "scoring_func": "sigmoid"})";

TEST(DeepseekV3, SigmoidRoutingInGroups) {
  const ModelConfig config = read("DeepseekV3ForCausalLM", kV3);
  EXPECT_EQ(config.experts.groups, 4);
  EXPECT_EQ(config.experts.group_best, 2);
  EXPECT_TRUE(config.experts.sigmoid);
  EXPECT_TRUE(config.experts.normalised);
  EXPECT_EQ(config.experts.scale, 2.5f);
  EXPECT_TRUE(config.rope_interleaved);
  EXPECT_EQ(config.tensors.skipped, (std::vector<std::string>{"model.layers.4."})) << "the MTP layer";
  const std::string halves = changed(kV3, R"({"rope_interleave": false, "model_type": "kimi_k2"})");
  EXPECT_FALSE(read("DeepseekV3ForCausalLM", halves.c_str()).rope_interleaved);
  EXPECT_EQ(
      message("DeepseekV3ForCausalLM", changed(kV3, R"({"n_group": 8, "topk_group": 8})").c_str()),
      "config.json: n_group: groups of experts out of range: want equal groups of at least 2, with enough experts "
      "in the kept ones, have 8 groups, 8 kept");
}

// The fraction of a head that is rotated is that of the whole head, or absent.
TEST(Mistral4, RotatedPartOfLatentHeads) {
  const std::string common = changed(kV3, R"({"n_group": 1, "topk_group": 1, "scoring_func": null,
      "topk_method": null})");
  for (const char* more :
       {"{}", R"({"rope_parameters": {"rope_type": "default", "partial_rotary_factor": 0.33334}})"}) {
    const ModelConfig config = read("Mistral4ForCausalLM", changed(common.c_str(), more).c_str());
    EXPECT_EQ(config.ropes[0].dims, 8) << "of 24";
    EXPECT_FALSE(config.experts.sigmoid);
  }
}

TEST(Glm4MoeLite, LayerTypes) {
  const std::string plain = changed(kV3, R"({"n_group": 1, "topk_group": 1, "first_k_dense_replace": 1,
      "partial_rotary_factor": 1.0})");
  const auto with = [&](const char* changes) { return changed(plain.c_str(), changes); };
  EXPECT_EQ(by_layer(read("Glm4MoeLiteForCausalLM", with("{}").c_str()), &LayerConfig::has_experts),
            (std::vector<bool>{false, true, true, true}));
  const std::string typed = with(R"({"mlp_layer_types": ["sparse", "dense", "dense", "sparse"]})");
  EXPECT_EQ(by_layer(read("Glm4MoeLiteForCausalLM", typed.c_str()), &LayerConfig::has_experts),
            (std::vector<bool>{true, false, false, true}));
  const auto message_of = [&](const char* changes) { return message("Glm4MoeLiteForCausalLM", with(changes).c_str()); };
  EXPECT_EQ(message_of(R"({"mlp_layer_types": ["sparse"]})"),
            "config.json: mlp_layer_types: wrong length: want 4, have 1");
  EXPECT_EQ(message_of(R"({"mlp_layer_types": ["sparse", "dense", "dense", "odd"]})"),
            "config.json: mlp_layer_types: unknown layer type: \"odd\"");
}

TEST(MiniCpm3, ScalesFromTwoFields) {
  const ModelConfig config = read("MiniCPM3ForCausalLM", R"({"num_key_value_heads": 8, "q_lora_rank": 40,
      "kv_lora_rank": 48, "qk_nope_head_dim": 8, "qk_rope_head_dim": 4, "dim_model_base": 16, "scale_depth": 3,
      "scale_emb": 12})");
  EXPECT_EQ(config.embedding_scale, 12.0f);
  EXPECT_EQ(config.branch_scale, 1.5f) << "3 / sqrt(4)";
  EXPECT_EQ(config.logit_scale, 0.25f);
  EXPECT_EQ(config.layer[0].latent_values, 8);
  EXPECT_EQ(config.query_dim(config.layer[0]), 12);
  EXPECT_FALSE(config.rope_interleaved);
  EXPECT_TRUE(config.tied_head);
}

}  // namespace
}  // namespace pinion
