// Weights of 4 bits made for a text: it runs through the model unquantised, what the matrices' inputs look like is
// added up, and each matrix is quantised so that its outputs on such inputs change least (loader/feedback.h).
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/matmul.h"
#include "engine/model.h"
#include "engine/profile.h"
#include "loader/pack.h"

namespace pinion {

constexpr int64_t kCalibrationWindow = 512;      // tokens that know of one another
constexpr int64_t kMaxCalibrationTokens = 8192;  // what is more takes time and gains little

// A text in such windows, each of which begins with the prefix (BOS), as many as are taken.
std::vector<int32_t> calibration_windows(std::span<const int32_t> prefix, std::span<const int32_t> text);

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

// What a packed file says of its weights' calibration; empty: none.
std::string calibration_name(std::span<const int32_t> ids);

// Only w4a8 has weights to calibrate, and a text must have ids of the vocabulary.
Error check_calibration(const LoadOptions& options, const ModelConfig& config);

// As pack_all of jobs that are placed, with the feedback of options.calibration for matrices that become w4 here;
// experts and the head are packed as ever. `trained` is the model in mode none, which runs the text and is let go of
// before the last matrices are packed. Takes some layers at a time where the moments of all would not fit.
Error pack_calibrated(const LoadOptions& options, std::unique_ptr<Model> trained, std::span<PackJob> jobs,
                      Model* model);

}  // namespace pinion
