// Weights of 4 bits made for a text: it runs through the model unquantised, what the matrices' inputs look like is
// added up, and each matrix is quantised so that its outputs on such inputs change least (loader/pack/feedback.h).
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/model/model.h"
#include "loader/pack/pack.h"

namespace pinion {

constexpr int64_t kCalibrationWindow = 512;      // tokens that know of one another
constexpr int64_t kMaxCalibrationTokens = 8192;  // what is more takes time and gains little

// A text in such windows, each of which begins with the prefix (BOS), as many as are taken.
std::vector<int32_t> calibration_windows(std::span<const int32_t> prefix, std::span<const int32_t> text);

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
