// Attention problems for flash_attn_decode, and softmax attention in double precision.
#pragma once

#include <algorithm>
#include <functional>

#include "tests/kernels/ops.h"

namespace pinion {

inline float wide(float x) { return x; }
inline float wide(bf16 x) { return pinion::to_float(x); }
template <class T>
T number(float x) {
  if constexpr (std::is_same_v<T, bf16>) {
    return pinion::to_bf16(x);
  } else {
    return x;
  }
}
template <class T>
std::vector<T> numbers(const std::vector<float>& x) {
  std::vector<T> y;
  for (float v : x) y.push_back(number<T>(v));
  return y;
}
template <class T>
std::vector<float> floats(const std::vector<T>& x) {
  std::vector<float> y;
  for (T v : x) y.push_back(wide(v));
  return y;
}

// Strides of K or V, from one position and from one kv head to the next.
struct Strides {
  int64_t n, h;
};

template <class T>
struct Attention {
  int64_t seq_len, head_dim, kv_heads, group;
  float scale;
  std::vector<T> q, k, v;  // q [heads][head_dim]; k, v dense [kv_heads][seq_len][head_dim]
  Strides ks, vs;
  bool default_heads;  // head strides are 0: the operation computes them

  int64_t heads() const { return kv_heads * group; }
  std::string describe() const {
    const auto text = [](int64_t i) { return std::to_string(i); };
    return std::string(sizeof(T) == 4 ? "float" : "bf16") + ", seq_len " + text(seq_len) + ", head_dim " +
           text(head_dim) + ", kv heads " + text(kv_heads) + ", group " + text(group) + ", strides " + text(ks.n) +
           " " + text(ks.h) + " " + text(vs.n) + " " + text(vs.h);
  }
};

struct Shape {
  int64_t seq_len, head_dim, kv_heads, group;
};

enum class CacheOrder { dense, padded, heads_inside };

template <class T>
Attention<T> random_attention(Random& random, const Shape& s, CacheOrder lay) {
  Attention<T> a = {.seq_len = s.seq_len,
                    .head_dim = s.head_dim,
                    .kv_heads = s.kv_heads,
                    .group = s.group,
                    .scale = 1 / std::sqrt(static_cast<float>(s.head_dim)),
                    .q = numbers<T>(random.floats(s.kv_heads * s.group * s.head_dim, -2, 2)),
                    .k = numbers<T>(random.floats(s.kv_heads * s.seq_len * s.head_dim, -2, 2)),
                    .v = numbers<T>(random.floats(s.kv_heads * s.seq_len * s.head_dim, -1, 1)),
                    .ks = {s.head_dim, s.seq_len * s.head_dim},
                    .vs = {s.head_dim, s.seq_len * s.head_dim},
                    .default_heads = true};
  if (lay == CacheOrder::padded) {
    a.ks = {s.head_dim + 3, s.seq_len * (s.head_dim + 3) + 7};
    a.vs = {s.head_dim + 1, s.seq_len * (s.head_dim + 1)};
    a.default_heads = false;
  } else if (lay == CacheOrder::heads_inside) {  // [position][head][head_dim]
    a.ks = a.vs = {s.kv_heads * s.head_dim, s.head_dim};
    a.default_heads = false;
  }
  return a;
}

// Rounding of queries and probabilities for a bf16 cache, and of results.
template <class T>
double operand(double x) {
  return sizeof(T) == sizeof(float) ? x : to_float(to_operand(static_cast<float>(x)));
}

// Replaces scores by probabilities relative to the maximum of all, rounded relative to the maximum of their chunk.
template <class T>
void exponentials(std::vector<double>& scores) {
  const double max = std::ranges::max(scores);
  for (size_t begin = 0; begin < scores.size(); begin += kAttentionChunk) {
    const auto chunk = std::span(scores).subspan(begin, std::min<size_t>(kAttentionChunk, scores.size() - begin));
    const double largest = std::ranges::max(chunk);
    for (double& score : chunk) score = operand<T>(std::exp(score - largest)) * std::exp(largest - max);
  }
}

// Softmax attention in double precision, with the bf16 roundings of the operation.
template <class T>
std::vector<double> definition(const Attention<T>& a) {
  std::vector<double> out;
  const size_t d = static_cast<size_t>(a.head_dim);
  std::vector<double> weight(a.seq_len);
  for (int64_t h = 0; h < a.heads(); ++h) {
    const T* q = &a.q[static_cast<size_t>(h) * d];
    const size_t base = static_cast<size_t>(h / a.group * a.seq_len) * d;
    for (size_t p = 0; p < weight.size(); ++p) {
      weight[p] = 0;
      for (size_t i = 0; i < d; ++i) weight[p] += operand<T>(wide(q[i]) * a.scale) * wide(a.k[base + p * d + i]);
    }
    exponentials<T>(weight);
    double sum = 0;
    std::vector<double> acc(d);
    for (size_t p = 0; p < weight.size(); ++p) {
      sum += weight[p];
      for (size_t i = 0; i < d; ++i) acc[i] += weight[p] * wide(a.v[base + p * d + i]);
    }
    for (double value : acc) out.push_back(operand<T>(value / sum));
  }
  return out;
}

// K or V with its strides, up to the last element; NaN between the rows.
template <class T>
std::vector<T> with_strides(const Attention<T>& a, const std::vector<T>& dense, const Strides& strides) {
  const int64_t last = (a.kv_heads - 1) * strides.h + (a.seq_len - 1) * strides.n + a.head_dim;
  std::vector<T> x(last, number<T>(kNan));
  for (int64_t h = 0; h < a.kv_heads; ++h) {
    for (int64_t p = 0; p < a.seq_len; ++p) {
      std::copy_n(dense.begin() + (h * a.seq_len + p) * a.head_dim, a.head_dim,
                  x.begin() + h * strides.h + p * strides.n);
    }
  }
  return x;
}

template <class T>
std::vector<float> attend(const Attention<T>& a, const OpOptions& options, Edge edge) {
  const Guarded<T> q(a.q, edge), k(with_strides(a, a.k, a.ks), edge), v(with_strides(a, a.v, a.vs), edge),
      out(a.heads() * a.head_dim, edge);
  const FlashAttnDecode<T> args = {.q = q.data,
                                   .k = k.data,
                                   .v = v.data,
                                   .out = out.data,
                                   .seq_len = a.seq_len,
                                   .head_dim = a.head_dim,
                                   .sm_scale = a.scale,
                                   .num_heads = a.heads(),
                                   .num_kv_heads = a.kv_heads,
                                   .stride_kn = a.ks.n,
                                   .stride_vn = a.vs.n,
                                   .stride_kh = a.default_heads ? 0 : a.ks.h,
                                   .stride_vh = a.default_heads ? 0 : a.vs.h};
  const int64_t bytes = flash_attn_decode_scratch_bytes(args, options);
  EXPECT_EQ(bytes % kAlignmentBytes, 0);  // so that either edge of a page is aligned
  const Guarded<std::byte> scratch(bytes, edge);
  std::memset(scratch.data, 0xff, bytes);  // NaN: earlier contents must have no effect
  EXPECT_EQ(flash_attn_decode(args, {scratch.data, static_cast<size_t>(bytes)}, options).message(), "");
  return floats(out.copy());
}

inline double relative_error(const std::vector<float>& actual, const std::vector<double>& expected) {
  double error = 0, norm = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    error += std::pow(actual[i] - expected[i], 2);
    norm += std::pow(expected[i], 2);
  }
  return std::sqrt(error / norm);
}

}  // namespace pinion
