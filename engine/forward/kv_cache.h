// Keys and values of the tokens evaluated so far, laid out for the attention kernels. The memory grows in chunks of
// kAttentionChunk positions that hold all layers, so that a short text touches a short piece of it:
//
//   chunk (position / 256) | layer | kv head | keys   [16 blocks][head_dim / 2][16 positions][2]
//                                            | values [128 pairs of positions][head_dim][2]
//
// with the later of two in front. A cache of f32 has no pairs, one of q8 has panels of codes, then their scales and a
// centre (see AttentionChunk).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "kernels/error.h"
#include "kernels/kernels.h"
#include "loader/checkpoint/arena.h"

namespace pinion {

inline constexpr std::array<std::string_view, 3> kKvNames = {"f32", "bf16", "q8"};  // by KvType
inline constexpr int64_t kKvBytes[] = {4, 2, 1};                                    // of a key's or value's element

struct KvCache {
  KvType type = KvType::q8;
  int64_t layers = 0;
  int64_t kv_heads = 0;
  int64_t head_dim = 0;  // padded to 16; the padding stays zero but where heads are rotated
  int64_t capacity = 0;  // positions
  Arena memory;

  // Keys or values of one chunk, layer and head; both, with the scales of codes.
  int64_t plane_bytes() const { return kAttentionChunk * head_dim * kKvBytes[static_cast<size_t>(type)]; }
  int64_t head_bytes() const { return type == KvType::q8 ? q8_chunk_bytes(head_dim) : 2 * plane_bytes(); }
  int64_t chunk_bytes() const { return layers * kv_heads * head_bytes(); }
  // Bytes of the chunks that hold the first `positions`.
  int64_t bytes(int64_t positions) const {
    return round_up(positions, kAttentionChunk) / kAttentionChunk * chunk_bytes();
  }

  std::byte* keys(int64_t chunk, int64_t layer, int64_t kv_head) const {
    return memory.data + chunk * chunk_bytes() + (layer * kv_heads + kv_head) * head_bytes();
  }
  std::byte* values(int64_t chunk, int64_t layer, int64_t kv_head) const {
    return keys(chunk, layer, kv_head) + plane_bytes();
  }
  AttentionChunk chunk(int64_t index, int64_t layer, int64_t kv_head, float cap) const {
    return {.type = type,
            .keys = keys(index, layer, kv_head),
            .values = values(index, layer, kv_head),
            .value_stride = head_dim,
            .head_dim = static_cast<int32_t>(head_dim),
            .cap = cap};
  }

  // key, value: [count], count <= head_dim. After the last position that is written, the one that shares its pair holds
  // zeros: sums read it with weight 0, and an older text may have left anything there.
  void write(int64_t position, int64_t layer, int64_t kv_head, const float* key, const float* value, int64_t count,
             bool is_last = false);

  // Leaves zeros at a position, in all layers and heads.
  void clear(int64_t position);

  // write() for q8. key, value: [head_dim], balanced and rotated; they become scratch. The first kCentred positions of
  // a chunk are written before the others. A value with NaN or infinity damages its key, too, and so shows.
  void write_codes(const Kernels& kernels, int64_t position, int64_t layer, int64_t kv_head, float* key, float* value);
};

// Bytes a cache of that many positions takes.
int64_t kv_cache_bytes(int64_t layers, int64_t kv_heads, int64_t head_dim, KvType type, int64_t positions);

// Zeros. The memory is not checked against what is free.
Error allocate_kv_cache(int64_t layers, int64_t kv_heads, int64_t head_dim, KvType type, int64_t positions,
                        KvCache* out);

}  // namespace pinion
