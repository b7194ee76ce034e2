// What tools/arm_report counts instructions of: `arm_report_driver VARIANT FORMAT ROWS K PANELS` multiplies ROWS rows
// of K codes by so many panels (w8 or w4) and does nothing else with the kernels, so that two runs differ by the kernel
// alone.
#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <vector>

#include "kernels/kernels.h"
#include "kernels/ops/tiles.h"

int main(int argc, char** argv) {
  using namespace pinion;
  if (argc != 6) return 2;
  const Format format = argv[2] == std::string_view("w4") ? Format::w4 : Format::w8;
  const int64_t rows = std::atol(argv[3]);
  const int64_t k = std::atol(argv[4]);
  const int64_t panels = std::atol(argv[5]);
  for (const Variant& variant : kernel_variants()) {
    if (variant.name != std::string_view(argv[1])) continue;
    const Kernels& kernels = variant.table();
    const int64_t block = block_rows(kernels.s8_shape, rows);
    const std::vector<int8_t> codes(static_cast<size_t>(round_up(rows, block) * k));
    const std::vector<int8_t> panel(static_cast<size_t>(panel_bytes(format, k)));
    const W4Panel records = {reinterpret_cast<const std::byte*>(panel.data()), k, false};
    const std::vector<int32_t> column_sum(kPanelColumns);
    std::vector<int32_t> sums(kTileRows * kPanelColumns);
    std::vector<float> values(sums.size());
    for (int64_t p = 0; p < panels; ++p) {
      if (rows == 1 && format == Format::w4) kernels.gemv_w4(codes.data(), records, 1, values.data());
      if (rows == 1 && format == Format::w8) {
        kernels.gemv_s8(codes.data(), panel.data(), 4 * kPanelColumns, k, sums.data());
      }
      if (rows == 1) continue;
      each_tile(0, rows, block, [&](int64_t first, int64_t count) {
        const RowBlocks blocks = {block, block * k};
        const GemmTerm term = {codes.data() + first * k, panel.data(), k};
        if (format == Format::w4) {
          return kernels.gemm_w4(codes.data() + first * k, blocks, count, records, values.data());
        }
        kernels.gemm_s8(&term, 1, blocks, count, column_sum.data(), sums.data());
      });
    }
    return 0;
  }
  std::fprintf(stderr, "no variant %s\n", argv[1]);
  return 2;
}
