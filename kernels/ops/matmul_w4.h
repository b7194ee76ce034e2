// Matrix products with 4-bit weights for use outside the engine, whose bits these are:
//
//   out = epilogue of A B      A [m, k] float or bf16, made int8 codes row by row (quantize, kernels.h);
//                              B [k, n] codes of 4 bits, w(k, n) = (code - zero) * group scale * column scale
//
// B is packed once, A for each product. Then any parts of the result are computed, in any order and on any threads:
// what a part gives does not depend on the others, on the table or on how the work is split. No threads, nothing is
// allocated; a mistake in the arguments is an error that names it, and nothing is written.
//
// A part's rows begin at a multiple of m_step and its columns at a multiple of n_step; each ends at such a multiple or
// at the matrix's edge. Pass pointers to the part: a buffer's begin plus the offset given here. One row reads one panel
// at a time; the engine reads several side by side (streams.h).
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/base/error.h"
#include "kernels/base/workers.h"
#include "kernels/bf16.h"
#include "kernels/f16.h"
#include "kernels/kernels.h"

namespace pinion {

// The same one for every call that has to do with a product. How B is packed depends on n, k and has_zero_points only.
struct MatmulW4 {
  int64_t m = 0, n = 0;              // 0 or more
  int64_t k = 0;                     // 1 or more
  bool has_zero_points = false;      // w4z (layout.h), which may have other zeros than 8
  const Kernels* kernels = nullptr;  // null: the best of this CPU. It, or for few rows a lower table, multiplies
};

struct MatmulW4Sizes {
  int64_t m_step = 0;  // rows
  int64_t n_step = 0;  // columns
  int64_t lhs_bytes = 0, rhs_bytes = 0;
};
Error matmul_w4_sizes(const MatmulW4& mm, MatmulW4Sizes* sizes);

// Where row m0 lies in A packed, column n0 in B packed: bytes. A multiple of kAlignmentBytes, as buffers must be.
Error matmul_w4_lhs_packed_offset(const MatmulW4& mm, int64_t m0, int64_t* offset_bytes);
Error matmul_w4_rhs_packed_offset(const MatmulW4& mm, int64_t n0, int64_t* offset_bytes);

// Where (m0, n0) lies in a result whose rows are ldo elements apart: elements.
Error matmul_w4_dst_offset(const MatmulW4& mm, int64_t m0, int64_t n0, int64_t ldo, int64_t* offset);

struct MatmulW4Weights {
  const uint8_t* codes = nullptr;        // [n][(k + 1) / 2]: low nibbles are those of even k, high nibbles of odd k
  const f16* scales = nullptr;           // [n][(k + group - 1) / group], finite
  const uint8_t* zero_points = nullptr;  // likewise, at most kMaxZero; null if not has_zero_points: all are 8
  int64_t group = kBlockK;               // k of a scale, a multiple of kBlockK
  const float* column_scale = nullptr;   // [n], finite; null: 1
};
Error matmul_w4_pack_rhs(const MatmulW4& mm, const MatmulW4Weights& weights, std::byte* packed,
                         const Workers& workers = {});

// Rows [m0, m1) of A, x [m1 - m0][ldx]. T: float or bf16. packed: of row m0 on.
template <class T>
Error matmul_w4_pack_lhs(const MatmulW4& mm, int64_t m0, int64_t m1, const T* x, int64_t ldx, std::byte* packed);

// Rows [m0, m1) by columns [n0, n1) of the result.
struct MatmulW4Part {
  int64_t m0 = 0, m1 = 0, n0 = 0, n1 = 0;
  const std::byte* lhs = nullptr;  // packed, of row m0 on
  const std::byte* rhs = nullptr;  // packed, of column n0 on
  Epilogue ops = {};               // no scales: those of A and B are in what was packed; the rest is the part's too
  float* out = nullptr;            // [m1 - m0][ldo], its element (m0, n0)
  int64_t ldo = 0;                 // at least n1 - n0
};
Error matmul_w4(const MatmulW4& mm, const MatmulW4Part& part);

}  // namespace pinion
