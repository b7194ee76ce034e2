// AVX-VNNI (client CPUs without AVX-512): VPDPBUSD on 256 bits, the rest as AVX2.
#include "kernels/lanes/avx2.h"

#include "kernels/isa/rows_x86.h"  // over the lanes above
#include "kernels/isa/vnni.h"
#include "kernels/kernels.h"
#include "kernels/lanes/attention_s8.h"
#include "kernels/lanes/rows.h"

namespace pinion {
namespace {

// 128 times the sum of the k codes of a row, in every lane.
__m256i sum_times_128(const int8_t* a, int64_t k) {
  __m128i sum = _mm_setzero_si128();
  for (int64_t i = 0; i < k; i += 16) {
    sum = _mm_dpbusd_avx_epi32(sum, _mm_set1_epi8(-128), _mm_loadu_si128(reinterpret_cast<const __m128i*>(a + i)));
  }
  sum = _mm_hadd_epi32(sum, sum);
  return _mm256_broadcastd_epi32(_mm_hadd_epi32(sum, sum));
}

// See rows_x86.h.
struct Dot {
  static constexpr int kLevelZero = 128;  // the first operand is unsigned
  using Weights = __m256i;
  static Weights load(const int8_t* from) { return Register::flip(Register::load(from)); }
  static __m256i add(__m256i sum, Weights w, __m256i x) { return _mm256_dpbusd_avx_epi32(sum, w, x); }
  static __m256i start(const int8_t* a, int64_t k) { return Register::subtract(Register::zero(), sum_times_128(a, k)); }
  template <bool IsLevels = false>
  static __m256i add_codes(__m256i sum, __m256i w, __m256i x) {
    return _mm256_dpbusd_avx_epi32(sum, w, x);
  }
  template <bool IsLevels = false>
  static __m256i total(__m256i sum) {
    return sum;
  }
  template <int64_t K>
  static __m256i sum_of(int weight, const int8_t* x) {
    return Register::sum_by<Dot, K>(weight, x);
  }
};

constexpr int kGroupedRows = 5;  // 5 x 2 sums, 4 vectors of w, one of x, a mask: all of the 16 registers

}  // namespace

const Kernels& avx_vnni_kernels() {
  static const Kernels kTable = [] {
    Kernels table = avx2_kernels();
    table.name = "avx_vnni";
    table.gemv_s8 = gemv_s8<Dot, 1>;
    table.gemv_grouped = gemv_grouped<Dot>;
    table.pack_s8 = pack_s8<4, 0x80>;
    table.gemm_s8 = gemm_s8<Dot, 2>;
    table.s8_shape = {.rows = kRows, .row_multiple = 1, .group = 4};
    table.gemm_grouped = gemm_grouped<Dot, false, 2>;
    table.rows_s8 = rows_s8<Dot, kRows, 2>;
    table.rows_grouped = rows_grouped<Dot, kGroupedRows>;
    table.make_query_s8 = make_query_s8<Attention<Dot, 2>>;
    table.attend_s8 = attend_s8<Attention<Dot, 2>>;
    return table;
  }();
  return kTable;
}

}  // namespace pinion
