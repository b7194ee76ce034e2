// The definition of gemm_batch, with exact int64 sums or fma in the order of k and then the epilogue, and runs of
// gemm_batch that must give these bits.
#pragma once

#include "kernels/ops/gemm.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <type_traits>
#include <vector>

#include "kernels/half.h"
#include "tests/crew.h"
#include "tests/kernels/guarded.h"

namespace pinion {

template <class T>
constexpr GemmType kType = std::is_same_v<T, int8_t> ? GemmType::s8
                           : std::is_same_v<T, bf16> ? GemmType::bf16
                           : std::is_same_v<T, f16>  ? GemmType::f16
                                                     : GemmType::f32;
template <class R>
constexpr GemmResult kResult = std::is_same_v<R, int32_t>   ? GemmResult::s32
                               : std::is_same_v<R, bf16>    ? GemmResult::bf16
                               : std::is_same_v<R, f16>     ? GemmResult::f16
                               : std::is_same_v<R, int8_t>  ? GemmResult::s8
                               : std::is_same_v<R, uint8_t> ? GemmResult::u8
                                                            : GemmResult::f32;

inline float wide(float x) { return x; }
inline float wide(bf16 x) { return to_float(x); }
inline float wide(f16 x) { return to_float(x); }
inline float wide(int8_t x) { return x; }
inline float wide(uint8_t x) { return x; }
inline int32_t wide(int32_t x) { return x; }

// Compares bits, except that all NaNs are equal.
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
  } else if constexpr (std::is_same_v<T, f16>) {
    return to_f16(x);
  } else if constexpr (sizeof(T) == 1) {
    if (std::isnan(x)) return 0;
    const float low = std::numeric_limits<T>::min(), high = std::numeric_limits<T>::max();
    return static_cast<T>(std::nearbyint(std::clamp(x, low, high)));
  } else {
    return static_cast<T>(x);
  }
}

// Padding that must not be used: for A a value that is no code, or NaN; for C a value that differs from results.
template <class T>
T padding_value() {
  if constexpr (std::is_integral_v<T>) {
    return static_cast<T>(sizeof(T) == 1 ? 128 : 123456789);
  } else {
    return number<T>(kNan);
  }
}

// Dense operands: a [batch][m][k], b [batch][k][n], c [results][m][n]. Empty vectors are absent operands.
template <class T, class R>
struct Problem {
  GemmBatch g = {};  // sizes and factors; run() sets pointers and strides
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
    for (size_t i = 0; i < p.b.size(); i += 11) p.b[i] = -128;  // valid for weights
  }
  p.c.assign(p.results() * size.m * size.n, padding_value<R>());  // beta is 0: not read
  return p;
}

// Sum (r, c) of the products from i on: exact, or by fma in the order of i and then k.
template <class T, class R>
auto sum_of(const Problem<T, R>& p, int64_t first, int64_t r, int64_t c) {
  using Sum = std::conditional_t<std::is_same_v<T, int8_t>, int64_t, float>;
  Sum sum = 0;
  for (int64_t i = first; i < (p.g.reduce ? p.g.batch : first + 1); ++i) {
    for (int64_t k = 0; k < p.g.k; ++k) {
      const T x = p.a[(i * p.g.m + r) * p.g.k + k];
      const T w = p.b[(i * p.g.k + k) * p.g.n + c];
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
    value = (value * p.row_scale[r]) * p.column_scale[c];
  }
  value = value * p.g.alpha;
  if (!p.bias.empty()) value = value + p.bias[c];
  if (!p.gate.empty()) {
    scalar_kernels().silu_mul(&p.gate[r * p.g.n + c], &value, 1, &value);
  }
  if constexpr (!std::is_same_v<R, int32_t>) {
    if (p.g.beta != 0) value = value + p.g.beta * wide(old);
  }
  if (value < p.g.low) value = p.g.low;
  if (value > p.g.high) value = p.g.high;
  return value;
}

// The definition: the expected C, dense.
template <class T, class R>
std::vector<R> definition(const Problem<T, R>& p) {
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

// Copies dense [count][rows][columns] to rows `ld` apart and matrices `stride` apart, with `padding` as padding, up to
// the last element.
template <class T>
std::vector<T> spread(const std::vector<T>& dense, int64_t count, int64_t rows, int64_t columns, int64_t ld,
                      int64_t stride, T padding) {
  if (dense.empty()) return {};
  std::vector<T> x((count - 1) * stride + (rows - 1) * ld + columns, padding);
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
  bool a_transposed = false, b_transposed = false;
  bool offsets = false;  // instead of strides
};
constexpr Form kForms[] = {{false, 1, Edge::begin, true},
                           {true, 1, Edge::end, false, true},
                           {false, 2, Edge::end, false, true},
                           {true, 2, Edge::begin, true, false, true},
                           {true, 5, Edge::end},
                           {false, 5, Edge::begin, false, false, true},
                           {false, 1, Edge::end, true, true, true}};

// Transposes matrices [rows][columns].
template <class T>
std::vector<T> transposed(const std::vector<T>& dense, int64_t rows, int64_t columns) {
  std::vector<T> x(dense.size());
  for (int64_t i = 0; i < std::ssize(dense); ++i) {
    const int64_t matrix = i / (rows * columns), row = i / columns % rows;
    x[(matrix * columns + i % columns) * rows + row] = dense[i];
  }
  return x;
}

// Operands with strides: rows, or columns if transposed, are followed by `more` elements of padding.
template <class T>
struct Strided {
  int64_t ld, stride;
  std::vector<T> elements;
};
template <class T>
Strided<T> with_strides(const std::vector<T>& dense, int64_t count, int64_t rows, int64_t columns, bool is_transposed,
                        int64_t more) {
  if (is_transposed) return with_strides(transposed(dense, rows, columns), count, columns, rows, false, more);
  const int64_t ld = columns + more, stride = rows * ld + more / 2;
  return {ld, stride, spread(dense, count, rows, columns, ld, stride, padding_value<T>())};
}

inline std::vector<int64_t> offsets_of(int64_t count, int64_t stride) {
  std::vector<int64_t> offsets;
  for (int64_t i = 0; i < count; ++i) offsets.push_back(i * stride);
  return offsets;
}

// C with its strides; the padding must not have changed.
template <class T, class R>
std::vector<R> run(const Kernels* kernels, const Form& form, const Problem<T, R>& p) {
  GemmBatch g = p.g;
  const Workers workers = crew(form.workers);
  const Strided<T> a_laid = with_strides(p.a, g.batch, g.m, g.k, form.a_transposed, 3);
  const Strided<T> b_laid = with_strides(p.b, g.batch, g.k, g.n, form.b_transposed, 5);
  g.lda = a_laid.ld, g.a_stride = a_laid.stride, g.a_transposed = form.a_transposed;
  g.ldb = b_laid.ld, g.b_stride = b_laid.stride, g.b_transposed = form.b_transposed;
  g.ldc = g.n + 1, g.c_stride = g.m * g.ldc + 2;
  g.gate_stride = g.n + 4;
  const Edge edge = form.edge;
  const Guarded<T> a(a_laid.elements, edge);
  const Guarded<T> b(b_laid.elements, edge);
  const Guarded<R> c(spread(p.c, p.results(), g.m, g.n, g.ldc, g.c_stride, padding_value<R>()), edge);
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
      gemm_pack_b(g.type, {b.data + i * g.b_stride, g.ldb, g.b_transposed}, g.n, g.k, packed.data + i * packed_stride,
                  workers);
    }
    g.b = packed.data, g.b_packed = true, g.b_stride = packed_stride, g.ldb = -1;  // not used
  }
  const std::vector<int64_t> a_offsets = offsets_of(g.batch, g.a_stride), b_offsets = offsets_of(g.batch, g.b_stride);
  if (form.offsets) {
    g.a_offsets = a_offsets.data(), g.b_offsets = b_offsets.data();
    g.a_stride = g.b_stride = -1;  // not used
  }
  const int64_t bytes = gemm_scratch_bytes(kernels, g);
  const Guarded<std::byte> scratch(bytes, edge);
  std::memset(scratch.data, 0xff, bytes);  // NaN: earlier contents must have no effect
  const Error e = gemm_batch(kernels, workers, g, {scratch.data, static_cast<size_t>(bytes)});
  EXPECT_EQ(e.message(), "");
  return c.copy();
}

template <class T, class R>
void expect_defined(const Problem<T, R>& p, const Kernels* kernels, const Form& form, const std::vector<R>& expected) {
  const std::vector<R> laid_out =
      spread(expected, p.results(), p.g.m, p.g.n, p.g.n + 1, p.g.m * (p.g.n + 1) + 2, padding_value<R>());
  EXPECT_TRUE(same(run(kernels, form, p), laid_out))
      << (kernels ? kernels->name : "default table") << (form.b_packed ? ", B packed" : "")
      << (form.a_transposed ? ", A transposed" : "") << (form.b_transposed ? ", B transposed" : "")
      << (form.offsets ? ", offsets" : "") << ", workers " << form.workers << ": " << p.describe();
}

// Runs every table in every form.
template <class T, class R>
void expect_all_forms(const Problem<T, R>& p) {
  const std::vector<R> expected = definition(p);
  for (const Kernels* kernels : available_kernels()) {
    for (const Form& form : kForms) expect_defined(p, kernels, form, expected);
  }
  expect_defined<T, R>(p, nullptr, kForms[0], expected);
}

// Runs every table in one form, which varies with the table and the call: for loops over many sizes.
template <class T, class R>
void expect_next_form(const Problem<T, R>& p) {
  static size_t turn = 0;
  const std::vector<R> expected = definition(p);
  size_t form = turn++;
  for (const Kernels* kernels : available_kernels()) {
    expect_defined(p, kernels, kForms[form++ % std::size(kForms)], expected);
  }
}

// run_on_all_tables for small problems, else run_in_turn.
template <class T, class R>
void expect_forms(const Problem<T, R>& p) {
  if (kStride > 1) return expect_next_form(p);
  expect_all_forms(p);
}

// Calls f(T{}, R{}) for every pair of types.
template <class F>
void for_each_type(F f) {
  f(int8_t{}, int32_t{});
  f(int8_t{}, float{});
  f(int8_t{}, bf16{});
  f(int8_t{}, int8_t{});
  f(bf16{}, float{});
  f(bf16{}, bf16{});
  f(float{}, float{});
  f(float{}, bf16{});
  f(float{}, uint8_t{});
  f(f16{}, f16{});
}

}  // namespace pinion
