// AVX-512 with BF16: attention's products by VDPBF16PS, the integer matmuls of avx512_vnni.
#define PINION_MULTIPLIES_PAIRS  // see lanes/pairs.h
#include "kernels/lanes/avx512.h"
#include "kernels/lanes/ops.h"

namespace pinion {

const Kernels& avx512_bf16_kernels() {
  static const Kernels kTable = [] {
    const Kernels& v = avx512_vnni_kernels();
    return lanes_table("avx512_bf16", {v.gemv_s8, v.pack_s8, v.gemm_s8, v.s8_shape, v.gemv_w4, v.gemm_w4,
                                       v.make_query_s8, v.attend_s8});
  }();
  return kTable;
}

}  // namespace pinion
