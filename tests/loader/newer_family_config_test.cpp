// As family_config_test, of families that came later.
#include <gtest/gtest.h>

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

}  // namespace
}  // namespace pinion
