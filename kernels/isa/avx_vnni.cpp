// AVX-VNNI (client CPUs without AVX-512): VPDPBUSD on 256 bits, the rest as AVX2. One operand of VPDPBUSD is unsigned,
// so 128 is added to it: for unpacked rows to w (128 * sum(x) is subtracted), for packed rows to x (128 * column_sum is
// subtracted). The result is exact, because int32 arithmetic wraps and the final sums fit.
#include <immintrin.h>

#include "kernels/isa/rows_avx2.h"
#include "kernels/kernels.h"
#include "kernels/lanes/avx2.h"

#include "kernels/lanes/attention_s8.h"  // over the lanes above
#include "kernels/lanes/grouped_tiles.h"
#include "kernels/lanes/rows.h"
#include "kernels/lanes/streams.h"

namespace pinion {
namespace {

constexpr int kVectors = 8;  // vectors of the columns of a panel

__m256i load(const void* p) { return _mm256_loadu_si256(static_cast<const __m256i*>(p)); }
void store(int32_t* p, __m256i value) { _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), value); }

template <class Access>
[[gnu::noinline]] void gemv_s8_by(const int8_t* a, const int8_t* b, int64_t row_bytes, int64_t k, int32_t* acc) {
  const __m256i flip = _mm256_set1_epi8(-128);
  __m256i sum[kVectors];
  __m256i correction = _mm256_setzero_si256();  // 128 times the sum of x
  unrolled<kVectors>([&](auto v) { sum[v] = _mm256_setzero_si256(); });
  for_each_four_k<Access>(a, b, row_bytes, k, [&](auto, const int8_t* x4, const int8_t* w) {
    const __m256i x = four_codes(x4);
    correction = _mm256_dpbusd_avx_epi32(correction, flip, x);
    unrolled<kVectors>(
        [&](auto v) { sum[v] = _mm256_dpbusd_avx_epi32(sum[v], _mm256_xor_si256(load(w + v * 32), flip), x); });
  });
  unrolled<kVectors>([&](auto v) { store(acc + v * 8, _mm256_sub_epi32(sum[v], correction)); });
}

void gemv_s8(const int8_t* a, const int8_t* b, int64_t row_bytes, int64_t k, int32_t* acc) {
  with_access_pattern([&](auto access) { gemv_s8_by<decltype(access)>(a, b, row_bytes, k, acc); });
}

constexpr int kRows = 6;  // 6 x 2 sums, 2 vectors of w, one of x: 15 of the 16 registers

// acc = R rows by 16 columns, from `column` on.
template <int R>
void gemm_tile(const RowTile& tile, const int32_t* column_sum, int64_t column, int32_t* acc) {
  __m256i sum[R][2];
  unrolled<2>([&](auto v) {
    const __m256i correction = _mm256_slli_epi32(load(column_sum + column + v * 8), 7);
    unrolled<R>([&](auto r) { sum[r][v] = _mm256_sub_epi32(_mm256_setzero_si256(), correction); });
  });
  for (const GemmTerm* term = tile.terms; term < tile.terms + tile.count; ++term) {
    const int8_t* a = static_cast<const int8_t*>(term->a) + tile.offset_bytes;
    const int8_t* b = static_cast<const int8_t*>(term->b) + column * 4;
    for (int64_t i = 0; i < term->k; i += 4, b += 4 * kPanelColumns, a += tile.block_rows * 4) {
      __m256i w[2];
      unrolled<2>([&](auto v) { w[v] = load(b + v * 32); });
      unrolled<R>([&](auto r) {
        const __m256i x = four_codes(a + r * 4);
        unrolled<2>([&](auto v) { sum[r][v] = _mm256_dpbusd_avx_epi32(sum[r][v], x, w[v]); });
      });
    }
  }
  unrolled<R>(
      [&](auto r) { unrolled<2>([&](auto v) { store(acc + r * kPanelColumns + column + v * 8, sum[r][v]); }); });
}

void gemm_s8(const GemmTerm* terms, int64_t count, const RowBlocks& blocks, int64_t rows, const int32_t* column_sum,
             int32_t* acc) {
  for_each_register_tile<kRows, 4>(terms, count, blocks, rows, [&](auto n, const RowTile& tile, int64_t row) {
    for (int64_t c = 0; c < kPanelColumns; c += 16) gemm_tile<n>(tile, column_sum, c, acc + row * kPanelColumns);
  });
}

// See CorrectedSlice.
void correct(const int8_t* w, int64_t k, int32_t* to) {
  __m256i sum = _mm256_setzero_si256();
  for (int64_t i = 0; i < k; i += 4, w += 4 * kPanelColumns) {
    sum = _mm256_dpbusd_avx_epi32(sum, _mm256_set1_epi8(-128), load(w));
  }
  store(to, _mm256_sub_epi32(_mm256_setzero_si256(), sum));
}

template <class Record>
using Slice = CorrectedSlice<Record, 8, correct>;

// acc (+)= R rows by 16 columns of a slice, from `column` on.
template <int R, class Slice>
void grouped_tile(const RowTile& tile, const Slice& slice, int64_t column, bool accumulate, float* acc) {
  const int8_t* a = static_cast<const int8_t*>(tile.terms->a) + tile.offset_bytes;
  const int8_t* b = slice.codes + column * 4;
  for (int64_t g = 0; g < slice.groups; ++g) {
    const int64_t at = g * kPanelColumns + column;
    __m256i sum[R][2];
    unrolled<2>([&](auto v) {
      const __m256i correction = load(slice.corrections + at + v * 8);
      unrolled<R>([&](auto r) { sum[r][v] = correction; });
    });
    for (int64_t i = 0; i < Slice::kK; i += 4, a += tile.block_rows * 4, b += 4 * kPanelColumns) {
      __m256i w[2];
      unrolled<2>([&](auto v) { w[v] = load(b + v * 32); });
      unrolled<R>([&](auto r) {
        const __m256i x = four_codes(a + r * 4);
        unrolled<2>([&](auto v) { sum[r][v] = _mm256_dpbusd_avx_epi32(sum[r][v], x, w[v]); });
      });
    }
    unrolled<2>([&](auto v) {
      const __m256 scale = _mm256_loadu_ps(slice.scales + at + v * 8);
      unrolled<R>([&](auto r) {
        float* to = acc + r * kPanelColumns + column + v * 8;
        add_scaled(_mm256_cvtepi32_ps(sum[r][v]), scale, accumulate || g > 0, to);
      });
    });
  }
}

void gemm_grouped(const int8_t* a, const RowBlocks& blocks, int64_t rows, const GroupedPanel& panel, float* acc) {
  with_record(panel.format, [&](auto record) {
    for_each_grouped_tile<Slice<decltype(record)>, kRows, 16, 4>(
        a, blocks, rows, panel, acc, [](auto n, const auto&... args) { grouped_tile<n>(args...); });
  });
}

// 128 times the sum of the k codes of a row, in every lane.
__m256i sum_times_128(const int8_t* a, int64_t k) {
  __m128i sum = _mm_setzero_si128();
  for (int64_t i = 0; i < k; i += 16) {
    sum = _mm_dpbusd_avx_epi32(sum, _mm_set1_epi8(-128), _mm_loadu_si128(reinterpret_cast<const __m128i*>(a + i)));
  }
  sum = _mm_hadd_epi32(sum, sum);
  return _mm256_broadcastd_epi32(_mm_hadd_epi32(sum, sum));
}

// acc = R unpacked rows of attention by 16 columns. Rows without negative codes can be the unsigned operand.
template <int R, bool IsSigned>
void rows_tile(const int8_t* a, int64_t lda, const int8_t* b, int64_t row_bytes, int64_t k, int32_t* acc) {
  const __m256i flip = _mm256_set1_epi8(-128);
  __m256i sum[R][2];
  unrolled<R>([&](auto r) {
    sum[r][0] = _mm256_setzero_si256();
    if constexpr (IsSigned) sum[r][0] = _mm256_sub_epi32(sum[r][0], sum_times_128(a + r * lda, k));
    sum[r][1] = sum[r][0];
  });
  for (const int8_t* end = a + k; a < end; a += 4, b += row_bytes) {
    __m256i w[2];
    unrolled<2>([&](auto v) {
      w[v] = load(b + v * 32);
      if constexpr (IsSigned) w[v] = _mm256_xor_si256(w[v], flip);
    });
    if constexpr (R <= kFewRows) __builtin_prefetch(b + kCodesAheadBytes, 0, 2);
    unrolled<R>([&](auto r) {
      const __m256i x = four_codes(a + r * lda);
      unrolled<2>([&](auto v) {
        sum[r][v] =
            IsSigned ? _mm256_dpbusd_avx_epi32(sum[r][v], w[v], x) : _mm256_dpbusd_avx_epi32(sum[r][v], x, w[v]);
      });
    });
  }
  unrolled<R>([&](auto r) { unrolled<2>([&](auto v) { store(acc + r * kPanelColumns + v * 8, sum[r][v]); }); });
}

template <bool IsSigned>
void multiply_rows(const int8_t* a, int64_t lda, int64_t rows, const int8_t* b, int64_t row_bytes, int64_t k,
                   int32_t* acc) {
  for (int64_t r = 0; r < rows; r += kRows) {
    with_rows<kRows>(rows - r, [&](auto n) {
      for (int64_t c = 0; c < kPanelColumns; c += 16) {
        rows_tile<n, IsSigned>(a + r * lda, lda, b + c * 4, row_bytes, k, acc + r * kPanelColumns + c);
      }
    });
  }
}

constexpr int kGroupedRows = 5;  // 5 x 2 sums, 4 vectors of w, one of x, a mask: all of the 16 registers

// See rows_avx2.h.
struct Dot {
  using Weights = __m256i;
  static Weights load(const int8_t* from) { return _mm256_xor_si256(pinion::load(from), _mm256_set1_epi8(-128)); }
  static __m256i add(__m256i sum, Weights w, __m256i x) { return _mm256_dpbusd_avx_epi32(sum, w, x); }
  static __m256i start(const int8_t* a, int64_t k) {
    return _mm256_sub_epi32(_mm256_setzero_si256(), sum_times_128(a, k));
  }
  // The codes of formats with groups are unsigned already.
  static __m256i add_codes(__m256i sum, __m256i w, __m256i x) { return _mm256_dpbusd_avx_epi32(sum, w, x); }
  static __m256i total(__m256i sum) { return sum; }
};

using Attention = Digits<multiply_rows<true>, multiply_rows<false>>;

}  // namespace

const Kernels& avx_vnni_kernels() {
  static const Kernels kTable = [] {
    Kernels table = avx2_kernels();
    table.name = "avx_vnni";
    table.gemv_s8 = gemv_s8;
    table.gemv_grouped = gemv_grouped<Dot>;
    table.pack_s8 = pack_s8<4, 0x80>;
    table.gemm_s8 = gemm_s8;
    table.s8_shape = {.rows = kRows, .row_multiple = 1, .group = 4};
    table.gemm_grouped = gemm_grouped;
    table.rows_s8 = rows_s8<Dot, kRows>;
    table.rows_grouped = rows_grouped<Dot, kGroupedRows>;
    table.make_query_s8 = make_query_s8<Attention>;
    table.attend_s8 = attend_s8<Attention>;
    return table;
  }();
  return kTable;
}

}  // namespace pinion
