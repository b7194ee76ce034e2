// The choice of the table that multiplies, and the cuts into row blocks and tiles.
#include "kernels/ops/tiles.h"

#include <algorithm>

#include "kernels/ops/gemm.h"
#include "tests/kernels/guarded.h"

namespace pinion {
namespace {

TEST(GemmKernels, FirstTableWhoseMinRowsFit) {
  const std::vector<const Kernels*> tables = available_kernels();
  for (GemmType type : {GemmType::s8, GemmType::bf16, GemmType::f32}) {
    const auto min_rows_of = [&](const Kernels* k) {
      return (type == GemmType::s8 ? k->s8_shape : k->f32_shape).min_rows;
    };
    ASSERT_EQ(min_rows_of(tables.back()), 1);  // the last table takes any number of rows
    for (size_t from = 0; from < tables.size(); ++from) {
      for (int64_t m : {0, 1, 2, 3, 4, 5, 8, 9, 16, 17, 64, 1000}) {
        size_t expected = from;
        while (expected + 1 < tables.size() && m < min_rows_of(tables[expected])) ++expected;
        if (m == 0) expected = tables.size() - 1;
        EXPECT_EQ(&gemm_kernels(tables[from], type, m), tables[expected]) << tables[from]->name << ", rows " << m;
        if (from == 0) {
          EXPECT_EQ(&gemm_kernels(nullptr, type, m), tables[expected]) << m;
        }
      }
    }
  }
}

TEST(Tiles, GridCoversEveryRowOnce) {
  for (int64_t block : {1, 2, 4, 6, 8, 16, 64}) {
    for (int64_t rows = 0; rows <= 300; rows += rows < 70 ? 1 : 23) {
      for (int64_t panels : {1, 2, 3, 7, 40, 1000}) {
        for (int64_t workers : {1, 2, 3, 5, 8, 64, 200}) {
          const TileGrid grid = tile_grid(rows, block, panels, workers);
          const std::string label = std::to_string(rows) + " rows, block " + std::to_string(block) + ", panels " +
                                    std::to_string(panels) + ", workers " + std::to_string(workers);
          ASSERT_EQ(grid.panels, panels) << label;
          ASSERT_GE(grid.row_ranges, 0) << label;
          ASSERT_EQ(grid.range_rows % block, 0) << label;
          // Ranges follow each other without a gap, none is empty, and the tiles of a range do the same inside it.
          int64_t next = 0;
          for (int64_t range = 0; range < grid.row_ranges; ++range) {
            const int64_t begin = range * grid.range_rows, end = std::min(rows, begin + grid.range_rows);
            ASSERT_EQ(begin, next) << label;
            ASSERT_LT(begin, end) << label;
            for_each_row_tile(begin, end, block, [&](int64_t first, int64_t count) {
              ASSERT_EQ(first, next) << label;
              ASSERT_GT(count, 0) << label;
              ASSERT_LE(count, kTileRows) << label;
              ASSERT_EQ(first % block, 0) << label;
              next = first + count;
            });
          }
          ASSERT_EQ(next, rows) << label;
          const int64_t blocks = (rows + block - 1) / block;
          ASSERT_GE(grid.panels * grid.row_ranges, std::min(workers, blocks * panels)) << label;
        }
      }
    }
  }
}

TEST(Tiles, ZeroWorkersCountAsOne) {
  const TileGrid zero_workers = tile_grid(100, 4, 3, 0), one_worker = tile_grid(100, 4, 3, 1);
  EXPECT_EQ(zero_workers.row_ranges, one_worker.row_ranges);
  EXPECT_EQ(zero_workers.range_rows, one_worker.range_rows);
}

TEST(Tiles, RowBlocksAreEvenAndWithinTheShape) {
  EXPECT_EQ(block_rows({6, 1, 4}, 16), 6);  // 6 + 6 + 4
  EXPECT_EQ(block_rows({6, 1, 4}, 7), 4);   // 4 + 3
  EXPECT_EQ(block_rows({8, 2, 8}, 9), 6);   // 6 + 3
  EXPECT_EQ(block_rows({16, 2, 8}, 1), 2);
  for (const PackShape& shape : {PackShape{1, 1, 1},
                                 {2, 1, 1},
                                 {4, 1, 4},
                                 {6, 1, 4},
                                 {8, 2, 8},
                                 {6, 2, 4},
                                 {16, 2, 8},
                                 {64, 2, 8},
                                 {12, 4, 8}}) {
    for (int64_t rows = 1; rows <= 200; ++rows) {
      const int64_t block = block_rows(shape, rows);
      ASSERT_EQ(block % shape.row_multiple, 0) << rows;
      ASSERT_LE(block, std::min<int64_t>(shape.rows, kTileRows)) << rows;
      ASSERT_EQ((rows + block - 1) / block, (rows + shape.rows - 1) / shape.rows)
          << rows;  // as few row blocks as possible
      for (int64_t max_rows = rows; max_rows <= rows + 70; ++max_rows) {
        ASSERT_GE(packed_rows(shape, max_rows), (rows + block - 1) / block * block)
            << rows << " of at most " << max_rows;
      }
    }
  }
  for (const Kernels* kernels : available_kernels()) {
    for (const PackShape& shape : {kernels->s8_shape, kernels->f32_shape}) {
      EXPECT_LE(shape.rows, kTileRows) << kernels->name;
      EXPECT_EQ(shape.rows % shape.row_multiple, 0) << kernels->name;
      EXPECT_EQ(kGroupK % shape.group, 0) << kernels->name;
    }
  }
}

}  // namespace
}  // namespace pinion
