// Kernels over tiles and rows: every variant against scalar, and scalar against the formulas of the contracts.
#include <algorithm>

#include "tests/kernels/guarded.h"

namespace pinion {
namespace {

// Sums that float cannot represent: ties of the conversion, and the largest.
std::vector<int32_t> hard_sums(Random& random, int64_t n) {
  constexpr int32_t kHard[] = {2130706432, -2130706432, INT32_MAX, INT32_MIN, 16777217, -16777217, 16777219, 0};
  std::vector<int32_t> sums;
  for (int64_t i = 0; i < n; ++i) sums.push_back(static_cast<int32_t>(random.next()));
  for (size_t i = 0; i < sums.size(); i += 5) sums[i] = kHard[i / 5 % std::size(kHard)];
  return sums;
}

TEST(Epilogue, Dequantizes) {
  Random random;
  for (int64_t rows : {0, 1, 2, 5}) {
    const std::vector<int32_t> sums = hard_sums(random, rows * kPanelColumns);
    std::vector<float> row_scale = random.floats(rows, 0, 0.1f);
    std::vector<float> column_scale = random.floats(kPanelColumns, 0, 0.1f);
    column_scale[9] = 0, column_scale[10] = 1e-30f, column_scale[11] = 1e30f;
    if (rows == 5) row_scale[2] = kNan, row_scale[3] = 0, row_scale[4] = 1e-38f;

    Result expected;
    for (size_t i = 0; i < sums.size(); ++i) {
      expected.floats.push_back(static_cast<float>(sums[i]) * row_scale[i / 64] * column_scale[i % 64]);
    }
    const auto run = [&](const Kernels& kernels, Edge edge) {
      const Guarded<int32_t> in(sums, edge);
      const Guarded<float> by_row(row_scale, edge), by_column(column_scale, edge);
      const Guarded<float> tile(rows * kPanelColumns, edge);
      kernels.epilogue_s32(in.data, rows, kPanelColumns, {.row_scale = by_row.data, .column_scale = by_column.data},
                           tile.data, kPanelColumns);
      return Result{.floats = tile.copy()};
    };
    expect_same(run_on_all_tables("rows " + std::to_string(rows), run), expected, "contract");
  }
}

// The steps of an epilogue.
struct Steps {
  bool scales, alpha, bias, gate, beta, clamp, cap;
  Activation activation;
  bool activates = false;
};

// One number through the scalar epilogue, whose formulas accuracy_test checks.
float scalar_epilogue(float x, const Epilogue& ops) {
  float sums[kPanelColumns] = {x}, out;
  scalar_kernels().epilogue_f32(sums, 1, 1, ops, &out, 1);
  return out;
}

constexpr float kLimit = 0.5f;  // of clamped_swiglu
constexpr Xielu kCurve = {0.75f, 1.25f, 0.5f, -0.125f};

void check_epilogue(Random& random, int64_t rows, int64_t columns, const Steps& steps) {
  const int64_t ldo = columns + 3, gate_stride = columns + 2;  // the padding of rows must not change
  const std::vector<float> tile = random.floats(rows * round_up(columns, kPanelColumns));
  const std::vector<float> row_scale = random.floats(rows), column_scale = random.floats(columns);
  const std::vector<float> bias = random.floats(columns), gates = random.floats(rows * gate_stride, -6, 6);
  const std::vector<float> before = random.floats((rows - 1) * ldo + columns);
  Result expected = {.floats = before};
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < columns; ++c) {
      float value = tile[r * kPanelColumns + c];
      float& to = expected.floats[r * ldo + c];
      if (steps.scales) value = value * row_scale[r] * column_scale[c];
      if (steps.alpha) value = 1.5f * value;
      if (steps.bias) value = value + bias[c];
      if (steps.cap) value = scalar_epilogue(value, {.cap = 0.4f});
      if (steps.gate) {
        const float* gate = &gates[r * gate_stride + c];
        value =
            scalar_epilogue(value, {.gate = gate, .activation = steps.activation, .limit = kLimit, .xielu = kCurve});
      }
      if (steps.activates) {
        value = scalar_epilogue(value, {.activates = true, .activation = steps.activation, .xielu = kCurve});
      }
      if (steps.beta) value = value + -0.75f * to;
      if (steps.clamp) value = std::clamp(value, -0.25f, 0.5f);
      to = value;
    }
  }
  const auto run = [&](const Kernels& kernels, Edge edge) {
    const Guarded<float> in(tile, edge), out(before, edge), by_row(row_scale, edge), by_column(column_scale, edge);
    const Guarded<float> added(bias, edge), gate(gates, edge);
    Epilogue ops;
    if (steps.scales) ops.row_scale = by_row.data, ops.column_scale = by_column.data;
    if (steps.alpha) ops.alpha = 1.5f;
    if (steps.bias) ops.bias = added.data;
    if (steps.cap) ops.cap = 0.4f;
    if (steps.gate) ops.gate = gate.data, ops.gate_stride = gate_stride;
    ops.activates = steps.activates;
    ops.activation = steps.activation, ops.limit = kLimit, ops.xielu = kCurve;
    if (steps.beta) ops.beta = -0.75f;
    if (steps.clamp) ops.low = -0.25f, ops.high = 0.5f;
    kernels.epilogue_f32(in.data, rows, columns, ops, out.data, ldo);
    return Result{.floats = out.copy()};
  };
  const std::string label = "columns " + std::to_string(columns);
  expect_same(run_on_all_tables(label, run), expected, "contract: " + label);
}

TEST(Epilogue, EveryWidthAndStep) {
  Random random;
  for (int64_t columns = 1; columns <= kPanelColumns; ++columns) {
    const auto bit = [&](int i) { return (columns >> i) % 2 == 1; };
    const auto activation = [&](int64_t i) { return static_cast<Activation>(i % 6); };
    check_epilogue(random, 1 + columns % 3, columns,
                   {bit(0), bit(1), bit(2), bit(3), bit(4), bit(5), bit(2), activation(columns)});
    check_epilogue(random, 2, columns,
                   {!bit(0), bit(3), !bit(2), bit(1), !bit(4), !bit(0), bit(3), activation(columns / 4)});
    check_epilogue(
        random, 2, columns,
        {!bit(0), bit(3), !bit(2), false, !bit(4), bit(0), bit(3), static_cast<Activation>(columns % 5), true});
  }
}

TEST(Epilogue, SingleRowOfSeveralPanels) {
  Random random;
  const Steps all = {true, true, true, true, true, true, true, Activation::silu};
  for (const int64_t columns : {65, 80, 127, 128, 129, 256}) check_epilogue(random, 1, columns, all);
}

// At large magnitudes a cap is reached and a gate is 0 or its input; NaN stays NaN.
TEST(Epilogue, CapAndGatesAtLargeMagnitudes) {
  const std::vector<float> x = {0, 1000, -1000, kInfinity, -kInfinity, kNan};
  const std::vector<float> gates = {3, 1e4f, -1e4f, 3e38f, -3e38f, kNan};
  const auto count = static_cast<int64_t>(x.size());
  const auto finish = [&](const Kernels& kernels, Edge edge, const std::vector<float>& values, Epilogue ops) {
    std::vector<float> sums = values;
    sums.resize(kPanelColumns);
    const Guarded<float> tile(sums, edge), gate(gates, edge), out(count, edge);
    if (ops.gate_stride > 0) ops.gate = gate.data;
    kernels.epilogue_f32(tile.data, 1, count, ops, out.data, count);
    return Result{.floats = out.copy()};
  };
  const auto capped = [&](const Kernels& k, Edge edge) { return finish(k, edge, x, {.cap = 30}); };
  expect_same(run_on_all_tables("cap", capped), {.floats = {0, 30, -30, 30, -30, kNan}}, "contract");
  for (const Activation activation : {Activation::gelu, Activation::gelu_tanh}) {
    const auto gated = [&](const Kernels& k, Edge edge) {
      return finish(k, edge, {0, 2, 2, 1, 1, 1}, {.gate_stride = count, .activation = activation});
    };
    expect_same(run_on_all_tables("gelu", gated), {.floats = {0, 2e4f, -0.0f, 3e38f, -0.0f, kNan}}, "contract");
  }
  // At this limit the sigmoid is 1: 64 (v + 1), v from -64 to 64.
  const auto clamped = [&](const std::vector<float>& values) {
    return run_on_all_tables("clamped", [&, values](const Kernels& k, Edge edge) {
      return finish(k, edge, values, {.gate_stride = count, .activation = Activation::clamped_swiglu, .limit = 64});
    });
  };
  const auto activated = [&](Activation activation) {
    return run_on_all_tables("activated", [&, activation](const Kernels& k, Edge edge) {
      return finish(k, edge, {0, 3, -2, 2e19f, -1e30f, kNan},
                    {.activates = true, .activation = activation, .xielu = {2, 1, 0.5f, -64}});
    });
  };
  expect_same(activated(Activation::relu), {.floats = {0, 3, 0, 2e19f, 0, kNan}}, "contract");
  expect_same(activated(Activation::relu_squared), {.floats = {0, 9, 0, kInfinity, 0, kNan}}, "contract");
  // expm1 is -1 for these: -1 - 0; (2 * 3 + 0.5) * 3; -1 + 2 - 1; -1 + 1e30 - 0.5e30.
  expect_same(activated(Activation::xielu), {.floats = {-1, 19.5f, 0, kInfinity, 0.5e30f, kNan}}, "contract");
  expect_same(clamped({-1, 2, 2, 1, 1, 1}), {.floats = {0, 192, -0.0f, 128, -0.0f, kNan}}, "contract");
  expect_same(clamped({-1, 1000, -1000, -1000, kNan, 1}), {.floats = {0, 4160, 0, -4032, kNan, kNan}}, "contract");
}

TEST(Epilogue, InPlace) {
  Random random;
  const std::vector<float> before = random.floats(3 * kPanelColumns), bias = random.floats(50);
  Result expected = {.floats = before};
  for (size_t i = 0; i < before.size(); ++i) {
    if (i % kPanelColumns < bias.size()) expected.floats[i] += bias[i % kPanelColumns];
  }
  const auto run = [&](const Kernels& kernels, Edge edge) {
    const Guarded<float> tile(before, edge), added(bias, edge);
    kernels.epilogue_f32(tile.data, 3, 50, {.bias = added.data}, tile.data, kPanelColumns);
    return Result{.floats = tile.copy()};
  };
  expect_same(run_on_all_tables("in place", run), expected, "contract");
}

// Skipped steps change nothing, not even the sign of a zero, and out is not read.
TEST(Epilogue, SkippedSteps) {
  const auto run = [&](const Kernels& kernels, Edge edge) {
    const Guarded<float> tile(std::vector<float>(kPanelColumns, -0.0f), edge), out(std::vector<float>(20, kNan), edge);
    kernels.epilogue_f32(tile.data, 1, 20, {}, out.data, 20);
    return Result{.floats = out.copy()};
  };
  expect_same(run_on_all_tables("minus zero", run), {.floats = std::vector<float>(20, -0.0f)}, "contract");
}

TEST(Epilogue, ClampKeepsNan) {
  const auto run = [&](const Kernels& kernels, Edge edge) {
    std::vector<float> sums(kPanelColumns, kNan);
    sums[1] = kInfinity, sums[2] = -kInfinity;
    const Guarded<float> tile(sums, edge), out(3, edge);
    kernels.epilogue_f32(tile.data, 1, 3, {.low = -2, .high = 3}, out.data, 3);
    return Result{.floats = out.copy()};
  };
  expect_same(run_on_all_tables("clamp", run), {.floats = {kNan, 3, -2}}, "contract");
}

// Every bf16 survives conversion to float and back; every rounding case of float follows half.h.
TEST(Convert, EveryEncoding) {
  std::vector<bf16> all(65536);
  for (size_t i = 0; i < all.size(); ++i) all[i].bits = static_cast<uint16_t>(i);
  std::vector<float> values;
  for (bf16 v : all) {
    for (uint32_t low : {0u, 1u, 0x7fffu, 0x8000u, 0x8001u, 0xffffu}) {
      values.push_back(bits_float(static_cast<uint32_t>(v.bits) << 16 | low));
    }
  }
  for (const Kernels* kernels : available_kernels()) {
    const Guarded<bf16> in(all, Edge::end), rounded(std::ssize(values), Edge::end);
    const Guarded<float> widened(std::ssize(all), Edge::end), given(values, Edge::end);
    kernels->to_float(in.data, std::ssize(all), widened.data);
    kernels->to_bf16(given.data, std::ssize(values), rounded.data);
    for (size_t i = 0; i < all.size(); ++i) ASSERT_EQ(float_bits(widened.data[i]), i << 16) << kernels->name;
    for (size_t i = 0; i < values.size(); ++i) {
      ASSERT_EQ(rounded.data[i].bits, to_bf16(values[i]).bits) << kernels->name << " " << float_bits(values[i]);
    }
  }
  for (int64_t n : {0, 1, 15, 16, 17, 33}) {
    const auto run = [&](const Kernels& kernels, Edge edge) {
      const Guarded<bf16> in(std::vector<bf16>(all.begin() + 0x3f80, all.begin() + 0x3f80 + n), edge), back(n, edge);
      const Guarded<float> out(n, edge);
      kernels.to_float(in.data, n, out.data);
      kernels.to_bf16(out.data, n, back.data);
      for (int64_t i = 0; i < n; ++i) EXPECT_EQ(back.data[i].bits, in.data[i].bits);
      return Result{.floats = out.copy()};
    };
    run_on_all_tables("n " + std::to_string(n), run);
  }
}

// The argument that the result overwrites.
enum class Alias { none, first, second };

Result silu_mul(const Kernels& kernels, Edge edge, const std::vector<float>& gate, const std::vector<float>& up,
                Alias alias) {
  const int64_t n = static_cast<int64_t>(gate.size());
  const Guarded<float> g(gate, edge), u(up, edge), fresh(n, edge);
  const Guarded<float>& out = alias == Alias::first ? g : alias == Alias::second ? u : fresh;
  kernels.silu_mul(g.data, u.data, n, out.data);
  return {.floats = out.copy()};
}

TEST(SiluMul, LengthsAndAliases) {
  Random random;
  for (int64_t n : {0, 1, 2, 7, 15, 16, 17, 31, 32, 33, 100, 257}) {
    const std::vector<float> gate = with_special_values(random, n);
    const std::vector<float> up = with_special_values(random, n);
    std::vector<Result> results;
    for (Alias alias : {Alias::none, Alias::first, Alias::second}) {
      const auto run = [&](const Kernels& kernels, Edge edge) { return silu_mul(kernels, edge, gate, up, alias); };
      results.push_back(run_on_all_tables("n " + std::to_string(n), run));
      expect_same(results.back(), results.front(), "the result overwrites an argument");
    }
  }
}

TEST(SiluMul, HandWorked) {
  const auto run = [&](const Kernels& kernels, Edge edge) {
    return silu_mul(kernels, edge, {0, 200, -200, 64, kNan}, {3, 2, 2, 0.5f, 1}, Alias::none);
  };
  // 0 / 2; exp(-200) underflows, for either sign; 64 / (1 + 1e-28) = 64; NaN propagates.
  expect_same(run_on_all_tables("by hand", run), {.floats = {0, 400, -0.0f, 32, kNan}}, "by hand");
}

Result rope(const Kernels& kernels, Edge edge, const std::vector<float>& x, const std::vector<float>& cosines,
            const std::vector<float>& sines) {
  const Guarded<float> row(x, edge), c(cosines, edge), s(sines, edge);
  kernels.rope(row.data, c.data, s.data, static_cast<int64_t>(cosines.size()));
  return {.floats = row.copy()};
}

TEST(Rope, EveryHalf) {
  Random random;
  for (int64_t half = 1; half <= 70; ++half) {
    const std::vector<float> x = random.floats(2 * half), c = random.floats(half), s = random.floats(half);
    Result expected = {.floats = x};
    for (size_t i = 0, h = c.size(); i < h; ++i) {
      expected.floats[i] = x[i] * c[i] - x[i + h] * s[i];
      expected.floats[i + h] = x[i + h] * c[i] + x[i] * s[i];
    }
    const auto run = [&](const Kernels& kernels, Edge edge) { return rope(kernels, edge, x, c, s); };
    expect_same(run_on_all_tables("half " + std::to_string(half), run), expected, "contract");
  }
}

TEST(Rope, HandWorked) {
  // Pairs (1, 3) and (2, 4): the first is rotated by a right angle, the second by zero.
  const auto run = [&](const Kernels& kernels, Edge edge) { return rope(kernels, edge, {1, 2, 3, 4}, {0, 1}, {1, 0}); };
  EXPECT_EQ(run_on_all_tables("by hand", run).floats, (std::vector<float>{-3, 2, 1, 4}));
}

void expect_argmax(const std::vector<float>& x, int32_t expected) {
  const auto run = [&](const Kernels& kernels, Edge edge) {
    const Guarded<float> in(x, edge);
    return Result{.sums = {static_cast<int32_t>(kernels.argmax(in.data, static_cast<int64_t>(x.size())))}};
  };
  EXPECT_EQ(run_on_all_tables("n " + std::to_string(x.size()), run).sums[0], expected) << "n " << x.size();
}

TEST(Argmax, HandWorked) {
  expect_argmax({5}, 0);
  expect_argmax({1, 3, 2}, 1);
  expect_argmax({1, 3, 3}, 1);      // the lowest index among equals
  expect_argmax({-0.0f, 0.0f}, 0);  // these are equal too
  expect_argmax({0.0f, -0.0f}, 0);
  expect_argmax({-5, -3, -4}, 1);
  expect_argmax({kNan, 1, kNan, 2}, 3);
  expect_argmax({1, 2, kNan}, 1);
  expect_argmax({kNan, -kInfinity}, 1);
  expect_argmax({-kInfinity, -kInfinity}, 0);
  expect_argmax({1, kInfinity, kInfinity}, 1);
  expect_argmax({kNan, kNan}, 0);  // NaN never wins, but the result is an index
}

TEST(Argmax, EveryPosition) {
  for (int64_t n : {1, 15, 16, 17, 32, 33, 50}) {
    for (int64_t at = 0; at < n; ++at) {
      std::vector<float> x(n, -2.0f);
      x[at] = -1;
      expect_argmax(x, static_cast<int32_t>(at));
      x.back() = -1;  // an equal later element changes nothing
      expect_argmax(x, static_cast<int32_t>(at));
      for (float& v : x) v = v == -2.0f ? kNan : v;
      expect_argmax(x, static_cast<int32_t>(at));
    }
    expect_argmax(std::vector<float>(static_cast<size_t>(n), kNan), 0);
    expect_argmax(std::vector<float>(static_cast<size_t>(n), -kInfinity), 0);
  }
}

}  // namespace
}  // namespace pinion
