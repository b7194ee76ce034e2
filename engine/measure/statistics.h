// Statistics over measured values.
#pragma once

#include <span>
#include <vector>

namespace pinion {

struct Mean {
  double value = 0;
  double standard_error = 0;  // sample deviation / sqrt(n); 0 for fewer than two values
};

Mean mean_of(std::span<const double> values);

// The smallest value that `share` of all are not above; 0 for none. 0 < share <= 1.
double quantile(std::vector<double> values, double share);

double median_of(std::vector<double> values);  // 0 of none

}  // namespace pinion
