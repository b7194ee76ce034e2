// Single operations for use outside the engine, on the tables that the engine uses. Buffers are the caller's, nothing
// is allocated; a mistake in the arguments is an error value and nothing is written. bf16 results are rounded to
// nearest even. The bits do not depend on the table or on the workers.
//
// Shapes and meaning follow the TLE-CPU operations for Arm64 of the same names (FlagTree, FlagGems); their roundings do
// not: those truncate.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>

#include "kernels/base/error.h"
#include "kernels/base/workers.h"
#include "kernels/bf16.h"
#include "kernels/kernels.h"

namespace pinion {

struct OpOptions {
  const Kernels* kernels = nullptr;  // null: the best of this CPU
  Workers workers = {};              // default: the caller's thread alone
};

// b [k, n] row-major -> b_packed [k/4, n/4, 4, 4]: b_packed[k/4][n/4][n%4][k%4]. k and n multiples of 4.
Error sdot_pack_weights(const int8_t* b, int8_t* b_packed, int64_t k, int64_t n, const OpOptions& options = {});

// c[n] = sum over k of a[k] * b[k, n], exact int32. a in [-127, 127], b_packed as above, k <= kMaxK.
Error sdot_gemv(const int8_t* a, const int8_t* b_packed, int32_t* c, int64_t k, int64_t n,
                const OpOptions& options = {});

// out[n] = bf16((float(sum) * x_scale) * w_scale[n]) with x [k] quantised on the way (x_scale = max|x| / 127, codes by
// round-half-even). x holding NaN or infinity gives NaN. out may not overlap x.
Error sdot_gemv_fused_bf16(const bf16* x, const int8_t* b_packed, const float* w_scale, bf16* out, int64_t k, int64_t n,
                           const OpOptions& options = {});

// out[i] = bf16(x[i] / sqrt(mean(x^2) + eps) * weight[i]), fp32 inside. out may be x. Always the caller's thread: 4096
// elements take about a microsecond, less than it takes to wake a team.
Error rms_norm(const bf16* x, const bf16* weight, bf16* out, int64_t d, float eps, const OpOptions& options = {});

// out[i] = bf16(silu(gate[i]) * up[i]), fp32 inside. out may be gate or up. The caller's thread up to
// kSwigluSharedElements, in pieces for the workers above.
constexpr int64_t kSwigluSharedElements = 32768;
Error swiglu(const bf16* gate, const bf16* up, bf16* out, int64_t n, const OpOptions& options = {});

// One token's attention: out[h] = softmax(sm_scale * q[h] k[h / group]^T) v[h / group], group = num_heads /
// num_kv_heads.
//   q, out [num_heads, head_dim]; position p of kv head g: k + g * stride_kh + p * stride_kn, v likewise (in elements).
// Online softmax over chunks of kAttentionChunk positions, merged in their order; K and V are read from memory once for
// a group. Of bf16 the scaled queries and the probabilities are rounded to bf16, too, products are added in fp32, and
// magnitudes under kLeastOperand count as zero.
// Of int8_t K and V are codes in [-127, 127] with a scale for each position and kv head, q and out are bf16. Queries
// become codes, too, and both products are exact sums of integers (Kernels::attend_s8). Codes keep most where the
// caller has rotated q and k alike, and v, by a Hadamard matrix.
template <class T>
struct FlashAttnDecode {
  using Number = std::conditional_t<std::is_same_v<T, int8_t>, bf16, T>;

  const Number* q = nullptr;
  const T* k = nullptr;
  const T* v = nullptr;
  Number* out = nullptr;
  int64_t seq_len = 0;  // at least 1
  int64_t head_dim = 0;
  float sm_scale = 1;  // any
  int64_t num_heads = 0;
  int64_t num_kv_heads = 0;              // divides num_heads
  int64_t stride_kn = 0, stride_vn = 0;  // from a position to the next, at least head_dim
  int64_t stride_kh = 0, stride_vh = 0;  // from a kv head to the next; 0: seq_len * stride_kn, stride_vn
  const float* k_scale = nullptr;        // of int8_t: [num_kv_heads, seq_len], finite
  const float* v_scale = nullptr;
};

// Bytes of scratch, kAlignmentBytes aligned; more workers need more.
template <class T>
int64_t flash_attn_decode_scratch_bytes(const FlashAttnDecode<T>& args, const OpOptions& options = {});

// T: bf16, float or int8_t.
template <class T>
Error flash_attn_decode(const FlashAttnDecode<T>& args, std::span<std::byte> scratch, const OpOptions& options = {});

}  // namespace pinion
