// Rows that the file stores in another order than the packed matrix.

#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "loader/files/mapped_file.h"
#include "loader/pack/pack.h"
#include "tests/crew.h"

namespace pinion {
namespace {

TEST(RowOrder, FileRows) {
  const auto stored = [](RowOrder order) {
    std::vector<int64_t> rows;
    for (int64_t row = 0; row < 12; ++row) rows.push_back(order.file_row(row));
    return rows;
  };
  EXPECT_EQ(stored({6, 2}), (std::vector<int64_t>{0, 2, 1, 3, 4, 5, 6, 8, 7, 9, 10, 11})) << "two heads of 4 + 2 rows";
  EXPECT_EQ(stored({12, 6}), (std::vector<int64_t>{0, 2, 4, 6, 8, 10, 1, 3, 5, 7, 9, 11}));
  EXPECT_EQ(stored({.head_rows = 6, .tail_rows = 2}), (std::vector<int64_t>{4, 5, 0, 1, 2, 3, 10, 11, 6, 7, 8, 9}));
  EXPECT_EQ(stored({.head_rows = 6, .pairs = 2, .tail_rows = 4}),
            (std::vector<int64_t>{2, 4, 3, 5, 0, 1, 8, 10, 9, 11, 6, 7}));
  // Two heads with 2 rows each of q, k and v; then k with 4 rows in 2 rotated pairs.
  const auto part = [](RowOrder order) {
    std::vector<int64_t> rows;
    for (int64_t row = 0; row < order.rows; ++row) rows.push_back(order.file_row(row));
    return rows;
  };
  EXPECT_EQ(part({.head_rows = 2, .rows = 4, .step = 6, .first = 0}), (std::vector<int64_t>{0, 1, 6, 7}));
  EXPECT_EQ(part({.head_rows = 2, .rows = 4, .step = 6, .first = 4}), (std::vector<int64_t>{4, 5, 10, 11}));
  EXPECT_EQ(part({.head_rows = 4, .pairs = 2, .rows = 8, .step = 12, .first = 4}),
            (std::vector<int64_t>{4, 6, 5, 7, 16, 18, 17, 19}));
  EXPECT_EQ(stored({}), (std::vector<int64_t>{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}));
}

// Heads of 10 rows, of which 8 are rotated: heads do not align with strips of 16 rows or with panels.
constexpr RowOrder kOrder = {10, 4};
constexpr int64_t kRows = 150, kWidth = 40;

struct PackedRows {
  Arena arena;
  Matrix matrix;
  Error failure;
};

void pack(PackJob job, PackedRows* out) {
  job.out = &out->matrix;
  ASSERT_FALSE(allocate_arena(packed_bytes({&job, 1}), &out->arena));
  std::memset(out->arena.data, 0x55, out->arena.bytes);
  out->failure = pack_all(crew(2), {&job, 1}, out->arena.data);
}

template <class T>
TensorView view_of(const std::vector<T>& values, DType dtype, std::vector<int64_t> shape) {
  const auto bytes = static_cast<int64_t>(values.size() * sizeof(T));
  return {"w", dtype, std::move(shape), reinterpret_cast<const std::byte*>(values.data()), bytes};
}

// The rows in the order of the packed matrix.
template <class T>
std::vector<T> reordered(const std::vector<T>& file, int64_t width, const RowOrder& order = kOrder) {
  std::vector<T> rows;
  for (int64_t row = 0; row < (order.selects_rows() ? order.rows : kRows); ++row) {
    const auto first = file.begin() + order.file_row(row) * width;
    rows.insert(rows.end(), first, first + width);
  }
  return rows;
}

void expect_same(PackJob plain, PackJob ordered, const RowOrder& order = kOrder) {
  PackedRows a, b;
  ordered.order = order;
  ASSERT_NO_FATAL_FAILURE(pack(std::move(plain), &a));
  ASSERT_NO_FATAL_FAILURE(pack(std::move(ordered), &b));
  EXPECT_EQ(a.failure.message() + b.failure.message(), "");
  ASSERT_EQ(a.arena.bytes, b.arena.bytes);
  EXPECT_EQ(std::memcmp(a.arena.data, b.arena.data, a.arena.bytes), 0);
}

// All rows differ.
std::vector<float> numbers() {
  std::vector<float> values;
  for (int64_t i = 0; i < kRows * kWidth; ++i) values.push_back(static_cast<float>(i * 7919 % 10007) - 5000.0f);
  return values;
}

// A tensor with heads of 3 x 4 rows: the second four rows of its heads 2 and 3.
TEST(RowOrder, SliceOfASelection) {
  const RowOrder part = {.head_rows = 4, .rows = 20, .step = 12, .first = 4};
  const RowOrder some = part.slice(8, 8);
  EXPECT_EQ(some.rows, 8);
  for (int64_t row = 0; row < some.rows; ++row) EXPECT_EQ(some.file_row(row), part.file_row(row + 8));
  EXPECT_EQ(some.file_row(0), 2 * 12 + 4);
}

TEST(RowOrder, FloatsAreReordered) {
  const std::vector<float> file = numbers(), rows = reordered(file, kWidth);
  for (const Format format : {Format::bf16, Format::w8, Format::w4, Format::w4n}) {
    PackJob plain = {view_of(rows, DType::f32, {kRows, kWidth}), format};
    PackJob ordered = {view_of(file, DType::f32, {kRows, kWidth}), format};
    expect_same(plain, ordered);
    ordered.reader = {.stored_as = "test",
                      .read = [&](int64_t first, int64_t count,
                                  float* out) { std::copy_n(file.data() + first * kWidth, count * kWidth, out); },
                      .explain_nan = {}};
    expect_same(plain, ordered);
  }
}

TEST(RowOrder, Int8CodesAndScalesAreReordered) {
  std::vector<int8_t> codes;
  std::vector<float> scales;
  for (int64_t i = 0; i < kRows * kWidth; ++i) codes.push_back(static_cast<int8_t>(i * 31 % 251 - 125));
  for (int64_t i = 0; i < kRows; ++i) scales.push_back(0.5f + static_cast<float>(i));
  const std::vector<int8_t> own_codes = reordered(codes, kWidth);
  const std::vector<float> own_scales = reordered(scales, 1);
  for (const Format format : {Format::bf16, Format::w8}) {
    expect_same(
        {view_of(own_codes, DType::i8, {kRows, kWidth}), format, nullptr, view_of(own_scales, DType::f32, {kRows})},
        {view_of(codes, DType::i8, {kRows, kWidth}), format, nullptr, view_of(scales, DType::f32, {kRows})});
  }
}

// Heads of 10 rows of q, 10 of k and 10 of v.
TEST(RowOrder, SelectedRowsPackLikeATensor) {
  const std::vector<float> file = numbers();
  std::vector<int8_t> codes;
  std::vector<float> scales;
  for (int64_t i = 0; i < kRows * kWidth; ++i) codes.push_back(static_cast<int8_t>(i * 31 % 251 - 125));
  for (int64_t i = 0; i < kRows; ++i) scales.push_back(0.5f + static_cast<float>(i));
  for (const int64_t first : {0, 10, 20}) {
    const RowOrder part = {.head_rows = 10, .pairs = 3, .rows = 50, .step = 30, .first = first};
    const std::vector<float> rows = reordered(file, kWidth, part), own_scales = reordered(scales, 1, part);
    const std::vector<int8_t> own_codes = reordered(codes, kWidth, part);
    for (const Format format : {Format::bf16, Format::w8, Format::w4, Format::w4n}) {
      PackJob plain = {view_of(rows, DType::f32, {50, kWidth}), format};
      PackJob ordered = {view_of(file, DType::f32, {kRows, kWidth}), format};
      expect_same(plain, ordered, part);
      ordered.reader = {.stored_as = "test",
                        .read = [&](int64_t row, int64_t count,
                                    float* out) { std::copy_n(file.data() + row * kWidth, count * kWidth, out); },
                        .explain_nan = {}};
      expect_same(plain, ordered, part);
      if (traits_of(format).bits == 4) continue;
      expect_same({view_of(own_codes, DType::i8, {50, kWidth}), format, nullptr, view_of(own_scales, DType::f32, {50})},
                  {view_of(codes, DType::i8, {kRows, kWidth}), format, nullptr, view_of(scales, DType::f32, {kRows})},
                  part);
    }
  }
  PackJob job = {view_of(file, DType::f32, {kRows, kWidth}), Format::w8};
  job.order = {.head_rows = 10, .rows = 60, .step = 30, .first = 0};
  PackedRows packed;
  ASSERT_NO_FATAL_FAILURE(pack(job, &packed));
  EXPECT_EQ(packed.failure.message(), "w: has too few rows: want 160, have 150");
}

TEST(RowOrder, FourBitCodesAreReordered) {
  const auto rows_of = [](auto row_of) {
    return [row_of](int64_t first, int64_t count, W4Rows* out) {
      const int64_t blocks = padded_k(kWidth) / kGroupK;
      for (int64_t row = row_of(first); row < row_of(first) + count; ++row) {
        for (int64_t i = 0; i < blocks * kGroupK; ++i) out->codes.push_back(static_cast<uint8_t>((row + 3 * i) % 16));
        out->zero_points.insert(out->zero_points.end(), blocks, static_cast<uint8_t>(row % 13));
        out->group_scales.insert(out->group_scales.end(), blocks, to_f16(1.0f + static_cast<float>(row % 7)));
        out->scales.push_back(static_cast<float>(row + 1));
      }
      return int64_t{-1};
    };
  };
  const std::vector<float> nothing(kRows * kWidth);
  PackJob ordered = {view_of(nothing, DType::f32, {kRows, kWidth}), Format::w4z};
  ordered.reader = {.stored_as = "test", .read = [](int64_t, int64_t, float*) {}, .explain_nan = {}};
  PackJob plain = ordered;
  ordered.reader.read_w4 = rows_of([](int64_t row) { return row; });
  // Reads one row at a time by its file row.
  plain.reader.read_w4 = [&](int64_t first, int64_t count, W4Rows* out) {
    for (int64_t row = first; row < first + count; ++row) {
      rows_of([](int64_t one) { return kOrder.file_row(one); })(row, 1, out);
    }
    return int64_t{-1};
  };
  expect_same(plain, ordered);
}

TEST(RowOrder, BadRowIsNamedByFileRow) {
  std::vector<float> file = numbers();
  file[12 * kWidth + 3] = std::numeric_limits<float>::quiet_NaN();
  PackJob job = {view_of(file, DType::f32, {kRows, kWidth}), Format::w8};
  job.order = kOrder;
  PackedRows packed;
  ASSERT_NO_FATAL_FAILURE(pack(job, &packed));
  EXPECT_EQ(packed.failure.message(), "w row 12: NaN or infinity in the weights");
  job.order = {.head_rows = 2, .rows = 50, .step = 6, .first = 0};
  PackedRows part;
  ASSERT_NO_FATAL_FAILURE(pack(job, &part));
  EXPECT_EQ(part.failure.message(), packed.failure.message());
}

}  // namespace
}  // namespace pinion
