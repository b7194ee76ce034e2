#include "engine/measure/statistics.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>

namespace pinion {

Mean mean_of(std::span<const double> values) {
  const auto n = static_cast<double>(values.size());
  if (values.empty()) return {};
  const double mean = std::accumulate(values.begin(), values.end(), 0.0) / n;
  if (values.size() < 2) return {mean, 0};
  double squares = 0;
  for (const double value : values) squares += (value - mean) * (value - mean);
  return {mean, std::sqrt(squares / (n - 1) / n)};
}

double quantile(std::vector<double> values, double share) {
  if (values.empty()) return 0;
  const auto rank = static_cast<int64_t>(std::ceil(share * static_cast<double>(values.size())));
  const auto at = values.begin() + std::clamp<int64_t>(rank - 1, 0, std::ssize(values) - 1);
  std::ranges::nth_element(values, at);
  return *at;
}

double median_of(std::vector<double> values) {
  if (values.empty()) return 0;
  std::ranges::sort(values);
  const size_t half = values.size() / 2;
  return values.size() % 2 ? values[half] : (values[half - 1] + values[half]) / 2;
}

}  // namespace pinion
