// Layout and encoding of keys and values in the cache.
#include "engine/forward/kv_cache.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <vector>

namespace pinion {
namespace {

ModelConfig config_of(int64_t layers, int64_t kv_heads, int64_t head_dim) {
  ModelConfig config;
  config.layers = layers;
  config.layer.assign(static_cast<size_t>(layers), {.kv_heads = kv_heads, .head_dim = head_dim});
  return config;
}

// A cache with all blocks of its own pool.
struct Cache : KvCache {
  std::unique_ptr<KvPool> own = std::make_unique<KvPool>();
};

Cache make(int64_t layers, int64_t kv_heads, int64_t head_dim, KvType type, int64_t positions) {
  Cache cache;
  const KvShape shape = kv_shape_of(config_of(layers, kv_heads, head_dim), type);
  EXPECT_EQ(allocate_kv_pool(shape, KvShape::chunks_of(positions), cache.own.get()).message(), "");
  static_cast<KvCache&>(cache) = make_kv_cache(cache.own.get(), positions);
  take_blocks(&cache, positions);
  return cache;
}

TEST(KvCache, NoSlotForLayersThatShareKeys) {
  ModelConfig config = config_of(5, 2, 16);
  EXPECT_EQ(kv_shape_of(config, KvType::q8).layers.size(), 5u);
  config.layer[3].kv_layer = 2, config.layer[4].kv_layer = 1;
  EXPECT_EQ(kv_shape_of(config, KvType::q8).layers.size(), 3u);
  EXPECT_EQ(kv_shape_of(config, KvType::bf16).bytes(256), 3 * 2 * 2 * 256 * 16 * 2);
}

// Layers with other heads follow one another in a block.
TEST(KvCache, HeadsByLayer) {
  ModelConfig config = config_of(3, 2, 16);
  config.layer[1].head_dim = 40, config.layer[1].kv_heads = 1;  // padded to 48
  const KvShape shape = kv_shape_of(config, KvType::bf16);
  const int64_t narrow = 2 * 2 * 256 * 16 * 2, wide = 2 * 256 * 48 * 2;
  EXPECT_EQ(shape.layers[1].offset, narrow);
  EXPECT_EQ(shape.layers[1].head_dim, 48);
  EXPECT_EQ(shape.layers[2].offset, narrow + wide);
  EXPECT_EQ(shape.block_bytes(), 2 * narrow + wide);
  const KvShape second = kv_shape_of(config, KvType::bf16, {.rank = 1, .ranks = 2});
  EXPECT_EQ(second.layers[0].first_kv_head, 1);
  EXPECT_EQ(second.layers[1].kv_heads, 0) << "the first board has the only head";
  EXPECT_EQ(second.block_bytes(), narrow);
}

// Every board has the whole cache of latents, in bf16 in place of q8: 40 numbers padded to 48.
TEST(KvCache, Latents) {
  ModelConfig config = config_of(2, 1, 40);
  config.latent = {.rank = 32, .rope_dims = 8};
  for (LayerConfig& layer : config.layer) layer.heads = 4, layer.value_dim = 32, layer.latent_values = 16;
  const KvShape shape = kv_shape_of(config, KvType::q8);
  EXPECT_EQ(shape.type(), KvType::bf16);
  EXPECT_EQ(shape.block_bytes(), 2 * 2 * 256 * 48 * 2);
  const KvShape second = kv_shape_of(config, KvType::f32, {.rank = 1, .ranks = 2});
  EXPECT_EQ(second.type(), KvType::f32);
  EXPECT_EQ(second.block_bytes(), 2 * shape.block_bytes());
}

// 20 numbers of head_dim 32: position 300 is slot 44 of chunk 1, lane 12 of the third group of 16 positions.
TEST(KvCache, HandWorked) {
  std::vector<float> key(20), value(20);
  for (size_t i = 0; i < 20; ++i) key[i] = static_cast<float>(i + 1), value[i] = -static_cast<float>(i + 1);

  Cache floats = make(2, 3, 20, KvType::f32, 512);
  EXPECT_EQ(floats.layer(0).head_dim, 32);
  EXPECT_EQ(floats.shape().bytes(257), 2 * 2 * 3 * 2 * 256 * 32 * 4);
  floats.write(300, 1, 2, key.data(), value.data(), 20);
  const auto* f = reinterpret_cast<const float*>(floats.keys(1, 1, 2));
  EXPECT_EQ(f[2 * 16 * 32 + 12], 1);
  EXPECT_EQ(f[2 * 16 * 32 + 19 * 16 + 12], 20);
  EXPECT_EQ(f[256 * 32 + 44 * 32], -1);
  EXPECT_EQ(f[256 * 32 + 44 * 32 + 19], -20);
  EXPECT_EQ(f[256 * 32 + 44 * 32 + 20], 0);

  Cache halves = make(2, 3, 20, KvType::bf16, 512);
  EXPECT_EQ(halves.shape().bytes(257), 2 * 2 * 3 * 2 * 256 * 32 * 2);
  halves.write(300, 1, 2, key.data(), value.data(), 20);
  halves.write(301, 1, 2, value.data(), key.data(), 20);
  const auto* keys = reinterpret_cast<const bf16_pair*>(halves.keys(1, 1, 2));
  EXPECT_EQ(to_float(keys[2 * 8 * 32 + 12].first), 1);
  EXPECT_EQ(to_float(keys[2 * 8 * 32 + 12].second), 2);
  EXPECT_EQ(to_float(keys[2 * 8 * 32 + 13].second), -2);
  EXPECT_EQ(to_float(keys[2 * 8 * 32 + 9 * 16 + 12].second), 20);
  const bf16_pair* values = keys + 128 * 32;
  EXPECT_EQ(to_float(values[22 * 32].first), -1);
  EXPECT_EQ(to_float(values[22 * 32].second), 1);
  EXPECT_EQ(to_float(values[22 * 32 + 19].first), -20);
  EXPECT_EQ(values[22 * 32 + 20].first.bits, 0);
}

// Every element has a distinct offset inside the plane.
TEST(KvCache, OffsetsAreDistinct) {
  for (const int64_t head_dim : {16, 48, 128}) {
    std::vector<int> keys(static_cast<size_t>(kAttentionChunk * head_dim)), values = keys;
    for (int64_t p = 0; p < kAttentionChunk; ++p) {
      for (int64_t i = 0; i < head_dim; ++i) {
        ++keys.at(static_cast<size_t>(key_at<bf16>(p, i, head_dim)));
        ++values.at(static_cast<size_t>(value_at<bf16>(p, i, head_dim)));
      }
    }
    EXPECT_EQ(keys, std::vector<int>(keys.size(), 1));
    EXPECT_EQ(values, keys);
  }
}

// The value that shares a pair with the last one becomes zero, whatever it was.
TEST(KvCache, LastPositionClearsItsPair) {
  const std::vector<float> ones(16, 1.0f), damage(16, std::numeric_limits<float>::quiet_NaN());
  Cache cache = make(1, 1, 16, KvType::bf16, 4);
  const auto* values = reinterpret_cast<const bf16_pair*>(cache.values(0, 0, 0));
  for (const int64_t position : {0, 1, 2, 3}) cache.write(position, 0, 0, damage.data(), damage.data(), 16);
  cache.write(0, 0, 0, ones.data(), ones.data(), 16);
  EXPECT_TRUE(std::isnan(to_float(values[15].second)));
  cache.write(2, 0, 0, ones.data(), ones.data(), 16, true);
  EXPECT_EQ(to_float(values[16 + 15].first), 1);
  EXPECT_EQ(values[16 + 15].second.bits, 0);
  cache.write(1, 0, 0, ones.data(), ones.data(), 16, true);
  EXPECT_EQ(to_float(values[15].first), 1);
  EXPECT_EQ(to_float(values[15].second), 1);
}

TEST(KvCache, StoresBf16Operands) {
  Cache cache = make(1, 1, 16, KvType::bf16, 2);
  const std::vector<float> key = {1 + 0x1p-8f, 0x1p-50f, -0x1.fep-51f, 1e-40f, -3e38f};
  cache.write(0, 0, 0, key.data(), key.data(), 5);
  const auto* values = reinterpret_cast<const bf16_pair*>(cache.values(0, 0, 0));
  EXPECT_EQ(to_float(values[0].first), 1);
  EXPECT_EQ(to_float(values[1].first), 0x1p-50f);
  EXPECT_EQ(values[2].first.bits, 0);
  EXPECT_EQ(values[3].first.bits, 0);
  EXPECT_EQ(to_float(values[4].first), to_float(to_bf16(-3e38f)));
  const auto* keys = reinterpret_cast<const bf16_pair*>(cache.keys(0, 0, 0));
  EXPECT_EQ(keys[2 * 16].first.bits, to_bf16(-3e38f).bits);
  EXPECT_EQ(keys[2 * 16].second.bits, 0);  // padding after an odd number
}

// Any count of numbers gives the same bits as one at a time.
TEST(KvCache, PadsAnyWidth) {
  for (const int64_t count : {1, 15, 255, 256, 257, 300, 513}) {
    std::vector<float> key(static_cast<size_t>(count)), value(key);
    for (int64_t i = 0; i < count; ++i) key[i] = static_cast<float>(i) * 0.7f, value[i] = static_cast<float>(-i) * 0.3f;
    Cache cache = make(1, 1, count, KvType::bf16, 4);
    cache.write(3, 0, 0, key.data(), value.data(), count);
    const auto* keys = reinterpret_cast<const bf16*>(cache.keys(0, 0, 0));
    const auto* values = reinterpret_cast<const bf16*>(cache.values(0, 0, 0));
    for (int64_t i = 0; i < cache.layer(0).head_dim; ++i) {
      const bf16 k = i < count ? to_operand(key[i]) : bf16{}, v = i < count ? to_operand(value[i]) : bf16{};
      EXPECT_EQ(keys[key_at<bf16>(3, i, cache.layer(0).head_dim)].bits, k.bits) << i << " of " << count;
      EXPECT_EQ(values[value_at<bf16>(3, i, cache.layer(0).head_dim)].bits, v.bits) << i << " of " << count;
    }
  }
}

// A chunk of q8, head_dim 80: a panel of 64 columns of values and one of 16.
TEST(KvCache, CodesHandWorked) {
  Cache cache = make(2, 3, 80, KvType::q8, 512);
  EXPECT_EQ(cache.layer(0).head_bytes(), 2 * 256 * 80 + 2 * 256 * 4 + 128);
  EXPECT_EQ(cache.shape().bytes(257), 2 * 2 * 3 * cache.layer(0).head_bytes());
  std::vector<float> key(80), value(80);
  key[0] = 127, key[79] = -3;
  value[1] = 12.7f, value[64] = -0.2f;
  cache.write_codes(best_kernels(), 256 + 70, 1, 2, key.data(), value.data());
  const auto* keys = reinterpret_cast<const int8_t*>(cache.keys(1, 1, 2));
  const auto* values = reinterpret_cast<const int8_t*>(cache.values(1, 1, 2));
  const auto* scales = reinterpret_cast<const float*>(keys + 2 * 256 * 80);
  EXPECT_EQ(values, keys + 256 * 80);
  EXPECT_EQ(keys[64 * 80 + 6 * 4], 127);  // position 6 of the second panel
  EXPECT_EQ(keys[64 * 80 + 19 * 256 + 6 * 4 + 3], -3);
  EXPECT_EQ(values[17 * 256 + 1 * 4 + 2], 127);  // 70 = 17 * 4 + 2
  EXPECT_EQ(values[256 * 64 + 17 * 64 + 2], -2);
  EXPECT_EQ(scales[70], 1);
  EXPECT_EQ(scales[256 + 70], 12.7f / 127);
}

TEST(KvCache, CodeOffsetsAreDistinct) {
  for (const int64_t head_dim : {16, 64, 80, 256}) {
    std::vector<int> keys(static_cast<size_t>(kAttentionChunk * head_dim)), values = keys;
    for (int64_t p = 0; p < kAttentionChunk; ++p) {
      for (int64_t i = 0; i < head_dim; ++i) {
        ++keys.at(static_cast<size_t>(key_code_at(p, i, head_dim)));
        ++values.at(static_cast<size_t>(value_code_at(p, i, head_dim)));
      }
    }
    EXPECT_EQ(keys, std::vector<int>(keys.size(), 1));
    EXPECT_EQ(values, keys);
  }
}

// Sixteen keys with one element 127 and one equal to the position: the centre has their means, 127 and 7.5, and is
// subtracted from later keys.
TEST(KvCache, SubtractsTheCentreFromKeys) {
  Cache cache = make(1, 1, 16, KvType::q8, 256);
  const std::vector<float> values(16, 1.0f);
  const auto write = [&](int64_t position, float second) {
    std::vector<float> key(16), value = values;
    key[0] = 127, key[1] = second;
    cache.write_codes(best_kernels(), position, 0, 0, key.data(), value.data());
  };
  for (int64_t position = 0; position < 16; ++position) write(position, static_cast<float>(position));
  const std::byte* chunk = cache.keys(0, 0, 0);
  const auto* scales = reinterpret_cast<const float*>(chunk + q8_scales_at(16));
  const auto* centre_scale = reinterpret_cast<const float*>(chunk + q8_centre_at(16));
  const auto* keys = reinterpret_cast<const int8_t*>(chunk);
  const auto* centre = reinterpret_cast<const int8_t*>(centre_scale + 1);
  EXPECT_EQ(keys[key_code_at(5, 1, 16)], 5);
  EXPECT_EQ(*centre_scale, 1);
  EXPECT_EQ(centre[0], 127);
  EXPECT_EQ(centre[1], 8);
  write(16, 8 - 2.54f);
  EXPECT_EQ(keys[key_code_at(16, 0, 16)], 0);
  EXPECT_EQ(keys[key_code_at(16, 1, 16)], -127);
  EXPECT_FLOAT_EQ(scales[16], 0.02f);
}

// Rows that do not attend to a position multiply its value by zero, which hides NaN: the key must show the damage.
TEST(KvCache, NonFiniteValueMakesTheKeyNan) {
  Cache cache = make(1, 1, 16, KvType::q8, 256);
  for (const bool in_key : {true, false}) {
    std::vector<float> key(16, 1.0f), value(16, 1.0f);
    (in_key ? key : value)[3] = std::numeric_limits<float>::infinity();
    cache.write_codes(best_kernels(), 2, 0, 0, key.data(), value.data());
    const auto* scales = reinterpret_cast<const float*>(cache.keys(0, 0, 0) + q8_scales_at(16));
    EXPECT_TRUE(std::isnan(scales[2]));
    EXPECT_TRUE(std::isfinite(scales[256 + 2]));
  }
}

TEST(KvCache, ClearedPositionsAreZeros) {
  for (const KvType type : {KvType::f32, KvType::bf16, KvType::q8}) {
    Cache cache = make(1, 2, 32, type, 256);
    for (int64_t position = 0; position < 40; ++position) {
      for (const int64_t head : {0, 1}) {
        std::vector<float> key(32, 3.0f), value(32, 2.0f);
        if (type == KvType::q8) {
          cache.write_codes(best_kernels(), position, 0, head, key.data(), value.data());
        } else {
          cache.write(position, 0, head, key.data(), value.data(), 32);
        }
      }
    }
    for (int64_t position = 0; position < 40; ++position) cache.clear(position);
    EXPECT_TRUE(std::all_of(cache.own->block(0), cache.own->block(1), [](std::byte b) { return b == std::byte{0}; }));
  }
}

}  // namespace
}  // namespace pinion
