// Factors that give the channels of keys and queries similar sizes.
#include "engine/model/model.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace pinion {
namespace {

ModelConfig config_of(QkNorm norm, int64_t rope_dims) {
  ModelConfig config;
  config.qk_norm = norm;
  config.ropes.resize(1);
  config.ropes[0].dims = rope_dims;
  return config;
}

Layer balanced(const ModelConfig& config, const std::vector<float>& q_norm, const std::vector<float>& k_norm) {
  std::vector<Layer> layers(1);
  Layer& layer = layers[0];
  layer[VectorRole::q_norm].weight = q_norm.data(), layer[VectorRole::k_norm].weight = k_norm.data();
  layer.heads = 4, layer.kv_heads = 2, layer.head_dim = 4;
  balance_heads(config, 0, &layers);
  return layer;
}

using Floats = std::vector<float>;

// Rope pairs channels 0 and 1; channels 2 and 3 are unrotated.
TEST(HeadBalance, HandWorked) {
  const Layer layer = balanced(config_of(QkNorm::heads, 2), {3, 4, 2, 1}, {30, -40, 8, 16});
  // sizes 5 and 50, 2 and 8, 1 and 16
  const float paired = std::sqrt(std::sqrt(25.0f / 2500));
  const Floats head = {paired, paired, 0.5f, 0.25f};
  for (size_t i = 0; i < 8; ++i) {
    EXPECT_FLOAT_EQ(layer.key_balance.at(i), head[i % 4]) << i;
    EXPECT_FLOAT_EQ(layer.query_balance.at(i), 1 / head[i % 4]) << i;
  }
}

TEST(HeadBalance, NormsAfterRopeHaveNoPairs) {
  const Layer layer = balanced(config_of(QkNorm::rotated_heads, 4), {1, 1, 1, 1}, {4, 1, 16, 1});
  EXPECT_EQ(Floats(layer.key_balance.begin(), layer.key_balance.begin() + 4), (Floats{0.5f, 1, 0.25f, 1}));
}

// Norms over all heads: each kv head has its own weights; the squares of its two query heads are added.
TEST(HeadBalance, FactorsPerHead) {
  Floats q(16, 1.0f), k(8, 1.0f);
  k[4] = k[6] = 2, q[8] = q[10] = std::sqrt(7.0f);
  const Layer layer = balanced(config_of(QkNorm::all_heads, 4), q, k);
  const float twice = std::sqrt(std::sqrt(2.0f));
  EXPECT_FLOAT_EQ(layer.key_balance[0], twice);
  EXPECT_FLOAT_EQ(layer.key_balance[4], std::sqrt(std::sqrt((2 + 14) / 8.0f)));
  EXPECT_FLOAT_EQ(layer.key_balance[5], twice);
}

TEST(HeadBalance, FactorsAreBounded) {
  const Layer layer = balanced(config_of(QkNorm::heads, 0), {0, 1, 1e10f, 1}, {1, 0, 1, 1e10f});
  EXPECT_EQ(Floats(layer.key_balance.begin(), layer.key_balance.begin() + 4), (Floats{1, 1, 1024, 1.0f / 1024}));
}

TEST(HeadBalance, NoFactorsWithoutNorms) {
  std::vector<Layer> layers(1);
  balance_heads(config_of(QkNorm::none, 4), 0, &layers);
  EXPECT_TRUE(layers[0].key_balance.empty());
}

}  // namespace
}  // namespace pinion
