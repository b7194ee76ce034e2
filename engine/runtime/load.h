// Loads a model folder, or makes a model of random weights from the shapes in a config.json.
#pragma once

#include <thread>

#include "engine/model/model.h"
#include "engine/team/team.h"
#include "loader/pack/pack.h"

namespace pinion {

// Reports the model's notes to options.warn.
Error load_model(const std::string& folder, const LoadOptions& options, std::unique_ptr<Model>* out);

// The first step of load_model(): reads everything except the matrices, which become jobs. Fails if the folder cannot
// be loaded. *model has the configuration and the checkpoint as soon as they are read, even after an error.
Error bind_model(const std::string& folder, const LoadOptions& options, Model* model, std::vector<PackJob>* jobs);

// Loads the checkpoint's MTP layer as a draft model for `model` (engine/session/speculation.h): one layer that uses the
// embedding and head of `model`, which must outlive it. It has a cache file of its own.
Error load_mtp(const std::string& folder, const LoadOptions& options, const Model& model, std::unique_ptr<Model>* out);

// The options with which load_mtp() loads the MTP layer of a model loaded with `options`.
LoadOptions mtp_options(LoadOptions options);

// Returns the error that load_mtp() would return. Sets `exists` to true if the checkpoint has tensors of an MTP layer.
Error check_mtp(const std::string& folder, const LoadOptions& options, bool* exists);

// Writes freshly packed weights to the cache, if it is enabled.
Error write_to_cache(const Model& model);

// Writes the model.safetensors of a packed model (loader/pack/pack_cache.h). record: has "quant"; mtp: null without
// such a layer.
Error write_packed_model(const std::string& path, PackRecord record, const LoadOptions& options, const Model& model,
                         const Model* mtp, const WriteProgress& progress);

// Starts a thread that writes freshly packed weights to the cache, or checks cached weights that were not checked since
// boot. The model must outlive the thread, which reports errors to options.warn and options.doubt.
std::jthread keep_cache_in_background(const LoadOptions& options, const Model& model);

// Finds the cache file of a folder's weights. The error is the reason why it cannot be used.
Error find_in_cache(const std::string& folder, const LoadOptions& options, PackCache* out);

// Makes a model of random weights, for measurements: speed does not depend on the values of weights.
Error synthetic_model(const std::string& config_path, const LoadOptions& options, std::unique_ptr<Model>* out);

// --- Calibration of quantised weights (GPTQ, Frantar et al. 2023). The model in w8a8 continues texts, then sums
// the second moments of each matrix's inputs. Error feedback (loader/pack/quantize.h) then minimises the change of
// outputs.

constexpr int64_t kCalibrationWindow = 512;      // tokens evaluated as one sequence
constexpr int64_t kMaxCalibrationTokens = 8192;  // of a text; more tokens take time and gain little

// Cuts a text into windows that each begin with `prefix` (BOS), up to kMaxCalibrationTokens.
std::vector<CalibrationText> calibration_windows(std::span<const int32_t> prefix, std::span<const int32_t> text);

// The name that identifies calibration texts in files of packed weights and golden files; empty without calibration.
std::string calibration_name(std::span<const CalibrationText> texts, bool has_experts);

// Fails in mode none, or with ids outside the vocabulary.
Error check_calibration(const LoadOptions& options, const ModelConfig& config);

// True if error feedback changes a packed matrix of the layers.
bool calibrates(const Model& model, std::span<PackJob> jobs);

// Memory that pack_calibrated() needs beside the packed weights, about.
int64_t calibration_bytes(const Model& model);

// pack_all() with error feedback from options.calibration for the matrices that are quantised here, except the head and
// experts' down that few tokens reach. jobs: the memory of their matrices is assigned. reader: the same model in w8a8,
// freed before the last matrices are packed. Processes a few layers at a time if the moments of all do not fit into
// memory.
Error pack_calibrated(const LoadOptions& options, std::unique_ptr<Model> reader, std::span<PackJob> jobs, Model* model);

}  // namespace pinion
