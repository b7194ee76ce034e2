// Shared by AVX-VNNI and AVX-512: products of w8 and of attention by VPDPBUSD, over a Dot (rows_x86.h). One operand of
// VPDPBUSD is unsigned, so 128 is added to it: for unpacked rows to w (128 * sum(x) is subtracted), for packed rows to
// x (128 * column_sum is subtracted). The result is exact, because int32 arithmetic wraps and the final sums fit. Codes
// of formats with groups are unsigned already; zero * sum(x) is subtracted.
#pragma once

#include "kernels/isa/rows_x86.h"
#include "kernels/lanes/attention_s8.h"
#include "kernels/lanes/grouped_tiles.h"

namespace pinion {
namespace {

constexpr int kRows = 6;  // AVX2: 6 x 2 sums, 2 vectors of w, one of x: 15 of the 16 registers; AVX-512: 29 of the 32

// Unrolled streams alternate between `Sets` sets of sums, which shortens the chains; integer sums may be split
// anywhere.
template <class Dot, int Sets, class Access>
[[gnu::noinline]] void gemv_s8_by(const int8_t* a, const int8_t* b, int64_t row_bytes, int64_t k, int32_t* acc) {
  Ints sum[Sets][kVectors];
  Ints ones[Sets];  // 128 * sum(x), for the correction
  unrolled<Sets>([&](auto h) {
    ones[h] = Register::zero();
    unrolled<kVectors>([&](auto v) { sum[h][v] = Register::zero(); });
  });
  for_each_four_k<Access>(a, b, row_bytes, k, [&](auto s, const int8_t* x4, const int8_t* w) {
    constexpr int h = s % Sets;
    const Ints x = four_codes(x4);
    ones[h] = Dot::add_codes(ones[h], Register::bytes(-128), x);
    unrolled<kVectors>([&](auto v) {
      const Ints codes = Register::load_by<Access>(w + v * kVectorBytes);
      sum[h][v] = Dot::add_codes(sum[h][v], Register::flip(codes), x);
    });
  });
  unrolled<Sets - 1>([&](auto h) {
    ones[0] = Register::add(ones[0], ones[h + 1]);
    unrolled<kVectors>([&](auto v) { sum[0][v] = Register::add(sum[0][v], sum[h + 1][v]); });
  });
  unrolled<kVectors>([&](auto v) { Register::store(Register::subtract(sum[0][v], ones[0]), acc + v * kColumns); });
}

template <class Dot, int Sets>
void gemv_s8(const int8_t* a, const int8_t* b, int64_t row_bytes, int64_t k, int32_t* acc) {
  with_access_pattern([&](auto access) { gemv_s8_by<Dot, Sets, decltype(access)>(a, b, row_bytes, k, acc); });
}

// acc = R packed rows by V vectors of columns, from `column` on.
template <class Dot, int V, int R>
void gemm_tile(const RowTile& tile, const int32_t* column_sum, int64_t column, int32_t* acc) {
  Ints sum[R][V];
  unrolled<V>([&](auto v) {
    const Ints start =
        Register::subtract(Register::zero(), Register::times_128(Register::load(column_sum + column + v * kColumns)));
    unrolled<R>([&](auto r) { sum[r][v] = start; });
  });
  for (const GemmTerm* term = tile.terms; term < tile.terms + tile.count; ++term) {
    const int8_t* a = static_cast<const int8_t*>(term->a) + tile.offset_bytes;
    const int8_t* b = static_cast<const int8_t*>(term->b) + column * 4;
    const int8_t* end = b + term->k * kPanelColumns;
    for (; b < end; b += 4 * kPanelColumns, a += tile.block_rows * 4) {
      Ints w[V];
      unrolled<V>([&](auto v) { w[v] = Register::load(b + v * kVectorBytes); });
      unrolled<R>([&](auto r) {
        const Ints x = four_codes(a + r * 4);
        unrolled<V>([&](auto v) { sum[r][v] = Dot::add_codes(sum[r][v], x, w[v]); });
      });
    }
  }
  unrolled<R, V>([&](auto r, auto v) { Register::store(sum[r][v], acc + r * kPanelColumns + column + v * kColumns); });
}

template <class Dot, int V>
void gemm_s8(const GemmTerm* terms, int64_t count, const RowBlocks& blocks, int64_t rows, const int32_t* column_sum,
             int32_t* acc) {
  for_each_register_tile<kRows, 4>(terms, count, blocks, rows, [&](auto n, const RowTile& tile, int64_t row) {
    for (int64_t c = 0; c < kPanelColumns; c += V * kColumns) {
      gemm_tile<Dot, V, n>(tile, column_sum, c, acc + row * kPanelColumns);
    }
  });
}

// See CorrectedSlice.
template <class Dot>
void correct(const int8_t* w, int64_t k, int32_t* to) {
  Ints sum = Register::zero();
  for (int64_t i = 0; i < k; i += 4, w += 4 * kPanelColumns) {
    sum = Dot::add_codes(sum, Register::bytes(-128), Register::load(w));
  }
  Register::store(Register::subtract(Register::zero(), sum), to);
}

template <class Dot, class Record>
using Slice = CorrectedSlice<Record, kColumns, correct<Dot>>;

// acc (+)= R rows by V vectors of columns of a slice, from `column` on. Totals: those of all groups are in registers,
// too, else in memory. AVX-512 has 6 x 2 sums of a group and 6 x 2 totals, 2 vectors of w, one of x. The 6 x 4 sums
// that w2 could have without totals would halve the speed: GCC spills some.
template <class Dot, bool Totals, int V, int R, class Slice>
void grouped_tile(const RowTile& tile, const Slice& slice, int64_t column, bool accumulate, float* acc) {
  const auto at = [&](int r, int v) { return acc + r * kPanelColumns + column + v * kColumns; };
  Floats total[R][V];
  if constexpr (Totals) {
    unrolled<R, V>(
        [&](auto r, auto v) { total[r][v] = accumulate ? Register::load(at(r, v)) : Register::broadcast(0.0f); });
  }
  const int8_t* a = static_cast<const int8_t*>(tile.terms->a) + tile.offset_bytes;
  const int8_t* b = slice.codes + column * 4;
  for (int64_t g = column; g < slice.groups * kPanelColumns; g += kPanelColumns) {
    Ints sum[R][V];
    unrolled<V>([&](auto v) {
      const Ints correction = Register::load(slice.corrections + g + v * kColumns);
      unrolled<R>([&](auto r) { sum[r][v] = correction; });
    });
    for (int64_t i = 0; i < Slice::kK; i += 4, a += tile.block_rows * 4, b += 4 * kPanelColumns) {
      Ints w[V];
      unrolled<V>([&](auto v) { w[v] = Register::load(b + v * kVectorBytes); });
      unrolled<R>([&](auto r) {
        const Ints x = four_codes(a + r * 4);
        unrolled<V>([&](auto v) { sum[r][v] = Dot::add_codes(sum[r][v], x, w[v]); });
      });
    }
    unrolled<V>([&](auto v) {
      const Floats scale = Register::load(slice.scales + g + v * kColumns);
      unrolled<R>([&](auto r) {
        const Floats exact = Register::to_floats(sum[r][v]);
        if constexpr (Totals) {
          total[r][v] = Register::fma(exact, scale, total[r][v]);
        } else {
          add_scaled(exact, scale, accumulate || g > column, at(r, v));
        }
      });
    });
  }
  if constexpr (Totals) {
    unrolled<R, V>([&](auto r, auto v) { Register::store(total[r][v], at(r, v)); });
  }
}

template <class Dot, bool Totals, int V>
void gemm_grouped(const int8_t* a, const RowBlocks& blocks, int64_t rows, const GroupedPanel& panel, float* acc) {
  with_record(panel.format, [&](auto record) {
    for_each_grouped_tile<Slice<Dot, decltype(record)>, kRows, V * kColumns, 4>(
        a, blocks, rows, panel, acc, [](auto n, const auto&... args) { grouped_tile<Dot, Totals, V, n>(args...); });
  });
}

// acc = R unpacked rows of attention by V vectors of columns. Rows without negative codes can be the unsigned operand.
template <class Dot, int V, int R, bool IsSigned>
void rows_tile(const int8_t* a, int64_t lda, const int8_t* b, int64_t row_bytes, int64_t k, int32_t* acc) {
  Ints sum[R][V];
  unrolled<R>([&](auto r) {
    Ints start = Register::zero();
    if constexpr (IsSigned) start = Dot::start(a + r * lda, k);
    unrolled<V>([&](auto v) { sum[r][v] = start; });
  });
  for (const int8_t* end = a + k; a < end; a += 4, b += row_bytes) {
    Ints w[V];
    unrolled<V>([&](auto v) {
      w[v] = Register::load(b + v * kVectorBytes);
      if constexpr (R <= kFewRows && v * kVectorBytes % kAlignmentBytes == 0) {
        __builtin_prefetch(b + v * kVectorBytes + kCodesAheadBytes, 0, 2);
      }
      if constexpr (IsSigned) w[v] = Register::flip(w[v]);
    });
    unrolled<R>([&](auto r) {
      const Ints x = four_codes(a + r * lda);
      unrolled<V>([&](auto v) {
        sum[r][v] = IsSigned ? Dot::add_codes(sum[r][v], w[v], x) : Dot::add_codes(sum[r][v], x, w[v]);
      });
    });
  }
  unrolled<R, V>([&](auto r, auto v) { Register::store(sum[r][v], acc + r * kPanelColumns + v * kColumns); });
}

template <class Dot, int V, bool IsSigned>
void multiply_rows(const int8_t* a, int64_t lda, int64_t rows, const int8_t* b, int64_t row_bytes, int64_t k,
                   int32_t* acc) {
  for (int64_t r = 0; r < rows; r += kRows) {
    with_rows<kRows>(rows - r, [&](auto n) {
      for (int64_t c = 0; c < kPanelColumns; c += V * kColumns) {
        rows_tile<Dot, V, n, IsSigned>(a + r * lda, lda, b + c * 4, row_bytes, k, acc + r * kPanelColumns + c);
      }
    });
  }
}

template <class Dot, int V>
using Attention = Digits<multiply_rows<Dot, V, true>, multiply_rows<Dot, V, false>>;

}  // namespace
}  // namespace pinion
