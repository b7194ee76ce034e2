// General matrix products over a team: the way in to the matmul kernels for anybody but the engine, whose weights are
// packed already.
//
//   C_i = epilogue of A_i B_i      for i < batch, or, reduced, C = epilogue of the sum over i of A_i B_i
//
// with the epilogue in Epilogue' order: scales, alpha, bias, gate, + beta * C, clamp. A [m][lda], C [m][ldc] row-major;
// B [k][ldb] row-major, or packed once by gemm_pack_b. The bits of the result depend on nothing but the operands (NaN
// has many; which one comes out is the CPU's business): not on the kernels, the workers, or whether B was packed
// before. Sums of int8 are exact int32; a sum of floats is fma sequentially in k from 0 (reduced: in i, then k). bf16
// and f16 are widened, which is exact.
//
// What the operations that this follows have and it has not is u8. Tables take A's codes in [-127, 127] (AVX2 would
// overflow at -128), and to take a zero point off a product needs the rows' sums in the epilogue, which no table has.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/base/error.h"
#include "kernels/base/workers.h"
#include "kernels/bf16.h"
#include "kernels/kernels.h"

namespace pinion {

enum class GemmType : uint8_t { s8, bf16, f16, f32 };  // of A and B; codes of A lie in [-127, 127]

// Of C. s32 is for s8 only: alpha 1, beta 0 or 1, no epilogue. All others are rounded to nearest even; f16 becomes
// infinite from 65520 on; s8 and u8 stay within [-128, 127] and [0, 255], and NaN is 0 there.
enum class GemmResult : uint8_t { s32, f32, bf16, f16, s8, u8 };

struct GemmMatrix {
  const void* data;
  int64_t ld;               // elements from a row to the next
  bool transposed = false;  // [columns][ld] instead of [rows][ld]
};

// Reduced products have at most this many terms.
constexpr int64_t kMaxGemmTerms = 256;

struct GemmBatch {
  GemmType type = GemmType::f32;
  GemmResult result = GemmResult::f32;
  int64_t batch = 1, m = 0, n = 0, k = 0;  // zeros are allowed; k of s8 at most kMaxK (reduced: of all terms together)
  bool reduce = false;

  const void* a = nullptr;
  int64_t lda = 0, a_stride = 0;       // elements from a row, a matrix to the next
  const int64_t* a_offsets = nullptr;  // [batch]: elements from a to each matrix, instead of a_stride
  bool a_transposed = false;           // A [k][lda]
  const void* b = nullptr;
  bool b_packed = false;
  int64_t ldb = 0, b_stride = 0;  // likewise; packed: ldb is not used, b_stride in bytes, a multiple of kAlignmentBytes
  const int64_t* b_offsets = nullptr;  // likewise
  bool b_transposed = false;           // B [n][ldb]; packed: not used
  void* c = nullptr;
  int64_t ldc = 0, c_stride = 0;  // results of a batch may not overlap

  float alpha = 1, beta = 0;            // C is not read where beta is 0
  const float* row_scale = nullptr;     // [m], with column_scale: dequantises the sums of s8
  const float* column_scale = nullptr;  // [n]
  const float* bias = nullptr;          // [n]
  const float* gate = nullptr;          // [m][gate_stride]: silu(gate) * value
  int64_t gate_stride = 0;
  float low = -__builtin_inff(), high = __builtin_inff();  // clamp
};

// The table whose matmul applies: the first from `kernels` (null: the best of this CPU) downwards that takes so few
// rows.
const Kernels& gemm_kernels(const Kernels* kernels, GemmType type, int64_t m);

// B [k][n] in panels (layout.h; floats: [k][64], f16 as float), then, for s8, the int32 column sums. kAlignmentBytes
// aligned.
int64_t gemm_packed_b_bytes(GemmType type, int64_t n, int64_t k);
void gemm_pack_b(GemmType type, const GemmMatrix& b, int64_t n, int64_t k, std::byte* packed,
                 const Workers& workers = {});

// Whether A is packed at all: a single row mostly is not.
bool gemm_needs_pack_a(const GemmBatch& args);

// What gemm_batch needs to work in, for packing; kAlignmentBytes aligned. 0 where nothing is packed, or a size is
// negative.
int64_t gemm_scratch_bytes(const Kernels* kernels, const GemmBatch& args);

// Errors name the argument; C is then untouched.
Error gemm_batch(const Kernels* kernels, const Workers& workers, const GemmBatch& args, std::span<std::byte> scratch);

}  // namespace pinion
