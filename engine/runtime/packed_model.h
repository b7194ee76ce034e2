// Packed models: folders whose model.safetensors has the packed matrices (loader/pack/pack_cache.h).
#pragma once

#include <string>

#include "engine/model/model.h"

namespace pinion {

// Refuses options with which a packed model was not packed.
Error check_packed_options(const std::string& folder, PackRecord record, const LoadOptions& options);

// Finds the matrices of a packed model, whose layout must be that of the config.
Error find_packed(const std::string& folder, bool is_mtp, Model* model);

// Maps a packed model's file, which is never repaired. Other models have none.
Error open_packed(const LoadOptions& options, Model* model);

// Writes the file of a packed model. record: has "quant"; mtp: null without such a layer.
Error write_packed_model(const std::string& path, PackRecord record, const LoadOptions& options, const Model& model,
                         const Model* mtp, const WriteProgress& progress);

}  // namespace pinion
