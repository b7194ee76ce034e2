// As session_test: one result whatever the kernels, the threads and the chunks, of layers that came later.
#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "engine/runtime/load.h"
#include "tests/engine/one_result.h"

namespace pinion {
namespace {

// An mlp without a gate, with a curve of each layer's own, and LayerNorm.
TEST(SameBits, WithoutAGate) {
  for (const std::string family : {"apertus", "arcee_bias", "nemotron_bias"}) {
    for (const Quant quant : {Quant::none, Quant::w8a8, Quant::w4a8}) {
      std::unique_ptr<Model> model;
      ASSERT_FALSE(load_model(PINION_TEST_DATA "/families/" + family, {.quant = quant}, &model));
      EXPECT_EQ(model->layers[0].up.weight.interleaved, 1);
      expect_one_result(*model, 60, quant == Quant::none ? KvType::f32 : KvType::q8);
    }
  }
}

// Branches of one norm and of two, LayerNorm of each head, q, k and v in one tensor, a head with a bias; and with
// matrices of several formats under one norm.
TEST(SameBits, OfParallelBranches) {
  for (const std::string family : {"phi", "cohere_qk_norm", "cohere2", "stablelm_parallel", "gpt_neox"}) {
    for (const Quant quant : {Quant::none, Quant::w8a8, Quant::w4a8}) {
      std::unique_ptr<Model> model;
      ASSERT_FALSE(load_model(PINION_TEST_DATA "/families/" + family, {.quant = quant}, &model));
      EXPECT_TRUE(model->config.parallel_branches);
      expect_one_result(*model, 60, quant == Quant::none ? KvType::f32 : KvType::q8);
    }
  }
  std::unique_ptr<Model> mixed;
  ASSERT_FALSE(
      load_model(PINION_TEST_DATA "/families/phi", {.quant = Quant::w8a8, .keep = {"k_proj", "1.mlp.fc1"}}, &mixed));
  expect_one_result(*mixed, 60, KvType::q8);
}

// Keys and values made of a latent, queries of one or not; keys wider than values and narrower, and groups of experts.
TEST(SameBits, OfLatentAttention) {
  const std::pair<std::string, Quant> cases[] = {
      {"deepseek_v2", Quant::w8a8},         {"deepseek_v2_groups", Quant::none},
      {"deepseek_v2_groups", Quant::w8a8},  {"deepseek_v3_plain", Quant::none},
      {"deepseek_v3_plain", Quant::w8a8},   {"glm4_moe_lite", Quant::w8a8},
      {"glm4_moe_lite_types", Quant::w4a8}, {"minicpm3", Quant::w8a8}};
  for (const auto& [family, quant] : cases) {
    std::unique_ptr<Model> model;
    ASSERT_FALSE(load_model(PINION_TEST_DATA "/families/" + family, {.quant = quant}, &model));
    EXPECT_GT(model->config.latent.rank, 0);
    expect_one_result(*model, 60, quant == Quant::none ? KvType::f32 : KvType::q8);
  }
  std::unique_ptr<Model> mixed;
  ASSERT_FALSE(load_model(PINION_TEST_DATA "/families/deepseek_v3",
                          {.quant = Quant::w8a8, .keep = {"kv_b_proj", "1.self_attn.q_a_proj"}}, &mixed));
  expect_one_result(*mixed, 60, KvType::bf16);
}

// An expert that every token goes to, wider than the others and narrower, weighed and not, its matrices with codes of
// their own or kept as they are.
TEST(SameBits, WithASharedExpert) {
  for (const std::string family : {"qwen2_moe", "granite_moe_shared", "glm4_moe", "qwen3_5_moe"}) {
    for (const Quant quant : {Quant::none, Quant::w8a8, Quant::w4a8}) {
      std::unique_ptr<Model> model;
      ASSERT_FALSE(load_model(PINION_TEST_DATA "/families/" + family, {.quant = quant}, &model));
      EXPECT_EQ(model->layers[1].up.weight.interleaved, 2);
      expect_one_result(*model, 60, quant == Quant::none ? KvType::f32 : KvType::q8);
    }
  }
  std::unique_ptr<Model> mixed;
  const LoadOptions options = {.quant = Quant::w8a8, .keep = {"shared_expert.down_proj", "experts.1."}};
  ASSERT_FALSE(load_model(PINION_TEST_DATA "/families/qwen2_moe", options, &mixed));
  expect_one_result(*mixed, 60, KvType::q8);
}

// A convolution alone, Mamba 2 in place of attention and beside it, layers of one branch, multipliers of outputs.
TEST(SameBits, OfRecurrentLayers) {
  for (const std::string family :
       {"lfm2", "lfm2_layer_types", "lfm2_moe", "granite_hybrid", "granite_hybrid_moe", "falcon_h1", "falcon_h1_norm",
        "nemotron_h", "nemotron_h_layer_types", "nemotron_h_moe", "qwen3_next"}) {
    for (const Quant quant : {Quant::none, Quant::w8a8, Quant::w4a8}) {
      std::unique_ptr<Model> model;
      ASSERT_FALSE(load_model(PINION_TEST_DATA "/families/" + family, {.quant = quant}, &model));
      EXPECT_GT(recurrent_layers(model->config), 0);
      expect_one_result(*model, 60, quant == Quant::none ? KvType::f32 : KvType::q8);
    }
  }
}

// Streams beside the one that layers compute, gates that are sparse, and layers without keys and values of their own.
TEST(SameBits, OfSeveralStreams) {
  for (const std::string family : {"gemma3n", "gemma3n_streams"}) {
    for (const Quant quant : {Quant::none, Quant::w8a8, Quant::w4a8}) {
      std::unique_ptr<Model> model;
      ASSERT_FALSE(load_model(PINION_TEST_DATA "/families/" + family, {.quant = quant}, &model));
      EXPECT_TRUE(model->layers[1].gate_cut);
      EXPECT_EQ(model->layers[1].up.weight.interleaved, 1);
      EXPECT_EQ(model->layers[4].up.weight.interleaved, 2);
      expect_one_result(*model, 60, quant == Quant::none ? KvType::f32 : KvType::q8);
    }
  }
  std::unique_ptr<Model> mixed;
  const LoadOptions options = {.quant = Quant::w8a8,
                               .keep = {"altup_projections.1", "laurel.linear_left", "0.mlp.gate_proj",
                                        "1.per_layer_input_gate", "altup_unembed_projections.0"}};
  ASSERT_FALSE(load_model(PINION_TEST_DATA "/families/gemma3n", options, &mixed));
  expect_one_result(*mixed, 60, KvType::q8);
}

}  // namespace
}  // namespace pinion
