// The kernel table: what an instruction set can do, as function pointers. A variant's file copies a lower table and
// replaces entries, so no entry is ever null. Kernels are stateless: no threads, no allocation, no printing; the caller
// splits the work. Every entry of every variant gives the same bits as the scalar one, which is the definition.
//
// Common to all: pointers to different arguments do not overlap unless a contract says so; row strides (ld*) are in
// elements; sums along a vector use sixteen partial sums (lane i takes elements i mod 16) folded 8, 4, 2, 1 apart.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "kernels/bf16.h"
#include "kernels/error.h"
#include "kernels/layout.h"

namespace pinion {

// Positions in one block of the K cache (the lanes of a vector) and in one chunk of an attention sum. The chunk decides
// the order of floating-point sums: it is a constant and never depends on threads or prompt chunking.
constexpr int kKeyBlock = 16;
constexpr int kAttentionChunk = 256;

// What a query row sees of a chunk: positions [begin, end) relative to its start, begin < end <= kAttentionChunk.
struct AttentionSpan {
  int32_t begin;
  int32_t end;
};

// Softmax state of some rows over the positions seen so far: out = acc / sum.
struct AttentionState {
  float* max;  // [rows]
  float* sum;  // [rows]
  float* acc;  // [rows][head_dim]
};

// One kv head's part of the cache, from the chunk's first position on. Values is bf16 or float as the cache holds them.
struct AttentionChunk {
  const void* keys;    // [blocks of kKeyBlock positions][head_dim][kKeyBlock]
  const void* values;  // [positions][head_dim]
  bool is_float;       // elements are float, not bf16
  int32_t head_dim;    // multiple of 16
  float scale;         // applied to q.k
};

struct Kernels {
  const char* name;

  // codes[i] = round_half_even(x[i] / scale) in [-127, 127], *scale = max|x| / 127; codes[n .. padded_k(n)) = 0.
  // A row whose largest magnitude is below 2^-119 gives scale 0 and codes 0; one that holds NaN or infinity gives scale
  // NaN and codes 0, so that the damage shows.
  void (*quantize)(const float* x, int64_t n, int8_t* codes, float* scale);

  // acc[r][c] = sum over k of a[r][k] * w(k, c), exact int32. a: [rows][lda], codes in [-127, 127], lda >= k;
  // panel: w8, k a multiple of kBlockK, k <= kMaxK; column_sum: the panel's [64]; acc: [rows][64].
  void (*gemm_w8)(const int8_t* a, int64_t lda, int64_t rows, const int8_t* panel, const int32_t* column_sum, int64_t k,
                  int32_t* acc);

  // acc[r][c] = sum over k of a[r][k] * w(k, c) by fma, sequentially in k from 0. panel: bf16. acc: [rows][64].
  void (*gemm_bf16)(const float* a, int64_t lda, int64_t rows, const bf16* panel, int64_t k, float* acc);

  // tile[r][c] = (float(acc[r][c]) * row_scale[r]) * column_scale[c]; both [rows][64].
  void (*dequantize)(const int32_t* acc, int64_t rows, const float* row_scale, const float* column_scale, float* tile);

  // out[r][c] = (tile[r][c] + bias[c]) + (add ? out[r][c] : 0) for c < columns; bias may be null (nothing added); out
  // may be the tile.
  void (*store_tile)(const float* tile, int64_t rows, const float* bias, bool add, float* out, int64_t ldo,
                     int64_t columns);

  // out[i] = silu(gate[i]) * up[i], silu(x) = x / (1 + exp(-x)). out may be gate or up.
  void (*silu_mul)(const float* gate, const float* up, int64_t n, float* out);

  // out[i] = (x[i] * inv) * weight[i], inv = 1 / sqrt(sum(x^2) / n + eps). out may be x.
  void (*rms_norm)(const float* x, const float* weight, int64_t n, float eps, float* out);

  // Rotate-half rotary embedding in place, i < half:  (x[i], x[i + half]) by the angle whose cos and sin are given
  // [half].
  void (*rope)(float* x, const float* cos, const float* sin, int64_t half);

  // Row r of the state = softmax state of query row q[r] over spans[r] of the chunk. The rows share the kv head (a GQA
  // group of one token or of several), so that K and V are read once. q: [rows][head_dim]; scores: scratch
  // [rows][kAttentionChunk]. Values are read, with weight 0 outside a row's span, from the block that holds the rows'
  // lowest begin up to their highest end: they must be finite.
  void (*attend)(const AttentionChunk& chunk, const float* q, int64_t rows, const AttentionSpan* spans, float* scores,
                 const AttentionState& state);

  // state = that of state's and next's positions together; merging is done in the order of positions.
  void (*merge_attention)(const AttentionState& state, const AttentionState& next, int64_t rows, int64_t head_dim);

  // Index of the largest value, the lowest index among equals; n >= 1. NaN never wins.
  int64_t (*argmax)(const float* x, int64_t n);
};

// One instruction set's table. It may be asked for only on a CPU that meets the needs: the function itself is compiled
// for that CPU.
struct Variant {
  const char* name;
  uint32_t needs;  // CpuFeature bits
  const Kernels& (*table)();
};

// Every variant this build has, best first; the last one is scalar.
std::span<const Variant> kernel_variants();

// The first variant whose needs the CPU meets; a name (or, if that is empty, the environment variable PINION_KERNELS)
// forces one. Unknown names and ones the CPU lacks are errors.
Error select_kernels(std::string_view name, const Kernels** out);

// One per file.
const Kernels& scalar_kernels();
const Kernels& avx2_kernels();
const Kernels& avx_vnni_kernels();
const Kernels& avx512_vnni_kernels();
const Kernels& neon_kernels();
const Kernels& neon_dotprod_kernels();
const Kernels& neon_i8mm_kernels();

}  // namespace pinion
