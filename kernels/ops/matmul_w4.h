// Matrix products with 4-bit weights for frameworks that have threads of their own. The results have the engine's bits.
//
//   out = epilogue of A B      A [m, k] float or bf16, quantised to int8 row by row (Kernels::quantize)
//                              B [k, n] codes of 4 bits, w(k, n) = (code - zero) * group scale * column scale
//
// The caller packs B once and A for each product, then computes the result in rectangular parts, in any order and on
// any threads. The bits of a part depend neither on the other parts nor on the kernel table. Nothing is allocated and
// no thread is started; a wrong argument is an error that names it, and nothing is written.
//
// The rows of a part begin at a multiple of m_step, its columns at a multiple of n_step; each end is such a multiple or
// the edge of the matrix. Pointers refer to the part: start of the buffer plus the offset computed here. One row reads
// one panel at a time, whereas the engine reads several side by side (lanes/streams.h).
#pragma once

#include "kernels/base/error.h"
#include "kernels/base/workers.h"
#include "kernels/half.h"
#include "kernels/kernels.h"

namespace pinion {

// Describes a product, in all of its calls. The packing of B depends on n, k and has_zero_points alone.
struct MatmulW4 {
  int64_t m = 0, n = 0;              // 0 or more
  int64_t k = 0;                     // 1 or more
  bool has_zero_points = false;      // w4z (layout.h); else all zero points are 8
  const Kernels* kernels = nullptr;  // null: the best of this CPU. For few rows a lower table may multiply
};

struct MatmulW4Sizes {
  int64_t m_step = 0;                    // rows of the smallest part
  int64_t n_step = 0;                    // columns of the smallest part
  int64_t lhs_bytes = 0, rhs_bytes = 0;  // packed A and B
};
Error matmul_w4_sizes(const MatmulW4& mm, MatmulW4Sizes* sizes);

// Byte offset of row m0 in packed A, of column n0 in packed B: multiples of kAlignmentBytes, as the buffers are.
Error matmul_w4_lhs_packed_offset(const MatmulW4& mm, int64_t m0, int64_t* offset_bytes);
Error matmul_w4_rhs_packed_offset(const MatmulW4& mm, int64_t n0, int64_t* offset_bytes);

// Offset of element (m0, n0) of the result, in elements. ldo: elements from one row of the result to the next.
Error matmul_w4_dst_offset(const MatmulW4& mm, int64_t m0, int64_t n0, int64_t ldo, int64_t* offset);

struct MatmulW4Weights {
  const uint8_t* codes = nullptr;        // [n][(k + 1) / 2]: even k in low nibbles, odd k in high nibbles
  const f16* scales = nullptr;           // [n][(k + group - 1) / group], finite
  const uint8_t* zero_points = nullptr;  // as scales, at most kMaxZero; null without has_zero_points
  int64_t group = kGroupK;               // inputs that share a scale, a multiple of kGroupK
  const float* column_scale = nullptr;   // [n], finite; null: 1
};
Error matmul_w4_pack_rhs(const MatmulW4& mm, const MatmulW4Weights& weights, std::byte* packed,
                         const Workers& workers = {});

// Quantises and packs rows [m0, m1) of A, x [m1 - m0][ldx], T float or bf16, ldx >= k. packed: row m0 of packed A.
template <class T>
Error matmul_w4_pack_lhs(const MatmulW4& mm, int64_t m0, int64_t m1, const T* x, int64_t ldx, std::byte* packed);

// Rows [m0, m1) and columns [n0, n1) of the result. out overlaps neither lhs nor rhs.
struct MatmulW4Part {
  int64_t m0 = 0, m1 = 0, n0 = 0, n1 = 0;
  const std::byte* lhs = nullptr;  // row m0 of packed A
  const std::byte* rhs = nullptr;  // column n0 of packed B
  Epilogue ops = {};               // without scales, which are packed; its pointers refer to (m0, n0)
  float* out = nullptr;            // element (m0, n0) of the result, [m1 - m0][ldo]
  int64_t ldo = 0;                 // at least n1 - n0
};
Error matmul_w4(const MatmulW4& mm, const MatmulW4Part& part);

}  // namespace pinion
