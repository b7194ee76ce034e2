// Kernels of recurrent layers: every variant against scalar, and scalar against plain code of the contracts.
#include <algorithm>
#include <memory>

#include "tests/kernels/guarded.h"

namespace pinion {
namespace {

constexpr float kSpecial[] = {0.0f, -0.0f, 104.0f, -104.0f, 1e-40f, 3e38f, -3e38f, kInfinity, -kInfinity, kNan};

TEST(SigmoidMul, Definition) {
  Random random;
  for (int64_t n : {1, 15, 16, 17, 33, 256}) {
    std::vector<float> gate = random.floats(n, -30, 30);
    for (size_t i = 0; i < gate.size(); i += 5) gate[i] = kSpecial[i / 5 % std::size(kSpecial)];
    const std::vector<float> x = random.floats(n, -4, 4);
    for (const bool in_place : {false, true}) {
      const Result result = run_on_all_tables("n " + std::to_string(n), [&](const Kernels& k, Edge edge) {
        const Guarded<float> g(gate, edge), in(x, edge), out(n, edge);
        k.sigmoid_mul(g.data, in.data, n, in_place ? in.data : out.data);
        return Result{.floats = in_place ? in.copy() : out.copy()};
      });
      for (size_t i = 0; i < x.size(); ++i) {
        const double exact = x[i] / (1 + std::exp(-static_cast<double>(gate[i])));
        if (std::isnan(exact)) {
          EXPECT_TRUE(std::isnan(result.floats[i]));
        } else {
          EXPECT_NEAR(result.floats[i], exact, 1e-6 * std::abs(exact) + 1e-37) << gate[i];
        }
      }
    }
  }
}

TEST(Convolve, Definition) {
  Random random;
  for (int64_t taps : {1, 2, 4, 7}) {
    for (int64_t n : {1, 12, 16, 20, 65}) {
      const bool activates = taps != 2, has_bias = taps != 7;
      const int64_t stride = n + 3;
      std::vector<std::vector<float>> inputs;
      for (int64_t t = 0; t < taps; ++t) inputs.push_back(random.floats(n, -3, 3));
      const std::vector<float> weight = random.floats((taps - 1) * stride + n), bias = random.floats(n);
      const auto run = [&](const Kernels& k, Edge edge) {
        std::vector<std::unique_ptr<Guarded<float>>> stored;
        std::vector<const float*> rows;
        for (const std::vector<float>& input : inputs) {
          stored.push_back(std::make_unique<Guarded<float>>(input, edge));
          rows.push_back(stored.back()->data);
        }
        const Guarded<float> w(weight, edge), b(bias, edge), out(n, edge);
        k.convolve(rows.data(), {w.data, has_bias ? b.data : nullptr, stride, taps, activates}, n, out.data);
        return Result{.floats = out.copy()};
      };
      const Result result = run_on_all_tables("taps " + std::to_string(taps) + ", n " + std::to_string(n), run);
      for (int64_t i = 0; i < n; ++i) {
        float sum = has_bias ? bias[i] : 0.0f;
        for (int64_t t = 0; t < taps; ++t) {
          sum = std::fma(inputs[t][i], weight[t * stride + i], sum);
        }
        const double wide = sum;
        if (activates) {
          EXPECT_NEAR(result.floats[i], wide / (1 + std::exp(-wide)), 1e-5) << i;
        } else {
          EXPECT_EQ(result.floats[i], sum) << i;
        }
      }
    }
  }
}

struct Rule {
  int64_t count, key_dim, value_dim;
  std::vector<float> q, k, v, decay, beta;
  std::vector<float> state;
  bool key_decays = false;
  bool delta_rule = true;

  int64_t columns() const { return round_up(value_dim, 16); }
  float& at(int64_t i, int64_t j) { return state[(j / 16 * key_dim + i) * 16 + j % 16]; }
};

Rule random_rule(Random& random, int64_t count, int64_t key_dim, int64_t value_dim, bool key_decays) {
  Rule r = {.count = count,
            .key_dim = key_dim,
            .value_dim = value_dim,
            .q = random.floats(count * key_dim),
            .k = random.floats(count * key_dim, -0.3f, 0.3f),
            .v = random.floats(count * value_dim),
            .decay = random.floats(key_decays ? count * key_dim : count, 0.5f, 1),
            .beta = random.floats(count, 0, 1),
            .state = {},
            .key_decays = key_decays};
  r.state.resize(r.columns() * key_dim);
  for (int64_t i = 0; i < key_dim; ++i) {
    for (int64_t j = 0; j < value_dim; ++j) r.at(i, j) = random.uniform(-1, 1);
  }
  return r;
}

// The contract of advance_state.
Result by_contract(Rule r) {
  Result result;
  for (int64_t t = 0; t < r.count; ++t) {
    const float* q = r.q.data() + t * r.key_dim;
    const float* k = r.k.data() + t * r.key_dim;
    const auto decay = [&](int64_t i) { return r.key_decays ? r.decay[t * r.key_dim + i] : r.decay[t]; };
    for (int64_t j = 0; j < r.value_dim; ++j) {
      float stored = 0, out = 0;
      for (int64_t i = 0; i < r.key_dim; ++i) {
        const float decayed = k[i] * decay(i);
        stored = std::fma(r.key_decays ? decayed : k[i], r.at(i, j), stored);
      }
      const float prediction = r.key_decays ? stored : stored * decay(0), value = r.v[t * r.value_dim + j];
      const float change = (r.delta_rule ? value - prediction : value) * r.beta[t];
      for (int64_t i = 0; i < r.key_dim; ++i) {
        const float decayed = r.at(i, j) * decay(i);
        r.at(i, j) = std::fma(k[i], change, decayed);
        out = std::fma(q[i], r.at(i, j), out);
      }
      result.floats.push_back(out);
    }
  }
  append(result.floats, r.state);
  return result;
}

// pass: tokens of one call.
Result run_rule(const Rule& r, int64_t pass, bool in_place, const Kernels& kernels, Edge edge) {
  const Guarded<float> q(r.q, edge), k(r.k, edge), v(r.v, edge), decay(r.decay, edge), beta(r.beta, edge);
  const Guarded<float> state(r.state, edge), out(r.count * r.value_dim, edge);
  float* to = in_place ? v.data : out.data;
  for (int64_t t = 0; t < r.count; t += pass) {
    kernels.advance_state(
        {std::min(pass, r.count - t), r.key_dim, r.value_dim, q.data + t * r.key_dim, k.data + t * r.key_dim,
         v.data + t * r.value_dim, decay.data + t * (r.key_decays ? r.key_dim : 1), beta.data + t, to + t * r.value_dim,
         r.delta_rule, nullptr, r.key_decays},
        state.data);
  }
  Result result = {.floats = in_place ? v.copy() : out.copy()};
  append(result.floats, state.copy());
  return result;
}

TEST(AdvanceState, DefinitionForEveryCutOfTheTokens) {
  Random random;
  for (int64_t key_dim : {1, 12, 128}) {
    for (int64_t value_dim : {1, 16, 20, 64, 100, 128}) {
      Rule rule = random_rule(random, 5, key_dim, value_dim, value_dim == 100 || value_dim == 64);
      rule.delta_rule = value_dim != 20 && value_dim != 128;
      const Result expected = by_contract(rule);
      for (int64_t pass : {1, 2, 5}) {
        const std::string label =
            std::to_string(key_dim) + " by " + std::to_string(value_dim) + " in passes of " + std::to_string(pass);
        const auto run = [&](const Kernels& k, Edge edge) { return run_rule(rule, pass, pass == 2, k, edge); };
        expect_same(run_on_all_tables(label, run), expected, label);
      }
    }
  }
}

// The decay of each element depends on its rate and on the column's step.
TEST(AdvanceState, RatesForEveryElement) {
  Random random;
  for (int64_t value_dim : {16, 64, 80}) {
    Rule rule = random_rule(random, 5, 12, value_dim, false);
    const std::vector<float> steps = random.floats(5 * value_dim, -8, 4), rates = random.floats(value_dim * 12, 0, 3);
    const auto run = [&](const Kernels& kernels, Edge edge) {
      const Guarded<float> q(rule.q, edge), k(rule.k, edge), v(rule.v, edge), step(steps, edge), rate(rates, edge);
      const Guarded<float> state(rule.state, edge);
      for (int64_t t : {0, 3}) {
        kernels.advance_state({t == 0 ? 3 : 2, 12, value_dim, q.data + t * 12, k.data + t * 12, v.data + t * value_dim,
                               step.data + t * value_dim, nullptr, v.data + t * value_dim, false, rate.data},
                              state.data);
      }
      Result result = {.floats = v.copy()};
      append(result.floats, state.copy());
      return result;
    };
    const Result result = run_on_all_tables("rates", run);
    std::vector<double> state(rule.state.begin(), rule.state.end());
    for (int64_t t = 0; t < 5; ++t) {
      for (int64_t j = 0; j < value_dim; ++j) {
        const double step = std::log1p(std::exp(double{steps[t * value_dim + j]}));
        double out = 0;
        for (int64_t i = 0; i < 12; ++i) {
          const int64_t at = (j / 16 * 12 + i) * 16 + j % 16;
          state[at] = rule.k[t * 12 + i] * step * rule.v[t * value_dim + j] + state[at] * std::exp(-rates[at] * step);
          out += rule.q[t * 12 + i] * state[at];
        }
        EXPECT_NEAR(result.floats[t * value_dim + j], out, 1e-5 * (1 + std::abs(out))) << t << ", " << j;
      }
    }
  }
}

// A value stored under one key decays; writes under another key do not change it.
TEST(AdvanceState, HandWorked) {
  const std::vector<float> q = {1, 0, 1, 1}, k = {1, 0, 0, 1}, v = {5, 7}, decay = {1, 0.5f}, beta = {1, 0.5f};
  std::vector<float> state(2 * 16), out(2);
  scalar_kernels().advance_state({2, 2, 1, q.data(), k.data(), v.data(), decay.data(), beta.data(), out.data()},
                                 state.data());
  EXPECT_EQ(out[0], 5);
  EXPECT_EQ(state[0], 2.5f);
  EXPECT_EQ(state[16], 3.5f);
  EXPECT_EQ(out[1], 6);
}

// Each channel of the keys decays by itself; a change replaces the part of the value that is left.
TEST(AdvanceState, HandWorkedDecaysOfKeys) {
  const std::vector<float> q = {1, 1, 1, 1}, k = {1, 0, 1, 1}, v = {4, 10}, decay = {1, 1, 0.5f, 0.25f},
                           beta = {1, 0.5f};
  std::vector<float> state(2 * 16), out(2);
  scalar_kernels().advance_state(
      {2, 2, 1, q.data(), k.data(), v.data(), decay.data(), beta.data(), out.data(), true, nullptr, true},
      state.data());
  EXPECT_EQ(out[0], 4);
  EXPECT_EQ(state[0], 6) << "2 left, and half of 10 - 2";
  EXPECT_EQ(state[16], 4);
  EXPECT_EQ(out[1], 10);
}

TEST(Decay, OfRatesAndBounds) {
  Random random;
  for (const int64_t n : {1, 16, 37}) {
    for (const float bound : {0.0f, -5.0f}) {
      std::vector<float> x = random.floats(n, -30, 30);
      x[0] = 100;
      const auto run = [&](const Kernels& kernels, Edge edge) {
        const Guarded<float> values(x, edge);
        kernels.decay(values.data, n, 0.75f, bound, values.data);
        return Result{.floats = values.copy()};
      };
      const Result result = run_on_all_tables("decay", run);
      for (int64_t i = 0; i < n; ++i) {
        const double in{x[i]},
            power = bound < 0 ? bound / (1 + std::exp(-0.75 * in)) : -0.75 * std::log1p(std::exp(in));
        EXPECT_NEAR(result.floats[i], std::exp(power), 2e-6 * std::exp(power)) << in;
      }
    }
  }
}

// Without the delta rule, the second value of a key is added to the decayed first one.
TEST(AdvanceState, HandWorkedWithoutDeltaRule) {
  const std::vector<float> q = {1, 1}, k = {1, 1}, v = {5, 7}, decay = {1, 0.5f}, beta = {1, 2};
  std::vector<float> state(16), out(2);
  scalar_kernels().advance_state({2, 1, 1, q.data(), k.data(), v.data(), decay.data(), beta.data(), out.data(), false},
                                 state.data());
  EXPECT_EQ(out[0], 5);
  EXPECT_EQ(out[1], 16.5f);
  EXPECT_EQ(state[0], 16.5f);
}

}  // namespace
}  // namespace pinion
