// Equal bits for any kernels, threads and chunks, for layer kinds that session_test does not have.
#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "engine/runtime/load.h"
#include "tests/engine/one_result.h"

namespace pinion {
namespace {

// An mlp without a gate, xIELU with parameters per layer, LayerNorm.
TEST(SameBits, MlpWithoutGate) {
  for (const std::string family : {"apertus", "arcee_bias", "nemotron_bias"}) {
    for (const Quant quant : {Quant::none, Quant::w8a8, Quant::w4a8, Quant::w4a8_plus}) {
      std::unique_ptr<Model> model;
      ASSERT_FALSE(load_model(PINION_TEST_DATA "/families/" + family, {.quant = quant}, &model));
      EXPECT_EQ(model->layers[0][MatrixRole::up].weight.interleaved, 1);
      expect_one_result(*model, 60, quant == Quant::none ? KvType::f32 : KvType::q8);
    }
  }
}

// Parallel branches with a shared norm and with two, LayerNorm per head, fused q, k and v, a head with a bias; matrices
// of several formats that share an input.
TEST(SameBits, ParallelBranches) {
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

// Latent keys and values, with and without latent queries; keys wider and narrower than values; groups of experts.
TEST(SameBits, LatentAttention) {
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

// A shared expert, wider and narrower than the others, with and without a weight, with matrices in other formats.
TEST(SameBits, SharedExpert) {
  for (const std::string family : {"qwen2_moe", "granite_moe_shared", "glm4_moe", "qwen3_5_moe"}) {
    for (const Quant quant : {Quant::none, Quant::w8a8, Quant::w4a8}) {
      std::unique_ptr<Model> model;
      ASSERT_FALSE(load_model(PINION_TEST_DATA "/families/" + family, {.quant = quant}, &model));
      EXPECT_EQ(model->layers[1][MatrixRole::up].weight.interleaved, 2);
      expect_one_result(*model, 60, quant == Quant::none ? KvType::f32 : KvType::q8);
    }
  }
  std::unique_ptr<Model> mixed;
  const LoadOptions options = {.quant = Quant::w8a8, .keep = {"shared_expert.down_proj", "experts.1."}};
  ASSERT_FALSE(load_model(PINION_TEST_DATA "/families/qwen2_moe", options, &mixed));
  expect_one_result(*mixed, 60, KvType::q8);
}

// A short convolution, Mamba 2 in place of attention and beside it, layers with one branch, output scales.
TEST(SameBits, RecurrentLayers) {
  for (const std::string family : {"lfm2",
                                   "lfm2_layer_types",
                                   "lfm2_moe",
                                   "granite_hybrid",
                                   "granite_hybrid_moe",
                                   "falcon_h1",
                                   "falcon_h1_norm",
                                   "nemotron_h",
                                   "nemotron_h_layer_types",
                                   "nemotron_h_moe",
                                   "qwen3_next",
                                   "mamba",
                                   "falcon_mamba",
                                   "jamba",
                                   "kimi_linear",
                                   "kimi_linear_types",
                                   "bailing_hybrid",
                                   "olmo_hybrid",
                                   "zamba2",
                                   "zamba2_blocks",
                                   "recurrent_gemma"}) {
    for (const Quant quant : {Quant::none, Quant::w8a8, Quant::w4a8}) {
      std::unique_ptr<Model> model;
      ASSERT_FALSE(load_model(PINION_TEST_DATA "/families/" + family, {.quant = quant}, &model));
      EXPECT_GT(recurrent_layers(model->config), 0);
      expect_one_result(*model, 60, quant == Quant::none ? KvType::f32 : KvType::q8);
    }
  }
}

// Gates and norms of their own, clamps, ropes by layer, attention in chunks, scaled inputs of experts, experts beside
// attention.
TEST(SameBits, FurtherFamilies) {
  for (const std::string family :
       {"afmoe",         "olmo", "granite_swa", "falcon_h1_gate", "phimoe",    "nanochat",      "gpt2",
        "bloom",         "lfm3", "laguna",      "kolibri1",       "llama4",    "llama4_listed", "cohere2_moe",
        "mimo_v2_flash", "axk1", "dbrx",        "codegen",        "persimmon", "beam"}) {
    for (const Quant quant : {Quant::none, Quant::w8a8}) {
      std::unique_ptr<Model> model;
      ASSERT_FALSE(load_model(PINION_TEST_DATA "/families/" + family, {.quant = quant}, &model));
      expect_one_result(*model, 60, quant == Quant::none ? KvType::f32 : KvType::q8);
    }
  }
}

// Other heads in full layers, values that are keys, shared keys, experts beside the mlp.
TEST(SameBits, Gemma4) {
  for (const std::string family : {"gemma4", "gemma4_e2b", "gemma4_moe"}) {
    for (const Quant quant : {Quant::none, Quant::w8a8, Quant::w4a8}) {
      std::unique_ptr<Model> model;
      ASSERT_FALSE(load_model(PINION_TEST_DATA "/families/" + family, {.quant = quant}, &model));
      EXPECT_EQ(model->layers[1].experts.size(), family == "gemma4_moe" ? 6u : 0u);
      expect_one_result(*model, 60, quant == Quant::none ? KvType::f32 : KvType::q8);
    }
  }
}

// AltUp inputs, sparse gates, and layers that share keys and values.
TEST(SameBits, Altup) {
  for (const std::string family : {"gemma3n", "gemma3n_streams"}) {
    for (const Quant quant : {Quant::none, Quant::w8a8, Quant::w4a8}) {
      std::unique_ptr<Model> model;
      ASSERT_FALSE(load_model(PINION_TEST_DATA "/families/" + family, {.quant = quant}, &model));
      EXPECT_TRUE(model->layers[1].gate_cut);
      EXPECT_EQ(model->layers[1][MatrixRole::up].weight.interleaved, 1);
      EXPECT_EQ(model->layers[4][MatrixRole::up].weight.interleaved, 2);
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
