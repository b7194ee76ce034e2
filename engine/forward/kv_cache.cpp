#include "engine/forward/kv_cache.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace pinion {
namespace {

// Converts in one loop and stores in another: compilers do not vectorise a single loop that does both.
void write_pairs(bf16* keys, bf16* values, int64_t slot, const float* key, const float* value, int64_t head_dim,
                 int64_t count) {
  constexpr int64_t kStep = 256;
  for (int64_t first = 0; first < count; first += kStep) {
    const int64_t some = std::min(kStep, count - first);
    uint32_t k[kStep + 1], v[kStep];
    k[some] = 0;  // second element of the last pair when `some` is odd
    for (int64_t i = 0; i < some; ++i) k[i] = operand_in_upper_half(key[first + i]);
    for (int64_t i = 0; i < some; ++i) v[i] = operand_in_upper_half(value[first + i]);
    bf16* to = keys + key_at<bf16>(slot, first, head_dim);
    for (int64_t i = 0; i < some; i += 2, to += 2 * kKeyLanes) {
      to[0] = upper_half(k[i]);
      to[-1] = upper_half(k[i + 1]);
    }
    to = values + value_at<bf16>(slot, first, head_dim);
    for (int64_t i = 0; i < some; ++i, to += 2) *to = upper_half(v[i]);
  }
}

using CodeChunk = Q8Chunk<int8_t, float>;

// Overwrites n floats with their int8 codes. Returns the scale.
float encode_in_place(const Kernels& kernels, float* x, int64_t n) {
  const float scale = code_scale(kernels.max_magnitude(x, n));
  kernels.encode(x, n, scale, reinterpret_cast<int8_t*>(x));
  return scale;
}

void store_codes(const CodeChunk& chunk, int64_t slot, int64_t head_dim, const int8_t* key, const int8_t* value) {
  int8_t* to = chunk.keys + key_code_at(slot, 0, head_dim);
  for (int64_t i = 0; i < head_dim; i += 4, to += 4 * kPanelColumns) std::copy_n(key + i, 4, to);
  for (int64_t first = 0; first < head_dim; first += kPanelColumns) {
    const int64_t width = std::min(kPanelColumns, head_dim - first);
    to = chunk.values + value_code_at(slot, first, head_dim);
    for (int64_t i = 0; i < width; ++i) to[4 * i] = value[first + i];
  }
}

// Writes the mean of the first kCentred keys, computed from their codes. sums: scratch [head_dim].
void write_centre(const Kernels& kernels, const CodeChunk& chunk, int64_t head_dim, float* sums) {
  for (int64_t i = 0; i < head_dim; ++i) {
    float sum = 0;
    for (int64_t slot = 0; slot < kCentred; ++slot) {
      sum += chunk.key_scales[slot] * static_cast<float>(chunk.keys[key_code_at(slot, i, head_dim)]);
    }
    sums[i] = sum / kCentred;
  }
  *chunk.centre_scale = encode_in_place(kernels, sums, head_dim);
  std::copy_n(reinterpret_cast<const int8_t*>(sums), head_dim, chunk.centre);
}

}  // namespace

void KvCache::write(int64_t position, int64_t slot, int64_t kv_head, const float* key, const float* value,
                    int64_t count, bool is_last) {
  const int64_t chunk = position / kAttentionChunk;
  const int64_t at = position % kAttentionChunk;
  const int64_t head_dim = layer(slot).head_dim;
  std::byte* k = keys(chunk, slot, kv_head);
  std::byte* v = values(chunk, slot, kv_head);
  if (layer(slot).type == KvType::f32) {
    for (int64_t i = 0; i < count; ++i) reinterpret_cast<float*>(k)[key_at<float>(at, i, head_dim)] = key[i];
    std::copy_n(value, count, reinterpret_cast<float*>(v) + value_at<float>(at, 0, head_dim));
  } else {
    write_pairs(reinterpret_cast<bf16*>(k), reinterpret_cast<bf16*>(v), at, key, value, head_dim, count);
    if (!is_last || at % 2 != 0) return;
    for (int64_t i = 0; i < count; ++i) reinterpret_cast<bf16*>(v)[value_at<bf16>(at + 1, i, head_dim)] = {};
  }
}

void KvCache::write_codes(const Kernels& kernels, int64_t position, int64_t slot, int64_t kv_head, float* key,
                          float* value) {
  const int64_t at = position % kAttentionChunk;
  const int64_t head_dim = layer(slot).head_dim;
  const CodeChunk chunk = q8_chunk(keys(position / kAttentionChunk, slot, kv_head), head_dim);
  if (at >= kCentred) {
    for (int64_t i = 0; i < head_dim; ++i) key[i] -= *chunk.centre_scale * static_cast<float>(chunk.centre[i]);
  }
  const float value_scale = encode_in_place(kernels, value, head_dim);
  const float key_scale = encode_in_place(kernels, key, head_dim);
  const bool is_damaged = std::isnan(value_scale);
  chunk.key_scales[at] = is_damaged ? value_scale : key_scale;
  chunk.value_scales[at] = is_damaged ? 0.0f : value_scale;
  store_codes(chunk, at, head_dim, reinterpret_cast<int8_t*>(key), reinterpret_cast<int8_t*>(value));
  if (at == kCentred - 1) write_centre(kernels, chunk, head_dim, key);
}

void KvCache::clear(int64_t position) {
  const int64_t at = position % kAttentionChunk;
  for (int64_t slot = 0; slot < std::ssize(shape().layers); ++slot) {
    const auto [type, kv_heads, head_dim, first_head, offset] = layer(slot);
    const std::vector<float> zeros(head_dim);
    const auto* no_codes = reinterpret_cast<const int8_t*>(zeros.data());
    for (int64_t head = first_head; head < first_head + kv_heads; ++head) {
      if (type == KvType::q8) {
        const CodeChunk chunk = q8_chunk(keys(position / kAttentionChunk, slot, head), head_dim);
        chunk.key_scales[at] = chunk.value_scales[at] = 0;
        store_codes(chunk, at, head_dim, no_codes, no_codes);
        if (at < kCentred) *chunk.centre_scale = 0, std::fill_n(chunk.centre, head_dim, int8_t{0});
      } else {
        write(position, slot, head, zeros.data(), zeros.data(), head_dim);
      }
    }
  }
}

KvShape kv_shape_of(const ModelConfig& config, KvType type, const Shares& shares) {
  KvShape shape;
  type = cached_as(config, type);
  for (const LayerConfig& layer : config.layer) {
    if (!layer.attends || !layer.owns_kv()) continue;
    const RowRange heads = layer.is_latent() ? RowRange{0, 1} : Division{layer.kv_heads, 1}.own(shares);
    const int64_t dim = round_up(std::max(layer.head_dim, layer.value_dim), kKeyLanes);
    shape.layers.push_back({type, heads.count, dim, heads.first, shape.block_bytes()});
  }
  // Without attention, blocks still count the tokens: they have the least size, and no layer reads them.
  if (shape.layers.empty()) shape.layers.push_back({type, 1, kKeyLanes, 0, 0});
  return shape;
}

Error allocate_kv_pool(const KvShape& shape, int64_t blocks, KvPool* out) {
  KvPool pool;
  pool.shape = shape;
  if (Error e = allocate_arena(blocks * shape.block_bytes(), &pool.memory)) return e;
  pool.holders.assign(blocks, 0);
  for (int64_t i = blocks; i-- > 0;) pool.unused.push_back(static_cast<int32_t>(i));
  *out = std::move(pool);
  return {};
}

void copy_block(KvPool& pool, int32_t from, int32_t to) {
  std::memcpy(pool.block(to), pool.block(from), pool.shape.block_bytes());
}

KvCache make_kv_cache(KvPool* pool, int64_t capacity) {
  KvCache cache = {.pool = pool, .capacity = capacity, .blocks = {}};
  cache.blocks.reserve(KvShape::chunks_of(capacity));
  return cache;
}

int64_t missing_blocks(const KvCache& cache, int64_t positions) {
  return std::max<int64_t>(0, KvShape::chunks_of(positions) - std::ssize(cache.blocks));
}

void take_blocks(KvCache* cache, int64_t positions) {
  for (int64_t missing = missing_blocks(*cache, positions); missing > 0; --missing) {
    const int32_t block = cache->pool->unused.back();
    cache->pool->unused.pop_back();
    cache->pool->holders[block] = 1;
    cache->blocks.push_back(block);
  }
}

void release_blocks(KvCache* cache, int64_t positions) {
  while (std::ssize(cache->blocks) > KvShape::chunks_of(positions)) {
    const int32_t block = cache->blocks.back();
    cache->blocks.pop_back();
    if (--cache->pool->holders[block] == 0) cache->pool->unused.push_back(block);
  }
}

}  // namespace pinion
