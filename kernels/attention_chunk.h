// The layout of one chunk of the KV cache: the offset of every element of a key or value.
#pragma once

#include <cstdint>

#include "kernels/half.h"
#include "kernels/layout.h"

namespace pinion {

constexpr int kKeyLanes = 16;  // positions whose keys are interleaved: the lanes of a vector

// Positions of a chunk, which fix the order of sums: they must not depend on threads or on the cuts of a prompt.
constexpr int kAttentionChunk = 256;
constexpr int64_t kScoreFloats = kAttentionChunk * 3 / 2;  // scratch per query row; attend needs only kAttentionChunk

// Number format of the cached keys and values.
enum class KvType : uint8_t { f32, bf16, q8 };

// The keys and values of one kv head in one chunk.
//   f32   keys    [positions / kKeyLanes][head_dim][kKeyLanes] floats
//         values  [positions][value_stride] floats
//   bf16  pairs of operands, each zero or of magnitude at least kMinOperand; the first one of a pair is the even
//         element of a key, the even position of a value
//         keys    [positions / kKeyLanes][head_dim / 2][kKeyLanes] pairs
//         values  [positions / 2][value_stride] pairs
//   q8    codes in [-127, 127] of rotated heads: two w8 matrices (layout.h) and scales per position, contiguous from
//         `keys` on (see Q8Chunk)
//         keys    N = positions, K = head_dim: panels of 64 positions [head_dim / 4][64][4]
//         values  N = head_dim, K = positions: panels of 64 columns [kAttentionChunk / 4][64][4]; the last panel has
//                 only the remaining columns
//         scales  float [kAttentionChunk] of keys, then of values, which are not negative
//         centre  its scale, then codes [head_dim]: the mean of the first kCentred keys of the chunk. Later keys are
//                 stored as differences from it: keys share a large mean, and smaller numbers have finer codes.
struct AttentionChunk {
  KvType type;
  const void* keys;
  const void* values;    // unused for q8
  int64_t value_stride;  // floats or pairs; unused for q8
  int32_t head_dim;      // a multiple of 16
  float cap = 0;         // score = cap * tanh(q.k / cap); 0: no cap
};

// Offset of element i of a position's key or value from the start of the chunk, in floats (T: float) or bf16.
template <class T>
int64_t key_at(int64_t position, int64_t i, int64_t head_dim);
template <class T>
int64_t value_at(int64_t position, int64_t i, int64_t value_stride);

template <>
inline int64_t key_at<float>(int64_t position, int64_t i, int64_t head_dim) {
  return position / kKeyLanes * kKeyLanes * head_dim + i * kKeyLanes + position % kKeyLanes;
}
template <>
inline int64_t key_at<bf16>(int64_t position, int64_t i, int64_t head_dim) {
  return position / kKeyLanes * kKeyLanes * head_dim + i / 2 * 2 * kKeyLanes + position % kKeyLanes * 2 + 1 - i % 2;
}
template <>
inline int64_t value_at<float>(int64_t position, int64_t i, int64_t value_stride) {
  return position * value_stride + i;
}
template <>
inline int64_t value_at<bf16>(int64_t position, int64_t i, int64_t value_stride) {
  return position / 2 * 2 * value_stride + 2 * i + 1 - position % 2;
}

// The same for q8, in bytes from the start of the keys or values.
static constexpr int64_t key_code_at(int64_t position, int64_t i, int64_t head_dim) {
  return position / kPanelColumns * kPanelColumns * head_dim + w8_offset(i, position);
}
static constexpr int64_t value_code_at(int64_t position, int64_t i, int64_t head_dim) {
  const int64_t first = i / kPanelColumns * kPanelColumns;
  const int64_t width = head_dim - first < kPanelColumns ? head_dim - first : kPanelColumns;
  return first * kAttentionChunk + position / 4 * 4 * width + (i - first) * 4 + position % 4;
}

// Positions at the start of a chunk whose mean key is the centre. Their own keys are stored without subtraction.
constexpr int64_t kCentred = kKeyLanes;

// Byte offsets in a q8 chunk, and its size, a multiple of kAlignmentBytes.
static constexpr int64_t q8_scales_at(int64_t head_dim) { return 2 * kAttentionChunk * head_dim; }
static constexpr int64_t q8_centre_at(int64_t head_dim) { return q8_scales_at(head_dim) + 2 * kAttentionChunk * 4; }
static constexpr int64_t q8_chunk_bytes(int64_t head_dim) { return q8_centre_at(head_dim) + aligned(4 + head_dim); }

// The arrays of a q8 chunk.
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
