// The floating-point kernels against double precision. Only scalar is tested: the other variants give its bits.
#include <numbers>

#include "kernels/lanes/scalar.h"

#include "kernels/lanes/ops.h"  // over the lanes above, for exp_lanes and others that no table exports
#include "tests/kernels/attention.h"

namespace pinion {
namespace {

// |actual - expected| in units in the last place of a float near `expected`.
double ulps(float actual, double expected) {
  if (expected >= 0x1.ffffffp127) return actual == kInfinity ? 0 : kInfinity;  // rounds to infinity
  const double unit = std::ldexp(1.0, std::max(std::ilogb(expected == 0 ? 0x1p-149 : expected), -126) - 23);
  return std::abs(actual - expected) / unit;
}

double relative_error(const std::vector<float>& actual, const std::vector<double>& expected) {
  double error = 0, norm = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    error += (actual[i] - expected[i]) * (actual[i] - expected[i]);
    norm += expected[i] * expected[i];
  }
  return std::sqrt(error / norm);
}

struct Worst {
  double error = 0;
  float at = 0;

  void update(double e, float x) {
    if (!(e <= error)) error = e, at = x;
  }
};

void update_exp(const std::vector<float>& x, Worst* worst) {
  for (size_t i = 0; i + kLanes <= x.size(); i += kLanes) {
    float y[kLanes];
    exp_lanes(Lanes::load(&x[i])).store(y);
    for (size_t j = 0; j < kLanes; ++j) worst->update(ulps(y[j], std::exp(static_cast<double>(x[i + j]))), x[i + j]);
  }
}

TEST(Exp, WholeRange) {
  // Every kStep-th bit pattern; kStep is odd, so the low bits vary.
  constexpr uint32_t kStep = 4099 * static_cast<uint32_t>(kStride);
  std::vector<float> x;
  for (uint64_t bits = 0; bits < uint64_t{1} << 32; bits += kStep) {
    const float value = bits_float(static_cast<uint32_t>(bits));
    if (!std::isnan(value)) x.push_back(value);
  }
  x.resize(x.size() / kLanes * kLanes);
  Worst worst;
  update_exp(x, &worst);
  EXPECT_LE(worst.error, 2) << "ulp at " << worst.at;
}

TEST(Exp, CriticalRanges) {
  struct Range {
    float low, high;
  };
  // Reduction boundaries and all scales; results near 1; denormal results; the overflow.
  constexpr Range kRanges[] = {{-104.5f, 89.5f}, {-1, 1}, {-0.01f, 0.01f}, {-104.5f, -87}, {88, 89.5f}};
  Random random;
  for (const Range& range : kRanges) {
    Worst worst;
    update_exp(random.floats(1600000 / kStride / kLanes * kLanes, range.low, range.high), &worst);
    EXPECT_LE(worst.error, 2) << "ulp at " << worst.at << " in [" << range.low << ", " << range.high << "]";
  }
}

float exp_scalar(float x) { return exp_lanes(Lanes::broadcast(x)).first(); }

TEST(Exp, SpecialValues) {
  EXPECT_EQ(exp_scalar(0), 1);
  EXPECT_EQ(exp_scalar(-0.0f), 1);
  EXPECT_EQ(exp_scalar(-kInfinity), 0);
  EXPECT_EQ(exp_scalar(-104), 0);
  EXPECT_EQ(exp_scalar(-1e30f), 0);
  EXPECT_EQ(exp_scalar(kInfinity), kInfinity);
  EXPECT_EQ(exp_scalar(1e30f), kInfinity);
  EXPECT_EQ(exp_scalar(88.73f), kInfinity);
  EXPECT_LT(exp_scalar(88.72f), kInfinity);
  EXPECT_EQ(exp_scalar(-103.28f), 0x1p-149f);  // the smallest denormal
  EXPECT_TRUE(std::isnan(exp_scalar(kNan)));
}

TEST(Exp, FoldsInOrder) {
  float x[kLanes];
  for (int i = 0; i < kLanes; ++i) x[i] = static_cast<float>(i == 3 ? 40 : i);
  EXPECT_EQ(fold(Lanes::load(x), Lanes::add), 120 - 3 + 40);
  EXPECT_EQ(fold(Lanes::load(x), Lanes::max), 40);
  // Lanes 8 apart are added first, so the large values cancel before they absorb the small one.
  const float cancelling[kLanes] = {1e30f, 1, 0, 0, 0, 0, 0, 0, -1e30f};
  EXPECT_EQ(fold(Lanes::load(cancelling), Lanes::add), 1);
}

TEST(SiluMul, Accuracy) {
  Random random;
  Worst worst;
  for (const auto& [low, high] : {std::pair{-87.0f, 87.0f}, std::pair{-8.0f, 8.0f}, std::pair{-0.01f, 0.01f}}) {
    const std::vector<float> gate = random.floats(40000 / kStride, low, high);
    const std::vector<float> up = random.floats(40000 / kStride, 0.5f, 2);
    std::vector<float> out(gate.size());
    scalar_kernels().silu_mul(gate.data(), up.data(), static_cast<int64_t>(gate.size()), out.data());
    for (size_t i = 0; i < gate.size(); ++i) {
      const double x = gate[i];
      worst.update(ulps(out[i], x / (1 + std::exp(-x)) * up[i]), gate[i]);
    }
  }
  EXPECT_LE(worst.error, 5) << "ulp at " << worst.at;

  // A denormal exp has lost bits, and so has its product.
  std::vector<float> gate = random.floats(1000, -110, -87), out(1000);
  const std::vector<float> up(1000, 1.0f);
  scalar_kernels().silu_mul(gate.data(), up.data(), 1000, out.data());
  for (size_t i = 0; i < gate.size(); ++i) EXPECT_NEAR(out[i], gate[i] * std::exp(static_cast<double>(gate[i])), 2e-43);
}

void update_tanh(const std::vector<float>& x, Worst* worst) {
  for (size_t i = 0; i + kLanes <= x.size(); i += kLanes) {
    float y[kLanes];
    tanh_lanes(Lanes::load(&x[i])).store(y);
    for (size_t j = 0; j < kLanes; ++j) {
      const double exact = std::tanh(static_cast<double>(x[i + j]));
      worst->update(ulps(std::abs(y[j]), std::abs(exact)), x[i + j]);
      EXPECT_EQ(y[j] < 0, exact < 0) << x[i + j];
    }
  }
}

TEST(Tanh, Accuracy) {
  Random random;
  for (float range : {1e-30f, 1e-3f, 0.625f, 0.7f, 3.0f, 10.0f, 100.0f}) {
    Worst worst;
    update_tanh(random.floats(160000 / kStride / kLanes * kLanes, -range, range), &worst);
    EXPECT_LE(worst.error, 3) << "ulp at " << worst.at;
  }
}

TEST(Gelu, Accuracy) {
  Random random;
  Worst worst, far_below;
  for (const auto& [low, high] : {std::pair{-13.0f, 20.0f}, std::pair{-1.0f, 1.0f}, std::pair{-0.01f, 0.01f}}) {
    const std::vector<float> x = random.floats(40000 / kStride / kLanes * kLanes, low, high);
    for (size_t i = 0; i < x.size(); i += kLanes) {
      float y[kLanes];
      gelu(Lanes::load(&x[i])).store(y);
      for (size_t j = 0; j < kLanes; ++j) {
        const double v = x[i + j], exact = v * std::erfc(-v / std::numbers::sqrt2) / 2;
        (v < -4 ? far_below : worst).update(std::abs(y[j] - exact) / std::abs(exact), x[i + j]);
      }
    }
  }
  EXPECT_LE(worst.error, 1e-6) << "at " << worst.at;
  // The error of x^2 / 2, which is an exponent here, dominates.
  EXPECT_LE(far_below.error, 8e-6) << "at " << far_below.at;
}

TEST(GeluTanh, Accuracy) {
  Random random;
  Worst worst;
  for (const auto& [low, high] : {std::pair{-4.0f, 20.0f}, std::pair{-0.01f, 0.01f}}) {
    const std::vector<float> x = random.floats(40000 / kStride / kLanes * kLanes, low, high);
    for (size_t i = 0; i < x.size(); i += kLanes) {
      float y[kLanes];
      gelu_tanh(Lanes::load(&x[i])).store(y);
      for (size_t j = 0; j < kLanes; ++j) {
        const double v = x[i + j];
        const double exact = 0.5 * v * (1 + std::tanh(std::sqrt(2 / std::numbers::pi) * (v + 0.044715 * v * v * v)));
        worst.update(std::abs(y[j] - exact) / std::max(std::abs(exact), 1e-3), x[i + j]);
      }
    }
  }
  EXPECT_LE(worst.error, 2e-6) << "at " << worst.at;
}

TEST(ClampedSwiglu, Accuracy) {
  Random random;
  Worst worst;
  const std::vector<float> gate = random.floats(40000 / kStride / kLanes * kLanes, -12, 12);
  const std::vector<float> value = random.floats(std::ssize(gate), -12, 12);
  for (size_t i = 0; i < gate.size(); i += kLanes) {
    float y[kLanes];
    clamped_swiglu(Lanes::load(&gate[i]), Lanes::load(&value[i]), 7).store(y);
    for (size_t j = 0; j < kLanes; ++j) {
      const double x = std::min<double>(gate[i + j], 7), v = std::clamp<double>(value[i + j], -7, 7);
      const double exact = (v + 1) * x / (1 + std::exp(-1.702 * x));
      worst.update(std::abs(y[j] - exact) / std::max(std::abs(exact), 1e-3), gate[i + j]);
    }
  }
  EXPECT_LE(worst.error, 2e-6) << "at " << worst.at;
}

TEST(Xielu, Accuracy) {
  Random random;
  Worst worst;
  constexpr Xielu kCurve = {0.75f, 1.25f, 0.5f, -1e-6f};
  for (const float range : {100.0f, 10.0f, 1.0f, 1e-2f, 1e-4f}) {
    const std::vector<float> x = random.floats(40000 / kStride / kLanes * kLanes, -range, range);
    for (size_t i = 0; i < x.size(); i += kLanes) {
      float y[kLanes];
      xielu(Lanes::load(&x[i]), kCurve).store(y);
      for (size_t j = 0; j < kLanes; ++j) {
        const double v = x[i + j], e = std::min<double>(v, kCurve.e);
        const double exact = v > 0 ? kCurve.p * v * v + kCurve.b * v : (std::expm1(e) - v) * kCurve.n + kCurve.b * v;
        worst.update(std::abs(y[j] - exact) / std::max({std::abs(exact), std::abs(v), 1e-5}), x[i + j]);
      }
    }
  }
  EXPECT_LE(worst.error, 1e-6) << "at " << worst.at;
}

TEST(LayerNorm, Accuracy) {
  Random random;
  for (int64_t n : {1, 5, 16, 64, 300, 4096}) {
    const std::vector<float> x = random.floats(n, -2, 4), weight = random.floats(n, 0.5f, 2), bias = random.floats(n);
    std::vector<float> out(x.size());
    scalar_kernels().layer_norm(x.data(), weight.data(), bias.data(), n, 1e-6f, out.data());
    double sum = 0, squares = 0;
    for (float v : x) sum += v;
    const double mean = sum / static_cast<double>(n);
    for (float v : x) squares += (v - mean) * (v - mean);
    const double inverse = 1 / std::sqrt(squares / static_cast<double>(n) + static_cast<double>(1e-6f));
    Worst worst;
    for (size_t i = 0; i < x.size(); ++i)
      worst.update(std::abs(out[i] - ((x[i] - mean) * inverse * weight[i] + bias[i])), x[i]);
    EXPECT_LE(worst.error, 2e-6) << "n " << n;
  }
}

TEST(RmsNorm, Accuracy) {
  Random random;
  for (int64_t n : {1, 5, 16, 64, 300, 4096}) {
    const std::vector<float> x = random.floats(n, -3, 3), weight = random.floats(n, 0.5f, 2);
    std::vector<float> out(x.size());
    scalar_kernels().rms_norm(x.data(), weight.data(), n, 1e-6f, out.data());
    double squares = 0;
    for (float v : x) squares += static_cast<double>(v) * v;
    const double inverse = 1 / std::sqrt(squares / static_cast<double>(n) + static_cast<double>(1e-6f));
    Worst worst;
    for (size_t i = 0; i < x.size(); ++i) worst.update(ulps(out[i], x[i] * inverse * weight[i]), x[i]);
    // Half an ulp from each of six roundings, and half of the worst error of n / 16 additions in a lane.
    EXPECT_LE(worst.error, 4 + static_cast<double>(n) / 64) << "n " << n;
  }
}

// Scores of row r over its span. For a bf16 cache queries are rounded.
std::vector<double> exact_scores(const AttentionCase& c, size_t r) {
  std::vector<double> scores;
  const auto d = static_cast<size_t>(c.head_dim);
  for (int32_t p = c.spans[r].begin; p < c.spans[r].end; ++p) {
    double score = 0;
    for (size_t i = 0; i < d; ++i) {
      const float q = c.q[r * d + i] * c.scale;
      score += static_cast<double>(c.type != KvType::bf16 ? q : to_float(to_operand(q))) *
               c.keys[static_cast<size_t>(p) * d + i];
    }
    const AttentionSpan& span = c.spans[r];
    scores.push_back((c.cap == 0 ? score : c.cap * std::tanh(score / c.cap)) + double{span.slope} * (p - span.origin));
  }
  return scores;
}

// softmax(q k^T * scale) v of every row. For a bf16 cache probabilities, relative to the largest, are rounded, too.
std::vector<double> exact_attention(const AttentionCase& c) {
  std::vector<double> out;
  const auto d = static_cast<size_t>(c.head_dim);
  for (size_t r = 0; r < c.spans.size(); ++r) {
    std::vector<double> weight = exact_scores(c, r);
    const double largest = std::ranges::max(weight);
    for (double& w : weight) {
      w = std::exp(w - largest);
      if (c.type == KvType::bf16) w = to_float(to_operand(static_cast<float>(w)));
    }
    double sum = 0;
    for (double w : weight) sum += w;
    for (size_t i = 0; i < d; ++i) {
      double value = 0;
      for (size_t p = 0; p < weight.size(); ++p) {
        value += weight[p] / sum * c.values[(static_cast<size_t>(c.spans[r].begin) + p) * d + i];
      }
      out.push_back(value);
    }
  }
  return out;
}

std::vector<float> normalised(const State& state) {
  std::vector<float> out = state.acc;
  const size_t d = state.acc.size() / state.sum.size();
  for (size_t i = 0; i < out.size(); ++i) out[i] /= state.sum[i / d];
  return out;
}

TEST(Attend, Accuracy) {
  Random random;
  for (int32_t head_dim : {16, 64, 128, 256}) {
    for (const KvType type : kTypes) {
      const AttentionCase c = random_attention(random, head_dim, type, {{0, 256}, {100, 256}, {0, 9}, {7, 8}});
      const State state = split(attend(scalar_kernels(), Edge::end, c), c.rows());
      // A probability near the midpoint of two bf16 may round the other way, which changes a row by up to 1e-4.
      EXPECT_LE(relative_error(normalised(state), exact_attention(c)), type == KvType::f32    ? 1e-6
                                                                       : type == KvType::bf16 ? 2e-4
                                                                                              : 2e-2)
          << "head_dim " << head_dim;
    }
  }
}

TEST(Attend, AccuracyWithCap) {
  Random random;
  for (const float cap : {0.5f, 3.0f, 50.0f}) {
    AttentionCase c = random_attention(random, 64, KvType::f32, {{0, 256}, {100, 200}, {7, 8}});
    c.cap = cap;
    const State state = split(attend(scalar_kernels(), Edge::end, c), c.rows());
    EXPECT_LE(relative_error(normalised(state), exact_attention(c)), 1e-6) << "cap " << cap;
  }
}

TEST(Attend, AccuracyWithSlopes) {
  Random random;
  for (const KvType type : kTypes) {
    const AttentionCase c =
        random_attention(random, 64, type, {{0, 256, 0.25f, 255}, {100, 200, 0.5f, -700}, {7, 8, 1.0f, 9}});
    // Scores of some hundred have steps of 3e-5.
    const State state = split(attend(scalar_kernels(), Edge::end, c), c.rows());
    EXPECT_LE(relative_error(normalised(state), exact_attention(c)), type == KvType::f32    ? 1e-5
                                                                     : type == KvType::bf16 ? 4e-4
                                                                                            : 2e-2);
  }
}

// Several chunks, merged in order, against one softmax over all positions.
TEST(MergeAttention, Accuracy) {
  constexpr int32_t kParts = 5;
  Random random;
  AttentionCase whole = random_attention(random, 64, KvType::f32, {{0, kParts * kAttentionChunk}});
  for (float& v : whole.q) v *= 4;  // the maxima of the chunks differ
  std::vector<State> parts;
  for (int64_t part = 0; part < kParts; ++part) {
    AttentionCase chunk = whole;
    const auto cut = [&](const std::vector<float>& cache) {
      const auto begin = cache.begin() + part * kAttentionChunk * 64;
      return std::vector<float>(begin, begin + kAttentionChunk * 64);
    };
    chunk.keys = cut(whole.keys), chunk.values = cut(whole.values);
    chunk.spans = {{0, kAttentionChunk}};
    parts.push_back(split(attend(scalar_kernels(), Edge::end, chunk), 1));
  }
  State state = parts.front();
  for (size_t part = 1; part < parts.size(); ++part) {
    state = split(merge(scalar_kernels(), Edge::end, state, parts[part]), 1);
  }
  EXPECT_LE(relative_error(normalised(state), exact_attention(whole)), 1e-6);
}

}  // namespace
}  // namespace pinion
