// Batched general matrix products for programs other than the engine (the engine packs its weights itself).
//
//   C_i = epilogue of A_i B_i, i < batch;   reduced: C = epilogue of the sum over i of A_i B_i
//
// The epilogue has the order of kernels.h: scales, alpha, bias, gate, beta * C, clamp. A [m][lda] and C [m][ldc] are
// row-major; B [k][ldb] is row-major or was packed by gemm_pack_b. C overlaps no operand. The bits of the result depend
// on the operands alone, not on the kernel table, the workers or the packing; only NaNs may differ in theirs. Sums of
// int8 are exact int32. Sums of floats are by fma from 0 in the order of k (reduced: of i, then k). Widening bf16 and
// f16 is exact.
//
// There is no u8 operand: the tables take A's codes in [-127, 127] (AVX2 would overflow at -128), and a zero point of A
// would need row sums in the epilogue, which no table computes.
#pragma once

#include "kernels/base/error.h"
#include "kernels/base/workers.h"
#include "kernels/half.h"
#include "kernels/kernels.h"

namespace pinion {

enum class GemmType : uint8_t { s8, bf16, f16, f32 };  // type of A and B; codes of A are in [-127, 127]

// Type of C. s32 needs operands of s8, alpha 1, beta 0 or 1 and no other epilogue. The others are rounded to nearest
// even; f16 is infinite from 65520 on; s8 and u8 saturate to [-128, 127] and [0, 255] and become 0 for NaN.
enum class GemmResult : uint8_t { s32, f32, bf16, f16, s8, u8 };

struct GemmMatrix {
  const void* data;
  int64_t ld;               // elements from one row to the next
  bool transposed = false;  // [columns][ld] instead of [rows][ld]
};

// Largest batch of a reduced product.
constexpr int64_t kMaxGemmTerms = 256;

struct GemmBatch {
  GemmType type = GemmType::f32;
  GemmResult result = GemmResult::f32;
  int64_t batch = 1, m = 0, n = 0, k = 0;  // at least 0; k of s8 at most kMaxK (reduced: batch * k)
  bool reduce = false;

  const void* a = nullptr;             // [m][lda], or transposed [k][lda]
  int64_t lda = 0, a_stride = 0;       // elements from one row and from one matrix to the next
  const int64_t* a_offsets = nullptr;  // [batch], elements from a to each matrix; replaces a_stride
  bool a_transposed = false;
  const void* b = nullptr;  // [k][ldb], transposed [n][ldb], or packed
  bool b_packed = false;
  int64_t ldb = 0, b_stride = 0;  // as for A; packed: ldb is unused, b_stride in bytes, a multiple of kAlignmentBytes
  const int64_t* b_offsets = nullptr;  // as for A; packed: in bytes, multiples of kAlignmentBytes
  bool b_transposed = false;           // unused if packed
  void* c = nullptr;                   // [m][ldc]
  int64_t ldc = 0, c_stride = 0;       // as for A; the results of a batch must not overlap

  float alpha = 1, beta = 0;            // C is not read if beta is 0
  const float* row_scale = nullptr;     // [m]; row and column scales dequantise the sums of s8, both or neither
  const float* column_scale = nullptr;  // [n]
  const float* bias = nullptr;          // [n]
  const float* gate = nullptr;          // [m][gate_stride]: value = silu(gate) * value
  int64_t gate_stride = 0;
  float low = -__builtin_inff(), high = __builtin_inff();  // clamp
};

// The table for m rows: the first from `kernels` (null: this CPU's best) downwards whose min_rows is at most m.
const Kernels& gemm_kernels(const Kernels* kernels, GemmType type, int64_t m);

// Packs B [k][n] into panels (layout.h; floats: [k][64], f16 as float), followed by int32 column sums for s8. packed:
// gemm_packed_b_bytes, aligned to kAlignmentBytes.
int64_t gemm_packed_b_bytes(GemmType type, int64_t n, int64_t k);
void gemm_pack_b(GemmType type, const GemmMatrix& b, int64_t n, int64_t k, std::byte* packed,
                 const Workers& workers = {});

// True if gemm_batch packs A. Most single rows are multiplied unpacked.
bool gemm_needs_pack_a(const GemmBatch& args);

// Bytes of scratch that gemm_batch needs for packing. 0 if nothing is packed or a size is negative.
int64_t gemm_scratch_bytes(const Kernels* kernels, const GemmBatch& args);

// Computes C. scratch: gemm_scratch_bytes, aligned to kAlignmentBytes. An error names an argument, C is unchanged.
Error gemm_batch(const Kernels* kernels, const Workers& workers, const GemmBatch& args, std::span<std::byte> scratch);

}  // namespace pinion
