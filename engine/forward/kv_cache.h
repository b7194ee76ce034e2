// Keys and values of the evaluated tokens, in the layout of the attention kernels. The memory is a pool of blocks,
// which a sequence takes one by one as it grows. A block holds one chunk of kAttentionChunk positions for all layers:
//
//   block | layer | kv head | keys   [16][head_dim / 2][16 positions][2]
//                           | values [128 pairs of positions][head_dim][2]
//
// This is bf16; the later element of each pair comes first in memory. f32 has no pairs; q8 has panels of codes, then
// their scales and a centre (see AttentionChunk). Sequences with a common prefix share blocks; a block with two holders
// is read-only.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "kernels/base/error.h"
#include "kernels/kernels.h"
#include "loader/config/division.h"
#include "loader/config/model_config.h"
#include "loader/files/mapped_file.h"

namespace pinion {

inline constexpr std::array<std::string_view, 3> kKvNames = {"f32", "bf16", "q8"};  // by KvType
static_assert(kKvNames[static_cast<size_t>(KvType::f32)] == "f32" &&
              kKvNames[static_cast<size_t>(KvType::bf16)] == "bf16" &&
              kKvNames[static_cast<size_t>(KvType::q8)] == "q8");

// Size of one element of a key or value.
constexpr int64_t kv_element_bytes(KvType type) { return type == KvType::f32 ? 4 : type == KvType::bf16 ? 2 : 1; }

// One layer's part of a block.
struct KvLayerShape {
  KvType type = KvType::q8;
  int64_t kv_heads = 0;
  // The larger dimension of keys and values, padded to 16. The padding is zero unless heads are rotated.
  int64_t head_dim = 0;
  int64_t first_kv_head = 0;  // index in the model of this board's first kv head
  int64_t offset = 0;         // in bytes, of the first kv head's keys

  // Bytes of the keys, or of the values, of one block and kv head.
  int64_t plane_bytes() const { return kAttentionChunk * head_dim * kv_element_bytes(type); }
  // Bytes of keys and values of one block and kv head, with the scales and the centre of q8.
  int64_t head_bytes() const { return type == KvType::q8 ? q8_chunk_bytes(head_dim) : 2 * plane_bytes(); }
  int64_t end() const { return offset + kv_heads * head_bytes(); }
};

struct KvShape {
  std::vector<KvLayerShape> layers;  // those with keys and values of their own, by slot

  KvType type() const { return layers.front().type; }
  int64_t block_bytes() const { return layers.empty() ? 0 : layers.back().end(); }
  // Bytes of the blocks that hold the first `positions`.
  int64_t bytes(int64_t positions) const { return chunks_of(positions) * block_bytes(); }

  static int64_t chunks_of(int64_t positions) { return (positions + kAttentionChunk - 1) / kAttentionChunk; }
};

// The type in which a model's layers are cached for --kv `type`. Latent attention keeps bf16 in place of q8: one scale
// would serve the rotated elements of a key and the latent, and a few large ones would take the bits of all others.
constexpr KvType cached_as(const ModelConfig& config, KvType type) {
  return config.latent.rank > 0 && type == KvType::q8 ? KvType::bf16 : type;
}

// The shape of this board's kv heads.
KvShape kv_shape_of(const ModelConfig& config, KvType type, const Shares& shares = {});

// The memory of the caches of one or many sequences.
struct KvPool {
  KvShape shape;
  Arena memory;
  std::vector<int32_t> holders;  // [blocks] number of caches that hold each block
  std::vector<int32_t> unused;   // blocks without a holder, taken from the back

  std::byte* block(int32_t index) const { return memory.data + index * shape.block_bytes(); }
  int64_t blocks() const { return std::ssize(holders); }
};

// A pool of zeros. Its pages take memory when they are first written; the caller must check the free memory.
Error allocate_kv_pool(const KvShape& shape, int64_t blocks, KvPool* out);

void copy_block(KvPool& pool, int32_t from, int32_t to);

// The cache of one sequence.
struct KvCache {
  KvPool* pool = nullptr;
  int64_t capacity = 0;         // maximum positions
  std::vector<int32_t> blocks;  // indices into the pool, by chunk

  const KvShape& shape() const { return pool->shape; }

  const KvLayerShape& layer(int64_t slot) const { return pool->shape.layers[slot]; }

  // slot: of the layer; kv_head: index in the model, here and below.
  std::byte* keys(int64_t chunk, int64_t slot, int64_t kv_head) const {
    const KvLayerShape& of = layer(slot);
    return pool->block(blocks[chunk]) + of.offset + (kv_head - of.first_kv_head) * of.head_bytes();
  }
  std::byte* values(int64_t chunk, int64_t slot, int64_t kv_head) const {
    return keys(chunk, slot, kv_head) + layer(slot).plane_bytes();
  }
  AttentionChunk chunk(int64_t index, int64_t slot, int64_t kv_head, float cap) const {
    const KvLayerShape& of = layer(slot);
    return {.type = of.type,
            .keys = keys(index, slot, kv_head),
            .values = values(index, slot, kv_head),
            .value_stride = of.head_dim,
            .head_dim = static_cast<int32_t>(of.head_dim),
            .cap = cap};
  }

  // Writes a key and a value in f32 or bf16. key, value: [count], count <= head_dim. is_last: no later position is
  // written. Then the other value of a bf16 pair becomes zero: kernels read it with weight 0, and it could be NaN.
  void write(int64_t position, int64_t slot, int64_t kv_head, const float* key, const float* value, int64_t count,
             bool is_last = false);

  // Writes zeros to a position of all layers and heads.
  void clear(int64_t position);

  // write() for q8. key, value: [head_dim], balanced and rotated; used as scratch. The first kCentred positions of a
  // chunk are written before the others. If the value has NaN or infinity, the key's scale and the logits become NaN.
  void write_codes(const Kernels& kernels, int64_t position, int64_t slot, int64_t kv_head, float* key, float* value);
};

// An empty cache of at most `capacity` positions.
KvCache make_kv_cache(KvPool* pool, int64_t capacity);

// Number of blocks that the cache must take to hold `positions` positions.
int64_t missing_blocks(const KvCache& cache, int64_t positions);

// Takes the missing blocks from the pool, which must have enough unused ones.
void take_blocks(KvCache* cache, int64_t positions);

// Gives back all blocks but those of the first `positions` positions; the last holder's becomes unused.
void release_blocks(KvCache* cache, int64_t positions);

}  // namespace pinion
