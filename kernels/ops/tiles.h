// How a matmul is cut into blocks and tiles: plain arithmetic, shared by the engine and gemm_batch.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/kernels.h"

namespace pinion {

// Rows of a tile: its sums [kTileRows][64] stay in the L1 cache.
constexpr int64_t kTileRows = 64;

// Blocks of equal size, as few as the table's shape allows: 16 rows by blocks of at most 6 are 6 + 6 + 4, not 6 + 6 + 3
// + 1.
inline int64_t block_rows(const PackShape& shape, int64_t rows) {
  const int64_t most = std::min<int64_t>(shape.rows, kTileRows);
  const int64_t blocks = std::max<int64_t>(1, (rows + most - 1) / most);
  return round_up(std::max<int64_t>(1, (rows + blocks - 1) / blocks), shape.row_multiple);
}

// The most rows that n rows, or fewer, become when they are padded to whole blocks.
inline int64_t packed_rows(const PackShape& shape, int64_t rows) { return round_up(rows, shape.rows); }

// The tiles of an [m, n] result: every panel of 64 columns by `parts` runs of rows. More than one part only where the
// panels alone would leave workers idle.
struct TileGrid {
  int64_t panels;
  int64_t parts;
  int64_t part_rows;  // a multiple of the block's rows; the last part may be shorter
};

inline TileGrid tile_grid(int64_t rows, int64_t block, int64_t panels, int64_t workers) {
  constexpr int64_t kTasksPerWorker = 4;  // enough that the last ones to finish do not matter
  const int64_t blocks = (rows + block - 1) / block;
  const int64_t wanted = workers <= 1 ? 1 : (kTasksPerWorker * workers + panels - 1) / std::max<int64_t>(1, panels);
  const int64_t part_blocks = std::max<int64_t>(1, (blocks + wanted - 1) / wanted);
  const int64_t parts = (blocks + part_blocks - 1) / part_blocks;
  return {panels, parts, part_blocks * block};
}

// f(first, rows) over [begin, end), a tile's worth of whole blocks at a time.
template <class F>
void each_tile(int64_t begin, int64_t end, int64_t block, F f) {
  const int64_t step = std::max<int64_t>(1, kTileRows / block) * block;
  for (int64_t first = begin; first < end; first += step) f(first, std::min(step, end - first));
}

// Prefetches the lines that a tile's result will be written to, before its sums are computed: `rows` pieces of `bytes`,
// row_bytes apart. Rows of a large result share neither a page nor a hardware prefetcher's stream, so their stores
// would wait. Prefetched for writing (RFO), so that a store need not wait either until other cores, which have read
// what was there before, give the line up.
inline void prefetch_result(const void* out, int64_t rows, int64_t row_bytes, int64_t bytes) {
  const auto* row = static_cast<const char*>(out);
  for (int64_t r = 0; r < rows; ++r, row += row_bytes) {
    for (int64_t at = 0; at < bytes; at += kAlignmentBytes) __builtin_prefetch(row + at, 1);
  }
}

}  // namespace pinion
