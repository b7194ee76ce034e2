// Calibration of quantised weights (GPTQ, Frantar et al. 2023). The unquantised model continues texts, then sums the
// second moments of each matrix's inputs. Error feedback (loader/pack/quantize.h) then minimises the change of outputs.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/model/model.h"
#include "loader/pack/pack.h"

namespace pinion {

constexpr int64_t kCalibrationWindow = 512;      // tokens evaluated as one sequence
constexpr int64_t kMaxCalibrationTokens = 8192;  // of a text; more tokens take time and gain little

// Cuts a text into windows that each begin with `prefix` (BOS), up to kMaxCalibrationTokens.
std::vector<CalibrationText> calibration_windows(std::span<const int32_t> prefix, std::span<const int32_t> text);

// The name that identifies calibration texts in files of packed weights and golden files; empty without calibration.
std::string calibration_name(std::span<const CalibrationText> texts);

// Fails in mode none, or with ids outside the vocabulary.
Error check_calibration(const LoadOptions& options, const ModelConfig& config);

// True if error feedback changes a packed matrix of the layers.
bool calibrates(const Model& model, std::span<const PackJob> jobs);

// Memory that pack_calibrated() needs beside the packed weights, about.
int64_t calibration_bytes(const Model& model);

// pack_all() with error feedback from options.calibration for the matrices that are quantised here, except those of
// experts and the head. jobs: the memory of their matrices is assigned. exact: the same model in mode none, freed
// before the last matrices are packed. Processes a few layers at a time if the moments of all do not fit into memory.
Error pack_calibrated(const LoadOptions& options, std::unique_ptr<Model> exact, std::span<PackJob> jobs, Model* model);

}  // namespace pinion
