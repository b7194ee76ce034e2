// A chunk of the KV cache as the kernels read it: where each number of a key or a value lies.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/bf16.h"
#include "kernels/layout.h"

namespace pinion {

// Positions in one block of the K cache (the lanes of a vector) and in one chunk of an attention sum. The chunk decides
// the order of floating-point sums: it is a constant and never depends on threads or prompt chunking.
constexpr int kKeyBlock = 16;
constexpr int kAttentionChunk = 256;
constexpr int64_t kScoreFloats = kAttentionChunk * 3 / 2;  // scratch of a query row; attend takes kAttentionChunk of it

// What keys and values are in a cache.
enum class KvType : uint8_t { f32, bf16, q8 };

// One kv head's part of the cache, from the chunk's first position on.
//   f32   keys    [blocks of kKeyBlock positions][head_dim][kKeyBlock] floats
//         values  [positions][value_stride]
//   bf16  pairs (zero, or of a magnitude of at least kLeastOperand), of which the sums take the even element, or
//         position, first
//         keys    [blocks of kKeyBlock positions][head_dim / 2][kKeyBlock]
//         values  [positions / 2][value_stride]
//   q8    codes in [-127, 127] of rotated heads: two w8 matrices (layout.h) and the scales of their positions
//         keys    N = positions, K = head_dim: panels of 64 positions [head_dim / 4][64][4]
//         values  N = head_dim, K = positions: panels of 64 columns [kAttentionChunk / 4][64][4]; a last panel of fewer
//                 columns is as narrow as they are
//         scales  float [kAttentionChunk] of keys, [kAttentionChunk] of values, which are not negative
//         centre  its scale, then codes [head_dim]: the mean of the first kCentred keys. Later ones are stored as
//                 differences from it: keys of a text have much in common, and what remains has finer codes.
//         All of it lies together, from `keys` on: see Q8Chunk.
struct AttentionChunk {
  KvType type;
  const void* keys;
  const void* values;    // not for q8
  int64_t value_stride;  // floats or pairs; not for q8
  int32_t head_dim;      // multiple of 16
  float cap = 0;         // score = cap * tanh(q.k / cap); 0: no cap
};

// Where element i of a position's key or value lies, in floats (T: float) or bf16 from the first position's.
template <class T>
int64_t key_at(int64_t position, int64_t i, int64_t head_dim);
template <class T>
int64_t value_at(int64_t position, int64_t i, int64_t value_stride);

template <>
inline int64_t key_at<float>(int64_t position, int64_t i, int64_t head_dim) {
  return position / kKeyBlock * kKeyBlock * head_dim + i * kKeyBlock + position % kKeyBlock;
}
template <>
inline int64_t key_at<bf16>(int64_t position, int64_t i, int64_t head_dim) {
  return position / kKeyBlock * kKeyBlock * head_dim + i / 2 * 2 * kKeyBlock + position % kKeyBlock * 2 + 1 - i % 2;
}
template <>
inline int64_t value_at<float>(int64_t position, int64_t i, int64_t value_stride) {
  return position * value_stride + i;
}
template <>
inline int64_t value_at<bf16>(int64_t position, int64_t i, int64_t value_stride) {
  return position / 2 * 2 * value_stride + 2 * i + 1 - position % 2;
}

// Likewise of q8, in bytes.
static constexpr int64_t key_code_at(int64_t position, int64_t i, int64_t head_dim) {
  return position / kPanelColumns * kPanelColumns * head_dim + w8_offset(i, position);
}
static constexpr int64_t value_code_at(int64_t position, int64_t i, int64_t head_dim) {
  const int64_t first = i / kPanelColumns * kPanelColumns;
  const int64_t width = head_dim - first < kPanelColumns ? head_dim - first : kPanelColumns;
  return first * kAttentionChunk + position / 4 * 4 * width + (i - first) * 4 + position % 4;
}

// Of a chunk of q8: its bytes, a multiple of kAlignmentBytes, and its parts.
constexpr int64_t kCentred = kKeyBlock;  // the first positions, whose mean is the centre, are stored as they are

static constexpr int64_t q8_scales_at(int64_t head_dim) { return 2 * kAttentionChunk * head_dim; }
static constexpr int64_t q8_centre_at(int64_t head_dim) { return q8_scales_at(head_dim) + 2 * kAttentionChunk * 4; }
static constexpr int64_t q8_chunk_bytes(int64_t head_dim) { return q8_centre_at(head_dim) + aligned(4 + head_dim); }

template <class Code, class Float>
struct Q8Chunk {
  Code* keys;
  Code* values;
  Float* key_scales;
  Float* value_scales;
  Float* centre_scale;
  Code* centre;
};

static inline Q8Chunk<int8_t, float> q8_chunk(void* begin, int64_t head_dim) {
  auto* codes = static_cast<int8_t*>(begin);
  auto* scales = reinterpret_cast<float*>(codes + q8_scales_at(head_dim));
  auto* centre = reinterpret_cast<float*>(codes + q8_centre_at(head_dim));
  return {codes,  codes + kAttentionChunk * head_dim,   scales, scales + kAttentionChunk,
          centre, reinterpret_cast<int8_t*>(centre + 1)};
}
static inline Q8Chunk<const int8_t, const float> q8_chunk(const void* begin, int64_t head_dim) {
  const auto chunk = q8_chunk(const_cast<void*>(begin), head_dim);
  return {chunk.keys, chunk.values, chunk.key_scales, chunk.value_scales, chunk.centre_scale, chunk.centre};
}

}  // namespace pinion
