#include "engine/kv_cache.h"

#include <algorithm>

namespace pinion {
namespace {

// Converted piece by piece, which the compiler does for several numbers at once, then put where they belong.
template <class T, class Convert>
void write_as(T* keys, T* values, int64_t slot, const float* key, const float* value, int64_t head_dim, int64_t count,
              Convert convert) {
  constexpr int64_t kPiece = 16;
  for (int64_t first = 0; first < count; first += kPiece) {
    const int64_t some = std::min(kPiece, count - first);
    T piece[2][kPiece];
    for (int64_t i = 0; i < some; ++i) piece[0][i] = convert(key[first + i]), piece[1][i] = convert(value[first + i]);
    for (int64_t i = 0; i < some; ++i) keys[key_at<T>(slot, first + i, head_dim)] = piece[0][i];
    for (int64_t i = 0; i < some; ++i) values[value_at<T>(slot, first + i, head_dim)] = piece[1][i];
  }
}

KvCache shape(int64_t layers, int64_t kv_heads, int64_t head_dim, bool is_float, int64_t positions) {
  KvCache cache;
  cache.is_float = is_float;
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
  if (is_float) {
    write_as(reinterpret_cast<float*>(k), reinterpret_cast<float*>(v), slot, key, value, head_dim, count,
             [](float x) { return x; });
  } else {
    write_as(reinterpret_cast<bf16*>(k), reinterpret_cast<bf16*>(v), slot, key, value, head_dim, count, to_operand);
    if (!is_last || slot % 2 != 0) return;
    for (int64_t i = 0; i < count; ++i) reinterpret_cast<bf16*>(v)[value_at<bf16>(slot + 1, i, head_dim)] = {};
  }
}

int64_t kv_cache_bytes(int64_t layers, int64_t kv_heads, int64_t head_dim, bool is_float, int64_t positions) {
  return shape(layers, kv_heads, head_dim, is_float, positions).bytes(positions);
}

Error allocate_kv_cache(int64_t layers, int64_t kv_heads, int64_t head_dim, bool is_float, int64_t positions,
                        KvCache* out) {
  KvCache cache = shape(layers, kv_heads, head_dim, is_float, positions);
  if (Error e = allocate_arena(cache.bytes(positions), &cache.memory)) return e;
  *out = std::move(cache);
  return {};
}

}  // namespace pinion
