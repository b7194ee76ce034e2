// How far a model's predictions move when its arithmetic changes: two logits vectors for the same token. Natural
// logarithms, in double precision.
#pragma once

#include <cstdint>
#include <span>

namespace pinion {

struct Divergence {
  double reference_loss = 0;  // -log p(next), p the reference's softmax
  double loss = 0;            // likewise of the other
  double kl = 0;              // sum p (log p - log q) over the vocabulary, q the other's softmax; not below 0
  bool same_top = false;      // the likeliest token is the same, the lowest id among equals
};

// Both [vocab]; next is the token that came. Logits that are not finite give NaN.
Divergence compare_logits(std::span<const float> reference, std::span<const float> other, int32_t next);

}  // namespace pinion
