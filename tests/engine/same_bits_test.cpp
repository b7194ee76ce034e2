// As session_test: one result whatever the kernels, the threads and the chunks, of layers that came later.
#include <gtest/gtest.h>

#include <string>

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

}  // namespace
}  // namespace pinion
