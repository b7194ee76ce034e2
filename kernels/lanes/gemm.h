// Matmul of floats and packing of rows, over sixteen lanes.
#pragma once

#include <cstdint>
#include <type_traits>

#include "kernels/kernels.h"
#include "kernels/lanes/math.h"
#include "kernels/lanes/pack_rows.h"
#include "kernels/lanes/pairs.h"
#include "kernels/lanes/unroll.h"

namespace pinion {
namespace {

// What multiplies a T: a float a float or bf16, a pair a pair.
template <class T>
using Left = std::conditional_t<std::is_same_v<T, bf16_pair>, Pairs::Left, float>;

// Where a tile's operands lie: row r and step i of k of the left at a + r * row + i * step; step i of the right at
// b + i * ldb, its vectors vector_step apart. A step of pairs is two of k. ahead_bytes is the prefetch distance; 0:
// nothing is prefetched.
template <class T>
struct FloatTile {
  const Left<T>* a;
  int64_t row;
  int64_t step;
  const T* b;
  int64_t ldb;
  int64_t vector_step;
  int64_t k;
  int64_t ahead_bytes;

  // Each vector's steps are a piece of memory of their own: a block of keys.
  bool in_blocks() const { return vector_step != kLanes; }
};

// Tiles of up to this many rows are bound by memory, so they prefetch. In attention the keys prefetch the values, and
// the values the next head's keys. A tile that takes only a part of what lies side by side does not: that was slower
// (tools/MEASURED.md).
constexpr int kAheadRows = 4;

// Tiles of at most this many rows are eight vectors wide.
constexpr int kWidestRows = Lanes::kRows * Lanes::kWide / 12;

// CPUs drop some prefetches under load. A vector of pairs fills a whole line, so it is prefetched twice. Narrower
// vectors share a line, so a neighbour's prefetch repeats it anyway.
template <class T>
constexpr bool kPrefetchesTwice = std::is_same_v<T, bf16_pair>;

// A step of a tile: acc[r][w] += a * b for R rows and W vectors. from(w), for each w once: where the vector's sixteen
// numbers, or pairs, lie.
template <class T>
struct Right {
  template <int R, int W, class From>
  [[gnu::always_inline]] static void add(const float* a, int64_t row, From from, Lanes (&acc)[R][W]) {
    Lanes vector[W];
    unrolled<W>([&](auto w) { vector[w] = load(from(w)); });
    unrolled<R>([&](auto r) {
      const Lanes x = Lanes::broadcast(a[r * row]);
      unrolled<W>([&](auto w) { acc[r][w] = Lanes::fma(x, vector[w], acc[r][w]); });
    });
  }
  // bf16 in whichever order is loaded fastest, others as they lie.
  static Lanes load(const T* p) {
    if constexpr (std::is_same_v<T, bf16>) return Lanes::load_mixed(p);
    return Lanes::load(p);
  }
};
template <>
struct Right<bf16_pair> : Pairs {};

template <class T>
Lanes load_sums(const float* p) {
  return std::is_same_v<T, bf16> ? Lanes::load(p).mixed() : Lanes::load(p);
}
template <class T>
void store_sums(Lanes sums, float* p) {
  (std::is_same_v<T, bf16> ? sums.unmixed() : sums).store(p);
}

// c[r][w * apart * 16] (+)= a * b for R rows and W vectors of 16, each element by fma in the order of k.
template <int R, int W, class T>
void gemm_tile(const FloatTile<T>& t, bool accumulate, float* c, int64_t ldc, int64_t apart) {
  const auto at = [&](int r, int w) { return c + r * ldc + w * apart * kLanes; };
  Lanes acc[R][W];
  unrolled<R>([&](auto r) {
    unrolled<W>([&](auto w) { acc[r][w] = accumulate ? load_sums<T>(at(r, w)) : Lanes::broadcast(0.0f); });
  });
  constexpr bool kMayPrefetch = R <= kAheadRows && Lanes::kAheadBytes > 0;
  const bool prefetches = kMayPrefetch && t.ahead_bytes > 0 && (t.in_blocks() || Lanes::kWide > 1);
  const Left<T>* a = t.a;
  const T* b = t.b;
  for (int64_t i = 0; i < t.k; ++i, a += t.step, b += t.ldb) {
    const auto from = [&](auto w) {
      const T* vector = b + w * apart * t.vector_step;
      if (prefetches) {
        const auto* ahead = reinterpret_cast<const char*>(vector) + t.ahead_bytes;
        __builtin_prefetch(ahead, 0, 2);
        if (kPrefetchesTwice<T>) __builtin_prefetch(ahead - t.ldb * static_cast<int64_t>(sizeof(T)), 0, 2);
      }
      return vector;
    };
    Right<T>::template add<R, W>(a, t.row, from, acc);
  }
  unrolled<R>([&](auto r) { unrolled<W>([&](auto w) { store_sums<T>(acc[r][w], at(r, w)); }); });
}

// c[rows][vectors * 16] (+)= a * b for any number of rows and vectors. A tile of few rows is wider, as far as the
// registers go: its sums' chains hide the latency of fma. A tile takes blocks that lie apart, so that the next tile
// goes on where this one ends in each of them: that was faster than neighbours (tools/MEASURED.md).
template <class T>
void gemm_rows(const FloatTile<T>& tile, int64_t rows, int64_t vectors, bool accumulate, float* c, int64_t ldc) {
  const auto columns = [&](auto count, int64_t first) {
    for (int64_t r = 0; r < rows; r += Lanes::kRows) {
      with_rows<Lanes::kRows>(rows - r, [&](auto n) {
        constexpr int kFit = Lanes::kRows * Lanes::kWide / n;
        constexpr int kWidth = n <= kWidestRows ? 8 : kFit >= 4 ? 4 : kFit >= 2 ? 2 : 1;
        constexpr int kW = count < kWidth ? count : kWidth;
        const int64_t apart = tile.in_blocks() ? count / kW : 1;
        for (int64_t i = 0; i < count / kW; ++i) {
          const int64_t v = first + (tile.in_blocks() ? i : i * kW);
          FloatTile<T> t = tile;
          t.a += r * t.row;
          t.b += v * t.vector_step;
          gemm_tile<n, kW>(t, accumulate, c + r * ldc + v * kLanes, ldc, apart);
        }
      });
    }
  };
  int64_t v = 0;
  for (; rows <= kAheadRows && v + 8 <= vectors; v += 8) columns(Index<8>{}, v);
  for (; v + 4 <= vectors; v += 4) columns(Index<4>{}, v);
  for (; v < vectors; ++v) columns(Index<1>{}, v);
}

// Every tile of rows turns the same bf16 into floats again. Where that keeps sums waiting, from this many rows on a
// piece of b, four vectors wide, is turned into floats once and stays in the L1 cache for all of them.
constexpr int64_t kWidenRows = 16;
constexpr int64_t kWidenSteps = 64;

// The same sums as gemm_rows gives.
template <class T>
void gemm_widened(const FloatTile<T>& tile, int64_t rows, int64_t vectors, float* c, int64_t ldc) {
  constexpr int64_t kMost = 4;
  alignas(64) float piece[kWidenSteps * 2 * kMost * kLanes];
  for (int64_t v = 0; v < vectors; v += kMost) {
    const int64_t count = vectors - v < kMost ? vectors - v : kMost;
    const int64_t width = count * kLanes;
    for (int64_t i = 0; i < tile.k; i += kWidenSteps) {
      const int64_t steps = tile.k - i < kWidenSteps ? tile.k - i : kWidenSteps;
      float* to = piece;
      for (int64_t s = i; s < i + steps; ++s, to += 2 * width) {
        const T* from = tile.b + s * tile.ldb + v * tile.vector_step;
        for (int64_t w = 0; w < count; ++w, from += tile.vector_step) {
          Lanes::load_first(from).store(to + w * kLanes);
          Lanes::load_second(from).store(to + width + w * kLanes);
        }
      }
      const FloatTile<float> wide = {tile.a + i * tile.step, tile.row, 1, piece, width, kLanes, 2 * steps, 0};
      gemm_rows(wide, rows, count, i > 0, c + v * kLanes, ldc);
    }
  }
}

// c[rows][vectors * 16] = a * b; k at least 1.
template <class T>
void gemm_many(const FloatTile<T>& tile, int64_t rows, int64_t vectors, float* c, int64_t ldc) {
  if constexpr (Pairs::kWidens && std::is_same_v<T, bf16_pair>) {
    if (rows >= kWidenRows) return gemm_widened(tile, rows, vectors, c, ldc);
  }
  gemm_rows(tile, rows, vectors, false, c, ldc);
}

template <class T>
void gemm_float(const GemmTerm* terms, int64_t count, const RowBlocks& blocks, int64_t rows, float* acc) {
  for (int64_t r = 0; r < rows; r += blocks.rows) {
    const int64_t n = rows - r < blocks.rows ? rows - r : blocks.rows;
    for (int64_t i = 0; i < count; ++i) {
      const auto* a = static_cast<const char*>(terms[i].a) + r / blocks.rows * blocks.step_bytes;
      const FloatTile<T> tile = {reinterpret_cast<const float*>(a),
                                 1,
                                 blocks.rows,
                                 static_cast<const T*>(terms[i].b),
                                 kPanelColumns,
                                 kLanes,
                                 terms[i].k,
                                 Lanes::kAheadBytes};
      gemm_rows(tile, n, kPanelColumns / kLanes, i > 0, acc + r * kPanelColumns, kPanelColumns);
    }
  }
}

}  // namespace
}  // namespace pinion
