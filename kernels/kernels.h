// The kernel table: what an instruction set can do, as function pointers. Every function is set: a variant starts from
// lanes_table() or from a lower table and replaces entries. Kernels are stateless: no threads, no allocation, no
// printing; the caller splits the work. Every entry of every variant gives the same bits as the scalar one, which is
// the definition.
//
// Common to all: pointers to different arguments do not overlap unless a contract says so; row strides (ld*) are in
// elements; sums along a vector use sixteen partial sums (lane i takes elements i mod 16) folded 8, 4, 2, 1 apart.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "kernels/attention_chunk.h"
#include "kernels/base/error.h"
#include "kernels/bf16.h"
#include "kernels/layout.h"

namespace pinion {

// A term of a batch-reduced product: k of some packed rows and the same k of a panel.
struct GemmTerm {
  const void* a;
  const void* b;
  int64_t k;
};

// Rows packed for a matmul: blocks of `rows` rows, inside [k / group][rows][group], with the table's group (floats: 1).
// The last block may have more rows than are wanted: they may be read and multiplied, but not stored.
struct RowBlocks {
  int64_t rows;        // of a block
  int64_t step_bytes;  // from a block to the next one
};

// A panel of a format with groups (w4, w4z, w2): records of group_k k, see layout.h.
struct GroupedPanel {
  const std::byte* records;
  int64_t k;  // a multiple of group_k, not 0
  Format format;
};

// How a table wants rows packed: blocks of at most `rows` rows, a multiple of `row_multiple`, in groups of `group`
// elements. Fewer rows than `min_rows` are not worth its matmul: the next table down does better.
struct PackShape {
  int32_t rows;
  int32_t row_multiple;
  int32_t group;
  int32_t min_rows = 1;
};

// f(x), by which a gate multiplies its value: f(gate) * value. s(z) = 1 / (1 + exp(-z)); for z < 0 it is computed as
// exp(z) / (1 + exp(z)), so that nothing overflows.
//   silu          x * s(x)
//   gelu          x * (1 + erf(x / sqrt(2))) / 2
//   gelu_tanh     x * s(sqrt(8 / pi) * (x + 0.044715 x^3))
//   relu_squared  max(0, x)^2
//   xielu         for x > 0: (p x + b) * x, else: (expm1(min(x, e)) - x) * n + b * x
// and of a gate and its value only
//   clamped_swiglu  (w + 1) * y * s(1.702 y), y = min(limit, gate), w = min(limit, max(-limit, value))
enum class Activation : uint8_t { silu, gelu, gelu_tanh, relu_squared, xielu, clamped_swiglu };

struct Xielu {
  float p, n, b, e;
};

// What happens to a tile of sums before it is stored, in this order. What is null, one (alpha) or zero (cap, beta) is
// left out.
struct Epilogue {
  const float* row_scale = nullptr;     // [rows], with column_scale: value = (float(sum) * row_scale[r]) *
  const float* column_scale = nullptr;  // [columns]                         column_scale[c]
  float alpha = 1;                      // value *= alpha
  const float* bias = nullptr;          // [columns]: value += bias[c]
  float cap = 0;                        // value = cap * tanh(value / cap)
  const float* gate = nullptr;          // [rows][gate_stride]: value = activation(gate[r][c]) * value
  int64_t gate_stride = 0;
  bool activates = false;  // value = activation(value), where there is no gate
  Activation activation = Activation::silu;
  float limit = 0;  // clamped_swiglu's
  Xielu xielu = {};
  float beta = 0;  // value += beta * out[r][c]; out is not read where beta is 0
  float low = -__builtin_inff();
  float high = __builtin_inff();  // value = min(high, max(low, value)); NaN stays
};

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

// A causal convolution over time, of every channel by itself.
struct Convolution {
  const float* weight;  // [taps][stride]
  const float* bias;    // [channels], or null
  int64_t stride;
  int64_t taps;    // how many inputs it sees, its own the last
  bool activates;  // silu follows
};

// Tokens of one head that change its state, in turn.
struct StateSteps {
  int64_t count;  // tokens
  int64_t key_dim;
  int64_t value_dim;
  const float* q;        // [count][key_dim]
  const float* k;        // [count][key_dim]
  const float* v;        // [count][value_dim]
  const float* decay;    // [count]
  const float* beta;     // [count]
  float* out;            // [count][value_dim], may be v
  bool corrects = true;  // the delta rule; else what a key holds is not looked at (Mamba 2)
};

// The scale of a row's codes, from its largest magnitude: amax / 127; 0 where that would not be a normal number; NaN
// for a row that holds NaN or infinity.
static inline float code_scale(float amax) {
  if (!(amax < __builtin_inff())) return __builtin_nanf("");
  return amax >= 0x1p-119f ? amax / 127.0f : 0.0f;
}

struct Kernels {
  const char* name;

  // Where cores share the unit that this table's matmuls run on (SME), the table for all but one of them; it takes the
  // rows that were packed for this one. Null: every core has its own.
  const Kernels* follower = nullptr;

  // codes[i] = round_half_even(x[i] / scale) in [-127, 127], *scale = max|x| / 127; codes[n .. padded_k(n)) = 0.
  // A row whose largest magnitude is below 2^-119 gives scale 0 and codes 0; one that holds NaN or infinity gives scale
  // NaN and codes 0, so that the damage shows.
  void (*quantize)(const float* x, int64_t n, int8_t* codes, float* scale);

  // The two halves of it, for rows that are not at hand as a whole: the largest |x| (NaN > infinity > every number);
  // codes by a scale, which is code_scale of the largest. Nothing is padded. codes may take x's own place.
  float (*max_magnitude)(const float* x, int64_t n);
  void (*encode)(const float* x, int64_t n, float scale, int8_t* codes);

  // out = H D x for every `block` elements, a power of two that divides n. D: the sign of element i of a block is -1 to
  // the number of pairs of bits (0 and 1, 2 and 3 ...) that are both set in i. H: the Hadamard matrix in Sylvester's
  // order, H(1) = 1, H(2b) = [H(b) H(b); H(b) -H(b)], not normalised, so that H H = block. Computed in steps h = 1, 2,
  // 4 ... below the block, each of which makes of x[i] and x[i + h] (i / h even) their sum and their difference.
  // The signs are a bent function's (Rothaus 1976): a mean in x, which H alone would put into one element, is spread
  // evenly over all. out may be x.
  void (*rotate)(const float* x, int64_t n, int64_t block, float* out);

  // Takes it back: out = D H x / block. block: at least 16. out may be x.
  void (*unrotate)(const float* x, int64_t n, int64_t block, float* out);

  // acc[c] = sum over k of a[k] * w(k, c), exact int32, for 64 columns. a: codes in [-127, 127]; b: rows of four k, 256
  // bytes each, row_bytes apart; k a multiple of 4, <= kMaxK. For one row nothing is packed.
  void (*gemv_s8)(const int8_t* a, const int8_t* b, int64_t row_bytes, int64_t k, int32_t* acc);

  // Codes [rows][lda] into blocks; k is padded with zeros to kBlockK, rows with zeros to whole blocks.
  void (*pack_s8)(const int8_t* a, int64_t lda, int64_t rows, int64_t k, int64_t block_rows, int8_t* packed);

  // acc[r][c] = sum over the terms (at least one) of a_i[r][:] * w_i(:, c), exact int32. Terms: packed codes, w8
  // panels, every k a multiple of kBlockK, the sum of them <= kMaxK; column_sum: [64], of all terms' w; acc:
  // [rows][64].
  void (*gemm_s8)(const GemmTerm* terms, int64_t count, const RowBlocks& blocks, int64_t rows,
                  const int32_t* column_sum, int32_t* acc);
  PackShape s8_shape;

  // acc[c] = the sum, by fma in the order of the groups g and from 0, of
  //   float(sum over the k of g of a[k] * (code(k, c) - zero(g, c))) * scale(g, c)
  // whose inner sums are exact int32. For the 64 columns of each of some panels, which lie one behind the other, at
  // least one; a: codes in [-127, 127]; acc: [panels][64].
  void (*gemv_grouped)(const int8_t* a, const GroupedPanel& first, int64_t panels, float* acc);

  // The same for rows of codes as pack_s8 packs them (s8_shape). acc: [rows][64].
  void (*gemm_grouped)(const int8_t* a, const RowBlocks& blocks, int64_t rows, const GroupedPanel& panel, float* acc);

  // The same for rows [rows][lda] of codes as they lie, 1 to few_rows, whose panels come from memory by the access
  // pattern of one row. acc: [rows][64] by one panel; by some panels [panels][rows][64]. Where few_rows is 1 they are
  // not to be called: then several rows are packed.
  int32_t few_rows = 1;
  void (*rows_s8)(const int8_t* a, int64_t lda, int64_t rows, const int8_t* panel, int64_t k, int32_t* acc);
  void (*rows_grouped)(const int8_t* a, int64_t lda, int64_t rows, const GroupedPanel& first, int64_t panels,
                       float* acc);

  // Floats [rows][lda] into blocks; rows padded with zeros to whole blocks. One row packed is the row itself.
  void (*pack_f32)(const float* a, int64_t lda, int64_t rows, int64_t k, int64_t block_rows, float* packed);

  // acc[r][c] = sum over the terms of a_i[r][:] * w_i(:, c) by fma, sequentially over terms and k from 0. Terms: packed
  // floats, panels of bf16 or of float [k][64]; acc: [rows][64].
  void (*gemm_bf16)(const GemmTerm* terms, int64_t count, const RowBlocks& blocks, int64_t rows, float* acc);
  void (*gemm_f32)(const GemmTerm* terms, int64_t count, const RowBlocks& blocks, int64_t rows, float* acc);
  PackShape f32_shape;

  // out[r][c] = the epilogue of sums[r][c], c < columns <= 64; of a single row there may be more. sums:
  // [rows][64], or those of whole panels; out: [rows][ldo], may be the sums where ldo is 64.
  void (*epilogue_s32)(const int32_t* sums, int64_t rows, int64_t columns, const Epilogue& ops, float* out,
                       int64_t ldo);
  void (*epilogue_f32)(const float* sums, int64_t rows, int64_t columns, const Epilogue& ops, float* out, int64_t ldo);

  // Conversions of n numbers; to_bf16 rounds to nearest even, NaN stays NaN.
  void (*to_bf16)(const float* x, int64_t n, bf16* out);
  void (*to_float)(const bf16* x, int64_t n, float* out);

  // out[i] = silu(gate[i]) * up[i], see Activation. out may be gate or up.
  void (*silu_mul)(const float* gate, const float* up, int64_t n, float* out);
  void (*silu_mul_bf16)(const bf16* gate, const bf16* up, int64_t n, bf16* out);  // float inside

  // out[i] = (x[i] * inv) * weight[i], inv = 1 / sqrt(sum(x^2) / n + eps). out may be x.
  void (*rms_norm)(const float* x, const float* weight, int64_t n, float eps, float* out);
  void (*rms_norm_bf16)(const bf16* x, const bf16* weight, int64_t n, float eps, bf16* out);  // float inside

  // out[i] = ((x[i] - mean) * inv) * weight[i] + bias[i], mean = sum(x) / n, inv = 1 / sqrt(sum((x - mean)^2) / n +
  // eps). bias: null where there is none. out may be x.
  void (*layer_norm)(const float* x, const float* weight, const float* bias, int64_t n, float eps, float* out);

  // Rotate-half rotary embedding in place, i < half:  (x[i], x[i + half]) by the angle whose cos and sin are given
  // [half].
  void (*rope)(float* x, const float* cos, const float* sin, int64_t half);

  // out[i] = x[i] / (1 + exp(-gate[i])), computed as in Activation. out may be gate or x.
  void (*sigmoid_mul)(const float* gate, const float* x, int64_t n, float* out);

  // out[i] = bias[i] (or 0) + sum over t of rows[t][i] * weight[t * stride + i], by fma from the bias and t = 0 on,
  // then silu where it activates: n channels' convolution, the newest input last.
  void (*convolve)(const float* const* rows, const Convolution& convolution, int64_t n, float* out);

  // For each token, with S the state [key_dim][value_dim] and every sum by fma over i from 0:
  //   change[j] = (v[j] - (sum over i of k[i] S[i][j]) * decay) * beta, or v[j] * beta where it does not correct
  //   S[i][j] = k[i] * change[j] + S[i][j] * decay     (one fma)
  //   out[j] = sum over i of q[i] S[i][j]
  // state: [value_dim / 16, rounded up][key_dim][16], that is S[i][j] at (j / 16 * key_dim + i) * 16 + j % 16; what
  // stands beyond value_dim is zero and stays it.
  void (*advance_state)(const StateSteps& steps, float* state);

  // What attend takes as a row, in the place of the row's n floats (a multiple of 16): q scaled and, for a cache of
  // bf16, rounded to nearest even, zero under kLeastOperand; in a form of the table's own.
  void (*make_query)(float* q, int64_t n, float scale, bool is_float);

  // Likewise for attend_s8: codes of q, as quantize makes them, in a form of the table's own that takes at most half of
  // the row, and behind that half (query_scale_at) the product of their scale and `scale`.
  void (*make_query_s8)(float* q, int64_t n, float scale);

  // Row r of the state = softmax state of query row q[r] over spans[r] of the chunk. The rows share the kv head (a GQA
  // group of one token or of several), so that K and V are read once. q: [rows][head_dim], each row by this table's
  // make_query; scores: scratch [rows][kAttentionChunk]. Probabilities are relative to the row's maximum in the chunk.
  // With a bf16 cache they are rounded like queries, and `sum` adds the rounded ones. Every value from the first key
  // block that any row sees to the last position that any row sees is read, with weight 0 outside a row's span: it must
  // be finite. With pairs of bf16 that includes the last position's partner.
  void (*attend)(const AttentionChunk& chunk, const float* q, int64_t rows, const AttentionSpan* spans, float* scores,
                 const AttentionState& state);

  // The same over a cache of q8, from its first key panel that any row sees; scores: [rows][kScoreFloats]. With the
  // row's span as i, in lanes:
  //   score[i] = cap((float(sum of the codes' products) * q_scale) * key_scale[i]), exact int32 sums; from kCentred on
  //              plus (float(sum of q's and the centre's) * q_scale) * centre_scale, before the cap
  //   e[i] = e^(score[i] - max), to within 2^-18; sum = their sum; w[i] = e[i] * value_scale[i]
  //   code[i] = round_half_even(w[i] * (16256 / max w)), acc = float(sum of code[i] * value[i]) * (max w / 16256)
  // If no w is at least 2^-100, acc is 0. It is NaN where sum is, or where a w is infinite. Values of the last panel of
  // columns are read as if it were whole: up to 192 bytes past its end, where the scales lie.
  void (*attend_s8)(const AttentionChunk& chunk, const float* q, int64_t rows, const AttentionSpan* spans,
                    float* scores, const AttentionState& state);

  // state = that of state's and next's positions together; merging is done in the order of positions.
  void (*merge_attention)(const AttentionState& state, const AttentionState& next, int64_t rows, int64_t head_dim);

  // Index of the largest value, the lowest index among equals; n >= 1. NaN never wins.
  int64_t (*argmax)(const float* x, int64_t n);
};

static constexpr int64_t query_scale_at(int64_t n) { return n / 2; }  // in floats

// attend or attend_s8.
static inline void attend_chunk(const Kernels& kernels, const AttentionChunk& chunk, const float* q, int64_t rows,
                                const AttentionSpan* spans, float* scores, const AttentionState& state) {
  (chunk.type == KvType::q8 ? kernels.attend_s8 : kernels.attend)(chunk, q, rows, spans, scores, state);
}

static inline void make_query_row(const Kernels& kernels, float* q, int64_t n, float scale, KvType type) {
  if (type == KvType::q8) return kernels.make_query_s8(q, n, scale);
  kernels.make_query(q, n, scale, type == KvType::f32);
}

// One instruction set's table. Call it only on a CPU that meets the needs: the function itself is compiled
// for that CPU.
struct Variant {
  const char* name;
  uint32_t needs;  // CpuFeature bits
  const Kernels& (*table)();
};

// Every variant this build has, best first; the last one is scalar.
std::span<const Variant> kernel_variants();

// The first variant whose needs the CPU meets.
const Kernels& best_kernels();

// Likewise; a name (or, if that is empty, the environment variable PINION_KERNELS)
// forces one. Unknown names and ones the CPU lacks are errors.
Error select_kernels(std::string_view name, const Kernels** out);

// One per file.
const Kernels& scalar_kernels();
const Kernels& avx2_kernels();
const Kernels& avx_vnni_kernels();
const Kernels& avx512_vnni_kernels();
const Kernels& avx512_bf16_kernels();
const Kernels& neon_kernels();
const Kernels& neon_dotprod_kernels();
const Kernels& neon_i8mm_kernels();
const Kernels& neon_bf16_kernels();
const Kernels& sme2_kernels();

}  // namespace pinion
