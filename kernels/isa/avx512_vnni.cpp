// AVX-512 with VNNI.
#include "kernels/lanes/avx512.h"

#include "kernels/isa/rows_x86.h"  // over the lanes above
#include "kernels/isa/vnni.h"
#include "kernels/lanes/ops.h"
#include "kernels/lanes/rows.h"

namespace pinion {
namespace {

// weight * sum of the k codes of a row, in every lane; weight is at most 255.
[[gnu::always_inline]] inline __m512i sum_times(int weight, const int8_t* a, int64_t k) {
  __m512i sum = _mm512_setzero_si512();
  for (int64_t i = 0; i < k; i += 64) {
    const __mmask64 mask = k - i < 64 ? (uint64_t{1} << (k - i)) - 1 : ~uint64_t{0};
    sum = _mm512_dpbusd_epi32(sum, _mm512_set1_epi8(static_cast<char>(weight)), _mm512_maskz_loadu_epi8(mask, a + i));
  }
  return _mm512_set1_epi32(_mm512_reduce_add_epi32(sum));
}

// See rows_x86.h.
struct Dot {
  static constexpr int kLevelZero = 128;  // the first operand is unsigned
  using Weights = __m512i;
  static Weights load(const int8_t* from) { return Register::flip(Register::load(from)); }
  static __m512i add(__m512i sum, Weights w, __m512i x) { return _mm512_dpbusd_epi32(sum, w, x); }
  static __m512i start(const int8_t* a, int64_t k) {
    return Register::subtract(Register::zero(), sum_times(128, a, k));
  }
  template <bool IsLevels = false>
  static __m512i add_codes(__m512i sum, __m512i w, __m512i x) {
    return _mm512_dpbusd_epi32(sum, w, x);
  }
  template <bool IsLevels = false>
  static __m512i total(__m512i sum) {
    return sum;
  }
  template <int64_t K>
  static __m512i sum_of(int weight, const int8_t* x) {
    return sum_times(weight, x, K);
  }
};

constexpr int kFewGroupedRows = 8;  // 8 x 2 sums, 4 vectors of w, one of x

constexpr Kernels kTable = lanes_table({.name = "avx512_vnni",
                                        .gemv_s8 = gemv_s8<Dot, 2>,
                                        .pack_s8 = pack_s8<4, 0x80>,
                                        .gemm_s8 = gemm_s8<Dot, kVectors>,
                                        .s8_shape = {.rows = kRows, .row_multiple = 1, .group = 4},
                                        .gemv_grouped = gemv_grouped<Dot>,
                                        .gemm_grouped = gemm_grouped<Dot, true, 2>,
                                        .few_rows = kMaxFewRows,
                                        .rows_s8 = rows_s8<Dot, kRows, kVectors>,
                                        .rows_grouped = rows_grouped<Dot, kFewGroupedRows>,
                                        .make_query_s8 = make_query_s8<Attention<Dot, kVectors>>,
                                        .attend_s8 = attend_s8<Attention<Dot, kVectors>>});

}  // namespace

const Kernels& avx512_vnni_kernels() { return kTable; }

}  // namespace pinion
