#include "loader/pack/pack.h"
#include "tests/crew.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "kernels/half.h"
#include "kernels/kernels.h"
#include "loader/checkpoint/checkpoint.h"
#include "loader/checkpoint/number_formats.h"
#include "loader/files/mapped_file.h"
#include "tests/loader/make_files.h"

namespace pinion {
namespace {

// A source tensor with its bytes, unaligned as in files.
struct Source {
  std::vector<std::byte> storage;
  TensorView view;
};

Source make_source(DType dtype, int64_t n, int64_t k, const std::vector<float>& values) {
  Source source;
  const int64_t size = dtype == DType::f32 ? 4 : 2;
  source.storage.resize(n * k * size + 1);
  for (int64_t i = 0; i < n * k; i++) {
    std::byte* to = source.storage.data() + 1 + i * size;
    const uint16_t bf16_bits = to_bf16(values[i]).bits;
    if (dtype == DType::f32) std::memcpy(to, &values[i], 4);
    if (dtype == DType::bf16) std::memcpy(to, &bf16_bits, 2);
    // For F16 the tests use random bits: every finite value may occur.
    if (dtype == DType::f16) {
      uint32_t bits = std::bit_cast<uint32_t>(values[i]) >> 7 & 0xffff;
      if ((bits & 0x7c00) == 0x7c00) bits ^= 0x4000;
      std::memcpy(to, &bits, 2);
    }
  }
  source.view = {"w", dtype, {n, k}, source.storage.data() + 1, n * k * size};
  return source;
}

std::vector<float> random_values(int64_t count) {
  std::mt19937 random(7);
  std::normal_distribution<float> normal(0.0f, 0.02f);
  std::vector<float> values(count);
  for (float& value : values) value = normal(random);
  return values;
}

struct Packed {
  Arena arena;
  Matrix matrix;
  Error failure;
};

Packed pack(const TensorView& source, Format format, int threads = 2, int64_t rotation = 1) {
  Packed packed;
  PackJob job{source, format, &packed.matrix};
  job.rotation = rotation;
  EXPECT_FALSE(allocate_arena(packed_bytes({&job, 1}), &packed.arena));
  std::memset(packed.arena.data, 0x55, packed.arena.bytes);  // padding must be written
  packed.failure = pack_all(crew(threads), {&job, 1}, packed.arena.data);
  return packed;
}

int8_t code(const Matrix& m, int64_t k, int64_t n) {
  return reinterpret_cast<const int8_t*>(panel_of(m, n / kPanelColumns))[w8_offset(k, n)];
}

uint16_t bf16_bits(const Matrix& m, int64_t k, int64_t n) {
  return reinterpret_cast<const bf16*>(panel_of(m, n / kPanelColumns))[bf16_offset(k, n)].bits;
}

std::vector<int> codes_of(const std::vector<float>& row) {
  const auto k = static_cast<int64_t>(row.size());
  const Source source = make_source(DType::f32, 1, k, row);
  const Packed packed = pack(source.view, Format::w8);
  EXPECT_EQ(packed.failure.message(), "");
  std::vector<int> codes;
  for (int64_t i = 0; i < k; i++) codes.push_back(code(packed.matrix, i, 0));
  return codes;
}

TEST(Pack, HandWorkedCodes) {
  // amax 127: the scale is 1, and ties round to even.
  EXPECT_EQ(codes_of({127.0f, 0.5f, 1.5f, 2.5f, -0.5f, -1.5f, -2.5f, 0.4999f, 126.5f, -126.5f, -127.0f, 3.0f}),
            (std::vector<int>{127, 0, 2, 2, 0, -2, -2, 0, 126, -126, -127, 3}));
  // scale 0.5: 0.25 / 0.5 and 0.75 / 0.5 are ties.
  EXPECT_EQ(codes_of({-63.5f, 0.25f, 0.75f, -0.25f, 1.0f, 0.0f, -0.0f}), (std::vector<int>{-127, 0, 2, 0, 2, 0, 0}));
}

TEST(Pack, SmallestRows) {
  const float tiny = 0x1p-119f;
  EXPECT_EQ(codes_of({tiny, -tiny, tiny / 2}), (std::vector<int>{127, -127, 64}));
  EXPECT_EQ(codes_of({std::nextafter(tiny, 0.0f), -0x1p-130f}), (std::vector<int>{0, 0}));
  EXPECT_EQ(codes_of({0.0f, -0.0f}), (std::vector<int>{0, 0}));
  EXPECT_EQ(codes_of({std::numeric_limits<float>::max(), std::numeric_limits<float>::lowest(), 1.0f}),
            (std::vector<int>{127, -127, 0}));
}

void check_w8(const Source& source, const Matrix& m) {
  const int64_t n = source.view.shape[0], k = source.view.shape[1];
  std::vector<float> w(n * k);
  read_floats(source.view, w.data());
  for (int64_t row = 0; row < padded_n(n); row++) {
    float amax = 0.0f;
    for (int64_t i = 0; row < n && i < k; i++) amax = std::max(amax, std::fabs(w[row * k + i]));
    const float scale = amax < 0x1p-119f ? 0.0f : amax / 127.0f;
    ASSERT_EQ(m.scale[row], scale) << "row " << row;
    int32_t sum = 0;
    for (int64_t i = 0; i < padded_k(k); i++) {
      const bool inside = row < n && i < k && scale > 0.0f;
      const float want = inside ? std::nearbyintf(w[row * k + i] / scale) : 0.0f;
      ASSERT_EQ(static_cast<float>(code(m, i, row)), want) << "row " << row << " k " << i;
      sum += code(m, i, row);
    }
    ASSERT_EQ(m.column_sum[row], sum) << "row " << row;
  }
}

void check_bf16(const Source& source, const Matrix& m) {
  const int64_t n = source.view.shape[0], k = source.view.shape[1];
  std::vector<float> w(n * k);
  read_floats(source.view, w.data());
  for (int64_t row = 0; row < padded_n(n); row++) {
    for (int64_t i = 0; i < padded_k(k); i++) {
      const uint16_t want = row < n && i < k ? to_bf16(w[row * k + i]).bits : uint16_t{0};
      ASSERT_EQ(bf16_bits(m, i, row), want) << "row " << row << " k " << i;
    }
  }
}

TEST(Pack, ShapesAroundGroupAndPanelSizes) {
  for (const DType dtype : {DType::bf16, DType::f16, DType::f32}) {
    for (const int64_t n : {1, 15, 16, 17, 63, 64, 65, 129}) {
      for (const int64_t k : {1, 3, 4, 31, 32, 33, 255, 256, 257, 300}) {
        SCOPED_TRACE(std::string(dtype_name(dtype)) + " " + std::to_string(n) + "x" + std::to_string(k));
        const Source source = make_source(dtype, n, k, random_values(n * k));
        const Packed w8 = pack(source.view, Format::w8);
        ASSERT_EQ(w8.failure.message(), "");
        check_w8(source, w8.matrix);
        const Packed half = pack(source.view, Format::bf16);
        ASSERT_EQ(half.failure.message(), "");
        check_bf16(source, half.matrix);
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST(Pack, BytesDoNotDependOnThreads) {
  const Source a = make_source(DType::bf16, 700, 515, random_values(700 * 515));
  const Source b = make_source(DType::f32, 3000, 640, random_values(3000 * 640));
  std::vector<std::byte> first;
  for (const int threads : {1, 2, 3, 4}) {
    Matrix matrices[3];
    const PackJob jobs[] = {
        {a.view, Format::w8, &matrices[0]}, {b.view, Format::w8, &matrices[1]}, {b.view, Format::bf16, &matrices[2]}};
    Arena arena;
    ASSERT_FALSE(allocate_arena(packed_bytes(jobs), &arena));
    ASSERT_EQ(pack_all(crew(threads), jobs, arena.data).message(), "");
    EXPECT_EQ(matrices[1].panels, arena.data + packed_bytes(Format::w8, 700, 515));
    EXPECT_EQ(static_cast<const void*>(matrices[0].scale),
              arena.data + panel_count(700) * panel_bytes(Format::w8, 515));
    const std::vector<std::byte> bytes(arena.data, arena.data + arena.bytes);
    if (first.empty()) first = bytes;
    EXPECT_TRUE(bytes == first) << threads << " threads";
  }
}

// Interleaved panels equal those of each matrix alone. Scales and sums follow, then the next matrix.
TEST(Pack, InterleavedPanels) {
  constexpr int64_t kN = 130, kK = 70;
  std::vector<float> values = random_values(2 * kN * kK);
  const Source a = make_source(DType::f32, kN, kK, values);
  std::ranges::reverse(values);
  const Source b = make_source(DType::f32, kN, kK, values);
  for (const Format format : {Format::bf16, Format::w8, Format::w4, Format::w4n}) {
    Matrix matrices[3];
    const PackJob jobs[] = {{.source = a.view, .format = format, .out = &matrices[0], .interleaved = 2},
                            {.source = b.view, .format = format, .out = &matrices[1], .interleaved = 2},
                            {.source = a.view, .format = format, .out = &matrices[2]}};
    Arena arena;
    ASSERT_FALSE(allocate_arena(packed_bytes(jobs), &arena));
    ASSERT_EQ(pack_all(crew(2), jobs, arena.data).message(), "");
    const int64_t panel = panel_bytes(format, kK);
    EXPECT_EQ(panel_of(matrices[0], 1), arena.data + 2 * panel);
    EXPECT_EQ(panel_of(matrices[1], 2), arena.data + 5 * panel);
    EXPECT_EQ(panel_of(matrices[2], 1), arena.data + 2 * packed_bytes(format, kN, kK) + panel);
    for (const Matrix& m : matrices) {
      const Packed alone = pack(&m == &matrices[1] ? b.view : a.view, format);
      for (int64_t i = 0; i < panel_count(kN); i++) {
        EXPECT_EQ(std::memcmp(panel_of(m, i), panel_of(alone.matrix, i), panel), 0) << i;
      }
      for (int64_t n = 0; m.scale && n < padded_n(kN); n++) EXPECT_EQ(m.scale[n], alone.matrix.scale[n]) << n;
      for (int64_t n = 0; m.column_sum && n < padded_n(kN); n++) {
        EXPECT_EQ(m.column_sum[n], alone.matrix.column_sum[n]) << n;
      }
    }
  }
}

// Equals the packed rotated rows, except that the scale is divided by the block size.
TEST(Pack, RotatedMatrixPacksRotatedRows) {
  for (const int64_t k : {33, 40, 96, 704, 1024}) {
    const int64_t n = 70, block = rotation_of(k);
    const Source source = make_source(DType::bf16, n, k, random_values(n * k));
    std::vector<float> turned(n * k);
    read_floats(source.view, turned.data());
    for (int64_t row = 0; row < n; ++row) {
      scalar_kernels().rotate(turned.data() + row * k, k, block, turned.data() + row * k);
    }
    const Packed plain = pack(make_source(DType::f32, n, k, turned).view, Format::w8);
    const Packed rotated = pack(source.view, Format::w8, 2, block);
    ASSERT_EQ(rotated.failure.message(), "");
    EXPECT_EQ(rotated.matrix.rotation, block);
    const int64_t panels = panel_count(n) * panel_bytes(Format::w8, k);
    EXPECT_EQ(std::memcmp(rotated.arena.data, plain.arena.data, panels), 0) << k;
    for (int64_t row = 0; row < padded_n(n); ++row) {
      EXPECT_EQ(rotated.matrix.scale[row], plain.matrix.scale[row] / static_cast<float>(block)) << k;
      EXPECT_EQ(rotated.matrix.column_sum[row], plain.matrix.column_sum[row]) << k;
    }
  }
}

// W x from rotated codes against W x in double precision: the error is that of quantisation.
TEST(Pack, RotatedWeightsMultiplyRotatedInputs) {
  const int64_t n = 64, k = 192, block = rotation_of(k);
  const std::vector<float> values = random_values(n * k);
  std::vector<float> x(k);
  for (size_t i = 0; i < x.size(); ++i) x[i] = i == 77 ? 300.0f : static_cast<float>(i % 11) - 5.0f;  // an outlier
  const Packed rotated = pack(make_source(DType::f32, n, k, values).view, Format::w8, 2, block);
  std::vector<float> turned(x.size());
  scalar_kernels().rotate(x.data(), k, block, turned.data());
  double error = 0, size = 0;
  for (int64_t row = 0; row < n; ++row) {
    double want = 0, have = 0;
    for (int64_t i = 0; i < k; ++i) {
      want += double{values[row * k + i]} * double{x[i]};
      have += code(rotated.matrix, i, row) * double{rotated.matrix.scale[row]} * double{turned[i]};
    }
    error += (have - want) * (have - want);
    size += want * want;
  }
  EXPECT_LT(std::sqrt(error / size), 0.02);
}

TEST(Pack, RefusesNanAndInfinity) {
  for (const DType dtype : {DType::bf16, DType::f32}) {
    for (const Format format : {Format::w8, Format::bf16}) {
      std::vector<float> values = random_values(100 * 40);
      values[77 * 40 + 39] = std::numeric_limits<float>::quiet_NaN();
      values[90 * 40] = std::numeric_limits<float>::infinity();
      const Source source = make_source(dtype, 100, 40, values);
      EXPECT_EQ(pack(source.view, format).failure.message(), "w row 77: NaN or infinity in the weights");
    }
  }
  Source half = make_source(DType::f16, 1, 2, {0.0f, 0.0f});
  const uint16_t infinity = 0xfc00;
  std::memcpy(half.storage.data() + 3, &infinity, 2);
  EXPECT_EQ(pack(half.view, Format::w8).failure.message(), "w row 0: NaN or infinity in the weights");
}

TEST(Pack, FirstBadRowDoesNotDependOnThreads) {
  std::vector<float> values = random_values(6000 * 512);
  for (const int64_t row : {5999, 3000, 1234}) values[row * 512 + 1] = std::numeric_limits<float>::infinity();
  const Source source = make_source(DType::f32, 6000, 512, values);
  for (const int threads : {1, 2, 3, 4}) {
    EXPECT_EQ(pack(source.view, Format::w8, threads).failure.message(), "w row 1234: NaN or infinity in the weights");
  }
}

TEST(Pack, InvalidSourcesAreErrors) {
  const std::byte data[16] = {};
  const auto message = [&](const TensorView& source) {
    Matrix matrix;
    const PackJob job{source, Format::w8, &matrix};
    return pack_all({}, {&job, 1}, nullptr).message();
  };
  EXPECT_EQ(message({"w", DType::bf16, {8}, data, 16}),
            "w: cannot pack this shape: want [n, k], k at most 131072, have [8]");
  EXPECT_EQ(message({"w", DType::bf16, {0, 8}, data, 0}),
            "w: cannot pack this shape: want [n, k], k at most 131072, have [0, 8]");
  EXPECT_EQ(message({"w", DType::i8, {2, 8}, data, 16}),
            "w: cannot pack this type: want BF16, F16, F32, or I8 with scales, have I8");
}

// Codes [n, k] with all values including -128, and a scale for each row or one for all.
struct Coded {
  std::vector<int8_t> codes;
  Source scale;
  TensorView source;

  Coded(int64_t n, int64_t k, DType dtype, const std::vector<float>& scales) {
    for (int64_t i = 0; i < n * k; i++) codes.push_back(static_cast<int8_t>(i * 37 - 128));
    scale = make_source(dtype, std::ssize(scales), 1, scales);
    scale.view.name = "w.weight_scale";
    source = {"w", DType::i8, {n, k}, reinterpret_cast<const std::byte*>(codes.data()), n * k};
  }
  Packed packed(Format format) const {
    Packed result;
    const PackJob job{source, format, &result.matrix, scale.view};
    EXPECT_FALSE(allocate_arena(packed_bytes({&job, 1}), &result.arena));
    std::memset(result.arena.data, 0x55, result.arena.bytes);
    result.failure = pack_all(crew(2), {&job, 1}, result.arena.data);
    return result;
  }
};

TEST(Pack, Int8CodesAndScalesAreKept) {
  for (const int64_t n : {1, 17, 64, 130}) {
    for (const int64_t k : {3, 32, 300}) {
      std::vector<float> scales(n, 0.25f);
      for (int64_t i = 1; i < n; i++) scales[i] = static_cast<float>(i) * 0x1p-9f;
      const Coded coded(n, k, DType::f32, scales);
      const Packed w8 = coded.packed(Format::w8);
      const Packed half = coded.packed(Format::bf16);
      ASSERT_EQ(w8.failure.message() + half.failure.message(), "");
      for (int64_t row = 0; row < padded_n(n); row++) {
        int32_t sum = 0;
        for (int64_t i = 0; i < padded_k(k); i++) {
          const int want = row < n && i < k ? coded.codes[row * k + i] : 0;
          ASSERT_EQ(code(w8.matrix, i, row), want);
          const float value = want == 0 ? 0.0f : static_cast<float>(want) * scales[row];
          ASSERT_EQ(bf16_bits(half.matrix, i, row), to_bf16(value).bits);
          sum += want;
        }
        ASSERT_EQ(w8.matrix.scale[row], row < n ? scales[row] : 0.0f);
        ASSERT_EQ(w8.matrix.column_sum[row], sum);
      }
    }
  }
}

// [[1, 2, -4], [8, 0.5, 3]] with an update of 2 (1, -1)^T (1, 0, 1): W + BA = [[3, 2, -2], [6, 0.5, 1]].
TEST(Pack, TransposeHandWorked) {
  const Source w = make_source(DType::f32, 2, 3, {1, 2, -4, 8, 0.5f, 3}),
               turned = make_source(DType::f32, 3, 2, {3, 6, 2, 0.5f, -2, 1});
  const Source a = make_source(DType::f32, 1, 3, {1, 0, 1}), b = make_source(DType::f32, 2, 1, {1, -1});
  Matrix matrix;
  PackJob job{w.view, Format::w8, &matrix};
  job.updates = {{a.view, b.view, 2.0f}};
  transpose(&job);
  Arena arena;
  ASSERT_FALSE(allocate_arena(packed_bytes({&job, 1}), &arena));
  std::memset(arena.data, 0x55, arena.bytes);
  ASSERT_EQ(pack_all(crew(1), {&job, 1}, arena.data).message(), "");
  EXPECT_EQ(matrix.n, 3);
  EXPECT_EQ(matrix.k, 2);
  EXPECT_EQ(matrix.scale[0], 6.0f / 127);
  EXPECT_EQ(code(matrix, 1, 0), 127);
  EXPECT_EQ(code(matrix, 0, 2), -127);
  const Packed expected = pack(turned.view, Format::w8);
  ASSERT_EQ(arena.bytes, expected.arena.bytes);
  EXPECT_EQ(std::memcmp(arena.data, expected.arena.data, arena.bytes), 0);

  const int8_t codes[] = {1, 2, -4, 16, 1, 6};
  const Source scales = make_source(DType::f32, 2, 1, {1.0f, 0.5f});
  PackJob coded{{"w", DType::i8, {2, 3}, reinterpret_cast<const std::byte*>(codes), 6}, Format::w8, &matrix};
  coded.scale = scales.view;
  coded.updates = {{a.view, b.view, 2.0f}};
  transpose(&coded);
  ASSERT_EQ(pack_all(crew(1), {&coded, 1}, arena.data).message(), "");
  EXPECT_EQ(std::memcmp(arena.data, expected.arena.data, arena.bytes), 0) << "codes times their scales";
}

TEST(Pack, SingleScaleOfAnyType) {
  for (const DType dtype : {DType::bf16, DType::f16, DType::f32}) {
    const Coded coded(70, 5, dtype, {0.51f});  // not 0 as F16 bits of make_source
    float scale = 0;
    read_floats(coded.scale.view, &scale);
    const Packed packed = coded.packed(Format::w8);
    ASSERT_EQ(packed.failure.message(), "");
    for (int64_t row = 0; row < 70; row++) ASSERT_EQ(packed.matrix.scale[row], scale);
  }
}

TEST(Pack, InvalidScalesAreErrors) {
  const std::pair<float, const char*> cases[] = {{0.0f, "0"},
                                                 {-0.5f, "-0.5"},
                                                 {std::numeric_limits<float>::quiet_NaN(), "nan"},
                                                 {std::numeric_limits<float>::infinity(), "inf"},
                                                 {3e38f, "3e+38"}};
  for (const auto& [value, text] : cases) {
    std::vector<float> scales(100, 0.5f);
    scales[77] = value;
    for (const Format format : {Format::w8, Format::bf16}) {
      EXPECT_EQ(Coded(100, 8, DType::f32, scales).packed(format).failure.message(),
                "w.weight_scale row 77: invalid scale: want a positive number, have " + std::string(text));
    }
  }
  EXPECT_EQ(Coded(100, 8, DType::bf16, {1.0f, 2.0f}).packed(Format::w8).failure.message(),
            "w.weight_scale: cannot use these scales: want one, or one for each row, of BF16, F16 or F32, have [2, 1] "
            "of BF16");
}

TEST(Pack, MappedFileWithProgress) {
  const TempFolder folder;
  const int64_t n = 4096, k = 1024;
  std::string data(n * k * 2, '\0');
  std::mt19937 random(3);
  for (size_t i = 0; i < data.size(); i += 2) {
    const uint16_t bits = to_bf16(static_cast<float>(random() % 1000) - 500.0f).bits;
    std::memcpy(data.data() + i, &bits, 2);
  }
  folder.write(
      "model.safetensors",
      safetensors_text(R"({"w": {"dtype": "BF16", "shape": [4096, 1024], "data_offsets": [0, 8388608]}})", data));
  Checkpoint checkpoint;
  ASSERT_EQ(open_checkpoint(folder.path, &checkpoint).message(), "");
  Matrix matrix;
  const PackJob job{*checkpoint.find("w"), Format::w8, &matrix};
  Arena arena;
  ASSERT_FALSE(allocate_arena(packed_bytes({&job, 1}), &arena));
  int64_t last_done = 0, last_total = 0;
  const auto progress = [&](int64_t done, int64_t total) { last_done = done, last_total = total; };
  ASSERT_EQ(pack_all(crew(2), {&job, 1}, arena.data, {.source_mapped = true, .progress = progress}).message(), "");
  EXPECT_EQ(last_done, 8388608);
  EXPECT_EQ(last_total, 8388608);
  check_w8({{}, job.source}, matrix);  // reads the released pages again
}

}  // namespace
}  // namespace pinion
