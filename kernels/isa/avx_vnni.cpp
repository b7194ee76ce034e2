// AVX-VNNI (client CPUs without AVX-512): VPDPBUSD on 256 bits, the rest as AVX2. It wants one unsigned side, made by
// adding 128: for one row w (128 times the sum of x is taken off), for several the packed rows (128 * column_sum is
// taken off). Exactly: int32 arithmetic wraps, the result fits.
#include <immintrin.h>

#include "kernels/isa/few_rows_avx2.h"
#include "kernels/isa/w4_avx2.h"
#include "kernels/kernels.h"
#include "kernels/lanes/avx2.h"

#include "kernels/lanes/attention_s8.h"  // over the lanes above
#include "kernels/lanes/pack_rows.h"
#include "kernels/lanes/row_tiles.h"
#include "kernels/lanes/streams.h"
#include "kernels/lanes/w4_tiles.h"

namespace pinion {
namespace {

constexpr int kVectors = 8;  // a panel's columns

__m256i load(const void* p) { return _mm256_loadu_si256(static_cast<const __m256i*>(p)); }
void store(int32_t* p, __m256i value) { _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), value); }

template <class Way>
[[gnu::noinline]] void gemv_s8_by(const int8_t* a, const int8_t* b, int64_t row_bytes, int64_t k, int32_t* acc) {
  const __m256i flip = _mm256_set1_epi8(-128);
  __m256i sum[kVectors];
  __m256i correction = _mm256_setzero_si256();  // 128 times the sum of x
  unrolled<kVectors>([&](auto v) { sum[v] = _mm256_setzero_si256(); });
  each_four_k<Way>(a, b, row_bytes, k, [&](auto, const int8_t* x4, const int8_t* w) {
    const __m256i x = four_codes(x4);
    correction = _mm256_dpbusd_avx_epi32(correction, flip, x);
    unrolled<kVectors>(
        [&](auto v) { sum[v] = _mm256_dpbusd_avx_epi32(sum[v], _mm256_xor_si256(load(w + v * 32), flip), x); });
  });
  unrolled<kVectors>([&](auto v) { store(acc + v * 8, _mm256_sub_epi32(sum[v], correction)); });
}

void gemv_s8(const int8_t* a, const int8_t* b, int64_t row_bytes, int64_t k, int32_t* acc) {
  with_access_pattern([&](auto way) { gemv_s8_by<decltype(way)>(a, b, row_bytes, k, acc); });
}

constexpr int kRows = 6;  // 6 x 2 sums, 2 vectors of w, one of x: 15 of the 16 registers

// R rows by 16 columns; `column` is the first.
template <int R>
void gemm_tile(const RowTile& tile, const int32_t* column_sum, int64_t column, int32_t* acc) {
  __m256i sum[R][2];
  unrolled<2>([&](auto v) {
    const __m256i correction = _mm256_slli_epi32(load(column_sum + column + v * 8), 7);
    unrolled<R>([&](auto r) { sum[r][v] = _mm256_sub_epi32(_mm256_setzero_si256(), correction); });
  });
  for (const GemmTerm* term = tile.terms; term < tile.terms + tile.count; ++term) {
    const int8_t* a = static_cast<const int8_t*>(term->a) + tile.at_bytes;
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
  each_row_tile<kRows, 4>(terms, count, blocks, rows, [&](auto n, const RowTile& tile, int64_t row) {
    for (int64_t c = 0; c < kPanelColumns; c += 16) gemm_tile<n>(tile, column_sum, c, acc + row * kPanelColumns);
  });
}

// The codes of w4 are the unsigned side as they lie; what they exceed w by, zero times the sum of x, is taken off.
template <class Way, bool HasZeros>
[[gnu::noinline]] void gemv_w4_by(const int8_t* a, const W4Panel& first, int64_t panels, float* acc) {
  const __m256i nibble = _mm256_set1_epi8(15);
  __m256i x[kBlockK / 4], x_sum;
  each_record<Way, HasZeros>(
      a, first, panels, acc,
      [&](const int8_t* codes) {
        x_sum = _mm256_setzero_si256();
        unrolled<kBlockK / 4>([&](auto i) {
          x[i] = four_codes(codes + i * 4);
          x_sum = _mm256_dpbusd_avx_epi32(x_sum, _mm256_set1_epi8(1), x[i]);
        });
      },
      [&](const std::byte* record, const std::byte* ahead, bool accumulate, float* to) {
        prefetch_record<Way, HasZeros>(ahead);
        __m256i sum[kVectors];
        unrolled<kVectors>([&](auto v) { sum[v] = _mm256_setzero_si256(); });
#pragma GCC unroll 1
        for (int64_t pair = 0; pair < 4; ++pair) {
          const __m256i x0 = x[pair * 2], x1 = x[pair * 2 + 1];
          unrolled<kVectors>([&](auto v) {
            const __m256i both = load(record + pair * 256 + v * 32);
            sum[v] = _mm256_dpbusd_avx_epi32(sum[v], _mm256_and_si256(both, nibble), x0);
            sum[v] = _mm256_dpbusd_avx_epi32(sum[v], _mm256_and_si256(_mm256_srli_epi16(both, 4), nibble), x1);
          });
        }
        unrolled<kVectors>([&](auto v) { scale_group<HasZeros>(sum[v], x_sum, record, v * 8, accumulate, to); });
      });
}

void gemv_w4(const int8_t* a, const W4Panel& first, int64_t panels, float* acc) {
  with_access_pattern([&](auto way) {
    using Way = decltype(way);
    (first.has_zero_points ? gemv_w4_by<Way, true> : gemv_w4_by<Way, false>)(a, first, panels, acc);
  });
}

void correct(const int8_t* w, int32_t* to) {
  __m256i sum = _mm256_setzero_si256();
  for (int64_t k4 = 0; k4 < kBlockK / 4; ++k4) {
    sum = _mm256_dpbusd_avx_epi32(sum, _mm256_set1_epi8(-128), load(w + k4 * 256));
  }
  store(to, _mm256_sub_epi32(_mm256_setzero_si256(), sum));
}

using Piece = CorrectedPiece<8, correct>;

// R rows by 16 columns; `column` is the first.
template <int R>
void w4_tile(const RowTile& tile, const Piece& piece, int64_t column, bool accumulate, float* acc) {
  const int8_t* a = static_cast<const int8_t*>(tile.terms->a) + tile.at_bytes;
  const int8_t* b = piece.codes + column * 4;
  for (int64_t g = 0; g < piece.groups; ++g) {
    const int64_t at = g * kPanelColumns + column;
    __m256i sum[R][2];
    unrolled<2>([&](auto v) {
      const __m256i correction = load(piece.corrections + at + v * 8);
      unrolled<R>([&](auto r) { sum[r][v] = correction; });
    });
    for (int64_t i = 0; i < kBlockK; i += 4, a += tile.block_rows * 4, b += 4 * kPanelColumns) {
      __m256i w[2];
      unrolled<2>([&](auto v) { w[v] = load(b + v * 32); });
      unrolled<R>([&](auto r) {
        const __m256i x = four_codes(a + r * 4);
        unrolled<2>([&](auto v) { sum[r][v] = _mm256_dpbusd_avx_epi32(sum[r][v], x, w[v]); });
      });
    }
    unrolled<2>([&](auto v) {
      const __m256 scale = _mm256_loadu_ps(piece.scales + at + v * 8);
      unrolled<R>(
          [&](auto r) { add_scaled(sum[r][v], scale, accumulate || g > 0, acc + r * kPanelColumns + column + v * 8); });
    });
  }
}

void gemm_w4(const int8_t* a, const RowBlocks& blocks, int64_t rows, const W4Panel& panel, float* acc) {
  each_w4_tile<Piece, kRows, 16, 4>(a, blocks, rows, panel, acc,
                                    [](auto n, const auto&... args) { w4_tile<n>(args...); });
}

// 128 times the sum of a row's k codes.
__m256i sum_times_128(const int8_t* a, int64_t k) {
  __m128i sum = _mm_setzero_si128();
  for (int64_t i = 0; i < k; i += 16) {
    sum = _mm_dpbusd_avx_epi32(sum, _mm_set1_epi8(-128), _mm_loadu_si128(reinterpret_cast<const __m128i*>(a + i)));
  }
  sum = _mm_hadd_epi32(sum, sum);
  return _mm256_broadcastd_epi32(_mm_hadd_epi32(sum, sum));
}

// R rows of attention, as they lie, by 16 columns. Rows without a negative code are the unsigned side themselves.
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

constexpr int kRowsW4 = 5;  // 5 x 2 sums, 4 vectors of w, one of x, a mask: all of the 16 registers

struct Dot {
  using Weights = __m256i;
  static Weights load(const int8_t* from) { return _mm256_xor_si256(pinion::load(from), _mm256_set1_epi8(-128)); }
  static __m256i add(__m256i sum, Weights w, __m256i x) { return _mm256_dpbusd_avx_epi32(sum, w, x); }
  static __m256i start(const int8_t* a, int64_t k) {
    return _mm256_sub_epi32(_mm256_setzero_si256(), sum_times_128(a, k));
  }
  static __m256i add_w4(__m256i sum, __m256i w, __m256i x) { return _mm256_dpbusd_avx_epi32(sum, w, x); }
  static __m256i total_w4(__m256i sum) { return sum; }
};

using Attention = Digits<multiply_rows<true>, multiply_rows<false>>;

}  // namespace

const Kernels& avx_vnni_kernels() {
  static const Kernels kTable = [] {
    Kernels table = avx2_kernels();
    table.name = "avx_vnni";
    table.gemv_s8 = gemv_s8;
    table.gemv_w4 = gemv_w4;
    table.pack_s8 = pack_s8<4, 0x80>;
    table.gemm_s8 = gemm_s8;
    table.s8_shape = {.rows = kRows, .row_multiple = 1, .group = 4};
    table.gemm_w4 = gemm_w4;
    table.rows_s8 = rows_s8<Dot, kRows>;
    table.rows_w4 = rows_w4<Dot, kRowsW4>;
    table.make_query_s8 = make_query_s8<Attention>;
    table.attend_s8 = attend_s8<Attention>;
    return table;
  }();
  return kTable;
}

}  // namespace pinion
