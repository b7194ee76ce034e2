// AVX2 with FMA. int8 products are VPMADDUBSW of |w| (unsigned, at most 128) and x with the sign of w (at most 127 in
// magnitude): the sum of a pair is at most 32512 and cannot saturate.
#include "kernels/lanes/avx2.h"

#include "kernels/isa/rows_x86.h"
#include "kernels/lanes/grouped_tiles.h"
#include "kernels/lanes/ops.h"  // over the lanes above
#include "kernels/lanes/rows.h"
#include "kernels/lanes/streams.h"

namespace pinion {
namespace {

// sum + products of four codes of x with four k of eight columns.
__m256i add_products(__m256i sum, __m256i x, __m256i w, __m256i magnitude) {
  const __m256i pairs = _mm256_maddubs_epi16(magnitude, _mm256_sign_epi8(x, w));
  return _mm256_add_epi32(sum, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
}

// c [R][64] (+)= R rows by V vectors of 8 columns over a term. Rows are a_row bytes apart, steps of four codes a_step.
template <int R, int V>
void gemm_tile(const int8_t* a, int64_t a_row, int64_t a_step, const int8_t* b, int64_t b_step, int64_t k,
               bool accumulate, int32_t* c) {
  const auto at = [&](int r, int v) { return reinterpret_cast<__m256i*>(c + r * kPanelColumns + v * 8); };
  __m256i sum[R][V];
  unrolled<R, V>(
      [&](auto r, auto v) { sum[r][v] = accumulate ? _mm256_loadu_si256(at(r, v)) : _mm256_setzero_si256(); });
  for (int64_t i = 0; i < k; i += 4, a += a_step, b += b_step) {
    __m256i x[R];
    unrolled<R>([&](auto r) { x[r] = four_codes(a + r * a_row); });
    unrolled<V>([&](auto v) {
      const __m256i w = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(b + v * 32));
      const __m256i magnitude = _mm256_abs_epi8(w);
      unrolled<R>([&](auto r) { sum[r][v] = add_products(sum[r][v], x[r], w, magnitude); });
    });
  }
  unrolled<R, V>([&](auto r, auto v) { _mm256_storeu_si256(at(r, v), sum[r][v]); });
}

template <class Access>
[[gnu::noinline]] void gemv_s8_by(const int8_t* a, const int8_t* b, int64_t row_bytes, int64_t k, int32_t* acc) {
  __m256i sum[kVectors];
  unrolled<kVectors>([&](auto v) { sum[v] = _mm256_setzero_si256(); });
  for_each_four_k<Access>(a, b, row_bytes, k, [&](auto, const int8_t* x4, const int8_t* from) {
    const __m256i x = four_codes(x4);
    unrolled<kVectors>([&](auto v) {
      const __m256i w = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from + v * 32));
      sum[v] = add_products(sum[v], x, w, _mm256_abs_epi8(w));
    });
  });
  unrolled<kVectors>([&](auto v) { _mm256_storeu_si256(reinterpret_cast<__m256i*>(acc + v * 8), sum[v]); });
}

void gemv_s8(const int8_t* a, const int8_t* b, int64_t row_bytes, int64_t k, int32_t* acc) {
  with_access_pattern([&](auto access) { gemv_s8_by<decltype(access)>(a, b, row_bytes, k, acc); });
}

constexpr int kRows = 4;

void gemm_s8(const GemmTerm* terms, int64_t count, const RowBlocks& blocks, int64_t rows, const int32_t* /*column_sum*/,
             int32_t* acc) {
  for_each_register_tile<kRows, 4>(terms, count, blocks, rows, [&](auto n, const RowTile& tile, int64_t row) {
    for (int64_t c = 0; c < kPanelColumns; c += 16) {
      for (int64_t i = 0; i < count; ++i) {
        gemm_tile<n, 2>(static_cast<const int8_t*>(terms[i].a) + tile.offset_bytes, 4, tile.block_rows * 4,
                        static_cast<const int8_t*>(terms[i].b) + c * 4, 4 * kPanelColumns, terms[i].k, i > 0,
                        acc + row * kPanelColumns + c);
      }
    }
  });
}

// See rows_x86.h.
struct Dot {
  static constexpr int kLevelZero = 0;
  struct Weights {
    __m256i w, magnitude;
  };
  static Weights load(const int8_t* from) {
    const __m256i w = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
    return {w, _mm256_abs_epi8(w)};
  }
  static __m256i add(__m256i sum, const Weights& w, __m256i x) { return add_products(sum, x, w.w, w.magnitude); }
  static __m256i start(const int8_t* /*a*/, int64_t /*k*/) { return _mm256_setzero_si256(); }
  // Pairs of products of a group are added in 16 bits: for w4 eight, at most 30480, for w2 thirty-two, at most 24384.
  // Levels are signed, and one pair of them can be 32258.
  template <bool IsLevels = false>
  static __m256i add_codes(__m256i sum, __m256i w, __m256i x) {
    if constexpr (IsLevels) return add_products(sum, w, x, _mm256_abs_epi8(x));
    return _mm256_add_epi16(sum, _mm256_maddubs_epi16(w, x));
  }
  template <bool IsLevels = false>
  static __m256i total(__m256i sum) {
    return IsLevels ? sum : fold(sum);
  }
  static __m256i fold(__m256i pairs) { return _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)); }
  template <int64_t K>
  static __m256i sum_of(int weight, const int8_t* x) {
    return Register::sum_by<Dot, K>(weight, x);
  }
};

using RowSums = float[kExpandedK / kGroupK][kRows];  // [groups of a slice][rows]

// The sum of each row's codes in each group.
template <int R, class Slice>
void sum_rows(const RowTile& tile, const Slice& slice, RowSums sums) {
  const int8_t* a = static_cast<const int8_t*>(tile.terms->a) + tile.offset_bytes;
  for (int64_t g = 0; g < slice.groups; ++g) {
    __m128i pairs = _mm_setzero_si128();
    for (int64_t i = 0; i < Slice::kK; i += 4, a += tile.block_rows * 4) {
      __m128i x = _mm_setzero_si128();
      __builtin_memcpy(&x, a, R * 4);
      pairs = _mm_add_epi16(pairs, _mm_maddubs_epi16(_mm_set1_epi8(1), x));
    }
    _mm_storeu_ps(sums[g], _mm_cvtepi32_ps(_mm_madd_epi16(pairs, _mm_set1_epi16(1))));
  }
}

// acc (+)= R rows by V vectors of 8 columns, from `column` on. Sums are of 16 bits, see Dot.
template <int R, int V, class Slice>
void grouped_tile(const RowTile& tile, const Slice& slice, const RowSums sums, int64_t column, bool accumulate,
                  float* acc) {
  const int8_t* a = static_cast<const int8_t*>(tile.terms->a) + tile.offset_bytes;
  const int8_t* b = slice.codes + column * 4;
  const auto at = [](const int8_t* p, int v) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p) + v); };
  for (int64_t g = 0; g < slice.groups; ++g) {
    __m256i sum[R][V];
    unrolled<R, V>([&](auto r, auto v) { sum[r][v] = _mm256_setzero_si256(); });
#pragma GCC unroll 1  // as in gemv_grouped_by
    for (int64_t i = 0; i < Slice::kK; i += 4, a += tile.block_rows * 4, b += 4 * kPanelColumns) {
      __m256i w[V];
      unrolled<V>([&](auto v) { w[v] = at(b, v); });
      unrolled<R>([&](auto r) {
        const __m256i x = four_codes(a + r * 4);
        unrolled<V>([&](auto v) { sum[r][v] = Dot::add_codes<Slice::kHasLevels>(sum[r][v], w[v], x); });
      });
    }
    const int64_t first = g * kPanelColumns + column;
    unrolled<V>([&](auto v) {
      const __m256 scale = _mm256_loadu_ps(slice.scales + first + v * 8);
      const __m256 zero = _mm256_loadu_ps(slice.zero_points + first + v * 8);
      unrolled<R>([&](auto r) {
        const __m256 all = _mm256_cvtepi32_ps(Dot::total<Slice::kHasLevels>(sum[r][v]));
        add_scaled(_mm256_fnmadd_ps(zero, _mm256_set1_ps(sums[g][r]), all), scale, accumulate || g > 0,
                   acc + r * kPanelColumns + column + v * 8);
      });
    });
  }
}

void gemm_grouped(const int8_t* a, const RowBlocks& blocks, int64_t rows, const GroupedPanel& panel, float* acc) {
  const auto tiles = [](auto n, const RowTile& tile, const auto& slice, int64_t, bool accumulate, float* to) {
    RowSums sums;
    sum_rows<n>(tile, slice, sums);
    for (int64_t c = 0; c < kPanelColumns; c += 16) grouped_tile<n, 2>(tile, slice, sums, c, accumulate, to);
  };
  with_record(panel.format, [&](auto record) {
    for_each_grouped_tile<UnsignedSlice<decltype(record)>, kRows, kPanelColumns, 4>(a, blocks, rows, panel, acc, tiles);
  });
}

// A Product of attention_s8.h with queries and weights of 16 bits, so that a weight needs no second digit.
struct Words {
  using Code = int16_t;

  static void store_query(Lanes codes, float* row, int64_t i) { store(codes, reinterpret_cast<int16_t*>(row) + i); }
  static void store_weight(Lanes codes, std::byte* row, int64_t i) {
    store(codes, reinterpret_cast<int16_t*>(row) + i);
  }
  static void scores(const float* q, int64_t d, int64_t rows, const int8_t* panel, int32_t* sums) {
    multiply(reinterpret_cast<const int16_t*>(q), 2 * d, rows, panel, 4 * kPanelColumns, d, sums);
  }
  static void values(const std::byte* weights, int64_t from, int64_t rows, const int8_t* values, int64_t row_bytes,
                     int64_t k, int32_t* sums) {
    multiply(reinterpret_cast<const int16_t*>(weights) + from, kAttentionChunk, rows, values, row_bytes, k, sums);
  }

  static void store(Lanes codes, int16_t* to) {
    const __m256i words = _mm256_packs_epi32(_mm256_cvtps_epi32(codes.lo), _mm256_cvtps_epi32(codes.hi));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), _mm256_permute4x64_epi64(words, 0xd8));
  }

  // acc = R rows by V vectors of 4 columns. A column has two sums: of the first two and of the last two of four k.
  template <int R, int V>
  static void tile(const int16_t* a, int64_t lda, const int8_t* b, int64_t row_bytes, int64_t k, int32_t* acc) {
    __m256i sum[R][V];
    unrolled<R, V>([&](auto r, auto v) { sum[r][v] = _mm256_setzero_si256(); });
    for (const int16_t* end = a + k; a < end; a += 4, b += row_bytes) {
      __m256i w[V];
      unrolled<V>(
          [&](auto v) { w[v] = _mm256_cvtepi8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(b + v * 16))); });
      unrolled<R>([&](auto r) {
        int64_t four;
        __builtin_memcpy(&four, a + r * lda, sizeof four);
        const __m256i x = _mm256_set1_epi64x(four);
        unrolled<V>([&](auto v) { sum[r][v] = _mm256_add_epi32(sum[r][v], _mm256_madd_epi16(x, w[v])); });
      });
    }
    unrolled<R, V / 2>([&](auto r, auto v) {
      const __m256i pairs = _mm256_hadd_epi32(sum[r][2 * v], sum[r][2 * v + 1]);  // 0 1 4 5 2 3 6 7
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(acc + r * kPanelColumns + v * 8),
                          _mm256_permute4x64_epi64(pairs, 0xd8));
    });
  }

  static void multiply(const int16_t* a, int64_t lda, int64_t rows, const int8_t* b, int64_t row_bytes, int64_t k,
                       int32_t* acc) {
    constexpr int kTileRows = 6;  // 6 x 2 sums, 2 vectors of w, one of x: 15 of the 16 registers
    for (int64_t r = 0; r < rows; r += kTileRows) {
      with_rows<kTileRows>(rows - r, [&](auto n) {
        constexpr int kV = n == 1 ? 8 : n == 2 ? 4 : 2;
        for (int64_t c = 0; c < kPanelColumns; c += 4 * kV) {
          tile<n, kV>(a + r * lda, lda, b + c * 4, row_bytes, k, acc + r * kPanelColumns + c);
        }
      });
    }
  }
};

constexpr Kernels kTable = lanes_table({.name = "avx2",
                                        .gemv_s8 = gemv_s8,
                                        .pack_s8 = pack_s8<4, 0>,
                                        .gemm_s8 = gemm_s8,
                                        .s8_shape = {.rows = kRows, .row_multiple = 1, .group = 4},
                                        .gemv_grouped = gemv_grouped<Dot>,
                                        .gemm_grouped = gemm_grouped,
                                        .few_rows = kMaxFewRows,
                                        .rows_s8 = rows_s8<Dot, kRows, 2>,
                                        .rows_grouped = rows_grouped<Dot, kRows>,
                                        .make_query_s8 = make_query_s8<Words>,
                                        .attend_s8 = attend_s8<Words>});

}  // namespace

const Kernels& avx2_kernels() { return kTable; }

}  // namespace pinion
