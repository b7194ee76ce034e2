#include "loader/pack/quantize.h"

#include <array>
#include <cmath>
#include <cstring>

#include "kernels/kernels.h"
#include "loader/checkpoint/number_formats.h"

#if defined(__SSE2__)
#include <immintrin.h>
#endif

namespace pinion {
namespace {

// A 16-byte vector, an extension of GCC and Clang. Every CPU with vectors has such registers.
using Four = float __attribute__((vector_size(16)));
constexpr int kLanes = 4;

Four broadcast(float x) { return Four{x, x, x, x}; }

// GCC 12 compiles the comparison to four instructions instead of one.
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

// The numbers whose codes are stored: integers, or the levels of a format.
struct CodeRange {
  float low, high, zero;  // stored codes are `zero` above the integers
  bool has_levels = false;

  float number(uint8_t code) const { return has_levels ? kW4nLevels[code] : static_cast<float>(code) - zero; }
};
constexpr CodeRange kW4Range = {-8, 7, 8}, kW8Range = {-127, 127, kW8Zero};
constexpr CodeRange kW4nRange = {kW4nLevels[0], kW4nLevels[15], 0, true};

// The code of the level that is nearest to low + i.
constexpr auto kNearestCodes = [] {
  std::array<uint8_t, static_cast<size_t>(kW4nRange.high - kW4nRange.low) + 1> codes = {};
  for (int i = 0, code = 0; i < static_cast<int>(codes.size()); ++i) {
    while (code < 15 && 2 * (i + kW4nLevels[0]) > kW4nLevels[code] + kW4nLevels[code + 1]) ++code;
    codes[i] = static_cast<uint8_t>(code);
  }
  return codes;
}();
uint8_t nearest_code(float integer) { return kNearestCodes[static_cast<size_t>(integer - kW4nRange.low)]; }

// The nearest number: round_half_even(x), clipped, or a level. Adding and subtracting 1.5 * 2^23 rounds. The order of
// the operands turns NaN (0 times the inverse of a tiny weight) into `low`, which has a code.
Four rounded(Four x, CodeRange range) {
  const Four rounder = broadcast(12582912.0f);
  const Four limited = smaller(larger(x, broadcast(range.low)), broadcast(range.high));
  Four number = limited + rounder - rounder;
  for (int i = 0; range.has_levels && i < kLanes; ++i) number[i] = kW4nLevels[nearest_code(number[i])];
  return number;
}

Four inverse_of(Four scale) {
  const Four zero = broadcast(0.0f);
  return scale != zero ? broadcast(1.0f) / scale : zero;
}

Four to_half_and_back(Four scale) {
  for (int i = 0; i < kLanes; ++i) scale[i] = to_float(to_f16(scale[i]));
  return scale;
}

// Least-squares fit of a scale to codes q.
struct Fit {
  Four wq = {}, qq = {};  // sums of w * q and of q * q
  Four best_scale() const { return wq / larger(qq, broadcast(1.0f)); }
  Four gain() const { return wq * best_scale(); }  // reduction of the squared error, from the sum of w * w
};

Fit fit(const Four* w, Four inverse, CodeRange range) {
  Fit sums;
  for (int64_t i = 0; i < kGroupK; ++i) {
    const Four q = rounded(w[i] * inverse, range);
    sums.wq += w[i] * q;
    sums.qq += q * q;
  }
  return sums;
}

Four squared_error(const Four* w, Four scale, CodeRange range) {
  const Four inverse = inverse_of(scale);
  Four sum = {};
  for (int64_t i = 0; i < kGroupK; ++i) {
    const Four rest = w[i] - rounded(w[i] * inverse, range) * scale;
    sum += rest * rest;
  }
  return sum;
}

Four largest_weight(const Four* w) {
  Four low = w[0], high = w[0];
  for (int64_t i = 1; i < kGroupK; ++i) low = smaller(low, w[i]), high = larger(high, w[i]);
  return high > -low ? high : low;
}

// Candidates c for the scale: the largest weight becomes -c, then a number of the range. The last ones clip it.
struct Candidates {
  std::span<const float> all;
  size_t not_clipping;
};
constexpr float kW4Scales[] = {8.0f, 7.0f, 7.5f, -7.0f, -7.5f, -8.0f, 8.6f, 9.3f};
constexpr float kW4nScales[] = {127.0f, 119.0f, 110.0f, -113.0f, 137.0f, -123.0f};
constexpr Candidates kW4Candidates = {kW4Scales, 5}, kW4nCandidates = {kW4nScales, 4};

Four find_scale(const Four* w, bool may_clip, CodeRange range) {
  // A better scale must win by more than rounding noise, so that exactly representable weights keep their scale.
  constexpr float kMargin = 1.000001f;
  const Four inverse = inverse_of(largest_weight(w));
  Four best_gain = {}, scale = {};
  const auto [all, not_clipping] = range.has_levels ? kW4nCandidates : kW4Candidates;
  for (const float code : all.first(may_clip ? all.size() : not_clipping)) {
    const Fit tried = fit(w, inverse * broadcast(-code), range);
    const auto is_better = tried.gain() > best_gain * broadcast(kMargin);
    scale = is_better ? tried.best_scale() : scale;
    best_gain = is_better ? tried.gain() : best_gain;
  }
  // The fitted scale moves some weights to other codes, which in turn fit another scale.
  scale = to_half_and_back(scale);
  if (!may_clip) return scale;
  const Four refined = to_half_and_back(fit(w, inverse_of(scale), range).best_scale());
  return squared_error(w, refined, range) < squared_error(w, scale, range) ? refined : scale;
}

// The scales of all columns, for the steps from weights to codes.
struct Grids {
  CodeRange range;
  float scales[kW4Columns] = {};
};

Grids find_grids(W4Group* group, Format format, bool may_clip) {
  Grids grids = {format == Format::w4n ? kW4nRange : kW4Range};
  for (int64_t first = 0; first < kW4Columns; first += kLanes) {
    Four w[kGroupK];
    for (int64_t i = 0; i < kGroupK; ++i) w[i] = load(group->weights[i] + first);
    const Four scale = find_scale(w, may_clip, grids.range);
    for (int c = 0; c < kLanes; ++c) group->scales[first + c] = to_f16(grids.scales[first + c] = scale[c]);
  }
  return grids;
}

// The nearest codes of weights [begin, begin + count) of each column.
void find_codes(W4Group* group, const Grids& grids, int64_t begin, int64_t count) {
  for (int64_t first = 0; first < kW4Columns; first += kLanes) {
    const Four inverse = inverse_of(load(grids.scales + first));
    for (int64_t i = begin; i < begin + count; ++i) {
      const Four q = rounded(load(group->weights[i] + first) * inverse, grids.range);
      for (int c = 0; c < kLanes; ++c) {
        group->codes[i][first + c] =
            grids.range.has_levels ? nearest_code(q[c]) : static_cast<uint8_t>(q[c] + grids.range.zero);
      }
    }
  }
}

constexpr float kDamping = 0.1f;  // in units of the mean moment
constexpr int64_t kPanel = kPanelColumns;

// Factorises a panel, columns [c, c + 64), after the later ones are subtracted: the diagonal tile, then the rows above.
void factorise_panel(float* panel, int64_t c) {
  float tile[kPanel][kPanel];  // tile[j][i] = R[c + i][c + j]
  float* diagonal = panel + c * kPanel;
  for (int64_t j = kPanel - 1; j >= 0; --j) {
    const float square = diagonal[j * kPanel + j];
    const float pivot = square > 0.0f ? std::sqrt(square) : 1.0f;  // 0: the input was always zero
    for (int64_t i = 0; i < j; ++i) tile[j][i] = diagonal[i * kPanel + j] / pivot;
    tile[j][j] = pivot;
    for (int64_t to = 0; to < j; ++to) {
      for (int64_t i = 0; i <= to; ++i) diagonal[i * kPanel + to] -= tile[j][i] * tile[j][to];
    }
  }
  for (int64_t j = 0; j < kPanel; ++j) {
    for (int64_t i = 0; i <= j; ++i) diagonal[i * kPanel + j] = tile[j][i];
  }
  for (float* x = panel; x < diagonal; x += kPanel) {
    for (int64_t j = kPanel - 1; j >= 0; --j) {
      x[j] /= tile[j][j];
      for (int64_t to = 0; to < j; ++to) x[to] -= x[j] * tile[j][to];
    }
  }
}

// Cholesky factor H = R R^T, R upper triangular, in place of the triangle. Panels run from the last to the first, each
// after the product of the later ones is subtracted.
void factorise(float* h, int64_t n) {
  const Kernels& kernels = best_kernels();
  const int64_t tile_rows = kernels.f32_shape.rows;
  std::vector<float> left(tile_rows * n), right(n * kPanel), sums(tile_rows * kPanel);
  for (int64_t c = n - kPanel; c >= 0; c -= kPanel) {
    const int64_t later = n - c - kPanel;
    float* panel = h + triangle_panel(c / kPanel);
    const auto later_rows = [&](int64_t l, int64_t row) {
      return h + triangle_panel((c + kPanel + l) / kPanel) + row * kPanel;
    };
    for (int64_t l = 0; l < later; ++l) {
      for (int64_t j = 0; j < kPanel; ++j) right[l * kPanel + j] = later_rows(l, c + j)[l % kPanel];
    }
    for (int64_t row = 0; later > 0 && row < c + kPanel; row += tile_rows) {
      const int64_t rows = std::min(tile_rows, c + kPanel - row);
      for (int64_t l = 0; l < later; l += kPanel) {
        kernels.pack_f32(later_rows(l, row), kPanel, rows, kPanel, tile_rows, left.data() + l * tile_rows);
      }
      const GemmTerm term = {left.data(), right.data(), later};
      kernels.gemm_f32(&term, 1, {tile_rows, 0}, rows, sums.data());
      for (int64_t i = 0; i < rows * kPanel; ++i) panel[row * kPanel + i] -= sums[i];
    }
    factorise_panel(panel, c);
  }
}

bool are_f16(std::span<const float> scales, float column_scale) {
  return std::ranges::all_of(scales, [=](float scale) {
    const float divided = scale / column_scale;
    return std::isfinite(scale) && divided * column_scale == scale && to_float(to_f16(divided)) == divided;
  });
}

bool is_ternary(const float* group, float scale) {
  bool fits = true;
  for (int64_t i = 0; i < kW2GroupK; ++i) fits &= (group[i] == 0.0f) | (std::fabs(group[i]) == scale);
  return fits;
}

float largest_magnitude(const float* group) {
  float largest = 0.0f;
  for (int64_t i = 0; i < kW2GroupK; ++i) largest = std::max(largest, std::fabs(group[i]));
  return largest;
}

constexpr int64_t kSampledRows = 8;  // evenly spread

}  // namespace

void quantize_w4(W4Group* group, Format format, bool may_clip) {
  find_codes(group, find_grids(group, format, may_clip), 0, kGroupK);
}

Feedback make_feedback(std::vector<float> moments, int64_t k) {
  const int64_t n = padded_n(k);
  const auto pivot = [&](int64_t i) -> float& { return moments[triangle_panel(i / kPanel) + i * kPanel + i % kPanel]; };
  double sum = 0;
  for (int64_t i = 0; i < k; ++i) sum += static_cast<double>(pivot(i));
  const auto damping = static_cast<float>(sum / static_cast<double>(k) * static_cast<double>(kDamping));
  for (int64_t i = 0; i < n; ++i) pivot(i) += damping;
  factorise(moments.data(), n);
  for (int64_t c = 0; c < n; c += kPanel) {
    float divisors[kPanel], *row = moments.data() + triangle_panel(c / kPanel);
    for (int64_t j = 0; j < kPanel; ++j) divisors[j] = pivot(c + j);
    for (int64_t i = 0; i < c + kPanel; ++i, row += kPanel) {
      for (int64_t j = 0; j < kPanel; ++j) row[j] = i < c + j ? row[j] / divisors[j] : 0.0f;
    }
  }
  return {n, std::move(moments)};
}

FeedbackRows::FeedbackRows(const Feedback& feedback)
    : feedback_(feedback),
      tile_rows_(std::min<int64_t>(best_kernels().f32_shape.rows, kW4Columns)),
      errors_(round_up(kW4Columns, tile_rows_) * feedback.k),
      sums_(kW4Columns * kPanel),
      correction_(kPanel * kW4Columns) {}

void FeedbackRows::begin_panel(int64_t panel) {
  if (panel == 0) return;  // no errors yet
  const GemmTerm term = {errors_.data(), feedback_.panel(panel), panel * kPanel};
  const int64_t step_bytes = tile_rows_ * feedback_.k * static_cast<int64_t>(sizeof(float));
  best_kernels().gemm_f32(&term, 1, {tile_rows_, step_bytes}, kW4Columns, sums_.data());
  for (int64_t c = 0; c < kPanel; ++c) {
    for (int64_t r = 0; r < kW4Columns; ++r) correction_[c * kW4Columns + r] = sums_[r * kPanel + c];
  }
}

void FeedbackRows::quantise(int64_t k, Format format, bool may_clip, const float* w8_scales, W4Group* group) {
  const int64_t panel = k / kPanel, first = k % kPanel;
  if (first == 0) begin_panel(panel);
  float exact[kGroupK][kW4Columns];
  std::memcpy(exact, group->weights, sizeof exact);
  float* correction = correction_.data() + first * kW4Columns;
  for (int64_t i = 0; i < kGroupK; ++i) {
    for (int64_t r = 0; r < kW4Columns; ++r) group->weights[i][r] += correction[i * kW4Columns + r];
  }
  Grids grids = {kW8Range};
  if (format == Format::w8) {
    std::copy_n(w8_scales, kW4Columns, grids.scales);
  } else {
    grids = find_grids(group, format, may_clip);
  }
  for (int64_t i = 0; i < kGroupK; ++i) {
    float error[kW4Columns];
    for (int64_t r = 0; r < kW4Columns; ++r) group->weights[i][r] = exact[i][r] + correction[i * kW4Columns + r];
    find_codes(group, grids, i, 1);
    for (int64_t r = 0; r < kW4Columns; ++r) {
      const float number = grids.range.number(group->codes[i][r]);
      error[r] = exact[i][r] - number * grids.scales[r];
      errors_[r / tile_rows_ * tile_rows_ * feedback_.k + (k + i) * tile_rows_ + r % tile_rows_] = error[r];
    }
    const float* factors = feedback_.panel(panel) + (k + i) * kPanel;
    for (int64_t to = first + i + 1; to < kPanel; ++to) {
      float* later = correction_.data() + to * kW4Columns;
      for (int64_t r = 0; r < kW4Columns; ++r) later[r] += error[r] * factors[to];
    }
  }
}

float ternary_column_scale(std::span<const float> scales) {
  const float largest = std::ranges::max(scales);
  if (are_f16(scales, 1.0f)) return 1.0f;
  if (std::isnormal(largest) && are_f16(scales, largest)) return largest;
  constexpr uint32_t kExponentBits = 23, kF16Top = 15;
  const uint32_t exponent = std::bit_cast<uint32_t>(largest) >> kExponentBits;
  if (exponent <= kF16Top || exponent >= 0xff) return 0.0f;
  const float power = std::bit_cast<float>((exponent - kF16Top) << kExponentBits);
  return are_f16(scales, power) ? power : 0.0f;
}

bool find_ternary_scales(std::span<const float> row, float* scales) {
  const int64_t groups = std::ssize(row) / kW2GroupK;
  for (int64_t g = 0; g < groups; ++g) {
    const float* group = row.data() + g * kW2GroupK;
    scales[g] = largest_magnitude(group);
    if (!is_ternary(group, scales[g])) return false;
  }
  return ternary_column_scale({scales, static_cast<size_t>(groups)}) != 0.0f;
}

bool looks_ternary(const TensorView& weight) {
  const int64_t n = weight.shape[0], k = weight.shape[1];
  if (!weight.data || !is_float(weight.dtype) || k % kW2GroupK != 0) return false;
  float first[kW2GroupK];  // for most models this reads one page of the file and ends here
  read_floats(weight, 0, kW2GroupK, first);
  if (!is_ternary(first, largest_magnitude(first))) return false;
  std::vector<float> row(k), scales(k / kW2GroupK);
  bool is_zero = true;
  for (int64_t i = 0; i < kSampledRows; ++i) {
    read_row(weight, (n - 1) * i / (kSampledRows - 1), row.data());
    if (!find_ternary_scales(row, scales.data())) return false;
    is_zero = is_zero && std::ranges::max(scales) == 0.0f;
  }
  return !is_zero;
}

}  // namespace pinion
