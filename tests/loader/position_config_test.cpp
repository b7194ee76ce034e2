// Families with learned positions, with ALiBi, or with gates and heads of their own.
#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "tests/loader/small_config.h"

namespace pinion {
namespace {

TEST(LearnedPositions, RowsAndOffset) {
  const ModelConfig gpt2 = read("GPT2LMHeadModel", R"({"n_ctx": 512, "reorder_and_upcast_attn": false})");
  EXPECT_EQ(gpt2.position_rows, 512);
  EXPECT_EQ(gpt2.layer[0].rope, kNoRope);
  EXPECT_TRUE(gpt2.transposed && gpt2.tied_head && gpt2.qkv_bias && gpt2.o_bias);
  EXPECT_EQ(gpt2.activation, Activation::gelu_tanh);
  const ModelConfig opt = read("OPTForCausalLM", R"({"ffn_dim": 96, "word_embed_proj_dim": 64})");
  EXPECT_EQ(opt.position_rows, 514) << "position 0 has row 2";
  EXPECT_EQ(opt.layer[0].mlp_size, 96);
  EXPECT_EQ(opt.activation, Activation::relu);
  EXPECT_FALSE(opt.transposed);
  EXPECT_EQ(read("LlamaForCausalLM").position_rows, 0);
}

// The other forms of these families are errors that name the field.
TEST(LearnedPositions, OtherForms) {
  EXPECT_EQ(message("GPT2LMHeadModel", R"({"scale_attn_by_inverse_layer_idx": true})"),
            "config.json: scale_attn_by_inverse_layer_idx: not supported: want false, have true");
  EXPECT_EQ(message("OPTForCausalLM", R"({"do_layer_norm_before": false})"),
            "config.json: do_layer_norm_before: not supported: want true, have false");
}

TEST(GptBigCode, OneKeyHeadOrOnePerQuery) {
  EXPECT_EQ(read("GPTBigCodeForCausalLM").layer[0].kv_heads, 1);
  EXPECT_FALSE(read("GPTBigCodeForCausalLM").qkv_by_head);
  const ModelConfig heads = read("GPTBigCodeForCausalLM", R"({"multi_query": false})");
  EXPECT_EQ(heads.layer[0].kv_heads, 8);
  EXPECT_TRUE(heads.qkv_by_head);
}

TEST(GptNeo, EveryOtherLayerSlides) {
  EXPECT_EQ(by_layer(read("GPTNeoForCausalLM"), &LayerConfig::window), (Windows{0, 256, 0, 256}));
  const char* listed = R"({"attention_layers": ["local", "global", "global", "local"], "window_size": 9})";
  EXPECT_EQ(by_layer(read("GPTNeoForCausalLM", listed), &LayerConfig::window), (Windows{9, 0, 0, 9}));
}

TEST(Flint, WindowsBetweenTheEnds) {
  const char* eight = R"({"num_hidden_layers": 8, "sliding_window": 7})";
  EXPECT_EQ(by_layer(read("FlintForCausalLM", eight), &LayerConfig::window), (Windows{0, 0, 7, 7, 7, 0, 7, 0}));
}

// A window of 20 is 10 tokens, and the first of three layers sees everything.
TEST(ModernBertDecoder, HalfWindows) {
  const ModelConfig config = read("ModernBertDecoderForCausalLM", R"({"local_attention": 20, "norm_bias": false})");
  EXPECT_EQ(by_layer(config, &LayerConfig::window), (Windows{0, 10, 10, 0}));
  EXPECT_EQ(config.ropes[0].theta, 160000.0);
  EXPECT_TRUE(config.lacks_first_norm && config.head_bias && config.layer_norm && !config.norm_bias);
}

// The published slopes of 8 heads, and the rule for other numbers: every other slope of the next power of two.
TEST(Alibi, Slopes) {
  const std::vector<float> eight = read("BloomForCausalLM").score_slopes;
  for (size_t i = 0; i < 8; ++i) EXPECT_EQ(eight[i], std::ldexp(1.0f, -1 - static_cast<int>(i)));
  const char* five = R"({"num_attention_heads": 5, "hidden_size": 40})";
  EXPECT_EQ(read("BloomForCausalLM", five).score_slopes,
            (std::vector<float>{0.25f, 0.0625f, 0.015625f, 0.00390625f, 0.5f}));
  EXPECT_TRUE(read("LlamaForCausalLM").score_slopes.empty());
}

TEST(Alibi, FieldsOfANestedObject) {
  const char* published = R"({"attn_config": {"alibi": true, "attn_impl": "torch", "clip_qkv": 6, "softmax_scale": null,
      "prefix_lm": false}, "expansion_ratio": 4, "logit_scale": null, "norm_type": "low_precision_layernorm"})";
  const ModelConfig mpt = read("MptForCausalLM", published);
  EXPECT_EQ(mpt.qkv_limit, 6.0f);
  EXPECT_TRUE(mpt.layer_norm && !mpt.norm_bias);
  EXPECT_EQ(message("MptForCausalLM", R"({"attn_config": {"alibi": false}})"),
            "config.json: alibi: not supported: want true, have false");
  EXPECT_EQ(message("MptForCausalLM", R"({"attn_config": {"qk_ln": true}})"),
            "config.json: qk_ln: not supported: want false, have true");
}

TEST(Laguna, HeadsAndGatesByLayer) {
  const char* heads = R"({"num_attention_heads_per_layer": [8, 4, 4, 8]})";
  const ModelConfig config = read("LagunaForCausalLM", heads);
  EXPECT_EQ(by_layer(config, &LayerConfig::heads), (Windows{8, 4, 4, 8}));
  EXPECT_TRUE(config.gate_by_head && config.gate_softplus);
  EXPECT_FALSE(read("LagunaForCausalLM", R"({"gating": "per-element"})").gate_by_head);
  EXPECT_NE(message("LagunaForCausalLM", R"({"num_attention_heads_per_layer": [8, 6, 4, 8]})"), "")
      << "4 key heads do not divide 6";
  EXPECT_NE(message("LagunaForCausalLM", R"({"num_attention_heads_per_layer": [8]})"), "");
}

TEST(Apertus1p5, HeadWithFewerRows) {
  const ModelConfig config = read("Apertus1p5TextForCausalLM", R"({"output_vocab_size": 500})");
  EXPECT_EQ(config.vocab_size, 500);
  EXPECT_EQ(config.extra_rows, 12);
  EXPECT_NE(message("Apertus1p5TextForCausalLM", R"({"output_vocab_size": 513})"), "");
  EXPECT_EQ(read("Apertus1p5TextForCausalLM").vocab_size, 512);
}

TEST(Lfm3, WindowsBesideConvolutions) {
  const char* types =
      R"({"layer_types": ["conv", "sliding_attention", "conv", "full_attention"], "sliding_window": 7})";
  const ModelConfig config = read("Lfm3ForCausalLM", types);
  EXPECT_EQ(by_layer(config, &LayerConfig::window), (Windows{0, 7, 0, 0}));
  EXPECT_EQ(by_layer(config, &LayerConfig::rope)[1], 1);
  EXPECT_EQ(config.ropes[0].kind, RopeKind::proportional);
  EXPECT_EQ(config.name("attention_gate"), "model.layers.{}.self_attn.gate_proj");
  const std::string plain =
      std::string(types).insert(1, R"("use_attention_gate": false, "use_sandwich_norm": false, )");
  EXPECT_EQ(read("Lfm3ForCausalLM", plain.c_str()).name("attention_gate"), "");
  EXPECT_EQ(read("Lfm3ForCausalLM", plain.c_str()).name("mlp_out_norm"), "");
}

}  // namespace
}  // namespace pinion
