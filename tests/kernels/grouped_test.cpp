// The matmuls of formats with groups: every variant against scalar, for rows and groups below, at and above each tile,
// and scalar against plain sums over the layout of layout.h.
#include <algorithm>

#include "kernels/half.h"
#include "kernels/ops/tiles.h"
#include "tests/kernels/guarded.h"

namespace pinion {
namespace {

constexpr Format kGroupedFormats[] = {Format::w4, Format::w4z, Format::w2, Format::mxfp4, Format::w4n, Format::w8h};

// Twice the E2M1 numbers of mxfp4's codes, and IQ4_NL's levels.
constexpr int kDoubled[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};
constexpr int kNonLinear[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};

// a [rows][k], codes [k][64], zeros (times kZeroSteps) and scales [k / group][64]
struct Case {
  int64_t rows, k;
  Format format;
  std::vector<int8_t> a;
  std::vector<int> codes, zeros;
  std::vector<f16> scales;

  int number(int64_t row, int64_t n) const {
    const int code = codes[static_cast<size_t>(row * 64 + n)];
    return format == Format::mxfp4 ? kDoubled[code] : format == Format::w4n ? kNonLinear[code] : code;
  }
  int64_t group() const { return format == Format::w2 ? 128 : 32; }
  std::string name() const {
    return std::string(traits_of(format).name) + ", rows " + std::to_string(rows) + ", k " + std::to_string(k);
  }
};

size_t at(int64_t row, int64_t column, int64_t columns) { return static_cast<size_t>(row * columns + column); }

std::vector<std::byte> pack(const Case& c) {
  const int64_t rows = c.format == Format::w2 ? 4 : 2, lines = c.group() / (4 * rows);
  std::vector<std::byte> records;
  for (int64_t g = 0; g < c.k / c.group(); ++g) {
    for (int64_t line = 0; line < lines; ++line) {
      for (int64_t i = 0; i < 256; ++i) {
        int byte = 0;
        for (int64_t row = 0; row < rows; ++row) {
          const int64_t k = g * c.group() + (line * rows + row) * 4 + i % 4;
          byte |= c.codes[at(k, i / 4, 64)] << (row * 8 / rows);
        }
        records.push_back(static_cast<std::byte>(byte));
      }
    }
    for (int64_t n = 0; n < 64 && c.format != Format::w8h; ++n) {
      const uint16_t bits = c.scales[at(g, n, 64)].bits;
      records.push_back(static_cast<std::byte>(bits & 0xff));
      records.push_back(static_cast<std::byte>(bits >> 8));
    }
    for (int64_t n = 0; n < 64 && c.format == Format::w4z; ++n)
      records.push_back(static_cast<std::byte>(c.zeros[at(g, n, 64)]));
  }
  return records;
}

std::vector<float> by_contract(const Case& c) {
  std::vector<float> out;
  for (int64_t r = 0; r < c.rows; ++r) {
    for (int64_t n = 0; n < 64; ++n) {
      float total = 0;
      for (int64_t g = 0; g < c.k / c.group(); ++g) {
        int64_t sum = 0;
        for (int64_t k = g * c.group(); k < (g + 1) * c.group(); ++k) {
          sum += c.a[at(r, k, c.k)] * (kZeroSteps * c.number(k, n) - c.zeros[at(g, n, 64)]);
        }
        total = std::fma(static_cast<float>(sum) / kZeroSteps, to_float(c.scales[at(g, n, 64)]), total);
      }
      out.push_back(total);
    }
  }
  return out;
}

Result gemv(const Kernels& kernels, Edge edge, const Case& c, const std::vector<std::byte>& records) {
  const Guarded<int8_t> a(c.a, edge);
  const Guarded<std::byte> weights(records, edge);
  const Guarded<float> acc(c.rows * 64, edge);
  for (int64_t r = 0; r < c.rows; ++r) {
    kernels.gemv_grouped(a.data + r * c.k, {weights.data, c.k, c.format}, 1, acc.data + r * 64);
  }
  return {.floats = acc.copy()};
}

Result gemm(const Kernels& kernels, Edge edge, const Case& c, const std::vector<std::byte>& records,
            int64_t wanted_block) {
  const Guarded<std::byte> weights(records, edge);
  const Guarded<float> acc(c.rows * 64, edge);
  const int64_t block =
      wanted_block > 0 ? round_up(wanted_block, kernels.s8_shape.row_multiple) : block_rows(kernels.s8_shape, c.rows);
  const Guarded<int8_t> packed((c.rows + block - 1) / block * block * c.k, edge);
  kernels.pack_s8(c.a.data(), c.k, c.rows, c.k, block, packed.data);
  kernels.gemm_grouped(packed.data, {block, block * c.k}, c.rows, {weights.data, c.k, c.format}, acc.data);
  return {.floats = acc.copy()};
}

// Sizes of row blocks; 0: the table's choice.
std::vector<float> expect_contract(const std::string& name, const Case& c) {
  const std::string label = name + ", " + c.name();
  const std::vector<std::byte> records = pack(c);
  EXPECT_EQ(static_cast<int64_t>(records.size()), panel_bytes(c.format, c.k));
  const Result expected = {.floats = by_contract(c)};
  const auto check = [&](const std::string& how, auto run) {
    expect_same(run_on_all_tables(how + ": " + label, run), expected, how + " by contract: " + label);
  };
  check("gemv", [&](const Kernels& k, Edge edge) { return gemv(k, edge, c, records); });
  constexpr int64_t kBlocks[] = {1, 2, 16, 32};
  const int64_t second_block = kBlocks[static_cast<size_t>(c.rows + c.k / c.group()) % std::size(kBlocks)];
  for (const int64_t block : {int64_t{0}, second_block}) {
    check("gemm in blocks of " + std::to_string(block),
          [&](const Kernels& k, Edge edge) { return gemm(k, edge, c, records, block); });
  }
  return expected.floats;
}

std::vector<int> random_below(Random& random, int64_t n, uint32_t end) {
  std::vector<int> x(n);
  for (int& v : x) v = static_cast<int>(random.next() % end);
  return x;
}

// Random codes from all that the bits can hold.
Case random_case(Random& random, int64_t rows, int64_t groups, Format format) {
  Case c = {rows, 0, format, {}, {}, {}, {}};
  c.k = groups * c.group();
  c.a = random.codes(rows * c.k);
  c.codes = random_below(random, c.k * 64, format == Format::w2 ? 4 : 16);
  c.zeros = format == Format::w4z ? random_below(random, groups * 64, kZeroSteps * kMaxZero + 1)
                                  : std::vector<int>(at(groups, 0, 64), kZeroSteps * traits_of(format).zero);
  for (int64_t i = 0; i < groups * 64; ++i) {
    c.scales.push_back(to_f16(format == Format::w8h ? 1.0f : random.uniform(-0.01f, 0.02f)));
  }
  return c;
}

// Two groups, all weights 0 but a few.
TEST(Grouped, HandWorked) {
  for (const Format format : {Format::w4, Format::w4z, Format::w2}) {
    const int zero = format == Format::w2 ? 1 : format == Format::w4z ? 3 : 8, max_code = format == Format::w2 ? 3 : 15;
    const std::vector<int> zeros(128, zero * kZeroSteps);
    Case c = {2, 0, format, {}, {}, zeros, std::vector<f16>(128, to_f16(0.5f))};
    const int64_t second = c.group();  // first k of the second group
    c.k = 2 * second;
    c.a = std::vector<int8_t>(at(2, 0, c.k));
    c.codes = std::vector<int>(at(c.k, 0, 64), zero);
    c.a[0] = 1, c.a[5] = 2, c.a[at(0, second, c.k)] = 3;
    c.a[at(1, c.k - 1, c.k)] = -127;
    c.codes[at(0, 7, 64)] = max_code, c.codes[at(5, 7, 64)] = 0, c.codes[at(second, 7, 64)] = zero + 1;
    c.codes[at(c.k - 1, 63, 64)] = 0;
    c.scales[at(1, 7, 64)] = to_f16(-2.0f);
    const std::vector<float> acc = expect_contract("by hand", c);
    const auto first = static_cast<float>(1 * (max_code - zero) + 2 * (0 - zero));
    EXPECT_EQ(acc[7], first * 0.5f + 3 * 1 * -2.0f);
    EXPECT_EQ(acc[8], 0.0f);
    EXPECT_EQ(acc[64 + 63], static_cast<float>(-127 * (0 - zero)) * 0.5f);
  }
}

// Every level in each nibble.
void expect_level(Format format, int64_t code, int level) {
  Case c = {7, 64, format, std::vector<int8_t>(7 * 64), std::vector<int>(64 * 64), std::vector<int>(128), {}};
  c.scales = std::vector<f16>(128, to_f16(0.5f));
  for (int64_t n = 0; n < 64; ++n) c.codes[at(3, n, 64)] = c.codes[at(60, n, 64)] = static_cast<int>((code + n) % 16);
  for (int64_t r = 0; r < 7; ++r) c.a[at(r, 3, 64)] = static_cast<int8_t>(r + 1), c.a[at(r, 60, 64)] = -100;
  const std::vector<float> acc = expect_contract("levels", c);
  EXPECT_EQ(acc[0], static_cast<float>(-99 * level) * 0.5f);
  EXPECT_EQ(acc[6 * 64], static_cast<float>(-93 * level) * 0.5f);
}

TEST(Grouped, EveryLevel) {
  for (int64_t code = 0; code < 16; ++code) {
    expect_level(Format::mxfp4, code, kDoubled[code]);
    expect_level(Format::w4n, code, kNonLinear[code]);
  }
}

// Zero points between codes: 5 eighths and 15 7/8.
TEST(Grouped, EighthsOfACode) {
  Case c = {2, 64, Format::w4z, std::vector<int8_t>(128), std::vector<int>(64 * 64, 3), std::vector<int>(128, 24), {}};
  c.scales = std::vector<f16>(128, to_f16(1.0f));
  c.a[0] = 2, c.a[31] = -3, c.a[64 + 40] = 127;
  c.codes[at(0, 9, 64)] = 15, c.codes[at(31, 9, 64)] = 0, c.codes[at(40, 9, 64)] = 1;
  c.zeros[9] = 5, c.zeros[64 + 9] = 127, c.scales[64 + 9] = to_f16(-0.5f);
  const std::vector<float> acc = expect_contract("eighths", c);
  EXPECT_EQ(acc[9], 2 * (15 - 0.625f) - 3 * (0 - 0.625f));
  EXPECT_EQ(acc[8], 0.0f);
  EXPECT_EQ(acc[64 + 9], 127 * (1 - 15.875f) * -0.5f);
}

// Consecutive panels that are multiplied together have the bits of each panel alone.
TEST(Grouped, SeveralPanelsAtOnce) {
  Random random;
  for (const int64_t groups : {1, 2, 5}) {
    for (int64_t panels = 1; panels <= 6; ++panels) {
      const Format format = kGroupedFormats[static_cast<size_t>(panels) % std::size(kGroupedFormats)];
      std::vector<int8_t> a;
      std::vector<std::byte> records;
      Result expected;
      int64_t k = 0;
      for (int64_t p = 0; p < panels; ++p) {
        Case c = random_case(random, 1, groups, format);
        if (p == 0) a = c.a, k = c.k;
        c.a = a;
        const std::vector<std::byte> panel = pack(c);
        records.insert(records.end(), panel.begin(), panel.end());
        append(expected.floats, by_contract(c));
      }
      const std::string label = std::to_string(panels) + " panels of " + traits_of(format).name;
      const Result result = run_on_all_tables(label, [&](const Kernels& kernels, Edge edge) {
        const Guarded<int8_t> row(a, edge);
        const Guarded<std::byte> weights(records, edge);
        const Guarded<float> acc(panels * 64, edge);
        kernels.gemv_grouped(row.data, {weights.data, k, format}, panels, acc.data);
        return Result{.floats = acc.copy()};
      });
      expect_same(result, expected, label);
    }
  }
}

TEST(Grouped, EveryRowCount) {
  Random random;
  for (int64_t rows = 1; rows <= 70; rows += rows < 16 ? 1 : kStride) {
    expect_contract("random", random_case(random, rows, 3, w4_format(rows % 2 == 0)));
    for (const Format format : {Format::w2, Format::mxfp4, Format::w4n, Format::w8h}) {
      expect_contract("random", random_case(random, rows, 1 + rows % 2, format));
    }
  }
}

TEST(Grouped, EveryGroupCount) {
  Random random;
  for (int64_t groups = 1; groups <= 40; groups += groups < 10 ? 1 : kStride) {
    for (const Format format : kGroupedFormats) {
      expect_contract("random", random_case(random, 1 + groups % 7, groups, format));
    }
  }
}

// Inputs that would saturate or wrap 16-bit sums, the offset of the unsigned operand or its correction.
TEST(Grouped, ExtremeCodes) {
  Random random;
  const auto extreme = [&](int pattern, int64_t i) { return pattern == 2 ? i % 2 == 0 : pattern == 1; };
  const auto check = [&](Format format, int zero, int max_code, int min_code = 0) {
    for (int x = 0; x < 3; ++x) {
      for (int w = 0; w < 3; ++w) {
        for (const int64_t rows : {1, 7}) {
          Case c = random_case(random, rows, 5, format);
          for (size_t i = 0; i < c.a.size(); ++i) c.a[i] = extreme(x, static_cast<int64_t>(i)) ? 127 : -127;
          for (size_t i = 0; i < c.codes.size(); ++i) {
            c.codes[i] = extreme(w, static_cast<int64_t>(i) / 64) ? max_code : min_code;
          }
          std::ranges::fill(c.zeros, zero);
          expect_contract("extremes " + std::to_string(x) + " by " + std::to_string(w), c);
        }
      }
    }
  };
  for (const int zero : {0, 1, 63, kZeroSteps * kMaxZero - 1, kZeroSteps * kMaxZero}) check(Format::w4z, zero, 15);
  check(Format::w4, 8 * kZeroSteps, 15);
  check(Format::w8h, 8 * kZeroSteps, 15);
  check(Format::w2, kZeroSteps, 3);
  check(Format::mxfp4, 0, 7, 15);
  check(Format::w4n, 0, 15, 0);
}

TEST(Grouped, EveryScale) {
  Random random;
  std::vector<f16> finite;
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    if ((bits & 0x7c00) != 0x7c00) finite.push_back({static_cast<uint16_t>(bits)});
  }
  Case c = random_case(random, 3, static_cast<int64_t>(finite.size()) / 64, Format::w4z);
  c.scales = finite;
  expect_contract("every scale", c);
  for (f16& scale : c.scales) scale = {static_cast<uint16_t>(random.next() % 2 << 15)};
  for (const float sum : expect_contract("groups of zeros", c)) EXPECT_EQ(sum, 0.0f);
}

Result low_sum(const Kernels& kernels, Edge edge, const std::vector<int8_t>& a, const std::vector<uint8_t>& low) {
  const Guarded<int8_t> row(a, edge);
  const Guarded<uint8_t> column(low, edge);
  return {.sums = {kernels.dot_low(row.data, column.data, static_cast<int64_t>(a.size()))}};
}

TEST(DotLow, HandWorked) {
  std::vector<int8_t> a(64);
  std::vector<uint8_t> low(32);
  a[0] = 2, a[31] = -3, a[32] = 127, a[63] = -1;
  low[0] = 0xf5, low[31] = 0x24;  // inputs 0 and 32: 5 and 15; inputs 31 and 63: 4 and 2
  const Result result =
      run_on_all_tables("by hand", [&](const Kernels& kernels, Edge edge) { return low_sum(kernels, edge, a, low); });
  EXPECT_EQ(result.sums[0], 2 * 5 - 3 * 4 + 127 * 15 - 1 * 2);
}

TEST(DotLow, EveryLength) {
  Random random;
  for (int64_t k = kGroupK; k <= 600; k += kGroupK) {
    const std::vector<int8_t> a = k == 320 ? std::vector<int8_t>(k, -127) : random.codes(k);
    std::vector<uint8_t> low(k / 2, 0xff);
    for (uint8_t& pair : low) pair = k == 320 ? pair : static_cast<uint8_t>(random.next());
    int32_t expected = 0;
    for (int64_t i = 0; i < k; ++i) {
      const int pair = low[static_cast<size_t>(i % (k / 2))];
      expected += a[static_cast<size_t>(i)] * (i < k / 2 ? pair % 16 : pair / 16);
    }
    const std::string label = "k " + std::to_string(k);
    const Result result =
        run_on_all_tables(label, [&](const Kernels& kernels, Edge edge) { return low_sum(kernels, edge, a, low); });
    EXPECT_EQ(result.sums[0], expected) << label;
  }
}

TEST(Bounds, EveryPosition) {
  Random random;
  for (int64_t at = 0; at < 64; ++at) {
    std::vector<float> high(64), scale(64);
    for (float& x : high) x = static_cast<float>(static_cast<int>(random.next() % 200000) - 100000);
    for (float& x : scale) x = random.uniform(0.0f, 0.001f);
    high[at] = 150000, scale[at] = at % 2 == 0 ? 0.001f : 1.0f;
    if (at % 3 == 0) scale[(at + 7) % 64] = std::numeric_limits<float>::quiet_NaN();
    std::vector<bf16_pair> spread(64);
    for (bf16_pair& pair : spread) pair = {to_bf16(random.uniform(4.0f, 5.0f)), to_bf16(random.uniform(-0.1f, 0.1f))};
    const Result result = run_on_all_tables(std::to_string(at), [&](const Kernels& kernels, Edge edge) {
      const Guarded<float> sums(high, edge), scales(scale, edge), out(std::vector<float>(64), edge);
      const Guarded<bf16_pair> spreads(spread, edge);
      Result all{.floats = {kernels.bounds(sums.data, spreads.data, scales.data, -1000.0f, 10.0f, out.data)}};
      all.floats.insert(all.floats.end(), out.data, out.data + 64);
      return all;
    });
    const float sum = 16.0f * 150000 - 1000.0f;
    const float low = to_float(spread[at].first) * sum + to_float(spread[at].second) * 10.0f;
    EXPECT_EQ(result.floats[0], (sum + low) * scale[at]);
    EXPECT_EQ(result.floats[1 + at], result.floats[0]);
  }
}

TEST(F16, NumbersSurviveAndTiesGoToEven) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const f16 half = {static_cast<uint16_t>(bits)};
    const float value = to_float(half);
    const uint32_t exponent = bits >> 10 & 31, mantissa = bits & 0x3ff;
    if (exponent == 31) {
      EXPECT_TRUE(mantissa ? std::isnan(value) : std::isinf(value)) << bits;
      continue;
    }
    const float magnitude = exponent ? std::ldexp(static_cast<float>(1024 + mantissa), static_cast<int>(exponent) - 25)
                                     : std::ldexp(static_cast<float>(mantissa), -24);
    ASSERT_EQ(float_bits(value), float_bits(bits >> 15 ? -magnitude : magnitude)) << bits;
    ASSERT_EQ(to_f16(value).bits, bits);
    if (bits >> 15 || bits == 0x7bff) continue;
    const float next = to_float(f16{static_cast<uint16_t>(bits + 1)});
    const float middle = value + (next - value) / 2;
    ASSERT_EQ(to_f16(middle).bits, bits + (bits & 1)) << bits;
    ASSERT_EQ(to_f16(std::nextafter(middle, 0.0f)).bits, bits);
    ASSERT_EQ(to_f16(std::nextafter(middle, next)).bits, bits + 1);
  }
}

}  // namespace
}  // namespace pinion
