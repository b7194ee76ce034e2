// Statistics of measured values, and the divergence of two models' predictions.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace pinion {

struct Mean {
  double value = 0;
  double standard_error = 0;  // sample deviation / sqrt(n); 0 for fewer than two values
};

Mean mean_of(std::span<const double> values);

// The smallest value with at least fraction * n values at or below it; 0 without values. 0 < fraction <= 1.
double quantile(std::vector<double> values, double fraction);

double median_of(std::vector<double> values);  // 0 without values

// Compares two models' predictions of a token. p, q: softmax of the reference's and the other's logits. Natural logs.
struct Divergence {
  double reference_loss = 0;  // -log p(next)
  double loss = 0;            // -log q(next)
  double kl = 0;              // sum of p (log p - log q) over the vocabulary; not below 0
  bool same_top = false;      // the same most likely token, the lowest id among equals
};

// reference, other: [vocab]. next: the actual token. Logits that are not finite give NaN.
Divergence compare_logits(std::span<const float> reference, std::span<const float> other, int32_t next);

}  // namespace pinion
