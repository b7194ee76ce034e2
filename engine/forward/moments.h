// Second moments of the inputs of a layer's matrices, summed over the rows of passes: what calibration needs.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "engine/forward/matmul.h"
#include "engine/model/stages.h"

namespace pinion {

// Sums of x x^T over the rows that the matrices of some layers were given, by the stage that multiplies.
struct Moments {
  struct Sum {
    int64_t k = 0;
    std::vector<float> values;  // [moments_elements(k)]
  };

  int64_t first_layer = 0;
  bool rotate = true;                            // the rows, as quantised matrices take them
  std::vector<std::array<Sum, kStages>> layers;  // from first_layer on; those of stages that are not wanted have no k
  std::vector<float> rows;                       // a pass's, [tokens][padded_n(k)]

  Sum* find(int64_t layer, Stage stage);  // null: not wanted
};

// Adds the rows of an input given as floats. All workers call it; it ends with a barrier where it adds.
void add_moments(Worker& worker, int64_t layer, Stage stage, const Input& in, Moments* moments);

}  // namespace pinion
