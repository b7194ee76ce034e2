// The definition of all kernels: every other variant gives these bits.
#include "kernels/lanes/scalar.h"

#include "kernels/lanes/ops.h"  // over the lanes above

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

// One row by column c, as Kernels::gemv_grouped; code(i) is the code of the row at k = i.
template <class F>
float grouped_sum(const GroupedPanel& panel, int64_t c, F code) {
  const FormatTraits& traits = traits_of(panel.format);
  float sum = 0;
  for (int64_t k = 0; k < panel.k; k += traits.group_k) {
    const std::byte* record = panel.records + code_offset(panel.format, k, 0);
    const std::byte* scales = record + code_bytes(panel.format);
    const int zero =
        traits.has_zero_points ? static_cast<int>(scales[kPanelColumns * 2 + c]) : kZeroSteps * traits.zero;
    int32_t group_sum = 0;
    for (int64_t i = 0; i < traits.group_k; ++i) {
      const int all = static_cast<int>(record[code_offset(panel.format, i, c)]);
      const int weight = all >> code_shift(panel.format, i) & ((1 << code_bits(panel.format)) - 1);
      group_sum += code(k + i) * (kZeroSteps * (traits.levels ? traits.levels[weight] : weight) - zero);
    }
    f16 scale = to_f16(1.0f);
    if (!traits.is_halved) __builtin_memcpy(&scale, scales + c * 2, sizeof scale);
    sum = __builtin_fmaf(static_cast<float>(group_sum) / kZeroSteps, to_float(scale), sum);
  }
  return sum;
}

void gemv_grouped(const int8_t* a, const GroupedPanel& first, int64_t panels, float* acc) {
  GroupedPanel panel = first;
  for (int64_t p = 0; p < panels; ++p, panel.records += panel_bytes(panel.format, panel.k), acc += kPanelColumns) {
    for (int64_t c = 0; c < kPanelColumns; ++c) acc[c] = grouped_sum(panel, c, [&](int64_t i) { return a[i]; });
  }
}

void gemm_grouped(const int8_t* a, const RowBlocks& blocks, int64_t rows, const GroupedPanel& panel, float* acc) {
  for (int64_t r = 0; r < rows; ++r) {
    const int8_t* row = a + r / blocks.rows * blocks.step_bytes + r % blocks.rows * 4;
    for (int64_t c = 0; c < kPanelColumns; ++c) {
      const auto code = [&](int64_t i) { return row[i / 4 * blocks.rows * 4 + i % 4]; };
      acc[r * kPanelColumns + c] = grouped_sum(panel, c, code);
    }
  }
}

void multiply_rows(const int8_t* a, int64_t lda, int64_t rows, const int8_t* b, int64_t row_bytes, int64_t k,
                   int32_t* acc) {
  for (int64_t r = 0; r < rows; ++r) gemv_s8(a + r * lda, b, row_bytes, k, acc + r * kPanelColumns);
}

constexpr Kernels kTable = lanes_table({.name = "scalar",
                                        .gemv_s8 = gemv_s8,
                                        .pack_s8 = pack_s8<4, 0>,
                                        .gemm_s8 = gemm_s8,
                                        .s8_shape = {4, 1, 4},
                                        .gemv_grouped = gemv_grouped,
                                        .gemm_grouped = gemm_grouped,
                                        .make_query_s8 = make_query_s8<Digits<multiply_rows, multiply_rows>>,
                                        .attend_s8 = attend_s8<Digits<multiply_rows, multiply_rows>>});

}  // namespace

const Kernels& scalar_kernels() { return kTable; }

}  // namespace pinion
