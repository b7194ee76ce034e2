// The program whose instructions tools/arm_report counts: `arm_report_driver VARIANT KERNEL ROWS K COUNT` runs one
// kernel COUNT times, so that two runs with different counts differ by the kernel alone. KERNEL is one of
//   w8, w8h, w4, w4n, w2   ROWS rows of K codes by a panel; more than one row is packed
//   few8, few8h, few4, few4n, few2   ROWS unpacked rows of K codes by a panel
//   bf16, q8           attention of ROWS queries of K elements over a chunk of such a cache
//   quantize, rotate, rms_norm, silu_mul   one row of K elements
#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <vector>

#include "kernels/kernels.h"
#include "kernels/ops/tiles.h"

namespace {

using namespace pinion;

void multiply(const Kernels& kernels, Format format, int64_t rows, int64_t k, int64_t panels) {
  const int64_t block = block_rows(kernels.s8_shape, rows);
  const std::vector<int8_t> codes(round_up(rows, block) * k);
  const std::vector<int8_t> panel(panel_bytes(format, k));
  const GroupedPanel records = {reinterpret_cast<const std::byte*>(panel.data()), k, format};
  const std::vector<int32_t> column_sum(kPanelColumns);
  std::vector<int32_t> sums(kTileRows * kPanelColumns);
  std::vector<float> values(sums.size());
  for (int64_t p = 0; p < panels; ++p) {
    if (rows == 1 && format != Format::w8) kernels.gemv_grouped(codes.data(), records, 1, values.data());
    if (rows == 1 && format == Format::w8) {
      kernels.gemv_s8(codes.data(), panel.data(), 4 * kPanelColumns, k, sums.data());
    }
    if (rows == 1) continue;
    for_each_row_tile(0, rows, block, [&](int64_t first, int64_t count) {
      const RowBlocks blocks = {block, block * k};
      const GemmTerm term = {codes.data() + first * k, panel.data(), k};
      if (format != Format::w8) {
        return kernels.gemm_grouped(codes.data() + first * k, blocks, count, records, values.data());
      }
      kernels.gemm_s8(&term, 1, blocks, count, column_sum.data(), sums.data());
    });
  }
}

void multiply_few(const Kernels& kernels, Format format, int64_t rows, int64_t k, int64_t panels) {
  const std::vector<int8_t> codes(rows * k);
  const std::vector<int8_t> panel(panel_bytes(format, k));
  const GroupedPanel records = {reinterpret_cast<const std::byte*>(panel.data()), k, format};
  std::vector<int32_t> sums(rows * kPanelColumns);
  std::vector<float> values(sums.size());
  for (int64_t p = 0; p < panels; ++p) {
    if (format != Format::w8) kernels.rows_grouped(codes.data(), k, rows, records, 1, values.data());
    if (format == Format::w8) kernels.rows_s8(codes.data(), k, rows, panel.data(), k, sums.data());
  }
}

void attend(const Kernels& kernels, KvType type, int64_t rows, int64_t head_dim, int64_t chunks) {
  const int64_t plane_bytes = kAttentionChunk * head_dim * (type == KvType::q8 ? 1 : 2);
  const std::vector<float> cache(q8_chunk_bytes(head_dim) / 2, 1.0f);
  const auto* keys = reinterpret_cast<const std::byte*>(cache.data());
  const AttentionChunk chunk = {type, keys, keys + plane_bytes, head_dim, static_cast<int32_t>(head_dim)};
  const auto floats = [rows](int64_t n) { return std::vector<float>(rows * n, 1.0f); };
  std::vector<float> q = floats(head_dim), scores = floats(kScoreFloats), max = floats(1), sum = floats(1),
                     acc = floats(head_dim);
  for (int64_t r = 0; r < rows; ++r) make_query_row(kernels, q.data() + r * head_dim, head_dim, 0.1f, type);
  const std::vector<AttentionSpan> spans(rows, {0, kAttentionChunk});
  for (int64_t i = 0; i < chunks; ++i) {
    attend_chunk(kernels, chunk, q.data(), rows, spans.data(), scores.data(), {max.data(), sum.data(), acc.data()});
  }
}

void run_on_row(const Kernels& kernels, std::string_view kernel, int64_t n, int64_t count) {
  std::vector<float> x(n, 1.0f), out(x.size());
  std::vector<int8_t> codes(x.size());
  float scale = 0;
  for (int64_t i = 0; i < count; ++i) {
    if (kernel == "quantize") kernels.quantize(x.data(), n, codes.data(), &scale);
    if (kernel == "rotate") kernels.rotate(x.data(), n, 1024, out.data());
    if (kernel == "rms_norm") kernels.rms_norm(x.data(), x.data(), n, 1e-6f, out.data());
    if (kernel == "silu_mul") kernels.silu_mul(x.data(), x.data(), n, out.data());
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 6) return 2;
  const std::string_view kernel = argv[2];
  const int64_t rows = std::atol(argv[3]), k = std::atol(argv[4]), count = std::atol(argv[5]);
  for (const Variant& variant : kernel_variants()) {
    if (variant.name != std::string_view(argv[1])) continue;
    const Kernels& kernels = variant.table();
    const Format format = kernel.ends_with('8')   ? Format::w8
                          : kernel.ends_with('4') ? Format::w4
                          : kernel.ends_with('n') ? Format::w4n
                          : kernel.ends_with('h') ? Format::w8h
                                                  : Format::w2;
    if (kernel == traits_of(format).name) {
      multiply(kernels, format, rows, k, count);
    } else if (kernel.starts_with("few") && rows <= kernels.few_rows) {
      multiply_few(kernels, format, rows, k, count);
    } else if (kernel == "bf16" || kernel == "q8") {
      attend(kernels, kernel == "q8" ? KvType::q8 : KvType::bf16, rows, k, count);
    } else {
      run_on_row(kernels, kernel, k, count);
    }
    return 0;
  }
  std::fprintf(stderr, "no variant %s\n", argv[1]);
  return 2;
}
