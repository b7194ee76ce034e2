// The definition: every other variant gives these bits.
#include "kernels/lanes_scalar.h"

#include "kernels/lanes_ops.h"  // over the lanes above

namespace pinion {
namespace {

void gemm_w8(const int8_t* a, int64_t lda, int64_t rows, const int8_t* panel, const int32_t* /*column_sum*/, int64_t k,
             int32_t* acc) {
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < kPanelColumns; ++c) {
      int32_t sum = 0;
      for (int64_t i = 0; i < k; ++i) sum += a[r * lda + i] * panel[w8_offset(i, c)];
      acc[r * kPanelColumns + c] = sum;
    }
  }
}

constexpr Kernels kTable = lanes_table("scalar", gemm_w8);

}  // namespace

const Kernels& scalar_kernels() { return kTable; }

}  // namespace pinion
