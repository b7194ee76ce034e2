// Few unpacked rows: each row has the sums that the scalar GEMV gives it alone, for every access pattern.
#include "kernels/access_pattern.h"
#include "kernels/ops/tiles.h"
#include "tests/kernels/guarded.h"

namespace pinion {
namespace {

constexpr int64_t kPanels = 5;

struct Case {
  int64_t rows, k, lda;
  std::vector<int8_t> a;  // [rows][lda]
};

Case random_case(Random& random, int64_t rows, int64_t k, int64_t lda) {
  return {rows, k, lda, random.codes((rows - 1) * lda + k)};
}

// Calls f(random, case) for shapes around the rows of a tile, a record, and the slice of a panel that tiles share. k is
// a multiple of group_k.
template <class F>
void for_each_case(int64_t group_k, F f) {
  int32_t most_rows = 1;
  for (const Kernels* table : available_kernels()) most_rows = std::max(most_rows, table->few_rows);
  Random random;
  for (int64_t rows = 1; rows <= most_rows; ++rows) {
    int64_t last = 0;
    for (const int64_t min_k : {32, 64, 96, 256, 288, 1056}) {
      const int64_t k = round_up(min_k, group_k);
      if (k > last) f(random, random_case(random, rows, k, k + rows % 3 * 32));
      last = k;
    }
  }
}

// Calls f(table, name) for every table that takes `rows` unpacked rows and every access pattern.
template <class F>
void for_each_access_pattern(int64_t rows, F f) {
  const size_t previous_row = access_pattern();
  for (const Kernels* table : available_kernels()) {
    if (table->few_rows == 1 || table->few_rows < rows) continue;
    for (size_t way = 0; way < std::size(kAccessPatterns); ++way) {
      use_access_pattern(way);
      f(*table, std::string(table->name) + ", " + std::string(kAccessPatterns[way].name));
    }
  }
  use_access_pattern(previous_row);
}

// The engine sums two panels of a gated mlp in one tile.
TEST(FewRows, FitIntoATileOfTheEngine) {
  for (const Kernels* table : available_kernels()) EXPECT_LE(table->few_rows, kTileRows / 2) << table->name;
}

TEST(FewRows, W8) {
  for_each_case(kGroupK, [](Random& random, const Case& c) {
    const std::vector<int8_t> weights = random.codes(c.k * kPanelColumns);
    std::vector<int32_t> want(c.rows * kPanelColumns);
    for (int64_t r = 0; r < c.rows; ++r) {
      scalar_kernels().gemv_s8(c.a.data() + r * c.lda, weights.data(), 4 * kPanelColumns, c.k,
                               want.data() + r * kPanelColumns);
    }
    for_each_access_pattern(c.rows, [&](const Kernels& table, const std::string& name) {
      for (const Edge edge : {Edge::begin, Edge::end}) {
        const Guarded<int8_t> a(c.a, edge), panel(weights, edge);
        const Guarded<int32_t> acc(c.rows * kPanelColumns, edge);
        table.rows_s8(a.data, c.lda, c.rows, panel.data, c.k, acc.data);
        ASSERT_EQ(acc.copy(), want) << name << ", rows " << c.rows << ", k " << c.k;
      }
    });
  });
}

// Records with arbitrary codes, f16 scales near 1, and zero points of at most kMaxZero in all steps.
std::vector<std::byte> random_records(Random& random, int64_t k, Format format) {
  std::vector<std::byte> records;
  for (int64_t g = 0; g < kPanels * k / traits_of(format).group_k; ++g) {
    for (int64_t i = 0; i < code_bytes(format); ++i) records.push_back(static_cast<std::byte>(random.next() & 0xff));
    for (int64_t n = 0; n < kPanelColumns && format != Format::w8h; ++n) {
      records.push_back(static_cast<std::byte>(random.next() & 0xff));
      records.push_back(static_cast<std::byte>(0x3c));
    }
    for (int64_t n = 0; n < kPanelColumns && format == Format::w4z; ++n) {
      records.push_back(static_cast<std::byte>(random.next() % (kZeroSteps * kMaxZero + 1)));
    }
  }
  return records;
}

void expect_rows_grouped(Random& random, const Case& c, Format format) {
  const std::vector<std::byte> records = random_records(random, c.k, format);
  std::vector<float> want(kPanels * c.rows * kPanelColumns), row(kPanels * kPanelColumns);
  for (int64_t r = 0; r < c.rows; ++r) {
    scalar_kernels().gemv_grouped(c.a.data() + r * c.lda, {records.data(), c.k, format}, kPanels, row.data());
    for (int64_t p = 0; p < kPanels; ++p) {
      std::copy_n(row.data() + p * kPanelColumns, kPanelColumns, want.data() + (p * c.rows + r) * kPanelColumns);
    }
  }
  for_each_access_pattern(c.rows, [&](const Kernels& table, const std::string& name) {
    for (const Edge edge : {Edge::begin, Edge::end}) {
      const Guarded<int8_t> a(c.a, edge);
      const Guarded<std::byte> weights(records, edge);
      const Guarded<float> acc(kPanels * c.rows * kPanelColumns, edge);
      table.rows_grouped(a.data, c.lda, c.rows, {weights.data, c.k, format}, kPanels, acc.data);
      ASSERT_EQ(acc.copy(), want) << name << ", " << traits_of(format).name << ", rows " << c.rows << ", k " << c.k;
    }
  });
}

TEST(FewRows, Grouped) {
  for (const Format format : {Format::w4, Format::w4z, Format::w2, Format::w4n, Format::w8h}) {
    for_each_case(traits_of(format).group_k,
                  [&](Random& random, const Case& c) { expect_rows_grouped(random, c, format); });
  }
}

}  // namespace
}  // namespace pinion
