// Keys and values of the tokens evaluated so far, laid out for the attention kernels. The memory is a pool of blocks,
// which sequences hold one by one as they grow. A block has a chunk of kAttentionChunk positions, in all layers:
//
//   block | layer | kv head | keys   [16 blocks][head_dim / 2][16 positions][2]
//                           | values [128 pairs of positions][head_dim][2]
//
// with the later of two in front. A cache of f32 has no pairs, one of q8 has panels of codes, then their scales and a
// centre (see AttentionChunk). Sequences that begin alike can hold the same blocks: nobody writes to a block that has
// two holders.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "engine/boards/shares.h"
#include "kernels/base/error.h"
#include "kernels/kernels.h"
#include "loader/config/model_config.h"
#include "loader/files/arena.h"

namespace pinion {

inline constexpr std::array<std::string_view, 3> kKvNames = {"f32", "bf16", "q8"};  // by KvType
inline constexpr int64_t kKvBytes[] = {4, 2, 1};                                    // of a key's or value's element

struct KvShape {
  KvType type = KvType::q8;
  int64_t layers = 0;
  int64_t kv_heads = 0;
  int64_t head_dim = 0;  // the wider of keys' and values', padded to 16; the padding is zero unless heads are rotated
  int64_t first_kv_head = 0;  // of the model's; others are other boards'

  // Keys or values of one block, layer and head; both, with the scales of codes.
  int64_t plane_bytes() const { return kAttentionChunk * head_dim * kKvBytes[static_cast<size_t>(type)]; }
  int64_t head_bytes() const { return type == KvType::q8 ? q8_chunk_bytes(head_dim) : 2 * plane_bytes(); }
  int64_t block_bytes() const { return layers * kv_heads * head_bytes(); }
  // Bytes of the blocks that hold the first `positions`.
  int64_t bytes(int64_t positions) const { return chunks_of(positions) * block_bytes(); }

  static int64_t chunks_of(int64_t positions) { return (positions + kAttentionChunk - 1) / kAttentionChunk; }
};

// Of the kv heads that a board has.
KvShape kv_shape_of(const ModelConfig& config, KvType type, const Shares& shares = {});

// The memory of one or many caches.
struct KvPool {
  KvShape shape;
  Arena memory;
  std::vector<int32_t> holders;  // [blocks] how many hold each
  std::vector<int32_t> unused;   // blocks without a holder; the last is taken next

  std::byte* block(int32_t index) const { return memory.data + index * shape.block_bytes(); }
  int64_t blocks() const { return std::ssize(holders); }
};

// Zeros, which take memory only as they are written. The memory is not checked against what is free.
Error allocate_kv_pool(const KvShape& shape, int64_t blocks, KvPool* out);

void copy_block(KvPool& pool, int32_t from, int32_t to);

// One sequence's.
struct KvCache {
  KvPool* pool = nullptr;
  int64_t capacity = 0;         // positions that it may hold; `blocks` is reserved for them
  std::vector<int32_t> blocks;  // of the pool, by chunk

  const KvShape& shape() const { return pool->shape; }

  // kv_head: of the model's, one that the pool has.
  std::byte* keys(int64_t chunk, int64_t layer, int64_t kv_head) const {
    return pool->block(blocks[static_cast<size_t>(chunk)]) +
           (layer * shape().kv_heads + kv_head - shape().first_kv_head) * shape().head_bytes();
  }
  std::byte* values(int64_t chunk, int64_t layer, int64_t kv_head) const {
    return keys(chunk, layer, kv_head) + shape().plane_bytes();
  }
  AttentionChunk chunk(int64_t index, int64_t layer, int64_t kv_head, float cap) const {
    return {.type = shape().type,
            .keys = keys(index, layer, kv_head),
            .values = values(index, layer, kv_head),
            .value_stride = shape().head_dim,
            .head_dim = static_cast<int32_t>(shape().head_dim),
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

// An empty cache of at most `capacity` positions.
KvCache make_kv_cache(KvPool* pool, int64_t capacity);

// Blocks that the cache lacks for its first `positions`.
int64_t missing_blocks(const KvCache& cache, int64_t positions);

// Takes them from the pool, which must have as many unused.
void take_blocks(KvCache* cache, int64_t positions);

// Gives back the blocks behind the first `positions`: those that nobody else holds are unused then.
void release_blocks(KvCache* cache, int64_t positions);

}  // namespace pinion
