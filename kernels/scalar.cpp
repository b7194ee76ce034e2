// The definition: every other variant gives these bits.
#include "kernels/lanes_scalar.h"

#include "kernels/lanes_ops.h"  // over the lanes above

namespace pinion {
namespace {

void gemv_s8(const int8_t* a, const int8_t* b, int64_t row_bytes, int64_t k, int32_t* acc) {
  for (int64_t c = 0; c < kPanelColumns; ++c) {
    acc[c] = 0;
    for (int64_t i = 0; i < k; ++i) acc[c] += a[i] * b[i / 4 * row_bytes + c * 4 + i % 4];
  }
}

void gemm_s8(const GemmTerm* terms, int64_t count, const RowBlocks& blocks, int64_t rows, const int32_t* /*column_sum*/,
             int32_t* acc) {
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < kPanelColumns; ++c) {
      int32_t sum = 0;
      for (const GemmTerm* term = terms; term < terms + count; ++term) {
        const auto* a = static_cast<const int8_t*>(term->a) + r / blocks.rows * blocks.step_bytes;
        const auto* b = static_cast<const int8_t*>(term->b);
        for (int64_t i = 0; i < term->k; ++i) {
          sum += a[i / 4 * blocks.rows * 4 + r % blocks.rows * 4 + i % 4] * b[w8_offset(i, c)];
        }
      }
      acc[r * kPanelColumns + c] = sum;
    }
  }
}

constexpr Kernels kTable = lanes_table("scalar", {gemv_s8, pack_s8<4, 0>, gemm_s8, {4, 1, 4}});

}  // namespace

const Kernels& scalar_kernels() { return kTable; }

}  // namespace pinion
