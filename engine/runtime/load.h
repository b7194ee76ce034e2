// A model folder, or the shape that a config.json describes, as a model in memory.
#pragma once

#include <memory>
#include <string>
#include <thread>

#include "engine/model/model.h"

namespace pinion {

Error load_model(const std::string& folder, const LoadOptions& options, std::unique_ptr<Model>* out);

// The checkpoint's own MTP layer, which drafts for `model` (engine/session/draft_model.h): a model of one layer with
// the embedding and the head of that one, which outlives it. What it packs itself it keeps in a cache file of its own.
Error load_mtp(const std::string& folder, const LoadOptions& options, const Model& model, std::unique_ptr<Model>* out);

// With which it is loaded, given the model's.
LoadOptions mtp_options(LoadOptions options);

// Whether it can be loaded so. is_there: whether the checkpoint has anything of it.
Error check_mtp(const std::string& folder, const LoadOptions& options, bool* is_there);

// Gives freshly packed weights to the cache, if there is one.
Error write_to_cache(const Model& model);

// In a thread that the model must outlive: gives freshly packed weights to the cache, or checks those that it gave,
// where nobody has since the machine was started. The options' `warn` and `doubt` are told of all that fails.
std::jthread keep_cache_in_background(const std::string& folder, const LoadOptions& options, const Model& model);

// Which cache file the weights of a folder have; the error says why it cannot be used.
Error find_in_cache(const std::string& folder, const LoadOptions& options, PackCache* out);

// Random weights of the shape that a config.json describes, made in memory: speed does not depend on their values.
Error synthetic_model(const std::string& config_path, const LoadOptions& options, std::unique_ptr<Model>* out);

}  // namespace pinion
