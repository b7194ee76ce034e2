// Matmul of floats over sixteen lanes.
#pragma once

#include <cstdint>
#include <type_traits>

#include "kernels/half.h"
#include "kernels/kernels.h"
#include "kernels/lanes/math.h"
#include "kernels/lanes/unroll.h"

namespace pinion {
namespace {

#if !defined(PINION_PAIRS)  // else the including file defines its own Pairs

// Products of pairs of bf16, summed by fma: the first element of a pair, then the second. The right operand is sixteen
// pairs, the left operand one pair in the form that store_left writes. This definition widens both to float.
struct Pairs {
  using Left = float;
  static constexpr bool kWidens = false;  // true: many rows widen the right operand before the tiles (gemm_many)

  // As Right::add below.
  template <int R, int W, class From>
  [[gnu::always_inline]] static void add(const Left* a, int64_t row, From from, Lanes (&acc)[R][W]) {
    const bf16_pair* p[W];
    unrolled<2>([&](auto i) {
      Lanes vector[W];
      unrolled<W>([&](auto w) {
        if (i == 0) p[w] = from(w);
        vector[w] = i == 0 ? Lanes::load_first(p[w]) : Lanes::load_second(p[w]);
      });
      unrolled<R>([&](auto r) {
        const Lanes x = Lanes::broadcast(a[r * row + i]);
        unrolled<W>([&](auto w) { acc[r][w] = Lanes::fma(x, vector[w], acc[r][w]); });
      });
    });
  }
  // Rounds sixteen floats, none of them denormal, to bf16, stores them as eight left operands and returns them.
  static Lanes store_left(Lanes x, Left* p) {
    const Lanes rounded = x.rounded_to_bf16();
    rounded.store(p);
    return rounded;
  }
};

#endif

// Type of the left operand for a right operand T: float for float and bf16, a pair for pairs.
template <class T>
using Left = std::conditional_t<std::is_same_v<T, bf16_pair>, Pairs::Left, float>;

// The operands of a tile. k counts steps; one step of pairs is two k.
template <class T>
struct FloatTile {
  const Left<T>* a;  // row r, step i is at a + r * row + i * step
  int64_t row;
  int64_t step;
  const T* b;  // vector w, step i is at b + w * vector_step + i * ldb
  int64_t ldb;
  int64_t vector_step;
  int64_t k;
  int64_t ahead_bytes;  // prefetch distance; 0: no prefetch

  // True if the steps of each vector are contiguous (interleaved keys); else the vectors are columns of one row.
  bool is_interleaved() const { return vector_step != kLanes; }
};

// Tiles of up to this many rows are bound by memory and prefetch: in attention keys the values, values the next head's
// keys. Tiles of only some columns side by side do not: it was slower (tools/MEASURED.md).
constexpr int kAheadRows = 4;

// Tiles of up to this many rows are eight vectors wide.
constexpr int kWidestRows = Lanes::kRows * Lanes::kWide / 12;

// CPUs drop some prefetches under load. A vector of pairs fills a whole line, so it is prefetched twice. Narrower
// vectors share a line, which the prefetch of a neighbour repeats anyway.
template <class T>
constexpr bool kPrefetchesTwice = std::is_same_v<T, bf16_pair>;

// One step of a tile: acc[r][w] += a * b for R rows and W vectors. from(w), called once: sixteen numbers or pairs.
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
  // bf16 is loaded in the order of lanes that is fastest.
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

// c[r][w * apart * 16 + i] (+)= a * b for R rows and W vectors of lanes i, each element by fma in the order of k.
template <int R, int W, class T>
void gemm_tile(const FloatTile<T>& t, bool accumulate, float* c, int64_t ldc, int64_t apart) {
  const auto at = [&](int r, int w) { return c + r * ldc + w * apart * kLanes; };
  Lanes acc[R][W];
  unrolled<R, W>([&](auto r, auto w) { acc[r][w] = accumulate ? load_sums<T>(at(r, w)) : Lanes::broadcast(0.0f); });
  constexpr bool kMayPrefetch = R <= kAheadRows && Lanes::kAheadBytes > 0;
  const bool prefetches = kMayPrefetch && t.ahead_bytes > 0 && (t.is_interleaved() || Lanes::kWide > 1);
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
  unrolled<R, W>([&](auto r, auto w) { store_sums<T>(acc[r][w], at(r, w)); });
}

// c[rows][vectors * 16] (+)= a * b for any number of rows and vectors. Tiles of few rows are wider, as far as registers
// allow: more chains of sums hide the latency of fma. A tile of interleaved keys takes vectors that are not neighbours,
// so that the next tile continues each of them; that was faster (tools/MEASURED.md).
template <class T>
void gemm_rows(const FloatTile<T>& tile, int64_t rows, int64_t vectors, bool accumulate, float* c, int64_t ldc) {
  const auto columns = [&](auto count, int64_t first) {
    for (int64_t r = 0; r < rows; r += Lanes::kRows) {
      with_rows<Lanes::kRows>(rows - r, [&](auto n) {
        constexpr int kFit = Lanes::kRows * Lanes::kWide / n;
        constexpr int kWidth = n <= kWidestRows ? 8 : kFit >= 4 ? 4 : kFit >= 2 ? 2 : 1;
        constexpr int kW = count < kWidth ? count : kWidth;
        const int64_t apart = tile.is_interleaved() ? count / kW : 1;
        for (int64_t i = 0; i < count / kW; ++i) {
          const int64_t v = first + (tile.is_interleaved() ? i : i * kW);
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

// Each tile of rows widens the same bf16 again. If that delays the sums (Pairs::kWidens), products of at least this
// many rows widen a slice of b, four vectors wide, once; it stays in the L1 cache for all rows.
constexpr int64_t kWidenRows = 16;
constexpr int64_t kWidenSteps = 64;

// The same bits as gemm_rows.
template <class T>
void gemm_widened(const FloatTile<T>& tile, int64_t rows, int64_t vectors, float* c, int64_t ldc) {
  constexpr int64_t kMaxVectors = 4;
  alignas(64) float widened[kWidenSteps * 2 * kMaxVectors * kLanes];
  for (int64_t v = 0; v < vectors; v += kMaxVectors) {
    const int64_t count = vectors - v < kMaxVectors ? vectors - v : kMaxVectors;
    const int64_t width = count * kLanes;
    for (int64_t i = 0; i < tile.k; i += kWidenSteps) {
      const int64_t steps = tile.k - i < kWidenSteps ? tile.k - i : kWidenSteps;
      float* to = widened;
      for (int64_t s = i; s < i + steps; ++s, to += 2 * width) {
        const T* from = tile.b + s * tile.ldb + v * tile.vector_step;
        for (int64_t w = 0; w < count; ++w, from += tile.vector_step) {
          Lanes::load_first(from).store(to + w * kLanes);
          Lanes::load_second(from).store(to + width + w * kLanes);
        }
      }
      const FloatTile<float> wide = {tile.a + i * tile.step, tile.row, 1, widened, width, kLanes, 2 * steps, 0};
      gemm_rows(wide, rows, count, i > 0, c + v * kLanes, ldc);
    }
  }
}

// c[rows][vectors * 16] = a * b, k >= 1.
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
