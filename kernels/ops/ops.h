// Single operations for programs other than the engine, on the engine's kernel tables. The caller owns all buffers, and
// nothing is allocated. A wrong argument is an error value, and nothing is written. bf16 results are rounded to nearest
// even. The bits depend neither on the table nor on the workers. Arguments overlap only if the comment allows it.
//
// Shapes and semantics follow the TLE-CPU operations for Arm64 of the same names (FlagTree, FlagGems), except that
// those truncate to bf16.
#pragma once

#include <type_traits>

#include "kernels/base/error.h"
#include "kernels/base/workers.h"
#include "kernels/half.h"
#include "kernels/kernels.h"

namespace pinion {

struct OpOptions {
  const Kernels* kernels = nullptr;  // null: the best of this CPU
  Workers workers = {};              // default: the calling thread alone
};

// b_packed[k/4][n/4][n%4][k%4] = b[k][n]. b: [k, n] row-major; k and n: multiples of 4, k <= kMaxK.
Error sdot_pack_weights(const int8_t* b, int8_t* b_packed, int64_t k, int64_t n, const OpOptions& options = {});

// c[n] = sum over k of a[k] * b[k][n], exact int32. a: [k], in [-127, 127]; b_packed, k and n: as above; c: [n].
Error sdot_gemv(const int8_t* a, const int8_t* b_packed, int32_t* c, int64_t k, int64_t n,
                const OpOptions& options = {});

// out[n] = bf16((float(sum over k of code[k] * b[k][n]) * x_scale) * w_scale[n]), where x_scale = max|x| / 127 and
// code[k] = round_half_even(x[k] / x_scale). x: [k], NaN or infinity in it makes every result NaN; w_scale, out: [n];
// b_packed, k and n: as above.
Error sdot_gemv_fused_bf16(const bf16* x, const int8_t* b_packed, const float* w_scale, bf16* out, int64_t k, int64_t n,
                           const OpOptions& options = {});

// out[i] = bf16(x[i] / sqrt(mean(x^2) + eps) * weight[i]), computed in fp32. x, weight, out: [d], d >= 1; out may be x.
// Runs on the calling thread: 4096 elements take about a microsecond, less than waking a team.
Error rms_norm(const bf16* x, const bf16* weight, bf16* out, int64_t d, float eps, const OpOptions& options = {});

// out[i] = bf16(silu(gate[i]) * up[i]), computed in fp32. gate, up, out: [n]; out may be gate or up. The workers share
// rows of more than kSwigluSharedElements elements.
constexpr int64_t kSwigluSharedElements = 32768;
Error swiglu(const bf16* gate, const bf16* up, bf16* out, int64_t n, const OpOptions& options = {});

// Attention of one token: out[h] = softmax(sm_scale * q[h] k[g]^T) v[g], g = h / (num_heads / num_kv_heads). Online
// softmax over chunks of kAttentionChunk positions, merged in order; K and V are read once per group of query heads.
// out may be q.
//   q, out  [num_heads, head_dim]
//   k       position p of kv head g is [head_dim] at k + g * stride_kh + p * stride_kn; v likewise
// T is the type of K and V:
//   float   fp32 throughout
//   bf16    the scaled queries and the probabilities are rounded to bf16, products are added in fp32, and magnitudes
//           below kMinOperand count as zero
//   int8_t  K and V are codes in [-127, 127] with a scale per position and kv head, q and out are bf16. Queries and
//           probabilities are quantised, and all products are exact integer sums (Kernels::attend_s8). Rotating q and k
//           by one Hadamard matrix, and v by another, before quantising reduces the error.
template <class T>
struct FlashAttnDecode {
  using Number = std::conditional_t<std::is_same_v<T, int8_t>, bf16, T>;

  const Number* q = nullptr;
  const T* k = nullptr;
  const T* v = nullptr;
  Number* out = nullptr;
  int64_t seq_len = 0;   // at least 1
  int64_t head_dim = 0;  // at least 1
  float sm_scale = 1;
  int64_t num_heads = 0;
  int64_t num_kv_heads = 0;              // divides num_heads
  int64_t stride_kn = 0, stride_vn = 0;  // elements from one position to the next, at least head_dim
  int64_t stride_kh = 0, stride_vh = 0;  // elements from one kv head to the next; 0: seq_len * stride_kn, stride_vn
  const float* k_scale = nullptr;        // int8_t only: [num_kv_heads, seq_len], finite
  const float* v_scale = nullptr;        // as k_scale
};

// Bytes of scratch, which grow with the number of workers. 0 for wrong arguments.
template <class T>
int64_t flash_attn_decode_scratch_bytes(const FlashAttnDecode<T>& args, const OpOptions& options = {});

// scratch: aligned to kAlignmentBytes.
template <class T>
Error flash_attn_decode(const FlashAttnDecode<T>& args, std::span<std::byte> scratch, const OpOptions& options = {});

}  // namespace pinion
