// AVX-512 with BF16: products of attention by VDPBF16PS, integer matmuls of avx512_vnni.
#include "kernels/lanes/avx512.h"
#include "kernels/lanes/unroll.h"

namespace pinion {
namespace {

// See lanes/gemm.h. VDPBF16PS reads pairs of both operands without conversion.
#define PINION_PAIRS
struct Pairs {
  using Left = bf16;  // the second element of a pair, then the first
  static constexpr bool kWidens = false;

  template <int R, int W, class From>
  [[gnu::always_inline]] static void add(const Left* a, int64_t row, From from, Lanes (&acc)[R][W]) {
    __m512i vector[W];
    unrolled<W>([&](auto w) { vector[w] = _mm512_loadu_si512(from(w)); });
    unrolled<R>([&](auto r) {
      int32_t pair;
      __builtin_memcpy(&pair, a + r * row, sizeof pair);
      const auto x = reinterpret_cast<__m512bh>(_mm512_set1_epi32(pair));
      unrolled<W>(
          [&](auto w) { acc[r][w].v = _mm512_dpbf16_ps(acc[r][w].v, x, reinterpret_cast<__m512bh>(vector[w])); });
    });
  }
  static Lanes store_left(Lanes x, Left* p) {
    const __m256i halves = reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(x.v));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm256_rol_epi32(halves, 16));
    return {_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(halves), 16))};
  }
};

}  // namespace
}  // namespace pinion

#include "kernels/lanes/ops.h"  // over the lanes and pairs above

namespace pinion {

const Kernels& avx512_bf16_kernels() {
  static const Kernels kTable = lanes_table(avx512_vnni_kernels(), "avx512_bf16");
  return kTable;
}

}  // namespace pinion
