#include "loader/pack/quantize_w4.h"

#include <cstring>
#include <span>

#if defined(__SSE2__)
#include <immintrin.h>
#endif

namespace pinion {
namespace {

// A register of every CPU with vectors, as an extension that GCC and clang share.
using Four = float __attribute__((vector_size(16)));
constexpr int kLanes = 4;

Four broadcast(float x) { return Four{x, x, x, x}; }

// GCC 12 makes four instructions of the comparison where there is one for it.
#if defined(__SSE2__)
Four larger(Four a, Four b) { return _mm_max_ps(a, b); }
Four smaller(Four a, Four b) { return _mm_min_ps(a, b); }
#else
Four larger(Four a, Four b) { return a > b ? a : b; }
Four smaller(Four a, Four b) { return a < b ? a : b; }
#endif

Four load(const float* p) {
  Four value;
  std::memcpy(&value, p, sizeof value);
  return value;
}

// Codes less 8: round_half_even(w * inverse), the addition of 1.5 * 2^23 doing the rounding.
Four code_of(Four w, Four inverse) {
  const Four rounder = broadcast(12582912.0f);
  const Four limited = smaller(broadcast(7.0f), larger(broadcast(-8.0f), w * inverse));
  return limited + rounder - rounder;
}

Four inverse_of(Four scale) {
  const Four zero = broadcast(0.0f);
  return scale != zero ? broadcast(1.0f) / scale : zero;
}

Four to_half_and_back(Four scale) {
  for (int i = 0; i < kLanes; ++i) scale[i] = to_float(to_f16(scale[i]));
  return scale;
}

// What a scale's codes q come to.
struct Fit {
  Four wq = {}, qq = {};  // sums of w * q and of q * q
  Four best_scale() const { return wq / larger(qq, broadcast(1.0f)); }
  // How much of the sum of w * w the best scale for these codes takes away.
  Four gain() const { return wq * best_scale(); }
};

Fit fit(const Four* w, Four inverse) {
  Fit sums;
  for (int64_t i = 0; i < kBlockK; ++i) {
    const Four q = code_of(w[i], inverse);
    sums.wq += w[i] * q;
    sums.qq += q * q;
  }
  return sums;
}

Four squared_error(const Four* w, Four scale) {
  const Four inverse = inverse_of(scale);
  Four sum = {};
  for (int64_t i = 0; i < kBlockK; ++i) {
    const Four rest = w[i] - code_of(w[i], inverse) * scale;
    sum += rest * rest;
  }
  return sum;
}

Four largest_weight(const Four* w) {
  Four low = w[0], high = w[0];
  for (int64_t i = 1; i < kBlockK; ++i) low = smaller(low, w[i]), high = larger(high, w[i]);
  return high > -low ? high : low;
}

// What the largest weight becomes before it is rounded, -8 being the least code. The last ones clip it.
constexpr float kTried[] = {8.0f, 7.0f, 7.5f, -7.0f, -7.5f, -8.0f, 8.6f, 9.3f};
constexpr size_t kNotClipping = 5;

Four find_scale(const Four* w, bool may_clip) {
  // More is more than rounding makes of it: weights that one scale gives exactly are to have that one.
  constexpr float kMore = 1.000001f;
  const Four inverse = inverse_of(largest_weight(w));
  Four most = {}, scale = {};
  for (const float code : std::span(kTried).first(may_clip ? std::size(kTried) : kNotClipping)) {
    const Fit tried = fit(w, inverse * broadcast(-code));
    const auto is_more = tried.gain() > most * broadcast(kMore);
    scale = is_more ? tried.best_scale() : scale;
    most = is_more ? tried.gain() : most;
  }
  // With that scale some weights are nearer to another code, and to those codes fits another scale.
  scale = to_half_and_back(scale);
  if (!may_clip) return scale;
  const Four refined = to_half_and_back(fit(w, inverse_of(scale)).best_scale());
  return squared_error(w, refined) < squared_error(w, scale) ? refined : scale;
}

}  // namespace

void find_w4_scales(W4Group* group, bool may_clip) {
  for (int64_t first = 0; first < kW4Columns; first += kLanes) {
    Four w[kBlockK];
    for (int64_t i = 0; i < kBlockK; ++i) w[i] = load(group->weights[i] + first);
    const Four scale = find_scale(w, may_clip);
    for (int c = 0; c < kLanes; ++c) group->scales[first + c] = to_f16(scale[c]);
  }
}

void find_w4_codes(W4Group* group, const float* scales, int64_t begin, int64_t count) {
  for (int64_t first = 0; first < kW4Columns; first += kLanes) {
    const Four inverse = inverse_of(load(scales + first));
    for (int64_t i = begin; i < begin + count; ++i) {
      const Four q = code_of(load(group->weights[i] + first), inverse);
      for (int c = 0; c < kLanes; ++c) group->codes[i][first + c] = static_cast<uint8_t>(q[c] + 8.0f);
    }
  }
}

void quantize_w4(W4Group* group, bool may_clip) {
  find_w4_scales(group, may_clip);
  float scales[kW4Columns];
  for (int64_t c = 0; c < kW4Columns; ++c) scales[c] = to_float(group->scales[c]);
  find_w4_codes(group, scales, 0, kBlockK);
}

}  // namespace pinion
