// Loads a model folder, or makes a model of random weights from the shapes in a config.json.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <thread>
#include <vector>

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

// Starts a thread that writes freshly packed weights to the cache, or checks cached weights that were not checked since
// boot. The model must outlive the thread, which reports errors to options.warn and options.doubt.
std::jthread keep_cache_in_background(const std::string& folder, const LoadOptions& options, const Model& model);

// Finds the cache file of a folder's weights. The error is the reason why it cannot be used.
Error find_in_cache(const std::string& folder, const LoadOptions& options, PackCache* out);

// Makes a model of random weights, for measurements: speed does not depend on the values of weights.
Error synthetic_model(const std::string& config_path, const LoadOptions& options, std::unique_ptr<Model>* out);

// NUMA first touch: Linux allocates a page on the node of the thread that first writes it. Each worker writes a zero to
// every page of `arena` that holds panels of its own tasks; a page of several workers goes to the first one to write.
// arena: holds the model's matrices, all zeros. Leaves the calling thread unpinned.
void touch_first(Team& team, const Model& model, std::byte* arena);

}  // namespace pinion
