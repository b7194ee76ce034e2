// The Hadamard rotation: every variant against scalar, and scalar against the matrix and the steps of the contract.
#include <bit>

#include "tests/kernels/guarded.h"

namespace pinion {
namespace {

std::vector<float> rotated(const Kernels& kernels, Edge edge, const std::vector<float>& x, int64_t block) {
  const auto n = static_cast<int64_t>(x.size());
  const Guarded<float> in(x, edge), out(n, edge);
  kernels.rotate(in.data, n, block, out.data);
  kernels.rotate(in.data, n, block, in.data);
  EXPECT_TRUE(same_bits(in.copy(), out.copy())) << kernels.name << ": in place";
  return out.copy();
}

std::vector<float> rotated_on_all_tables(const std::vector<float>& x, int64_t block) {
  const std::string label = std::to_string(x.size()) + " in blocks of " + std::to_string(block);
  const auto run = [&](const Kernels& kernels, Edge edge) {
    return Result{.floats = rotated(kernels, edge, x, block)};
  };
  return run_on_all_tables(label, run).floats;
}

// The sign of element i: -1 to the number of pairs of bits (0 and 1, 2 and 3 ...) that are both set.
float sign_of(size_t i) {
  bool odd = false;
  for (; i > 0; i /= 4) odd ^= i % 4 == 3;
  return odd ? -1.0f : 1.0f;
}

// The contract's signs and steps.
std::vector<float> by_steps(std::vector<float> x, int64_t block) {
  for (size_t i = 0; i < x.size(); ++i) x[i] *= sign_of(i % static_cast<size_t>(block));
  for (size_t h = 1; h < static_cast<size_t>(block); h *= 2) {
    for (size_t i = 0; i < x.size(); ++i) {
      if (i / h % 2 != 0) continue;
      const float a = x[i], b = x[i + h];
      x[i] = a + b;
      x[i + h] = a - b;
    }
  }
  return x;
}

TEST(Rotate, HandWorked) {
  EXPECT_EQ(rotated_on_all_tables({1, 2, 3, 4}, 4), (std::vector<float>{2, 6, 4, -8})) << "of 1, 2, 3, -4";
  EXPECT_EQ(rotated_on_all_tables({1, 2, 3, 4, 5, 6}, 2), (std::vector<float>{3, -1, 7, -1, 11, -1}));
  EXPECT_EQ(rotated_on_all_tables({7, -3}, 1), (std::vector<float>{7, -3}));
}

// Element (i, j) of Sylvester's matrix is -1 if i & j has an odd number of bits, else 1.
TEST(Rotate, IsTheHadamardMatrix) {
  constexpr int64_t kBlock = 128;
  for (size_t j = 0; j < kBlock; ++j) {
    std::vector<float> unit(kBlock), column;
    unit[j] = 1;
    for (size_t i = 0; i < kBlock; ++i) column.push_back(std::popcount(i & j) % 2 ? -sign_of(j) : sign_of(j));
    EXPECT_EQ(rotated(best_kernels(), Edge::end, unit, kBlock), column) << j;
  }
}

TEST(Rotate, EveryBlockAndLength) {
  Random random;
  for (int64_t block = 1; block <= 8192; block *= 2) {
    for (const int64_t blocks : {1, 2, 3, 5, 9, 17}) {
      if (block * blocks > 20000) continue;
      const std::vector<float> x = random.floats(block * blocks, -3, 3);
      EXPECT_TRUE(same_bits(rotated_on_all_tables(x, block), by_steps(x, block))) << blocks << " of " << block;
    }
  }
}

TEST(Rotate, DotProductsGrowByTheBlockSize) {
  for (const int64_t block : {2, 8, 16, 256, 1024}) {
    std::vector<float> x, y;  // whole numbers, so that sums stay exact
    for (int64_t i = 0; i < 2 * block; ++i)
      x.push_back(static_cast<float>(i % 7 - 3)), y.push_back(static_cast<float>(i % 5));
    const std::vector<float> u = rotated(best_kernels(), Edge::end, x, block),
                             v = rotated(best_kernels(), Edge::end, y, block);
    double before = 0, after = 0;
    for (size_t i = 0; i < x.size(); ++i) before += double{x[i]} * double{y[i]}, after += double{u[i]} * double{v[i]};
    EXPECT_EQ(after, static_cast<double>(block) * before);
  }
}

// A constant row becomes numbers of equal magnitude if the block is an even power of two.
TEST(Rotate, SpreadsAMeanEvenly) {
  for (const float y : rotated_on_all_tables(std::vector<float>(1024, 1.0f), 1024)) EXPECT_EQ(std::abs(y), 32.0f);
}

// NaN and infinity spread over their block and no further.
TEST(Rotate, InfinityAndNan) {
  Random random;
  for (const float special : {kInfinity, -kInfinity, kNan}) {
    std::vector<float> x = random.floats(3 * 64);
    x[70] = special;
    const std::vector<float> y = rotated_on_all_tables(x, 64);
    for (size_t i = 0; i < y.size(); ++i) EXPECT_EQ(std::isfinite(y[i]), i / 64 != 1) << i;
  }
}

TEST(Unrotate, InvertsRotate) {
  Random random;
  for (int64_t block = 16; block <= 1024; block *= 2) {
    for (const int64_t blocks : {1, 3, 8}) {
      std::vector<float> x;  // whole numbers, so that sums stay exact
      for (const int8_t code : random.codes(block * blocks)) x.push_back(code);
      const std::vector<float> there = rotated(best_kernels(), Edge::end, x, block);
      const auto back = [&](const Kernels& kernels, Edge edge) {
        const auto n = static_cast<int64_t>(there.size());
        const Guarded<float> in(there, edge), out(n, edge);
        kernels.unrotate(in.data, n, block, out.data);
        kernels.unrotate(in.data, n, block, in.data);
        EXPECT_TRUE(same_bits(in.copy(), out.copy())) << kernels.name << ": in place";
        return Result{.floats = out.copy()};
      };
      EXPECT_EQ(run_on_all_tables("unrotate", back).floats, x) << blocks << " of " << block;
    }
  }
}

}  // namespace
}  // namespace pinion
