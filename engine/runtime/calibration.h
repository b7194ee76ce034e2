// Calibration of 4-bit weights (GPTQ). A text runs through the unquantised model; the second moments of each matrix's
// inputs are summed; each matrix is then quantised so that its outputs on such inputs change least
// (loader/pack/feedback.h).
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
constexpr int64_t kMaxCalibrationTokens = 8192;  // more takes time and gains little

// A text in such windows, each of which begins with the prefix (BOS), as many as are taken.
std::vector<int32_t> calibration_windows(std::span<const int32_t> prefix, std::span<const int32_t> text);

// What a packed file says of its weights' calibration; empty: none.
std::string calibration_name(std::span<const int32_t> ids);

// Only w4a8 has weights to calibrate, and a text must have ids of the vocabulary.
Error check_calibration(const LoadOptions& options, const ModelConfig& config);

// Like pack_all, but with feedback from options.calibration for matrices that become w4 here. Experts and the head are
// packed without it. The jobs are placed already. `unquantised` is the same model in mode none; it is freed before the
// last matrices are packed. Works on a few layers at a time if the moments of all do not fit into memory.
Error pack_calibrated(const LoadOptions& options, std::unique_ptr<Model> unquantised, std::span<PackJob> jobs,
                      Model* model);

}  // namespace pinion
