// Rows of activations in matmuls: packing, tiles of packed rows, and few rows that are multiplied unpacked.
#pragma once

#include <cstdint>

#include "kernels/kernels.h"
#include "kernels/lanes/streams.h"
#include "kernels/lanes/unroll.h"
#include "kernels/layout.h"

namespace pinion {
namespace {

// Packs rows into RowBlocks with G elements of a row side by side, padded with zeros. convert: T -> T, for each.
template <int G, class T, class F>
void pack_rows(const T* a, int64_t lda, int64_t rows, int64_t k, int64_t padded, int64_t block_rows, T* packed,
               F convert) {
  for (int64_t first = 0; first < rows; first += block_rows, packed += block_rows * padded) {
    for (int64_t r = 0; r < block_rows; ++r) {
      const T* from = a + (first + r) * lda;
      const int64_t present = first + r < rows ? k : 0;
      T* to = packed + r * G;
      int64_t i = 0;
      for (; i + G <= present; i += G, to += block_rows * G) {
        for (int j = 0; j < G; ++j) to[j] = convert(from[i + j]);
      }
      for (; i < padded; i += G, to += block_rows * G) {
        for (int j = 0; j < G; ++j) to[j] = convert(i + j < present ? from[i + j] : T{});
      }
    }
  }
}

[[maybe_unused]] void pack_f32(const float* a, int64_t lda, int64_t rows, int64_t k, int64_t block_rows,
                               float* packed) {
  pack_rows<1>(a, lda, rows, k, k, block_rows, packed, [](float x) { return x; });
}

// Flip: 0x80 makes the codes unsigned for VPDPBUSD.
template <int G, uint8_t Flip>
void pack_s8(const int8_t* a, int64_t lda, int64_t rows, int64_t k, int64_t block_rows, int8_t* packed) {
  pack_rows<G>(a, lda, rows, k, padded_k(k), block_rows, packed,
               [](int8_t x) { return static_cast<int8_t>(static_cast<uint8_t>(x) ^ Flip); });
}

// The packed rows of one register tile. Its first operand is at term.a + offset_bytes.
struct RowTile {
  const GemmTerm* terms;
  int64_t count;
  int64_t block_rows;
  int64_t offset_bytes;
};

// Calls f(Index<n>, tile, row) for register tiles of n <= R rows from `row`. Group: codes of a row side by side.
template <int R, int Group, class F>
void for_each_register_tile(const GemmTerm* terms, int64_t count, const RowBlocks& blocks, int64_t rows, F f) {
  for (int64_t first = 0, at = 0; first < rows; first += blocks.rows, at += blocks.step_bytes) {
    const int64_t present = rows - first < blocks.rows ? rows - first : blocks.rows;
    for (int64_t r = 0; r < present; r += R) {
      with_rows<R>(present - r, [&](auto n) { f(n, RowTile{terms, count, blocks.rows, at + r * Group}, first + r); });
    }
  }
}

// Calls f(Index<n>, first) for tiles of n <= R rows of similar size: small ones cost most per row. Min: the smallest n.
template <int Min, int R, class F>
[[gnu::always_inline]] inline void for_each_even_tile(int64_t rows, F f) {
  static_assert(Min <= 2 && R >= 2 * Min - 1);
  for (int64_t first = 0, count; first < rows; first += count) {
    const int64_t tiles = (rows - first + R - 1) / R;
    count = (rows - first + tiles - 1) / tiles;
    with_rows<R, Min>(count, [&](auto n) { f(n, first); });
  }
}

// Calls f(terms, count, accumulate) for runs of terms with at most kRunDepth k; longer terms are cut. During a run a
// row tile and a few columns of the panel stay in the L1 cache and are reused from there.
constexpr int64_t kRunDepth = 1024;

template <class F>
void for_each_run(const GemmTerm* terms, int64_t count, const RowBlocks& blocks, F f) {
  bool accumulate = false;
  int64_t i = 0;
  do {
    int64_t fitting = 0;
    for (int64_t k = 0; i + fitting < count && k + terms[i + fitting].k <= kRunDepth; ++fitting) {
      k += terms[i + fitting].k;
    }
    if (fitting > 0 || count == 0) {
      f(terms + i, fitting, accumulate);
    } else {
      for (int64_t k = 0; k < terms[i].k; k += kRunDepth) {
        const int64_t rest = terms[i].k - k;
        const GemmTerm slice = {static_cast<const int8_t*>(terms[i].a) + k * blocks.rows,
                                static_cast<const int8_t*>(terms[i].b) + k * kPanelColumns,
                                rest < kRunDepth ? rest : kRunDepth};
        f(&slice, 1, accumulate || k > 0);
      }
      fitting = 1;
    }
    accumulate = true;
    i += fitting;
  } while (i < count);
}

// Few unpacked rows by a panel of w8. No instruction set holds the sums of all rows and columns in registers, so tiles
// of rows and columns take turns on a slice of the panel, a few KB that stay in the L1 cache.
constexpr int32_t kMaxFewRows = 24;  // at most kTileRows / 2: a tile of the engine holds two panels of a gated mlp

// A slice is one strip of k from each stream of the access pattern. Hardware prefetchers do not follow that order, so
// each tile prefetches as many lines of the next strips as it reads.
struct PanelSlice {
  int64_t first;        // k of the first strip
  int64_t strips;       // one in each stream
  int64_t strip_k;      // k of a strip
  int64_t next_k;       // k from one strip to the strip of the next stream
  int64_t ahead_bytes;  // bytes from a strip to the next strip of its stream
};

constexpr int64_t kSliceK = 128;  // 8 KB of a panel
constexpr int64_t kMinStripK = 8;
constexpr int64_t kMinStreamK = 64;  // shorter streams cost more at their ends than they gain: one stream is read then

template <class Access>
int64_t streams_of(int64_t k) {
  return k / Access::kPattern.streams < kMinStreamK ? 1 : Access::kPattern.streams;
}

// Largest k of a slice.
template <class Access>
constexpr int64_t kMaxSliceK = [] {
  const int64_t min_k = kMinStripK * Access::kPattern.streams;
  return min_k > kSliceK ? min_k : kSliceK;
}();

// Calls f(PanelSlice) for all k, which is a multiple of Multiple; the k of every strip is one, too. The last strips
// prefetch the next panel, which is usually the next task.
template <class Access, int64_t Multiple, class F>
[[gnu::always_inline]] inline void for_each_slice(int64_t k, F f) {
  static_assert(kSliceK % Multiple == 0 && kMaxSliceK<Access> / Access::kPattern.streams % Multiple == 0);
  const int64_t streams = streams_of<Access>(k);
  const int64_t strip_k = kSliceK / streams < kMinStripK ? kMinStripK : kSliceK / streams;
  const int64_t stream_k = k / streams / Multiple * Multiple;
  for (int64_t i = 0; i < stream_k; i += strip_k) {
    const int64_t left = stream_k - i, strip = left < strip_k ? left : strip_k;
    f(PanelSlice{i, streams, strip, stream_k, (left > strip ? strip : k - i) * kPanelColumns});
  }
  const int64_t rest = k - streams * stream_k;
  if (rest > 0) f(PanelSlice{k - rest, 1, rest, 0, 0});
}

// Calls f(a, b, ahead) for each strip of a slice. a: the codes of the first row; b: the panel from `column` on; ahead:
// the first line to prefetch, one line for each row of four k that these columns read.
template <class F>
[[gnu::always_inline]] inline void for_each_strip(const PanelSlice& slice, const int8_t* a, const int8_t* panel,
                                                  int64_t column, F f) {
  a += slice.first, panel += slice.first * kPanelColumns;
  for (int64_t s = 0; s < slice.strips; ++s, a += slice.next_k, panel += slice.next_k * kPanelColumns) {
    f(a, panel + column * 4, panel + slice.ahead_bytes + column * slice.strip_k);
  }
}

// Kernels::rows_grouped in tiles of Min to R rows. All rows multiply a record before the next one. For each group calls
// start(codes) for each row's codes, then for each record and tile multiply(Index<n>, codes of the tile's first row,
// results of `start` for its rows, record, ahead, accumulate, acc). ahead: the record to prefetch, `record` itself if
// there is none.
template <class Access, class Record, int Min, int R, class Rows, class Start, class F>
[[gnu::always_inline]] inline void for_each_record_tile(const int8_t* a, int64_t lda, Rows rows,
                                                        const GroupedPanel& first, int64_t panels, float* acc,
                                                        Start start, F multiply) {
  const int8_t* x = a;  // codes of the current group
  decltype(start(a)) starts[kMaxFewRows];
  for_each_record<Access, Record>(
      a, first, panels, acc,
      [&](const int8_t* codes) {
        x = codes;
        for (int64_t r = 0; r < rows; ++r) starts[r] = start(codes + r * lda);
      },
      [&](const std::byte* record, const std::byte* ahead, bool accumulate, float* to) {
        for_each_even_tile<Min, R>(rows, [&](auto n, int64_t r) {
          multiply(n, x + r * lda, starts + r, record, r == 0 ? ahead : record, accumulate, to + r * kPanelColumns);
        });
      },
      rows * kPanelColumns);
}

}  // namespace
}  // namespace pinion
