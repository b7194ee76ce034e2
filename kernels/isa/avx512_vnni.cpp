// AVX-512 with VNNI. One operand of VPDPBUSD is unsigned, so for w8 128 is added to it: for unpacked rows to w (128 *
// sum(x) is subtracted), for packed rows to x (128 * column_sum is subtracted). The result is exact, because int32
// arithmetic wraps and the final sums fit. Codes of formats with groups are unsigned; zero * sum(x) is subtracted.
#include "kernels/lanes/avx512.h"

#include "kernels/lanes/grouped_tiles.h"  // over the lanes above
#include "kernels/lanes/ops.h"
#include "kernels/lanes/rows.h"
#include "kernels/lanes/streams.h"

namespace pinion {
namespace {

constexpr int kVectors = 4;  // vectors of the columns of a panel
constexpr int kRows = 6;     // 6 x 4 sums, 4 vectors of w, one of x: 29 of the 32 registers

__m512i four_codes(const int8_t* a) {
  int32_t four;
  __builtin_memcpy(&four, a, sizeof four);
  return _mm512_set1_epi32(four);
}

// weight * sum of the k codes of a row, in every lane; weight is at most 255.
[[gnu::always_inline]] inline __m512i sum_times(int weight, const int8_t* a, int64_t k) {
  __m512i sum = _mm512_setzero_si512();
  for (int64_t i = 0; i < k; i += 64) {
    const __mmask64 mask = k - i < 64 ? (uint64_t{1} << (k - i)) - 1 : ~uint64_t{0};
    sum = _mm512_dpbusd_epi32(sum, _mm512_set1_epi8(static_cast<char>(weight)), _mm512_maskz_loadu_epi8(mask, a + i));
  }
  return _mm512_set1_epi32(_mm512_reduce_add_epi32(sum));
}

// Loads 64 codes of a panel, by one load or two (AccessPattern::load_bytes). clang merges the two into one.
template <class Access>
__m512i load_codes(const int8_t* w) {
  if constexpr (Access::kPattern.load_bytes == 32) {
    const __m256i low = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(w));
    const __m256i high = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(w + 32));
    return _mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1);
  } else {
    return _mm512_loadu_si512(w);
  }
}

// Unrolled streams alternate between two sets of sums, which shortens the chains; integer sums may be split anywhere.
template <class Access>
[[gnu::noinline]] void gemv_s8_by(const int8_t* a, const int8_t* b, int64_t row_bytes, int64_t k, int32_t* acc) {
  const __m512i flip = _mm512_set1_epi8(-128);
  __m512i sum[2][kVectors];
  __m512i ones[2];  // 128 * sum(x), for the correction
  unrolled<2>([&](auto h) {
    ones[h] = _mm512_setzero_si512();
    unrolled<kVectors>([&](auto v) { sum[h][v] = _mm512_setzero_si512(); });
  });
  for_each_four_k<Access>(a, b, row_bytes, k, [&](auto s, const int8_t* x4, const int8_t* w) {
    constexpr int h = s % 2;
    const __m512i x = four_codes(x4);
    ones[h] = _mm512_dpbusd_epi32(ones[h], flip, x);
    unrolled<kVectors>([&](auto v) {
      sum[h][v] = _mm512_dpbusd_epi32(sum[h][v], _mm512_xor_si512(load_codes<Access>(w + v * 64), flip), x);
    });
  });
  const __m512i correction = _mm512_add_epi32(ones[0], ones[1]);
  unrolled<kVectors>([&](auto v) {
    _mm512_storeu_si512(acc + v * 16, _mm512_sub_epi32(_mm512_add_epi32(sum[0][v], sum[1][v]), correction));
  });
}

void gemv_s8(const int8_t* a, const int8_t* b, int64_t row_bytes, int64_t k, int32_t* acc) {
  with_access_pattern([&](auto access) { gemv_s8_by<decltype(access)>(a, b, row_bytes, k, acc); });
}

template <int R>
void gemm_tile(const RowTile& tile, const int32_t* column_sum, int32_t* acc) {
  __m512i sum[R][kVectors];
  unrolled<kVectors>([&](auto v) {
    const __m512i correction = _mm512_slli_epi32(_mm512_loadu_si512(column_sum + v * 16), 7);
    unrolled<R>([&](auto r) { sum[r][v] = _mm512_sub_epi32(_mm512_setzero_si512(), correction); });
  });
  for (const GemmTerm* term = tile.terms; term < tile.terms + tile.count; ++term) {
    const int8_t* a = static_cast<const int8_t*>(term->a) + tile.offset_bytes;
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
  for_each_register_tile<kRows, 4>(terms, count, blocks, rows, [&](auto n, const RowTile& tile, int64_t row) {
    gemm_tile<n>(tile, column_sum, acc + row * kPanelColumns);
  });
}

// acc [R][64] += R unpacked rows by a slice of a panel.
template <int R>
[[gnu::noinline]] void few_rows_tile(const int8_t* a, int64_t lda, const int8_t* panel, const PanelSlice& slice,
                                     int32_t* acc) {
  const __m512i flip = _mm512_set1_epi8(-128);
  __m512i sum[R][kVectors];
  unrolled<R>([&](auto r) {
    unrolled<kVectors>([&](auto v) { sum[r][v] = _mm512_loadu_si512(acc + r * kPanelColumns + v * 16); });
  });
  for_each_strip(slice, a, panel, 0, [&](const int8_t* x, const int8_t* b, const int8_t* ahead) {
    for (const int8_t* end = x + slice.strip_k; x < end; x += 4, b += 4 * kPanelColumns, ahead += 4 * kPanelColumns) {
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
    const __m512i start = _mm512_sub_epi32(_mm512_setzero_si512(), sum_times(128, a + r * lda, k));
    unrolled<kVectors>([&](auto v) { _mm512_storeu_si512(acc + r * kPanelColumns + v * 16, start); });
  }
  with_access_pattern([&](auto access) {
    for_each_slice<decltype(access), 4>(k, [&](const PanelSlice& slice) {
      for_each_even_tile<1, kRows>(
          rows, [&](auto n, int64_t r) { few_rows_tile<n>(a + r * lda, lda, panel, slice, acc + r * kPanelColumns); });
    });
  });
}

// The excess of sum(code * x) over sum(weight * x) for a group, in every lane: zero * sum(x). If each column has its
// own zero point, sum(x) / kZeroSteps.
template <class Record>
[[gnu::always_inline]] inline __m512 group_excess(const int8_t* x) {
  const __m512 sum = _mm512_cvtepi32_ps(sum_times(Record::kHasZeros ? 1 : Record::kZero, x, Record::kK));
  return Record::kHasZeros ? _mm512_mul_ps(sum, _mm512_set1_ps(1.0f / kZeroSteps)) : sum;
}

// Codes of sixteen columns, from row R of a line.
template <class Record, int R>
[[gnu::always_inline]] inline __m512i row_of_line(__m512i line) {
  if constexpr (R > 0) line = _mm512_srli_epi16(line, R * Record::kBits);
  return _mm512_and_si512(line, _mm512_set1_epi8(Record::kMask));
}

// Scales and zero points of sixteen columns of a group.
template <class Record>
struct GroupScale {
  __m512 scale;
  __m512 zeros;  // times kZeroSteps; used only if the format has zero points

  [[gnu::always_inline]] GroupScale(const std::byte* record, int64_t column) {
    const std::byte* scales = record + Record::kCodeBytes;
    scale = Lanes::load(reinterpret_cast<const f16*>(scales) + column).v;
    if constexpr (Record::kHasZeros) {
      const auto* zero_points = reinterpret_cast<const __m128i*>(scales + kPanelColumns * 2 + column);
      zeros = _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(_mm_loadu_si128(zero_points)));
    }
  }

  // acc += (sum - excess) * scale, where the difference is exact.
  [[gnu::always_inline]] void add(__m512i sum, __m512 excess, bool accumulate, float* acc) const {
    const __m512 total = accumulate ? _mm512_loadu_ps(acc) : _mm512_setzero_ps();
    __m512 exact = _mm512_cvtepi32_ps(sum);
    exact = Record::kHasZeros ? _mm512_fnmadd_ps(zeros, excess, exact) : _mm512_sub_ps(exact, excess);
    _mm512_storeu_ps(acc, _mm512_fmadd_ps(exact, scale, total));
  }
};

template <class Access, class Record>
[[gnu::noinline]] void gemv_grouped_by(const int8_t* a, const GroupedPanel& first, int64_t panels, float* acc) {
  const int8_t* x = a;  // codes of the current group
  __m512 excess;
  for_each_record<Access, Record>(
      a, first, panels, acc,
      [&](const int8_t* codes) {
        x = codes;
        excess = group_excess<Record>(codes);
      },
      [&](const std::byte* record, const std::byte* ahead, bool accumulate, float* to) {
        prefetch_record<Access, Record>(ahead);
        __m512i sum[kVectors];
        unrolled<kVectors>([&](auto v) { sum[v] = _mm512_setzero_si512(); });
#pragma GCC unroll 1  // if unrolled, GCC reads the record out of order, which is slower
        for (int64_t line = 0; line < Record::kLines; ++line) {
          __m512i four[Record::kRows];
          unrolled<Record::kRows>([&](auto i) { four[i] = four_codes(x + (line * Record::kRows + i) * 4); });
          unrolled<kVectors>([&](auto v) {
            const __m512i codes = _mm512_loadu_si512(record + line * 256 + v * 64);
            unrolled<Record::kRows>(
                [&](auto i) { sum[v] = _mm512_dpbusd_epi32(sum[v], row_of_line<Record, i>(codes), four[i]); });
          });
        }
        unrolled<kVectors>(
            [&](auto v) { GroupScale<Record>(record, v * 16).add(sum[v], excess, accumulate, to + v * 16); });
      });
}

void gemv_grouped(const int8_t* a, const GroupedPanel& first, int64_t panels, float* acc) {
  with_access_pattern([&](auto access) {
    with_record(first.format,
                [&](auto record) { gemv_grouped_by<decltype(access), decltype(record)>(a, first, panels, acc); });
  });
}

constexpr int kFewGroupedRows = 8;  // 8 x 2 sums, 4 vectors of w, one of x

// acc [R][64] (+)= R rows by a record, two vectors of columns at a time; prefetches the record `ahead`. x: codes of the
// group; excess: [R].
template <class Record, int R>
[[gnu::noinline]] void few_rows_record(const int8_t* x, int64_t lda, const std::byte* record, const std::byte* ahead,
                                       const __m512* excess, bool accumulate, float* acc) {
  for (int64_t c = 0; c < kPanelColumns; c += 32) {
    __m512i sum[R][2];
    unrolled<R>([&](auto r) { unrolled<2>([&](auto v) { sum[r][v] = _mm512_setzero_si512(); }); });
#pragma GCC unroll 1
    for (int64_t line = 0; line < Record::kLines; ++line) {
      prefetch<128, 1>(ahead + line * 256 + c * 4);
      const std::byte* codes = record + line * 256 + c * 4;
      const __m512i lines[2] = {_mm512_loadu_si512(codes), _mm512_loadu_si512(codes + 64)};
      unrolled<Record::kRows>([&](auto i) {
        const __m512i w[2] = {row_of_line<Record, i>(lines[0]), row_of_line<Record, i>(lines[1])};
        unrolled<R>([&](auto r) {
          const __m512i four = four_codes(x + r * lda + (line * Record::kRows + i) * 4);
          unrolled<2>([&](auto v) { sum[r][v] = _mm512_dpbusd_epi32(sum[r][v], w[v], four); });
        });
      });
    }
    prefetch<kAlignmentBytes, 1>(ahead + Record::kCodeBytes + c * 2);
    if (Record::kHasZeros && c == 0) prefetch<kAlignmentBytes, 1>(ahead + Record::kCodeBytes + 2 * kPanelColumns);
    unrolled<2>([&](auto v) {
      const int64_t column = c + v * 16;
      const GroupScale<Record> group(record, column);
      unrolled<R>([&](auto r) { group.add(sum[r][v], excess[r], accumulate, acc + r * kPanelColumns + column); });
    });
  }
}

// Kernels::rows_grouped. All rows multiply a record before the next one.
template <class Access, class Record>
void few_rows_grouped_by(const int8_t* a, int64_t lda, int64_t rows, const GroupedPanel& first, int64_t panels,
                         float* acc) {
  const int8_t* x = a;  // codes of the current group
  __m512 excess[kMaxFewRows];
  for_each_record<Access, Record>(
      a, first, panels, acc,
      [&](const int8_t* codes) {
        x = codes;
        for (int64_t r = 0; r < rows; ++r) excess[r] = group_excess<Record>(codes + r * lda);
      },
      [&](const std::byte* record, const std::byte* ahead, bool accumulate, float* to) {
        for_each_even_tile<1, kFewGroupedRows>(rows, [&](auto n, int64_t r) {
          few_rows_record<Record, n>(x + r * lda, lda, record, r == 0 ? ahead : record, excess + r, accumulate,
                                     to + r * kPanelColumns);
        });
      },
      rows * kPanelColumns);
}

void rows_grouped(const int8_t* a, int64_t lda, int64_t rows, const GroupedPanel& first, int64_t panels, float* acc) {
  with_access_pattern([&](auto access) {
    with_record(first.format, [&](auto record) {
      few_rows_grouped_by<decltype(access), decltype(record)>(a, lda, rows, first, panels, acc);
    });
  });
}

// See CorrectedSlice.
void correct(const int8_t* w, int64_t k, int32_t* to) {
  __m512i sum = _mm512_setzero_si512();
  for (int64_t i = 0; i < k; i += 4, w += 4 * kPanelColumns) {
    sum = _mm512_dpbusd_epi32(sum, _mm512_set1_epi8(-128), _mm512_loadu_si512(w));
  }
  _mm512_storeu_si512(to, _mm512_sub_epi32(_mm512_setzero_si512(), sum));
}

template <class Record>
using Slice = CorrectedSlice<Record, 16, correct>;

// acc (+)= R rows by V vectors of 16 columns of a slice, from `column` on. 6 x 2 sums of a group and 6 x 2 totals, 2
// vectors of w, one of x. The 6 x 4 sums that w2 could have without totals would halve the speed: GCC spills some.
template <int R, int V, class Slice>
void grouped_tile(const RowTile& tile, const Slice& slice, int64_t column, bool accumulate, float* acc) {
  const auto at = [&](int r, int v) { return acc + r * kPanelColumns + column + v * 16; };
  __m512 total[R][V];
  unrolled<R>([&](auto r) {
    unrolled<V>([&](auto v) { total[r][v] = accumulate ? _mm512_loadu_ps(at(r, v)) : _mm512_setzero_ps(); });
  });
  const int8_t* a = static_cast<const int8_t*>(tile.terms->a) + tile.offset_bytes;
  const int8_t* b = slice.codes + column * 4;
  for (int64_t g = column; g < slice.groups * kPanelColumns; g += kPanelColumns) {
    __m512i sum[R][V];
    unrolled<V>([&](auto v) {
      const __m512i correction = _mm512_loadu_si512(slice.corrections + g + v * 16);
      unrolled<R>([&](auto r) { sum[r][v] = correction; });
    });
    for (int64_t i = 0; i < Slice::kK; i += 4, a += tile.block_rows * 4, b += 4 * kPanelColumns) {
      __m512i w[V];
      unrolled<V>([&](auto v) { w[v] = _mm512_loadu_si512(b + v * 64); });
      unrolled<R>([&](auto r) {
        const __m512i x = four_codes(a + r * 4);
        unrolled<V>([&](auto v) { sum[r][v] = _mm512_dpbusd_epi32(sum[r][v], x, w[v]); });
      });
    }
    unrolled<V>([&](auto v) {
      const __m512 scale = _mm512_loadu_ps(slice.scales + g + v * 16);
      unrolled<R>([&](auto r) { total[r][v] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(sum[r][v]), scale, total[r][v]); });
    });
  }
  unrolled<R>([&](auto r) { unrolled<V>([&](auto v) { _mm512_storeu_ps(at(r, v), total[r][v]); }); });
}

void gemm_grouped(const int8_t* a, const RowBlocks& blocks, int64_t rows, const GroupedPanel& panel, float* acc) {
  with_record(panel.format, [&](auto record) {
    for_each_grouped_tile<Slice<decltype(record)>, kRows, 32, 4>(
        a, blocks, rows, panel, acc, [](auto n, const auto&... args) { grouped_tile<n, 2>(args...); });
  });
}

// acc = R unpacked rows of attention by 64 columns. Rows without negative codes can be the unsigned operand.
template <int R, bool IsSigned>
void rows_tile(const int8_t* a, int64_t lda, const int8_t* b, int64_t row_bytes, int64_t k, int32_t* acc) {
  const __m512i flip = _mm512_set1_epi8(-128);
  __m512i sum[R][kVectors];
  unrolled<R>([&](auto r) {
    __m512i start = _mm512_setzero_si512();
    if constexpr (IsSigned) start = _mm512_sub_epi32(start, sum_times(128, a + r * lda, k));
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
                                                       gemv_grouped,
                                                       gemm_grouped,
                                                       make_query_s8<Attention>,
                                                       attend_s8<Attention>,
                                                       kMaxFewRows,
                                                       rows_s8,
                                                       rows_grouped});

}  // namespace

const Kernels& avx512_vnni_kernels() { return kTable; }

}  // namespace pinion
