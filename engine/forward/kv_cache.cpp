#include "engine/forward/kv_cache.h"

#include <algorithm>

namespace pinion {
namespace {

void write_floats(float* keys, float* values, int64_t slot, const float* key, const float* value, int64_t head_dim,
                  int64_t count) {
  for (int64_t i = 0; i < count; ++i) keys[key_at<float>(slot, i, head_dim)] = key[i];
  std::copy_n(value, count, values + value_at<float>(slot, 0, head_dim));
}

// First converted, then put where they belong: compilers turn one loop over both into no vectors. A pair's first lies
// behind its second.
void write_pairs(bf16* keys, bf16* values, int64_t slot, const float* key, const float* value, int64_t head_dim,
                 int64_t count) {
  constexpr int64_t kMost = 256;
  for (int64_t first = 0; first < count; first += kMost) {
    const int64_t some = std::min(kMost, count - first);
    uint32_t k[kMost + 1], v[kMost];
    k[some] = 0;  // padding, behind an odd number
    for (int64_t i = 0; i < some; ++i) k[i] = operand_in_upper_half(key[first + i]);
    for (int64_t i = 0; i < some; ++i) v[i] = operand_in_upper_half(value[first + i]);
    bf16* to = keys + key_at<bf16>(slot, first, head_dim);
    for (int64_t i = 0; i < some; i += 2, to += 2 * kKeyBlock) {
      to[0] = upper_half(k[i]);
      to[-1] = upper_half(k[i + 1]);
    }
    to = values + value_at<bf16>(slot, first, head_dim);
    for (int64_t i = 0; i < some; ++i, to += 2) *to = upper_half(v[i]);
  }
}

KvCache shape(int64_t layers, int64_t kv_heads, int64_t head_dim, KvType type, int64_t positions) {
  KvCache cache;
  cache.type = type;
  cache.layers = layers;
  cache.kv_heads = kv_heads;
  cache.head_dim = round_up(head_dim, kKeyBlock);
  cache.capacity = positions;
  return cache;
}

}  // namespace

void KvCache::write(int64_t position, int64_t layer, int64_t kv_head, const float* key, const float* value,
                    int64_t count, bool is_last) {
  const int64_t chunk = position / kAttentionChunk;
  const int64_t slot = position % kAttentionChunk;
  std::byte* k = keys(chunk, layer, kv_head);
  std::byte* v = values(chunk, layer, kv_head);
  if (type == KvType::f32) {
    write_floats(reinterpret_cast<float*>(k), reinterpret_cast<float*>(v), slot, key, value, head_dim, count);
  } else {
    write_pairs(reinterpret_cast<bf16*>(k), reinterpret_cast<bf16*>(v), slot, key, value, head_dim, count);
    if (!is_last || slot % 2 != 0) return;
    for (int64_t i = 0; i < count; ++i) reinterpret_cast<bf16*>(v)[value_at<bf16>(slot + 1, i, head_dim)] = {};
  }
}

int64_t kv_cache_bytes(int64_t layers, int64_t kv_heads, int64_t head_dim, KvType type, int64_t positions) {
  return shape(layers, kv_heads, head_dim, type, positions).bytes(positions);
}

Error allocate_kv_cache(int64_t layers, int64_t kv_heads, int64_t head_dim, KvType type, int64_t positions,
                        KvCache* out) {
  KvCache cache = shape(layers, kv_heads, head_dim, type, positions);
  if (Error e = allocate_arena(cache.bytes(positions), &cache.memory)) return e;
  *out = std::move(cache);
  return {};
}

}  // namespace pinion
