// gemm_batch against products written out here: exact int64 sums or fma sequentially in k, then the post-ops in their
// order. The bits must not depend on the kernels, the workers, or on who packed B.
#include "kernels/gemm.h"

#include <algorithm>
#include <functional>

#include "kernels/tiles.h"
#include "tests/kernels/crew.h"
#include "tests/kernels/guarded.h"

namespace pinion {
namespace {

template <class T>
constexpr GemmType kType = std::is_same_v<T, int8_t> ? GemmType::s8
                           : std::is_same_v<T, bf16> ? GemmType::bf16
                                                     : GemmType::f32;
template <class R>
constexpr GemmResult kResult = std::is_same_v<R, int32_t> ? GemmResult::s32
                               : std::is_same_v<R, bf16>  ? GemmResult::bf16
                                                          : GemmResult::f32;

float wide(float x) { return x; }
float wide(bf16 x) { return to_float(x); }
int32_t wide(int32_t x) { return x; }

// Any NaN equals any other, of bf16 too.
template <class R>
testing::AssertionResult same(const std::vector<R>& actual, const std::vector<R>& expected) {
  std::vector<decltype(wide(R{}))> have, want;
  for (R v : actual) have.push_back(wide(v));
  for (R v : expected) want.push_back(wide(v));
  return same_bits(have, want);
}

template <class T>
T number(float x) {
  if constexpr (std::is_same_v<T, bf16>) {
    return to_bf16(x);
  } else {
    return static_cast<T>(x);
  }
}

// What lies where nothing may be used: no code of A, NaN; in C any number that can be told from a result.
template <class T>
T foreign() {
  if constexpr (std::is_integral_v<T>) {
    return static_cast<T>(sizeof(T) == 1 ? -128 : 123456789);
  } else {
    return number<T>(kNan);
  }
}

// Dense operands: a [batch][m][k], b [batch][k][n], c [results][m][n]. Empty: not given.
template <class T, class R>
struct Problem {
  GemmBatch g = {};  // sizes and numbers; pointers and strides are put in place by run()
  std::vector<T> a = {}, b = {};
  std::vector<R> c = {};
  std::vector<float> row_scale = {}, column_scale = {}, bias = {}, gate = {};

  int64_t results() const { return g.reduce ? 1 : g.batch; }
  std::string describe() const {
    const auto text = [](int64_t i) { return std::to_string(i); };
    return "types " + text(static_cast<int>(g.type)) + " " + text(static_cast<int>(g.result)) + ", m " + text(g.m) +
           ", n " + text(g.n) + ", k " + text(g.k) + ", batch " + text(g.batch) + (g.reduce ? " reduced" : "") +
           (row_scale.empty() ? "" : ", scales") + (g.alpha == 1 ? "" : ", alpha") + (bias.empty() ? "" : ", bias") +
           (gate.empty() ? "" : ", gate") + (g.beta == 0 ? "" : ", beta");
  }
};

template <class T>
std::vector<T> numbers(Random& random, int64_t n) {
  if constexpr (std::is_same_v<T, int8_t>) {
    return random.codes(n, -127);
  } else {
    std::vector<T> x;
    for (float v : random.floats(n, -2, 2)) x.push_back(number<T>(v));
    return x;
  }
}

struct Size {
  int64_t m, n, k;
  int64_t batch = 1;
  bool reduce = false;
};

template <class T, class R>
Problem<T, R> random_problem(Random& random, const Size& size) {
  Problem<T, R> p;
  p.g.type = kType<T>, p.g.result = kResult<R>;
  p.g.batch = size.batch, p.g.m = size.m, p.g.n = size.n, p.g.k = size.k, p.g.reduce = size.reduce;
  p.a = numbers<T>(random, size.batch * size.m * size.k);
  p.b = numbers<T>(random, size.batch * size.k * size.n);
  if constexpr (std::is_same_v<T, int8_t>) {
    for (size_t i = 0; i < p.b.size(); i += 11) p.b[i] = -128;  // weights may be that
  }
  p.c.assign(static_cast<size_t>(p.results() * size.m * size.n), foreign<R>());  // beta is 0: not read
  return p;
}

// Sum (r, c) of product i on: exact, or by fma sequentially in i, then k.
template <class T, class R>
auto sum_of(const Problem<T, R>& p, int64_t first, int64_t r, int64_t c) {
  using Sum = std::conditional_t<std::is_same_v<T, int8_t>, int64_t, float>;
  Sum sum = 0;
  for (int64_t i = first; i < (p.g.reduce ? p.g.batch : first + 1); ++i) {
    for (int64_t k = 0; k < p.g.k; ++k) {
      const T x = p.a[static_cast<size_t>((i * p.g.m + r) * p.g.k + k)];
      const T w = p.b[static_cast<size_t>((i * p.g.k + k) * p.g.n + c)];
      if constexpr (std::is_same_v<T, int8_t>) {
        sum += int64_t{x} * w;
      } else {
        sum = std::fma(wide(x), wide(w), sum);
      }
    }
  }
  return sum;
}

template <class T, class R>
float finish(const Problem<T, R>& p, float value, int64_t r, int64_t c, R old) {
  if (!p.row_scale.empty()) {
    value = (value * p.row_scale[static_cast<size_t>(r)]) * p.column_scale[static_cast<size_t>(c)];
  }
  value = value * p.g.alpha;
  if (!p.bias.empty()) value = value + p.bias[static_cast<size_t>(c)];
  if (!p.gate.empty()) {
    scalar_kernels().silu_mul(&p.gate[static_cast<size_t>(r * p.g.n + c)], &value, 1, &value);
  }
  if constexpr (!std::is_same_v<R, int32_t>) {
    if (p.g.beta != 0) value = value + p.g.beta * wide(old);
  }
  if (value < p.g.low) value = p.g.low;
  if (value > p.g.high) value = p.g.high;
  return value;
}

// The definition: C as it must be, dense.
template <class T, class R>
std::vector<R> define(const Problem<T, R>& p) {
  std::vector<R> c = p.c;
  size_t at = 0;
  for (int64_t i = 0; i < p.results(); ++i) {
    for (int64_t r = 0; r < p.g.m; ++r) {
      for (int64_t column = 0; column < p.g.n; ++column, ++at) {
        const auto sum = sum_of(p, i, r, column);
        if constexpr (std::is_same_v<R, int32_t>) {
          c[at] = static_cast<int32_t>(p.g.beta == 0 ? sum : sum + c[at]);
        } else {
          c[at] = number<R>(finish(p, static_cast<float>(sum), r, column, c[at]));
        }
      }
    }
  }
  return c;
}

// Dense [count][rows][columns] into rows `ld` apart and matrices `stride` apart; what lies between is `between`. Ends
// with the last element.
template <class T>
std::vector<T> spread(const std::vector<T>& dense, int64_t count, int64_t rows, int64_t columns, int64_t ld,
                      int64_t stride, T between) {
  if (dense.empty()) return {};
  std::vector<T> x(static_cast<size_t>((count - 1) * stride + (rows - 1) * ld + columns), between);
  for (int64_t i = 0; i < count; ++i) {
    for (int64_t r = 0; r < rows; ++r) {
      std::copy_n(dense.begin() + (i * rows + r) * columns, columns, x.begin() + i * stride + r * ld);
    }
  }
  return x;
}

struct Form {
  bool b_packed;
  int32_t workers;
  Edge edge;
};
constexpr Form kForms[] = {{false, 1, Edge::begin}, {true, 1, Edge::end}, {false, 2, Edge::end},
                           {true, 2, Edge::begin},  {true, 5, Edge::end}, {false, 5, Edge::begin}};

// C as it lies in memory, with all that must not have changed around it.
template <class T, class R>
std::vector<R> run(const Kernels* kernels, const Form& form, const Problem<T, R>& p) {
  GemmBatch g = p.g;
  const Workers workers = crew(form.workers);
  g.lda = g.k + 3, g.a_stride = g.m * g.lda + 1;
  g.ldb = g.n + 2, g.b_stride = g.k * g.ldb + 5;
  g.ldc = g.n + 1, g.c_stride = g.m * g.ldc + 2;
  g.gate_stride = g.n + 4;
  const Edge edge = form.edge;
  const Guarded<T> a(spread(p.a, g.batch, g.m, g.k, g.lda, g.a_stride, foreign<T>()), edge);
  const Guarded<T> b(spread(p.b, g.batch, g.k, g.n, g.ldb, g.b_stride, foreign<T>()), edge);
  const Guarded<R> c(spread(p.c, p.results(), g.m, g.n, g.ldc, g.c_stride, foreign<R>()), edge);
  const Guarded<float> row_scale(p.row_scale, edge), column_scale(p.column_scale, edge), bias(p.bias, edge),
      gate(spread(p.gate, 1, g.m, g.n, g.gate_stride, 0, kNan), edge);
  g.a = a.data, g.b = b.data, g.c = c.data;
  if (!p.row_scale.empty()) g.row_scale = row_scale.data, g.column_scale = column_scale.data;
  if (!p.bias.empty()) g.bias = bias.data;
  if (!p.gate.empty()) g.gate = gate.data;

  const int64_t packed_bytes = gemm_packed_b_bytes(g.type, g.n, g.k);
  const int64_t packed_stride = packed_bytes + kAlignmentBytes;
  const bool pack = form.b_packed && g.batch > 0;
  const Guarded<std::byte> packed(pack ? (g.batch - 1) * packed_stride + packed_bytes : 0, edge);
  if (form.b_packed) {
    for (int64_t i = 0; i < g.batch; ++i) {
      gemm_pack_b(g.type, b.data + i * g.b_stride, g.ldb, g.n, g.k, packed.data + i * packed_stride, workers);
    }
    g.b = packed.data, g.b_packed = true, g.b_stride = packed_stride, g.ldb = -1;  // not used
  }
  const int64_t bytes = gemm_scratch_bytes(kernels, g);
  const Guarded<std::byte> scratch(bytes, edge);
  std::memset(scratch.data, 0xff, static_cast<size_t>(bytes));  // NaN: what is left from before must not count
  const Error e = gemm_batch(kernels, workers, g, {scratch.data, static_cast<size_t>(bytes)});
  EXPECT_EQ(e.message(), "");
  return c.copy();
}

template <class T, class R>
void expect_defined(const Problem<T, R>& p, const Kernels* kernels, const Form& form, const std::vector<R>& expected) {
  const std::vector<R> laid_out =
      spread(expected, p.results(), p.g.m, p.g.n, p.g.n + 1, p.g.m * (p.g.n + 1) + 2, foreign<R>());
  EXPECT_TRUE(same(run(kernels, form, p), laid_out))
      << (kernels ? kernels->name : "the best") << (form.b_packed ? ", B packed" : "") << ", workers " << form.workers
      << ": " << p.describe();
}

// Every table in every form.
template <class T, class R>
void expect_everywhere(const Problem<T, R>& p) {
  const std::vector<R> expected = define(p);
  for (const Kernels* kernels : available_kernels()) {
    for (const Form& form : kForms) expect_defined(p, kernels, form, expected);
  }
  expect_defined<T, R>(p, nullptr, kForms[0], expected);
}

// Every table in one form, each in another one than the others and than the time before: for loops over many sizes.
template <class T, class R>
void expect_in_turn(const Problem<T, R>& p) {
  static size_t turn = 0;
  const std::vector<R> expected = define(p);
  size_t form = turn++;
  for (const Kernels* kernels : available_kernels()) {
    expect_defined(p, kernels, kForms[form++ % std::size(kForms)], expected);
  }
}

// Everywhere, where that takes no minutes.
template <class T, class R>
void expect_in_most(const Problem<T, R>& p) {
  if (kStride > 1) return expect_in_turn(p);
  expect_everywhere(p);
}

// f(T{}, R{}) for every pair of types.
template <class F>
void each_type(F f) {
  f(int8_t{}, int32_t{});
  f(int8_t{}, float{});
  f(int8_t{}, bf16{});
  f(bf16{}, float{});
  f(bf16{}, bf16{});
  f(float{}, float{});
  f(float{}, bf16{});
}

// --- by hand -------------------------------------------------------------------------------------------------------

template <class T, class R>
Problem<T, R> two_by_two() {
  //  1 2 3     1  0     5 -1
  //  4 5 6  *  2  1  =  14 -1   the second column: 2 - 3, 5 - 6
  //            0 -1
  Problem<T, R> p;
  p.g.type = kType<T>, p.g.result = kResult<R>, p.g.m = 2, p.g.n = 2, p.g.k = 3;
  for (float v : {1.0f, 2.0f, 3.0f, 4.0f, 5.0f, 6.0f}) p.a.push_back(number<T>(v));
  for (float v : {1.0f, 0.0f, 2.0f, 1.0f, 0.0f, -1.0f}) p.b.push_back(number<T>(v));
  p.c.assign(4, foreign<R>());
  return p;
}

TEST(GemmBatch, HandWorked) {
  each_type([]<class T, class R>(T, R) {
    const Problem<T, R> p = two_by_two<T, R>();
    std::vector<R> by_hand;
    for (float v : {5.0f, -1.0f, 14.0f, -1.0f}) by_hand.push_back(number<R>(v));
    ASSERT_TRUE(same(define(p), by_hand));
    expect_everywhere(p);
  });
}

TEST(GemmBatch, PostOpsByHand) {
  Problem<int8_t, float> p = two_by_two<int8_t, float>();
  p.row_scale = {0.5f, 2}, p.column_scale = {4, 8};  // 10 -4; 112 -16
  p.g.alpha = 0.25f;                                 // 2.5 -1; 28 -4
  p.bias = {1, -1};                                  // 3.5 -2; 29 -5
  p.gate = {0, 0, 40, 40};                           // silu: 0 0; 40 40, so 0 -0; 1160 -200
  p.c = {6, 2, 2, 0};
  p.g.beta = 0.5f;               // 3 1; 1161 -200
  p.g.low = -100, p.g.high = 2;  // 2 1; 2 -100
  ASSERT_EQ(define(p), (std::vector<float>{2, 1, 2, -100}));
  expect_everywhere(p);

  // bf16 rounds to nearest even: 257 and 259 lie halfway between 256, 258 and 260.
  Problem<float, bf16> rounded = two_by_two<float, bf16>();
  rounded.bias = {252, 260};  // 257 259; 266 259
  ASSERT_TRUE(same(define(rounded), {to_bf16(256), to_bf16(260), to_bf16(266), to_bf16(260)}));
  expect_everywhere(rounded);
}

// A bit of everything that a sum in another order, or of products that are rounded, would get wrong.
TEST(GemmBatch, FloatsAreFusedAndInOrder) {
  Problem<float, float> p;
  p.g.m = 1, p.g.n = 1, p.g.k = 4;
  p.a = {0x1p24f, 1, 1, -0x1p24f};
  p.b = {1, 1, 1, 1};
  p.c = {kNan};
  ASSERT_EQ(define(p), std::vector<float>{0});  // 2^24 + 1 is 2^24 again, twice
  expect_everywhere(p);

  p.g.k = 2;
  p.a = {1, 1 + 0x1p-12f};
  p.b = {-1, 1 + 0x1p-12f};
  ASSERT_EQ(define(p), std::vector<float>{0x1p-11f + 0x1p-24f});  // a product rounded by itself loses the last part
  expect_everywhere(p);
}

// --- sizes ---------------------------------------------------------------------------------------------------------

TEST(GemmBatch, EveryRowCount) {
  Random random;
  for (int64_t m = 1; m <= 70; m += m < 20 ? 1 : kStride) {
    each_type([&]<class T, class R>(T, R) { expect_in_turn(random_problem<T, R>(random, {m, 66, 35})); });
  }
}

TEST(GemmBatch, Columns) {
  Random random;
  for (int64_t n : {1, 2, 15, 16, 17, 31, 48, 63, 64, 65, 127, 128, 129, 200}) {
    for (int64_t m : {1, 7}) {
      each_type([&]<class T, class R>(T, R) { expect_in_turn(random_problem<T, R>(random, {m, n, 33})); });
    }
  }
}

TEST(GemmBatch, EveryK) {
  Random random;
  for (int64_t k = 1; k <= 70; k += k < 9 ? 1 : kStride) {
    for (int64_t m : {1, 3}) {
      each_type([&]<class T, class R>(T, R) { expect_in_turn(random_problem<T, R>(random, {m, 65, k})); });
    }
  }
}

// More rows than a tile, more panels than workers and fewer; one panel that is cut along its rows.
TEST(GemmBatch, ManyTiles) {
  Random random;
  for (const Size& size : {Size{193, 10, 20}, {130, 300, 34}, {67, 128, 300, 2}, {20, 70, 30, 9}}) {
    each_type([&]<class T, class R>(T, R) { expect_in_most(random_problem<T, R>(random, size)); });
  }
}

TEST(GemmBatch, Batches) {
  Random random;
  for (int64_t batch : {0, 1, 2, 3}) {
    for (bool reduce : {false, true}) {
      for (const Size& size : {Size{1, 65, 36}, {1, 3, 5}, {9, 70, 33}}) {
        each_type([&]<class T, class R>(T, R) {
          expect_in_most(random_problem<T, R>(random, {size.m, size.n, size.k, batch, reduce}));
        });
      }
    }
  }
}

// Nothing to do; nothing to sum (k or the reduced batch is zero): C = finish(0).
TEST(GemmBatch, Zeros) {
  Random random;
  for (const Size& size : {Size{0, 5, 6},
                           {5, 0, 6},
                           {5, 66, 0},
                           {1, 66, 0},
                           {0, 0, 0},
                           {3, 5, 6, 0},
                           {3, 66, 6, 0, true},
                           {3, 5, 0, 2},
                           {3, 5, 0, 2, true}}) {
    each_type([&]<class T, class R>(T, R) {
      Problem<T, R> p = random_problem<T, R>(random, size);
      expect_in_most(p);
      for (R& c : p.c) c = number<R>(3);
      p.g.beta = 1;
      if constexpr (!std::is_same_v<R, int32_t>) p.bias.assign(static_cast<size_t>(size.n), 0.5f);
      expect_in_most(p);
    });
  }
}

TEST(GemmBatch, MostTermsReduced) {
  Random random;
  each_type([&]<class T, class R>(T, R) {
    for (int64_t m : {1, 5}) expect_in_turn(random_problem<T, R>(random, {m, 9, 6, kMaxGemmTerms, true}));
  });
}

// --- numbers -------------------------------------------------------------------------------------------------------

TEST(GemmBatch, EverySetOfPostOps) {
  Random random;
  for (int set = 0; set < 64; set += set < 8 ? 1 : static_cast<int>(std::min<int64_t>(kStride, 5))) {
    each_type([&]<class T, class R>(T, R) {
      if constexpr (!std::is_same_v<R, int32_t>) {
        Problem<T, R> p = random_problem<T, R>(random, {1 + set % 8, 70, 21, 1 + set % 2});
        if (set & 1) p.row_scale = random.floats(p.g.m), p.column_scale = random.floats(p.g.n);
        if (set & 2) p.g.alpha = -0.3f;
        if (set & 4) p.bias = random.floats(p.g.n, -5, 5);
        if (set & 8) p.gate = random.floats(p.g.m * p.g.n, -20, 20);
        if (set & 16) {
          p.c = numbers<R>(random, std::ssize(p.c));
          p.g.beta = 0.7f;
        }
        if (set & 32) p.g.low = -0.9f, p.g.high = 1.1f;
        expect_in_turn(p);
      }
    });
  }
}

TEST(GemmBatch, ClampsFromOneSide) {
  Random random;
  Problem<float, float> p = random_problem<float, float>(random, {3, 20, 8});
  p.b[5] = kNan;  // a column of NaN: those stay
  p.g.low = 0;
  expect_everywhere(p);
  p.g.low = -kInfinity, p.g.high = -0.25f;
  expect_everywhere(p);
}

TEST(GemmBatch, AlphaZeroAndMinusOne) {
  Random random;
  each_type([&]<class T, class R>(T, R) {
    if constexpr (!std::is_same_v<R, int32_t>) {
      Problem<T, R> p = random_problem<T, R>(random, {4, 5, 6});
      for (float alpha : {0.0f, -1.0f, 0x1p-126f}) {
        p.g.alpha = alpha;
        expect_in_turn(p);
      }
    }
  });
}

TEST(GemmBatch, Int32ResultsAreAddedTo) {
  Random random;
  for (const Size& size : {Size{1, 70, 36}, {1, 70, 35}, {9, 70, 35, 2}, {9, 70, 35, 3, true}}) {
    Problem<int8_t, int32_t> p = random_problem<int8_t, int32_t>(random, size);
    p.g.beta = 1;
    for (int32_t& c : p.c) c = static_cast<int32_t>(random.next() % 2000000) - 1000000;
    expect_everywhere(p);
  }
}

// Adding to C wraps around, as everything of int32 does here (int64 sums, cut off, in the definition).
TEST(GemmBatch, Int32ResultsWrap) {
  Problem<int8_t, int32_t> p = two_by_two<int8_t, int32_t>();
  p.g.beta = 1;
  p.c = {std::numeric_limits<int32_t>::max(), std::numeric_limits<int32_t>::min(), 0, 0};
  ASSERT_EQ(define(p), (std::vector<int32_t>{std::numeric_limits<int32_t>::min() + 4,
                                             std::numeric_limits<int32_t>::max(), 14, -1}));
  expect_everywhere(p);
}

// The largest sums there are: one term of kMaxK, and many that come to it.
TEST(GemmBatch, LargestSumsAreExact) {
  struct Shape {
    int64_t batch, m;
  };
  for (const Shape& shape : {Shape{1, 1}, {1, 2}, {2, 1}, {kMaxGemmTerms, 3}}) {
    Problem<int8_t, int32_t> p;
    p.g = {.type = GemmType::s8,
           .result = GemmResult::s32,
           .batch = shape.batch,
           .m = shape.m,
           .n = 2,
           .k = kMaxK / shape.batch,
           .reduce = true};
    p.a.assign(static_cast<size_t>(shape.m * kMaxK), 127);
    for (int64_t i = 0; i < kMaxK; ++i) p.b.push_back(-128), p.b.push_back(127);
    p.c.assign(static_cast<size_t>(2 * shape.m), 99);
    const std::vector<int32_t> expected = define(p);
    ASSERT_EQ(expected[0], 127 * -128 * int32_t{kMaxK});
    ASSERT_EQ(expected[1], 127 * 127 * int32_t{kMaxK});
    expect_in_turn(p);
  }
}

TEST(GemmBatch, AllMagnitudes) {
  Random random;
  for (int64_t m : {1, 7}) {
    each_type([&]<class T, class R>(T, R) {
      if constexpr (!std::is_same_v<T, int8_t>) {
        Problem<T, R> p = random_problem<T, R>(random, {m, 40, 9});
        for (T& v : p.a) v = number<T>(random.spread(-149, 128));
        for (T& v : p.b) v = number<T>(random.spread(-149, 100));  // sums that overflow among them
        expect_in_turn(p);
        p.a.front() = number<T>(kInfinity), p.b.back() = number<T>(kNan);
        expect_in_turn(p);
        for (T& v : p.a) v = number<T>(random.spread(-149, -80));
        for (T& v : p.b) v = number<T>(random.spread(-70, 10));  // and ones that vanish
        expect_in_turn(p);
      }
    });
  }
}

// --- packing -------------------------------------------------------------------------------------------------------

TEST(GemmPackB, Layout) {
  Random random;
  constexpr int64_t n = 65, k = 33, ldb = 67;
  const std::vector<int8_t> codes = random.codes(k * ldb, -128);
  std::vector<bf16> floats;
  for (float v : random.floats(k * ldb)) floats.push_back(to_bf16(v));
  for (int32_t workers : kCrews) {
    const int64_t bytes = gemm_packed_b_bytes(GemmType::s8, n, k);
    ASSERT_EQ(bytes, 2 * 64 * 64 + 2 * 64 * 4);
    const Guarded<std::byte> packed(bytes, Edge::end);
    gemm_pack_b(GemmType::s8, codes.data(), ldb, n, k, packed.data, crew(workers));
    const auto* code = reinterpret_cast<const int8_t*>(packed.data);
    const auto* sums = reinterpret_cast<const int32_t*>(packed.data + 2 * 64 * 64);
    for (int64_t c = 0; c < 128; ++c) {
      int32_t sum = 0;
      for (int64_t i = 0; i < 64; ++i) {
        const int8_t expected = c < n && i < k ? codes[static_cast<size_t>(i * ldb + c)] : int8_t{0};
        ASSERT_EQ(code[c / 64 * 64 * 64 + i / 4 * 256 + c % 64 * 4 + i % 4], expected) << c << " " << i;
        sum += expected;
      }
      ASSERT_EQ(sums[c], sum) << c;
    }

    ASSERT_EQ(gemm_packed_b_bytes(GemmType::bf16, n, k), round_up(2 * 64 * k * 2, 64));
    ASSERT_EQ(gemm_packed_b_bytes(GemmType::f32, n, k), round_up(2 * 64 * k * 4, 64));
    const Guarded<std::byte> packed_bf16(gemm_packed_b_bytes(GemmType::bf16, n, k), Edge::end);
    gemm_pack_b(GemmType::bf16, floats.data(), ldb, n, k, packed_bf16.data, crew(workers));
    const auto* element = reinterpret_cast<const bf16*>(packed_bf16.data);
    for (int64_t c = 0; c < 128; ++c) {
      for (int64_t i = 0; i < k; ++i) {
        const bf16 expected = c < n ? floats[static_cast<size_t>(i * ldb + c)] : bf16{0};
        ASSERT_EQ(element[c / 64 * 64 * k + i * 64 + c % 64].bits, expected.bits) << c << " " << i;
      }
    }
  }
}

// A single row is mostly taken as it is: then there must be nothing to provide for it.
TEST(GemmScratch, ARowOfItsOwnNeedsNone) {
  const auto bytes = [](GemmType type, int64_t k, bool reduce) {
    return gemm_scratch_bytes(nullptr,
                              {.type = type, .batch = 2, .m = 1, .n = 10, .k = k, .reduce = reduce, .b_packed = true});
  };
  EXPECT_EQ(bytes(GemmType::s8, 12, false), 0);
  EXPECT_EQ(bytes(GemmType::f32, 13, false), 0);
  EXPECT_EQ(bytes(GemmType::f32, 13, true), 0);
  EXPECT_GT(bytes(GemmType::s8, 13, false), 0);
  EXPECT_GT(bytes(GemmType::s8, 12, true), 0);
  EXPECT_GT(bytes(GemmType::bf16, 12, false), 0);
}

// --- mistakes ------------------------------------------------------------------------------------------------------

// A sound problem of int8 with float results, which each test spoils in one way.
struct Sound {
  std::vector<int8_t> a = std::vector<int8_t>(64), b = std::vector<int8_t>(64);
  std::vector<float> c = std::vector<float>(64, 7.0f), numbers = std::vector<float>(64, 1.0f);
  alignas(64) std::byte scratch[16384];
  size_t scratch_bytes = sizeof scratch;
  size_t scratch_offset = 0;
  GemmBatch g = {.type = GemmType::s8,
                 .result = GemmResult::f32,
                 .batch = 2,
                 .m = 3,
                 .n = 5,
                 .k = 4,
                 .a = a.data(),
                 .lda = 4,
                 .a_stride = 12,
                 .b = b.data(),
                 .ldb = 5,
                 .b_stride = 20,
                 .c = c.data(),
                 .ldc = 5,
                 .c_stride = 15};

  Error multiply() { return gemm_batch(nullptr, {}, g, {scratch + scratch_offset, scratch_bytes}); }
};

void expect_refused(const std::string& argument, const std::function<void(Sound&)>& spoil) {
  Sound s;
  spoil(s);
  const Error e = s.multiply();
  ASSERT_TRUE(e) << argument;
  EXPECT_EQ(e.where.substr(0, 12), "gemm_batch: ") << e.message();
  EXPECT_NE(e.where.find(argument), std::string::npos) << "want " << argument << " in: " << e.message();
  EXPECT_EQ(s.c, std::vector<float>(64, 7.0f)) << e.message();
}

TEST(GemmErrors, TheSoundProblemIsAccepted) {
  Sound s;
  EXPECT_EQ(s.multiply().message(), "");
  EXPECT_EQ(s.c[0], 0);
  EXPECT_EQ(s.c[29], 0);
  EXPECT_EQ(s.c[30], 7);
}

TEST(GemmErrors, Sizes) {
  expect_refused("batch", [](Sound& s) { s.g.batch = -1; });
  expect_refused("m", [](Sound& s) { s.g.m = -1; });
  expect_refused("n", [](Sound& s) { s.g.n = -1; });
  expect_refused("k", [](Sound& s) { s.g.k = -1; });
  expect_refused("lda", [](Sound& s) { s.g.lda = 3; });
  expect_refused("ldb", [](Sound& s) { s.g.ldb = 4; });
  expect_refused("ldc", [](Sound& s) { s.g.ldc = 4; });
  expect_refused("c_stride", [](Sound& s) { s.g.c_stride = 14; });
  expect_refused("c_stride", [](Sound& s) { s.g.c_stride = -14; });
  expect_refused("b_stride", [](Sound& s) { s.g.b = s.scratch, s.g.b_packed = true, s.g.b_stride = 32; });
  expect_refused("gate_stride", [](Sound& s) { s.g.gate = s.numbers.data(), s.g.gate_stride = 4; });
  expect_refused("k", [](Sound& s) { s.g.k = s.g.lda = kMaxK + 1; });
  expect_refused("k", [](Sound& s) { s.g.reduce = true, s.g.k = s.g.lda = kMaxK / 2 + 1; });
  expect_refused("batch", [](Sound& s) { s.g.reduce = true, s.g.batch = kMaxGemmTerms + 1; });
}

TEST(GemmErrors, Pointers) {
  expect_refused("a", [](Sound& s) { s.g.a = nullptr; });
  expect_refused("b", [](Sound& s) { s.g.b = nullptr; });
  expect_refused("b", [](Sound& s) { s.g.b = s.scratch + 4, s.g.b_packed = true, s.g.b_stride = 4096; });
  expect_refused("row_scale", [](Sound& s) { s.g.row_scale = s.numbers.data(); });
  expect_refused("column_scale", [](Sound& s) { s.g.column_scale = s.numbers.data(); });
  expect_refused("c", [](Sound& s) { s.g.c = nullptr; });
  expect_refused("c", [](Sound& s) { s.g.c = nullptr, s.g.k = 0; });
  expect_refused("c", [](Sound& s) { s.g.c = nullptr, s.g.batch = 0, s.g.reduce = true; });  // it is written
}

TEST(GemmErrors, Scratch) {
  Sound s;
  const int64_t bytes = gemm_scratch_bytes(nullptr, s.g);
  s.scratch_bytes = static_cast<size_t>(bytes);
  EXPECT_EQ(s.multiply().message(), "");
  expect_refused("scratch", [&](Sound& t) { t.scratch_bytes = static_cast<size_t>(bytes - 1); });
  expect_refused("scratch", [](Sound& t) { t.scratch_bytes = 0; });
  expect_refused("scratch", [](Sound& t) { t.scratch_offset = 32, t.scratch_bytes -= 32; });
}

TEST(GemmErrors, Int32ResultsArePlain) {
  const auto refused = [](const char* argument, const std::function<void(Sound&)>& spoil) {
    expect_refused(argument, [&](Sound& s) {
      s.g.result = GemmResult::s32;
      spoil(s);
    });
  };
  refused("alpha", [](Sound& s) { s.g.alpha = 2; });
  refused("beta", [](Sound& s) { s.g.beta = 0.5f; });
  refused("beta", [](Sound& s) { s.g.beta = kNan; });
  refused("post-ops", [](Sound& s) { s.g.row_scale = s.g.column_scale = s.numbers.data(); });
  refused("post-ops", [](Sound& s) { s.g.bias = s.numbers.data(); });
  refused("post-ops", [](Sound& s) { s.g.gate = s.numbers.data(), s.g.gate_stride = 5; });
  refused("post-ops", [](Sound& s) { s.g.low = 0; });
  refused("post-ops", [](Sound& s) { s.g.high = 0; });
  refused("result", [](Sound& s) { s.g.type = GemmType::f32; });
  refused("result", [](Sound& s) { s.g.type = GemmType::bf16; });
}

// Nothing is read that need not be there.
TEST(GemmErrors, NullWhereNothingIsRead) {
  Sound s;
  s.g.a = s.g.b = nullptr, s.g.k = 0;
  EXPECT_EQ(s.multiply().message(), "");
  s.g.c = nullptr, s.g.m = 0;
  EXPECT_EQ(gemm_batch(nullptr, {}, s.g, {s.scratch, s.scratch_bytes}).message(), "");
  s.g.m = 3, s.g.batch = 0;
  EXPECT_EQ(gemm_batch(nullptr, {}, s.g, {}).message(), "");
}

// --- which table, which cuts ---------------------------------------------------------------------------------------

TEST(GemmKernels, TheFirstThatTakesSoFewRows) {
  const std::vector<const Kernels*> tables = available_kernels();
  for (GemmType type : {GemmType::s8, GemmType::bf16, GemmType::f32}) {
    const auto least = [&](const Kernels* k) { return (type == GemmType::s8 ? k->s8 : k->f32).least; };
    ASSERT_EQ(least(tables.back()), 1);  // or there would be nothing to fall to
    for (size_t from = 0; from < tables.size(); ++from) {
      for (int64_t m : {0, 1, 2, 3, 4, 5, 8, 9, 16, 17, 64, 1000}) {
        size_t expected = from;
        while (expected + 1 < tables.size() && m < least(tables[expected])) ++expected;
        if (m == 0) expected = tables.size() - 1;
        EXPECT_EQ(&gemm_kernels(tables[from], type, m), tables[expected]) << tables[from]->name << ", rows " << m;
        if (from == 0) {
          EXPECT_EQ(&gemm_kernels(nullptr, type, m), tables[expected]) << m;
        }
      }
    }
  }
}

TEST(Tiles, TheGridCoversEveryRowOnce) {
  for (int64_t block : {1, 2, 4, 6, 8, 16, 64}) {
    for (int64_t rows = 0; rows <= 300; rows += rows < 70 ? 1 : 23) {
      for (int64_t panels : {1, 2, 3, 7, 40, 1000}) {
        for (int64_t workers : {1, 2, 3, 5, 8, 64, 200}) {
          const TileGrid grid = tile_grid(rows, block, panels, workers);
          const std::string label = std::to_string(rows) + " rows, block " + std::to_string(block) + ", panels " +
                                    std::to_string(panels) + ", workers " + std::to_string(workers);
          ASSERT_EQ(grid.panels, panels) << label;
          ASSERT_GE(grid.parts, 0) << label;
          ASSERT_EQ(grid.part_rows % block, 0) << label;
          // Parts follow each other without a gap, none is empty, and a part's tiles do the same inside it.
          int64_t next = 0;
          for (int64_t part = 0; part < grid.parts; ++part) {
            const int64_t begin = part * grid.part_rows, end = std::min(rows, begin + grid.part_rows);
            ASSERT_EQ(begin, next) << label;
            ASSERT_LT(begin, end) << label;
            each_tile(begin, end, block, [&](int64_t first, int64_t count) {
              ASSERT_EQ(first, next) << label;
              ASSERT_GT(count, 0) << label;
              ASSERT_LE(count, kTileRows) << label;
              ASSERT_EQ(first % block, 0) << label;
              next = first + count;
            });
          }
          ASSERT_EQ(next, rows) << label;
          const int64_t blocks = (rows + block - 1) / block;
          ASSERT_GE(grid.panels * grid.parts, std::min(workers, blocks * panels)) << label;
        }
      }
    }
  }
}

TEST(Tiles, NobodyAtWorkIsOne) {
  const TileGrid none = tile_grid(100, 4, 3, 0), one = tile_grid(100, 4, 3, 1);
  EXPECT_EQ(none.parts, one.parts);
  EXPECT_EQ(none.part_rows, one.part_rows);
}

TEST(Tiles, BlocksAreEvenAndWithinTheShape) {
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
      ASSERT_EQ(block % shape.multiple, 0) << rows;
      ASSERT_LE(block, std::min<int64_t>(shape.rows, kTileRows)) << rows;
      ASSERT_EQ((rows + block - 1) / block, (rows + shape.rows - 1) / shape.rows) << rows;  // no more than need be
      for (int64_t most = rows; most <= rows + 70; ++most) {
        ASSERT_GE(packed_rows(shape, most), (rows + block - 1) / block * block) << rows << " of at most " << most;
      }
    }
  }
  for (const Kernels* kernels : available_kernels()) {
    for (const PackShape& shape : {kernels->s8, kernels->f32}) {
      EXPECT_LE(shape.rows, kTileRows) << kernels->name;
      EXPECT_EQ(shape.rows % shape.multiple, 0) << kernels->name;
      EXPECT_EQ(kBlockK % shape.group, 0) << kernels->name;
    }
  }
}

}  // namespace
}  // namespace pinion
