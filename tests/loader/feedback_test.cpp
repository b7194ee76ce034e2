// Error feedback: the factor of small moments by hand, the recurrence in double precision, and the purpose, a smaller
// output error than rounding each weight separately.
#include "loader/pack/quantize.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <optional>
#include <vector>

#include "tests/kernels/guarded.h"

namespace pinion {
namespace {

// Correlated inputs: each is a random number plus 0.8 times the previous input.
std::vector<float> random_inputs(int64_t tokens, int64_t k, Random* random) {
  std::vector<float> x(tokens * k);
  for (size_t i = 0; i < x.size(); ++i) {
    x[i] = random->uniform(-0.5f, 0.5f) + (i % k > 0 ? 0.8f * x[i - 1] : 0.0f);
  }
  return x;
}

int64_t index_of(int64_t row, int64_t column) {
  return triangle_panel(column / kPanelColumns) + row * kPanelColumns + column % kPanelColumns;
}

std::vector<float> moments_of(const std::vector<float>& x, int64_t tokens, int64_t k) {
  std::vector<float> moments(moments_elements(k));
  for (int64_t t = 0; t < tokens; ++t) {
    for (int64_t i = 0; i < k; ++i) {
      for (int64_t j = i; j < k; ++j) {
        moments[index_of(i, j)] += x[t * k + i] * x[t * k + j];
      }
    }
  }
  return moments;
}

float factor(const Feedback& feedback, int64_t row, int64_t column) { return feedback.triangle[index_of(row, column)]; }

// Two inputs, moments [[a, c], [c, b]] with a tenth of their mean added to a and b: U[0][1] = c / b.
TEST(Feedback, HandWorked) {
  std::vector<float> moments(moments_elements(2));
  moments[0] = 9.0f, moments[1] = 4.2f, moments[65] = 11.0f;  // [0][0], [0][1], [1][1] of 64 x 64
  const Feedback feedback = make_feedback(std::move(moments), 2);
  EXPECT_EQ(feedback.k, 64);
  EXPECT_NEAR(factor(feedback, 0, 1), 4.2f / 12.0f, 1e-6f);
  for (int64_t column = 0; column < 64; ++column) {
    for (int64_t row = 0; row < 64; ++row) {
      const bool is_the_one = row == 0 && column == 1;
      ASSERT_EQ(factor(feedback, row, column) == 0.0f, !is_the_one) << row << ", " << column;
    }
  }
}

// H = U D U^T, in double precision.
TEST(Feedback, FactorsTheMoments) {
  for (const int64_t k : {1, 63, 64, 65, 200}) {
    Random random;
    std::vector<float> moments = moments_of(random_inputs(300, k, &random), 300, k);
    const int64_t n = padded_n(k);
    double trace = 0;
    for (int64_t i = 0; i < k; ++i) trace += double{moments[index_of(i, i)]};
    std::vector<double> h(n * n);
    for (int64_t j = 0; j < n; ++j) {
      for (int64_t i = 0; i <= j; ++i) h[i * n + j] = double{moments[index_of(i, j)]};
    }
    for (int64_t i = 0; i < n; ++i) h[i * n + i] += 0.1 * trace / static_cast<double>(k);
    const Feedback feedback = make_feedback(std::move(moments), k);
    // Column by column from the last: D is the remaining diagonal, U the remaining column divided by D.
    for (int64_t j = n - 1; j >= 0; --j) {
      const double d = h[j * n + j];
      for (int64_t i = 0; i < j; ++i) {
        const double u = h[i * n + j] / d;
        ASSERT_NEAR(double{factor(feedback, i, j)}, u, 1e-4) << "k " << k << ": " << i << ", " << j;
        for (int64_t to = i; to < j; ++to) {
          h[i * n + to] -= u * h[to * n + j];
        }
      }
    }
  }
}

TEST(Feedback, ZeroInputs) {
  std::vector<float> moments(moments_elements(100));
  const Feedback feedback = make_feedback(std::move(moments), 100);
  for (const float u : feedback.triangle) ASSERT_EQ(u, 0.0f);
}

// Quantises rows [kW4Columns][k] group by group, without feedback if that is null.
std::vector<float> quantised(const std::vector<float>& w, int64_t k, const Feedback* feedback,
                             Format format = Format::w4) {
  std::vector<float> out(w.size());
  std::optional<FeedbackRows> rows;
  if (feedback) rows.emplace(*feedback);
  for (int64_t at = 0; at < k; at += kGroupK) {
    W4Group group;
    for (int64_t i = 0; i < kGroupK; ++i) {
      for (int64_t r = 0; r < kW4Columns; ++r) group.weights[i][r] = w[r * k + at + i];
    }
    if (rows) {
      rows->quantise(at, format, true, nullptr, &group);
    } else {
      quantize_w4(&group, format, true);
    }
    for (int64_t i = 0; i < kGroupK; ++i) {
      for (int64_t r = 0; r < kW4Columns; ++r) {
        const int code = group.codes[i][r], number = format == Format::w4n ? kW4nLevels[code] : code - 8;
        out[r * k + at + i] = static_cast<float>(number) * to_float(group.scales[r]);
      }
    }
  }
  return out;
}

double output_error(const std::vector<float>& w, const std::vector<float>& q, const std::vector<float>& x, int64_t k) {
  double error = 0;
  for (size_t t = 0; t < x.size(); t += k) {
    for (size_t r = 0; r < w.size(); r += k) {
      double sum = 0;
      for (size_t i = 0; i < static_cast<size_t>(k); ++i)
        sum += (double{w[r + i]} - double{q[r + i]}) * double{x[t + i]};
      error += sum * sum;
    }
  }
  return error;
}

TEST(Feedback, OutputErrorShrinks) {
  constexpr int64_t kK = 192, kTokens = 400;
  Random random;
  const std::vector<float> x = random_inputs(kTokens, kK, &random), other = random_inputs(kTokens, kK, &random);
  std::vector<float> moments = moments_of(x, kTokens, kK), w;
  for (int64_t i = 0; i < kW4Columns * kK; ++i) w.push_back(random.uniform(-2, 2));
  const Feedback feedback = make_feedback(std::move(moments), kK);
  const std::vector<float> alone = quantised(w, kK, nullptr), fed = quantised(w, kK, &feedback);
  EXPECT_LT(output_error(w, fed, other, kK), 0.6 * output_error(w, alone, other, kK))
      << "on inputs outside the moments";
}

TEST(Feedback, OutputErrorOfInt8Shrinks) {
  constexpr int64_t kK = 192, kTokens = 400;
  Random random;
  const std::vector<float> x = random_inputs(kTokens, kK, &random);
  std::vector<float> moments = moments_of(x, kTokens, kK), w;
  for (int64_t i = 0; i < kW4Columns * kK; ++i) w.push_back(random.uniform(-2, 2));
  const Feedback feedback = make_feedback(std::move(moments), kK);
  const std::vector<float> scales(kW4Columns, 2.0f / 127);
  FeedbackRows rows(feedback);
  std::vector<float> alone, fed(w.size());
  for (const float value : w) alone.push_back(std::nearbyint(value / scales[0]) * scales[0]);
  for (int64_t at = 0; at < kK; at += kGroupK) {
    W4Group group;
    for (int64_t i = 0; i < kGroupK * kW4Columns; ++i) {
      group.weights[i / kW4Columns][i % kW4Columns] = w[i % kW4Columns * kK + at + i / kW4Columns];
    }
    rows.quantise(at, Format::w8, false, scales.data(), &group);
    for (int64_t i = 0; i < kGroupK * kW4Columns; ++i) {
      const int code = group.codes[i / kW4Columns][i % kW4Columns] - kW8Zero;
      ASSERT_LE(std::abs(code), 127);
      fed[i % kW4Columns * kK + at + i / kW4Columns] = static_cast<float>(code) * scales[0];
    }
  }
  EXPECT_LT(output_error(w, fed, x, kK), 0.6 * output_error(w, alone, x, kK));
}

// Every code is the nearest one to the weight plus the corrections from earlier errors.
TEST(Feedback, CodesFollowTheRecurrence) {
  constexpr int64_t kK = 160;
  Random random;
  std::vector<float> moments = moments_of(random_inputs(300, kK, &random), 300, kK), w;
  for (int64_t i = 0; i < kW4Columns * kK; ++i) w.push_back(random.uniform(-2, 2));
  const Feedback feedback = make_feedback(std::move(moments), kK);
  const std::vector<float> q = quantised(w, kK, &feedback);
  for (size_t r = 0; r < size_t{kW4Columns}; ++r) {
    for (size_t i = 0; i < size_t{kK}; ++i) {
      double wanted = w[r * kK + i], step = 1e9;
      for (size_t j = 0; j < i; ++j) {
        const double error = double{w[r * kK + j]} - double{q[r * kK + j]};
        wanted += error * double{factor(feedback, static_cast<int64_t>(j), static_cast<int64_t>(i))};
      }
      for (size_t j = i / 32 * 32; j < i / 32 * 32 + 32; ++j) {
        const double difference = std::abs(double{q[r * kK + j]} - double{q[r * kK + i]});
        if (difference > 0) step = std::min(step, difference);
      }
      const bool is_last_code = std::abs(wanted) > 6 * step;  // weights beyond it are clipped
      if (!is_last_code) {
        ASSERT_LE(std::abs(wanted - double{q[r * kK + i]}), 0.5001 * step) << r << ", " << i;
      }
    }
  }
}

}  // namespace
}  // namespace pinion
