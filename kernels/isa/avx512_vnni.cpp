// AVX-512 with VNNI. VPDPBUSD wants one unsigned side, made by adding 128: for one row w (128 times the sum of x is
// taken off), for several the packed rows (128 * column_sum is taken off). Exactly: int32 arithmetic wraps, the result
// fits.
#include "kernels/lanes/avx512.h"

#include "kernels/lanes/few_rows.h"
#include "kernels/lanes/ops.h"  // over the lanes above
#include "kernels/lanes/row_tiles.h"
#include "kernels/lanes/streams.h"
#include "kernels/lanes/w4_tiles.h"

namespace pinion {
namespace {

constexpr int kVectors = 4;  // a panel's columns

__m512i four_codes(const int8_t* a) {
  int32_t four;
  __builtin_memcpy(&four, a, sizeof four);
  return _mm512_set1_epi32(four);
}

// 64 codes of a row of the panel; see streams.h. clang makes one load of the halves again.
template <class Way>
__m512i load_codes(const int8_t* w) {
  if constexpr (Way::kPattern.load_bytes == 32) {
    const __m256i low = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(w));
    const __m256i high = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(w + 32));
    return _mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1);
  } else {
    return _mm512_loadu_si512(w);
  }
}

// Eight sums wait less for each other than four; integer sums may be split anywhere. Of few streams, four do it.
template <class Way>
[[gnu::noinline]] void gemv_s8_by(const int8_t* a, const int8_t* b, int64_t row_bytes, int64_t k, int32_t* acc) {
  const __m512i flip = _mm512_set1_epi8(-128);
  __m512i sum[2][kVectors];
  __m512i ones[2];  // of x, for the correction
  unrolled<2>([&](auto h) {
    ones[h] = _mm512_setzero_si512();
    unrolled<kVectors>([&](auto v) { sum[h][v] = _mm512_setzero_si512(); });
  });
  each_four_k<Way>(a, b, row_bytes, k, [&](auto s, const int8_t* x4, const int8_t* w) {
    constexpr int h = s % 2;
    const __m512i x = four_codes(x4);
    ones[h] = _mm512_dpbusd_epi32(ones[h], flip, x);
    unrolled<kVectors>([&](auto v) {
      sum[h][v] = _mm512_dpbusd_epi32(sum[h][v], _mm512_xor_si512(load_codes<Way>(w + v * 64), flip), x);
    });
  });
  const __m512i correction = _mm512_add_epi32(ones[0], ones[1]);
  unrolled<kVectors>([&](auto v) {
    _mm512_storeu_si512(acc + v * 16, _mm512_sub_epi32(_mm512_add_epi32(sum[0][v], sum[1][v]), correction));
  });
}

void gemv_s8(const int8_t* a, const int8_t* b, int64_t row_bytes, int64_t k, int32_t* acc) {
  with_access_pattern([&](auto way) { gemv_s8_by<decltype(way)>(a, b, row_bytes, k, acc); });
}

constexpr int kRows = 6;  // 6 x 4 sums, 4 vectors of w, one of x: 29 of the 32 registers

template <int R>
void gemm_tile(const RowTile& tile, const int32_t* column_sum, int32_t* acc) {
  __m512i sum[R][kVectors];
  unrolled<kVectors>([&](auto v) {
    const __m512i correction = _mm512_slli_epi32(_mm512_loadu_si512(column_sum + v * 16), 7);
    unrolled<R>([&](auto r) { sum[r][v] = _mm512_sub_epi32(_mm512_setzero_si512(), correction); });
  });
  for (const GemmTerm* term = tile.terms; term < tile.terms + tile.count; ++term) {
    const int8_t* a = static_cast<const int8_t*>(term->a) + tile.at_bytes;
    const int8_t* b = static_cast<const int8_t*>(term->b);
    const int8_t* end = b + term->k * kPanelColumns;
    for (; b < end; b += 4 * kPanelColumns, a += tile.block_rows * 4) {
      __m512i w[kVectors];
      unrolled<kVectors>([&](auto v) { w[v] = _mm512_loadu_si512(b + v * 64); });
      unrolled<R>([&](auto r) {
        const __m512i x = four_codes(a + r * 4);
        unrolled<kVectors>([&](auto v) { sum[r][v] = _mm512_dpbusd_epi32(sum[r][v], x, w[v]); });
      });
    }
  }
  unrolled<R>([&](auto r) {
    unrolled<kVectors>([&](auto v) { _mm512_storeu_si512(acc + r * kPanelColumns + v * 16, sum[r][v]); });
  });
}

void gemm_s8(const GemmTerm* terms, int64_t count, const RowBlocks& blocks, int64_t rows, const int32_t* column_sum,
             int32_t* acc) {
  each_row_tile<kRows, 4>(terms, count, blocks, rows, [&](auto n, const RowTile& tile, int64_t row) {
    gemm_tile<n>(tile, column_sum, acc + row * kPanelColumns);
  });
}

// The sum of a group's codes, times the zero where that is always 8.
template <bool HasZeros>
[[gnu::always_inline]] inline __m512i group_sum(const int8_t* x) {
  __m512i sum = _mm512_setzero_si512();
  unrolled<kBlockK / 4>(
      [&](auto i) { sum = _mm512_dpbusd_epi32(sum, _mm512_set1_epi8(HasZeros ? 1 : 8), four_codes(x + i * 4)); });
  return sum;
}

// The codes are the unsigned side as they lie; what they exceed w by, zero times the sum of x, is taken off.
template <class Way, bool HasZeros>
[[gnu::noinline]] void gemv_w4_by(const int8_t* a, const W4Panel& first, int64_t panels, float* acc) {
  const __m512i nibble = _mm512_set1_epi8(15);
  const int8_t* x = a;  // a group's
  __m512i x_sum;        // times the zero where that is always 8
  each_record<Way, HasZeros>(
      a, first, panels, acc,
      [&](const int8_t* codes) {
        x = codes;
        x_sum = group_sum<HasZeros>(codes);
      },
      [&](const std::byte* record, const std::byte* ahead, bool accumulate, float* to) {
        prefetch_record<Way, HasZeros>(ahead);
        __m512i sum[kVectors];
        unrolled<kVectors>([&](auto v) { sum[v] = _mm512_setzero_si512(); });
    // Unrolled, with the codes in registers, GCC reads the record here and there, which is slower.
#pragma GCC unroll 1
        for (int64_t pair = 0; pair < 4; ++pair) {
          const __m512i x0 = four_codes(x + pair * 8), x1 = four_codes(x + pair * 8 + 4);
          unrolled<kVectors>([&](auto v) {
            const __m512i both = _mm512_loadu_si512(record + pair * 256 + v * 64);
            sum[v] = _mm512_dpbusd_epi32(sum[v], _mm512_and_si512(both, nibble), x0);
            sum[v] = _mm512_dpbusd_epi32(sum[v], _mm512_and_si512(_mm512_srli_epi16(both, 4), nibble), x1);
          });
        }
        unrolled<kVectors>([&](auto v) {
          const std::byte* scales = record + kW4CodeBytes;
          __m512i excess = x_sum;
          if constexpr (HasZeros) {
            const auto* zero_points = reinterpret_cast<const __m128i*>(scales + kPanelColumns * 2 + v * 16);
            excess = _mm512_mullo_epi32(x_sum, _mm512_cvtepu8_epi32(_mm_loadu_si128(zero_points)));
          }
          const __m512 total = accumulate ? _mm512_loadu_ps(to + v * 16) : _mm512_setzero_ps();
          const __m512 scale = Lanes::load(reinterpret_cast<const f16*>(scales) + v * 16).v;
          const __m512 value = _mm512_cvtepi32_ps(_mm512_sub_epi32(sum[v], excess));
          _mm512_storeu_ps(to + v * 16, _mm512_fmadd_ps(value, scale, total));
        });
      });
}

void gemv_w4(const int8_t* a, const W4Panel& first, int64_t panels, float* acc) {
  with_access_pattern([&](auto way) {
    using Way = decltype(way);
    (first.has_zero_points ? gemv_w4_by<Way, true> : gemv_w4_by<Way, false>)(a, first, panels, acc);
  });
}

// 128 times the sum of a row's k codes.
__m512i sum_times_128(const int8_t* a, int64_t k) {
  __m512i sum = _mm512_setzero_si512();
  for (int64_t i = 0; i < k; i += 64) {
    const __mmask64 some = k - i < 64 ? (uint64_t{1} << (k - i)) - 1 : ~uint64_t{0};
    sum = _mm512_dpbusd_epi32(sum, _mm512_set1_epi8(-128), _mm512_maskz_loadu_epi8(some, a + i));
  }
  return _mm512_set1_epi32(_mm512_reduce_add_epi32(sum));
}

// acc += R rows, as they lie, by a piece of a panel.
template <int R>
[[gnu::noinline]] void few_rows_tile(const int8_t* a, int64_t lda, const int8_t* panel, const PanelPiece& piece,
                                     int32_t* acc) {
  const __m512i flip = _mm512_set1_epi8(-128);
  __m512i sum[R][kVectors];
  unrolled<R>([&](auto r) {
    unrolled<kVectors>([&](auto v) { sum[r][v] = _mm512_loadu_si512(acc + r * kPanelColumns + v * 16); });
  });
  each_strip(piece, a, panel, 0, [&](const int8_t* x, const int8_t* b, const int8_t* ahead) {
    for (const int8_t* end = x + piece.strip_k; x < end; x += 4, b += 4 * kPanelColumns, ahead += 4 * kPanelColumns) {
      prefetch<4 * kPanelColumns, 1>(ahead);
      __m512i w[kVectors];
      unrolled<kVectors>([&](auto v) { w[v] = _mm512_xor_si512(_mm512_loadu_si512(b + v * 64), flip); });
      unrolled<R>([&](auto r) {
        const __m512i four = four_codes(x + r * lda);
        unrolled<kVectors>([&](auto v) { sum[r][v] = _mm512_dpbusd_epi32(sum[r][v], w[v], four); });
      });
    }
  });
  unrolled<R>([&](auto r) {
    unrolled<kVectors>([&](auto v) { _mm512_storeu_si512(acc + r * kPanelColumns + v * 16, sum[r][v]); });
  });
}

void rows_s8(const int8_t* a, int64_t lda, int64_t rows, const int8_t* panel, int64_t k, int32_t* acc) {
  for (int64_t r = 0; r < rows; ++r) {
    const __m512i start = _mm512_sub_epi32(_mm512_setzero_si512(), sum_times_128(a + r * lda, k));
    unrolled<kVectors>([&](auto v) { _mm512_storeu_si512(acc + r * kPanelColumns + v * 16, start); });
  }
  with_access_pattern([&](auto way) {
    each_piece<decltype(way), 4>(k, [&](const PanelPiece& piece) {
      each_even_tile<1, kRows>(
          rows, [&](auto n, int64_t r) { few_rows_tile<n>(a + r * lda, lda, panel, piece, acc + r * kPanelColumns); });
    });
  });
}

constexpr int kRowsW4 = 8;  // 8 x 2 sums, 4 vectors of w, one of x

// R rows by a record of w4, two vectors of columns at a time, while `ahead` is prefetched. x: the group's codes; x_sum:
// [R] their sums, times the zero where that is always 8; acc: [R][64].
template <bool HasZeros, int R>
[[gnu::noinline]] void few_rows_record(const int8_t* x, int64_t lda, const std::byte* record, const std::byte* ahead,
                                       const __m512i* x_sum, bool accumulate, float* acc) {
  const __m512i nibble = _mm512_set1_epi8(15);
  for (int64_t c = 0; c < kPanelColumns; c += 32) {
    __m512i sum[R][2];
    unrolled<R>([&](auto r) { unrolled<2>([&](auto v) { sum[r][v] = _mm512_setzero_si512(); }); });
#pragma GCC unroll 1
    for (int64_t pair = 0; pair < 4; ++pair) {
      prefetch<128, 1>(ahead + pair * 256 + c * 4);
      __m512i w[2][2];  // the pair's rows, two vectors of columns of each
      unrolled<2>([&](auto v) {
        const __m512i both = _mm512_loadu_si512(record + pair * 256 + c * 4 + v * 64);
        w[0][v] = _mm512_and_si512(both, nibble);
        w[1][v] = _mm512_and_si512(_mm512_srli_epi16(both, 4), nibble);
      });
      unrolled<2>([&](auto i) {
        unrolled<R>([&](auto r) {
          const __m512i four = four_codes(x + r * lda + pair * 8 + i * 4);
          unrolled<2>([&](auto v) { sum[r][v] = _mm512_dpbusd_epi32(sum[r][v], w[i][v], four); });
        });
      });
    }
    prefetch<kAlignmentBytes, 1>(ahead + kW4CodeBytes + c * 2);
    if (HasZeros && c == 0) prefetch<kAlignmentBytes, 1>(ahead + kW4CodeBytes + 2 * kPanelColumns);
    unrolled<2>([&](auto v) {
      const int64_t column = c + v * 16;
      const std::byte* scales = record + kW4CodeBytes;
      const __m512 scale = Lanes::load(reinterpret_cast<const f16*>(scales) + column).v;
      __m512i zero;
      if constexpr (HasZeros) {
        const auto* zero_points = reinterpret_cast<const __m128i*>(scales + kPanelColumns * 2 + column);
        zero = _mm512_cvtepu8_epi32(_mm_loadu_si128(zero_points));
      }
      unrolled<R>([&](auto r) {
        float* at = acc + r * kPanelColumns + column;
        __m512i excess = x_sum[r];
        if constexpr (HasZeros) excess = _mm512_madd_epi16(excess, zero);
        const __m512 total = accumulate ? _mm512_loadu_ps(at) : _mm512_setzero_ps();
        const __m512 value = _mm512_cvtepi32_ps(_mm512_sub_epi32(sum[r][v], excess));
        _mm512_storeu_ps(at, _mm512_fmadd_ps(value, scale, total));
      });
    });
  }
}

// As gemv_w4 for rows as they lie, all of them by a record before the next one.
template <class Way, bool HasZeros>
void few_rows_w4_by(const int8_t* a, int64_t lda, int64_t rows, const W4Panel& first, int64_t panels, float* acc) {
  const int8_t* x = a;  // a group's
  __m512i x_sum[kMostFewRows];
  each_record<Way, HasZeros>(
      a, first, panels, acc,
      [&](const int8_t* codes) {
        x = codes;
        for (int64_t r = 0; r < rows; ++r) x_sum[r] = group_sum<HasZeros>(codes + r * lda);
      },
      [&](const std::byte* record, const std::byte* ahead, bool accumulate, float* to) {
        each_even_tile<1, kRowsW4>(rows, [&](auto n, int64_t r) {
          few_rows_record<HasZeros, n>(x + r * lda, lda, record, r == 0 ? ahead : record, x_sum + r, accumulate,
                                       to + r * kPanelColumns);
        });
      },
      rows * kPanelColumns);
}

void rows_w4(const int8_t* a, int64_t lda, int64_t rows, const W4Panel& first, int64_t panels, float* acc) {
  with_access_pattern([&](auto way) {
    using Way = decltype(way);
    (first.has_zero_points ? few_rows_w4_by<Way, true> : few_rows_w4_by<Way, false>)(a, lda, rows, first, panels, acc);
  });
}

void correct(const int8_t* w, int32_t* to) {
  __m512i sum = _mm512_setzero_si512();
  for (int64_t k4 = 0; k4 < kBlockK / 4; ++k4) {
    sum = _mm512_dpbusd_epi32(sum, _mm512_set1_epi8(-128), _mm512_loadu_si512(w + k4 * 256));
  }
  _mm512_storeu_si512(to, _mm512_sub_epi32(_mm512_setzero_si512(), sum));
}

using Piece = CorrectedPiece<16, correct>;

// R rows by V vectors of 16 columns; `column` is the first. 6 x 2 sums of a group and of all, 2 vectors of w, one of x.
template <int R, int V>
void w4_tile(const RowTile& tile, const Piece& piece, int64_t column, bool accumulate, float* acc) {
  const auto at = [&](int r, int v) { return acc + r * kPanelColumns + column + v * 16; };
  __m512 total[R][V];
  unrolled<R>([&](auto r) {
    unrolled<V>([&](auto v) { total[r][v] = accumulate ? _mm512_loadu_ps(at(r, v)) : _mm512_setzero_ps(); });
  });
  const int8_t* a = static_cast<const int8_t*>(tile.terms->a) + tile.at_bytes;
  const int8_t* b = piece.codes + column * 4;
  for (int64_t g = column; g < piece.groups * kPanelColumns; g += kPanelColumns) {
    __m512i sum[R][V];
    unrolled<V>([&](auto v) {
      const __m512i correction = _mm512_loadu_si512(piece.corrections + g + v * 16);
      unrolled<R>([&](auto r) { sum[r][v] = correction; });
    });
    for (int64_t i = 0; i < kBlockK; i += 4, a += tile.block_rows * 4, b += 4 * kPanelColumns) {
      __m512i w[V];
      unrolled<V>([&](auto v) { w[v] = _mm512_loadu_si512(b + v * 64); });
      unrolled<R>([&](auto r) {
        const __m512i x = four_codes(a + r * 4);
        unrolled<V>([&](auto v) { sum[r][v] = _mm512_dpbusd_epi32(sum[r][v], x, w[v]); });
      });
    }
    unrolled<V>([&](auto v) {
      const __m512 scale = _mm512_loadu_ps(piece.scales + g + v * 16);
      unrolled<R>([&](auto r) { total[r][v] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(sum[r][v]), scale, total[r][v]); });
    });
  }
  unrolled<R>([&](auto r) { unrolled<V>([&](auto v) { _mm512_storeu_ps(at(r, v), total[r][v]); }); });
}

void gemm_w4(const int8_t* a, const RowBlocks& blocks, int64_t rows, const W4Panel& panel, float* acc) {
  each_w4_tile<Piece, kRows, 32, 4>(a, blocks, rows, panel, acc,
                                    [](auto n, const auto&... args) { w4_tile<n, 2>(args...); });
}

// R rows, as they lie, by 64 columns. Rows without a negative code are the unsigned side themselves.
template <int R, bool IsSigned>
void rows_tile(const int8_t* a, int64_t lda, const int8_t* b, int64_t row_bytes, int64_t k, int32_t* acc) {
  const __m512i flip = _mm512_set1_epi8(-128);
  __m512i sum[R][kVectors];
  unrolled<R>([&](auto r) {
    __m512i start = _mm512_setzero_si512();
    if constexpr (IsSigned) start = _mm512_sub_epi32(start, sum_times_128(a + r * lda, k));
    unrolled<kVectors>([&](auto v) { sum[r][v] = start; });
  });
  for (const int8_t* end = a + k; a < end; a += 4, b += row_bytes) {
    __m512i w[kVectors];
    unrolled<kVectors>([&](auto v) {
      w[v] = _mm512_loadu_si512(b + v * 64);
      if constexpr (R <= kFewRows) __builtin_prefetch(b + v * 64 + kCodesAheadBytes, 0, 2);
      if constexpr (IsSigned) w[v] = _mm512_xor_si512(w[v], flip);
    });
    unrolled<R>([&](auto r) {
      const __m512i x = four_codes(a + r * lda);
      unrolled<kVectors>([&](auto v) {
        sum[r][v] = IsSigned ? _mm512_dpbusd_epi32(sum[r][v], w[v], x) : _mm512_dpbusd_epi32(sum[r][v], x, w[v]);
      });
    });
  }
  unrolled<R>([&](auto r) {
    unrolled<kVectors>([&](auto v) { _mm512_storeu_si512(acc + r * kPanelColumns + v * 16, sum[r][v]); });
  });
}

template <bool IsSigned>
void multiply_rows(const int8_t* a, int64_t lda, int64_t rows, const int8_t* b, int64_t row_bytes, int64_t k,
                   int32_t* acc) {
  for (int64_t r = 0; r < rows; r += kRows) {
    with_rows<kRows>(
        rows - r, [&](auto n) { rows_tile<n, IsSigned>(a + r * lda, lda, b, row_bytes, k, acc + r * kPanelColumns); });
  }
}

using Attention = Digits<multiply_rows<true>, multiply_rows<false>>;

constexpr Kernels kTable = lanes_table("avx512_vnni", {gemv_s8,
                                                       pack_s8<4, 0x80>,
                                                       gemm_s8,
                                                       {.rows = kRows, .row_multiple = 1, .group = 4},
                                                       gemv_w4,
                                                       gemm_w4,
                                                       make_query_s8<Attention>,
                                                       attend_s8<Attention>,
                                                       kMostFewRows,
                                                       rows_s8,
                                                       rows_w4});

}  // namespace

const Kernels& avx512_vnni_kernels() { return kTable; }

}  // namespace pinion
