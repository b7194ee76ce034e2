// The cuts of a matmul: row blocks, tiles, and the grid of tiles. Plain arithmetic that the engine and ops/ share.
#pragma once

#include <algorithm>

#include "kernels/kernels.h"

namespace pinion {

// Most rows of a tile. Its sums [kTileRows][64] stay in the L1 cache.
constexpr int64_t kTileRows = 64;

// Rows of each row block: as few equal blocks as the shape allows. 16 rows in blocks of at most 6 are 6 + 6 + 4.
inline int64_t block_rows(const PackShape& shape, int64_t rows) {
  const int64_t max_rows = std::min<int64_t>(shape.rows, kTileRows);
  const int64_t blocks = std::max<int64_t>(1, (rows + max_rows - 1) / max_rows);
  return round_up(std::max<int64_t>(1, (rows + blocks - 1) / blocks), shape.row_multiple);
}

// Upper bound of the rows after padding to whole row blocks, for `rows` rows or fewer.
inline int64_t packed_rows(const PackShape& shape, int64_t rows) { return round_up(rows, shape.rows); }

// Units of work of an [m, n] result: every panel of 64 columns by every range of rows. There is more than one range
// only if the panels alone would leave workers idle.
struct TileGrid {
  int64_t panels;
  int64_t row_ranges;
  int64_t range_rows;  // rows of a range, a multiple of the row block; the last range may be shorter
};

inline TileGrid tile_grid(int64_t rows, int64_t block, int64_t panels, int64_t workers) {
  constexpr int64_t kTasksPerWorker = 4;  // enough to hide the wait for the last task
  const int64_t blocks = (rows + block - 1) / block;
  const int64_t wanted = workers <= 1 ? 1 : (kTasksPerWorker * workers + panels - 1) / std::max<int64_t>(1, panels);
  const int64_t range_blocks = std::max<int64_t>(1, (blocks + wanted - 1) / wanted);
  const int64_t row_ranges = (blocks + range_blocks - 1) / range_blocks;
  return {panels, row_ranges, range_blocks * block};
}

// Calls f(first, rows) for the tiles of the rows [begin, end): whole row blocks, at most kTileRows rows.
template <class F>
void for_each_row_tile(int64_t begin, int64_t end, int64_t block, F f) {
  const int64_t step = std::max<int64_t>(1, kTileRows / block) * block;
  for (int64_t first = begin; first < end; first += step) f(first, std::min(step, end - first));
}

// Prefetches the lines of a tile's result for writing, before its sums: `rows` rows of `bytes` bytes, row_bytes apart.
// The rows of a large result share neither a page nor a stream of the hardware prefetcher, so their stores would miss.
// Prefetching for ownership also invalidates other cores' copies of the old data.
inline void prefetch_result(const void* out, int64_t rows, int64_t row_bytes, int64_t bytes) {
  const auto* row = static_cast<const char*>(out);
  for (int64_t r = 0; r < rows; ++r, row += row_bytes) {
    for (int64_t at = 0; at < bytes; at += kAlignmentBytes) __builtin_prefetch(row + at, 1);
  }
}

}  // namespace pinion
