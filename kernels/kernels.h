// The kernel table: the operations of one instruction set as function pointers. A variant starts from lanes_table() or
// from a lower table and replaces entries, so every pointer is set unless its comment names an exception. Kernels are
// stateless: no threads, no allocation, no printing; the caller splits the work. The scalar table is the definition:
// every entry of every variant gives the same bits.
//
// Rules for all entries: different arguments do not overlap unless the contract allows it; row strides (ld*) count
// elements; arrays are [n] unless a shape is given; *_bf16 variants of norms and activations compute in float; a sum
// along a vector uses sixteen partial sums (lane i adds elements i mod 16), folded 8, 4, 2, 1 apart.
#pragma once

#include <span>
#include <string_view>

#include "kernels/attention_chunk.h"
#include "kernels/base/error.h"

namespace pinion {

// One term of a sum of products: packed rows a [rows][k] times a panel b [k][64].
struct GemmTerm {
  const void* a;
  const void* b;
  int64_t k;
};

// Rows packed for a matmul: row blocks of `rows` rows, each [k / group][rows][group] with the `group` of the table's
// PackShape (floats: 1). The last row block may hold more rows than the matmul stores; kernels may read the rest.
struct RowBlocks {
  int64_t rows;        // rows of one row block
  int64_t step_bytes;  // from one row block to the next
};

// A panel of a format with groups (w4, w4z, w2, mxfp4, w4n, w8h): records of group_k inputs each, see layout.h.
struct GroupedPanel {
  const std::byte* records;
  int64_t k;  // a positive multiple of group_k
  Format format;
};

// Packing of rows for a table's matmul: row blocks of at most `rows` rows, a multiple of `row_multiple`, in groups of
// `group` elements. For fewer than `min_rows` rows the next lower table is faster.
struct PackShape {
  int32_t rows;
  int32_t row_multiple;
  int32_t group;
  int32_t min_rows = 1;
};

// Activation f; a gated layer computes f(gate) * value. s(z) = 1 / (1 + exp(-z)), for z < 0 computed as exp(z) / (1 +
// exp(z)), which cannot overflow.
//   silu            x * s(x)
//   gelu            x * (1 + erf(x / sqrt(2))) / 2
//   gelu_tanh       x * s(sqrt(8 / pi) * (x + 0.044715 x^3))
//   relu            max(0, x)
//   relu_squared    max(0, x)^2
//   xielu           for x > 0: (p x + b) * x, else: (expm1(min(x, e)) - x) * n + b * x
//   clamped_swiglu  of a gate and its value: (w + 1) * y * s(1.702 y), y = min(limit, gate),
//                   w = min(limit, max(-limit, value))
enum class Activation : uint8_t { silu, gelu, gelu_tanh, relu, relu_squared, xielu, clamped_swiglu };

// The constants of xielu, named as in its formula.
struct Xielu {
  float p, n, b, e;
};

// Steps from sums to results, in this order; skipped if the pointer is null, alpha one, cap or beta zero.
struct Epilogue {
  const float* row_scale = nullptr;     // [rows]: value = (float(sum) * row_scale[r]) * column_scale[c]
  const float* column_scale = nullptr;  // [columns]; both scales or neither
  float alpha = 1;                      // value *= alpha
  const float* bias = nullptr;          // [columns]: value += bias[c]
  float cap = 0;                        // value = cap * tanh(value / cap)
  const float* gate = nullptr;          // [rows][gate_stride]: value = activation(gate[r][c]) * value
  int64_t gate_stride = 0;
  bool activates = false;  // value = activation(value); for layers without a gate
  Activation activation = Activation::silu;
  float limit = 0;  // of clamped_swiglu
  Xielu xielu = {};
  float beta = 0;  // value += beta * out[r][c]; out is not read if beta is 0
  float low = -__builtin_inff();
  float high = __builtin_inff();  // value = min(high, max(low, value)); NaN stays NaN
};

// Positions [begin, end) of a chunk that a query row attends to, 0 <= begin < end <= kAttentionChunk.
// slope * (i - origin) is added to the score of position i, behind the cap (ALiBi).
struct AttentionSpan {
  int32_t begin;
  int32_t end;
  float slope = 0;
  int32_t origin = 0;
};

// Softmax state of query rows over the positions processed so far. The attention output is acc / sum.
struct AttentionState {
  float* max;  // [rows]
  float* sum;  // [rows]
  float* acc;  // [rows][head_dim]
};

// A causal convolution over time, separate for every channel.
struct Convolution {
  const float* weight;  // [taps][stride]
  const float* bias;    // [channels], or null
  int64_t stride;       // elements from one tap to the next
  int64_t taps;         // inputs of one output; the newest is the last
  bool activates;       // silu follows
};

// Consecutive tokens of one head, and the recurrence that they apply to the head's state.
struct StateSteps {
  int64_t count;  // tokens
  int64_t key_dim;
  int64_t value_dim;
  const float* q;                // [count][key_dim]
  const float* k;                // [count][key_dim]
  const float* v;                // [count][value_dim]
  const float* decay;            // [count], or [count][key_dim] with key_decays; with rates: steps [count][value_dim]
  const float* beta;             // [count]; with rates: not read
  float* out;                    // [count][value_dim], may be v
  bool delta_rule = true;        // false: plain linear attention (Mamba 2)
  const float* rates = nullptr;  // in the layout of the state: a decay for each of its elements (Mamba 1)
  bool key_decays = false;       // with the delta rule: a decay for each channel of the keys (Kimi Linear)
};

// The scale of a row of codes, given the largest magnitude of the row: amax / 127. It is 0 if that would not be a
// normal number, and NaN for a row with NaN or infinity.
static inline float code_scale(float amax) {
  if (!(amax < __builtin_inff())) return __builtin_nanf("");
  return amax >= 0x1p-119f ? amax / 127.0f : 0.0f;
}

struct Kernels {
  const char* name = nullptr;

  // The table for the other cores if several cores share the unit that runs these matmuls (SME): one core uses this
  // table, the others multiply the same packed rows with the companion. Null: every core has a unit.
  const Kernels* companion = nullptr;

  // codes[i] = round_half_even(x[i] / scale) in [-127, 127], *scale = max|x| / 127. x: [n]; codes: [padded_k(n)], zero
  // from n on. If the largest magnitude is below 2^-119, scale and codes are 0. If x holds NaN or infinity, scale is
  // NaN and the codes are 0, so that every product with the row is NaN.
  void (*quantize)(const float* x, int64_t n, int8_t* codes, float* scale) = nullptr;

  // The two steps of quantize, for rows that are read in several steps: max|x| (NaN > infinity > every number), and the
  // codes for a scale, which is code_scale of the whole row's maximum. x, codes: [n], not padded. codes may start at x.
  float (*max_magnitude)(const float* x, int64_t n) = nullptr;
  void (*encode)(const float* x, int64_t n, float scale, int8_t* codes) = nullptr;

  // out = H D x for each run of `block` elements. x, out: [n]; block: a power of two that divides n; out may be x.
  //   D  signs: element i of a block is negated once for each pair of bits (0 and 1, 2 and 3 ...) both set in i
  //   H  Hadamard matrix in Sylvester's order, H(1) = 1, H(2b) = [H(b) H(b); H(b) -H(b)], not normalised: H H = block
  // The steps h = 1, 2, 4 ... below `block` replace x[i] and x[i + h] (i / h even) by their sum and their difference. D
  // is a bent function (Rothaus 1976): it spreads a mean of x, which H alone would put into one element, over all.
  void (*rotate)(const float* x, int64_t n, int64_t block, float* out) = nullptr;

  // The inverse: out = D H x / block. As rotate, with block >= 16.
  void (*unrotate)(const float* x, int64_t n, int64_t block, float* out) = nullptr;

  // acc[c] = sum over k of a[k] * w(k, c), exact int32. a: [k] codes in [-127, 127], not packed; b: k / 4 rows of four
  // k, 256 bytes each, row_bytes apart; acc: [64]; k: a multiple of 4, at most kMaxK.
  void (*gemv_s8)(const int8_t* a, const int8_t* b, int64_t row_bytes, int64_t k, int32_t* acc) = nullptr;

  // Packs codes a [rows][lda] into row blocks of block_rows rows (s8_shape). k is padded with zeros to a multiple of
  // kGroupK, rows to whole row blocks.
  void (*pack_s8)(const int8_t* a, int64_t lda, int64_t rows, int64_t k, int64_t block_rows, int8_t* packed) = nullptr;

  // acc[r][c] = sum over the terms i and k of a_i[r][k] * w_i(k, c), exact int32. terms: [count], at least one, packed
  // codes by w8 panels, each k a multiple of kGroupK, all k together at most kMaxK; column_sum: [64], the sums over k
  // of all w_i; acc: [rows][64].
  void (*gemm_s8)(const GemmTerm* terms, int64_t count, const RowBlocks& blocks, int64_t rows,
                  const int32_t* column_sum, int32_t* acc) = nullptr;
  PackShape s8_shape = {};

  // acc[p][c] = sum over the groups g, by fma in their order from 0, of
  //   float(sum over the k of g of a[k] * (code(k, c) - zero(g, c))) * scale(g, c)      mxfp4: level(code(k, c)) - 12
  // with exact inner sums (multiples of 1 / kZeroSteps), for `panels` consecutive panels, at least one. a: [first.k]
  // codes in [-127, 127], not packed; acc: [panels][64].
  void (*gemv_grouped)(const int8_t* a, const GroupedPanel& first, int64_t panels, float* acc) = nullptr;

  // The formula of gemv_grouped for rows packed by pack_s8 and one panel. acc: [rows][64].
  void (*gemm_grouped)(const int8_t* a, const RowBlocks& blocks, int64_t rows, const GroupedPanel& panel,
                       float* acc) = nullptr;

  // gemv_s8 and gemv_grouped for 1 to few_rows rows that are not packed. The panel is read once, by the access pattern
  // of a GEMV. a: [rows][lda]; acc: [rows][64] and [panels][rows][64]; k a multiple of kGroupK. If few_rows is 1 these
  // two must not be called: the table multiplies packed rows only.
  int32_t few_rows = 1;
  void (*rows_s8)(const int8_t* a, int64_t lda, int64_t rows, const int8_t* panel, int64_t k, int32_t* acc) = nullptr;
  void (*rows_grouped)(const int8_t* a, int64_t lda, int64_t rows, const GroupedPanel& first, int64_t panels,
                       float* acc) = nullptr;

  // Packs floats a [rows][lda] into row blocks (f32_shape), padded with zero rows. One row is its own packed form.
  void (*pack_f32)(const float* a, int64_t lda, int64_t rows, int64_t k, int64_t block_rows, float* packed) = nullptr;

  // acc[r][c] = sum over the terms i and k of a_i[r][k] * w_i(k, c), by fma from 0 in the order of i and then k. terms:
  // [count], packed floats by panels [k][64] of bf16 or float; acc: [rows][64].
  void (*gemm_bf16)(const GemmTerm* terms, int64_t count, const RowBlocks& blocks, int64_t rows, float* acc) = nullptr;
  void (*gemm_f32)(const GemmTerm* terms, int64_t count, const RowBlocks& blocks, int64_t rows, float* acc) = nullptr;
  PackShape f32_shape = {};

  // out[r][c] = epilogue of sums[r][c] for c < columns. sums: [rows][64], out: [rows][ldo]; columns <= 64 unless rows
  // is 1: one row may span the sums of several panels. out may be sums if ldo is 64.
  void (*epilogue_s32)(const int32_t* sums, int64_t rows, int64_t columns, const Epilogue& ops, float* out,
                       int64_t ldo) = nullptr;
  void (*epilogue_f32)(const float* sums, int64_t rows, int64_t columns, const Epilogue& ops, float* out,
                       int64_t ldo) = nullptr;

  // Conversion; to_bf16 rounds to nearest even, NaN stays NaN.
  void (*to_bf16)(const float* x, int64_t n, bf16* out) = nullptr;
  void (*to_float)(const bf16* x, int64_t n, float* out) = nullptr;

  // out[i] = silu(gate[i]) * up[i], see Activation. out may be gate or up.
  void (*silu_mul)(const float* gate, const float* up, int64_t n, float* out) = nullptr;
  void (*silu_mul_bf16)(const bf16* gate, const bf16* up, int64_t n, bf16* out) = nullptr;

  // out[i] = (x[i] * inv) * weight[i], inv = 1 / sqrt(sum(x^2) / n + eps). out may be x.
  void (*rms_norm)(const float* x, const float* weight, int64_t n, float eps, float* out) = nullptr;
  void (*rms_norm_bf16)(const bf16* x, const bf16* weight, int64_t n, float eps, bf16* out) = nullptr;

  // out[i] = ((x[i] - mean) * inv) * weight[i] + bias[i], mean = sum(x) / n, inv = 1 / sqrt(sum((x - mean)^2) / n +
  // eps). bias may be null. out may be x.
  void (*layer_norm)(const float* x, const float* weight, const float* bias, int64_t n, float eps,
                     float* out) = nullptr;

  // Rotary embedding in place, rotate-half: (x[i], x[i + half]) = (x[i] cos[i] - x[i + half] sin[i], x[i + half] cos[i]
  // + x[i] sin[i]). x: [2 * half]; cos, sin: [half].
  void (*rope)(float* x, const float* cos, const float* sin, int64_t half) = nullptr;

  // out[i] = x[i] / (1 + exp(-gate[i])), computed as in Activation. out may be gate or x.
  void (*sigmoid_mul)(const float* gate, const float* x, int64_t n, float* out) = nullptr;

  // out[i] = bias[i] (or 0) + sum over the taps t, by fma in their order, of rows[t][i] * weight[t * stride + i], then
  // silu if `activates`. rows: [taps] pointers to [n], the newest input last; out: [n], n channels.
  void (*convolve)(const float* const* rows, const Convolution& convolution, int64_t n, float* out) = nullptr;

  // For each token, with S the state [key_dim][value_dim] and every sum by fma over i from 0:
  //   change[j] = (v[j] - (sum over i of k[i] S[i][j]) * decay) * beta, without the delta rule v[j] * beta
  //   S[i][j] = k[i] * change[j] + S[i][j] * decay     (one fma)
  //   out[j] = sum over i of q[i] S[i][j]
  // With key_decays, the decay depends on i, and the first sum is that of (k[i] * decay[i]) S[i][j].
  // With rates, value_dim is a multiple of 16, and step = log(1 + e^decay[j]) takes the place of beta and
  // e^(-rates[i][j] * step) that of decay, without the delta rule. state: [value_dim / 16, rounded up][key_dim][16]:
  // S[i][j] is at (j / 16 * key_dim + i) * 16 + j % 16. Elements beyond value_dim are zero and stay zero.
  void (*advance_state)(const StateSteps& steps, float* state) = nullptr;

  // Decays by channel: out[i] = e^(-rate * log(1 + e^x[i])), or if bound < 0 e^(bound / (1 + e^(-rate * x[i]))). x,
  // out: [n]; out may be x.
  void (*decay)(const float* x, int64_t n, float rate, float bound, float* out) = nullptr;

  // Replaces a query row q [n], n a multiple of 16, by the form that this table's attend reads: q * scale, for a bf16
  // cache rounded to bf16 with magnitudes below kMinOperand zero.
  void (*make_query)(float* q, int64_t n, float scale, bool is_float) = nullptr;

  // The same for attend_s8: the codes of q (as by quantize) in at most half of the row, and at query_scale_at(n) the
  // product of their scale and `scale`.
  void (*make_query_s8)(float* q, int64_t n, float scale) = nullptr;

  // state[r] = softmax state of query row q[r] over the positions spans[r] of the chunk. The rows share one kv head (a
  // GQA group, of one token or several), so K and V are read once. q: [rows][head_dim], each row made by this table's
  // make_query; scores: scratch [rows][kAttentionChunk]. Probabilities are relative to the row's maximum in the chunk;
  // for a bf16 cache they are rounded as queries are, and `sum` adds the rounded ones. From the first group of
  // kKeyLanes positions to the last position that any row attends to, values are read even where their weight is 0:
  // they must be finite, for bf16 pairs including the partner of the last position.
  void (*attend)(const AttentionChunk& chunk, const float* q, int64_t rows, const AttentionSpan* spans, float* scores,
                 const AttentionState& state) = nullptr;

  // The same over a q8 cache, with scores: scratch [rows][kScoreFloats]. For each position i of the row's span:
  //   score[i] = cap((float(sum of products of codes) * q_scale) * key_scale[i]), exact int32 sums; from position
  //              kCentred on (float(sum of products with the centre) * q_scale) * centre_scale is added before the cap
  //   e[i] = e^(score[i] - max) to within 2^-18, sum = sum of e, w[i] = e[i] * value_scale[i]
  //   code[i] = round_half_even(w[i] * (16256 / max w)), acc = float(sum of code[i] * value[i]) * (max w / 16256)
  // acc is 0 if every w is below 2^-100, and NaN if sum is NaN or a w is infinite. Keys are read from the first panel
  // that any row attends to. The last panel of value columns is read as if it were full: up to 192 bytes beyond its
  // end, which belong to the scales.
  void (*attend_s8)(const AttentionChunk& chunk, const float* q, int64_t rows, const AttentionSpan* spans,
                    float* scores, const AttentionState& state) = nullptr;

  // state = softmax state over the positions of `state` and of `next`, whose positions are later. Rows as in attend.
  void (*merge_attention)(const AttentionState& state, const AttentionState& next, int64_t rows,
                          int64_t head_dim) = nullptr;

  // Index of the largest of x [n], n >= 1; the lowest index among equals. NaN never wins.
  int64_t (*argmax)(const float* x, int64_t n) = nullptr;

  // out = (s + factor * s + deviation * margin) * scale, s = 16 * high + mean: bounds of the sums of w8h (layout.h).
  // All arrays: [64]. Returns the largest, NaN never wins; -inf if there is no other.
  float (*bounds)(const float* high, const bf16_pair* spread, const float* scale, float mean, float margin,
                  float* out) = nullptr;

  // The sum over i of a[i] * low half i of a column of w8h (layout.h), exact int32. a: [k] codes in [-127, 127]; low:
  // [k / 2]; k: a multiple of kGroupK, at most kMaxHalvedK.
  int32_t (*dot_low)(const int8_t* a, const uint8_t* low, int64_t k) = nullptr;
};

// Index of the scale in a row of n floats that make_query_s8 wrote.
static constexpr int64_t query_scale_at(int64_t n) { return n / 2; }

// attend or attend_s8, by the type of the cache.
static inline void attend_chunk(const Kernels& kernels, const AttentionChunk& chunk, const float* q, int64_t rows,
                                const AttentionSpan* spans, float* scores, const AttentionState& state) {
  (chunk.type == KvType::q8 ? kernels.attend_s8 : kernels.attend)(chunk, q, rows, spans, scores, state);
}

// make_query or make_query_s8, by the type of the cache.
static inline void make_query_row(const Kernels& kernels, float* q, int64_t n, float scale, KvType type) {
  if (type == KvType::q8) return kernels.make_query_s8(q, n, scale);
  kernels.make_query(q, n, scale, type == KvType::f32);
}

struct Variant {
  const char* name;
  uint32_t needs;             // CpuFeature bits
  const Kernels& (*table)();  // only for CPUs with these features: the function itself is compiled for them
};

// The variants of this build, best first; the last one is scalar.
std::span<const Variant> kernel_variants();

// The first variant that this CPU can run.
const Kernels& best_kernels();

// The variant of this name; if the name is empty, of the name in the environment variable PINION_KERNELS; else the
// best. Errors: unknown names, and variants that this CPU cannot run.
Error select_kernels(std::string_view name, const Kernels** out);

// One function per file of isa/.
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
