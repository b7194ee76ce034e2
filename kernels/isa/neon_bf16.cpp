// NEON with BF16 (Cortex-A510, A710, Neoverse V1, N2 and later): attention by BFMLALT and BFMLALB, else neon_i8mm.
#include "kernels/lanes/neon.h"
#include "kernels/lanes/unroll.h"

namespace pinion {
namespace {

// See lanes/gemm.h. Both instructions read pairs without conversion: BFMLALT the odd elements, which are the first ones
// of the pairs, BFMLALB the even ones.
#define PINION_PAIRS
struct Pairs {
  using Left = bf16;  // the second element of a pair, then the first
  static constexpr bool kWidens = false;

  template <int R, int W, class From>
  [[gnu::always_inline]] static void add(const Left* a, int64_t row, From from, Lanes (&acc)[R][W]) {
    bfloat16x8_t x[R];  // each pair four times: GCC 12 assigns registers that the forms with a lane cannot encode
    unrolled<R>([&](auto r) {
      uint32_t pair;
      __builtin_memcpy(&pair, a + r * row, sizeof pair);
      x[r] = vreinterpretq_bf16_u32(vdupq_n_u32(pair));
    });
    unrolled<W>([&](auto w) {
      const uint16_t* vector = &from(w)->second.bits;
      unrolled<4>([&](auto i) {
        const bfloat16x8_t pairs = vreinterpretq_bf16_u16(vld1q_u16(vector + 8 * i));
        unrolled<R>([&](auto r) { acc[r][w].v[i] = vbfmlaltq_f32(acc[r][w].v[i], pairs, x[r]); });
        unrolled<R>([&](auto r) { acc[r][w].v[i] = vbfmlalbq_f32(acc[r][w].v[i], pairs, x[r]); });
      });
    });
  }
  static Lanes store_left(Lanes x, Left* p) {
    const Lanes rounded = x.rounded_to_bf16();
    uint16_t* bits = &p->bits;
    unrolled<4>([&](auto i) {
      const uint16x4_t halves = vshrn_n_u32(vreinterpretq_u32_f32(rounded.v[i]), 16);
      vst1_u16(bits + 4 * i, vrev32_u16(halves));
    });
    return rounded;
  }
};

}  // namespace
}  // namespace pinion

#include "kernels/lanes/ops.h"  // over the lanes and pairs above

namespace pinion {

const Kernels& neon_bf16_kernels() {
  static const Kernels kTable = lanes_table(neon_i8mm_kernels(), "neon_bf16");
  return kTable;
}

}  // namespace pinion
