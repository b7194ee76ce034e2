// A model's folder: what people may call it, and what is wrong with one that has not all it needs, in words that say
// what to do. Looks at names and first bytes; what is in the files, their parsers say.
#pragma once

#include <filesystem>
#include <string>

#include "kernels/base/error.h"

namespace pinion {

// The folder that a name stands for: itself; the one around DIR/model.safetensors or DIR/config.json; the snapshot of
// ORG/NAME, or of a repository's folder, in the Hugging Face cache. A name that stands for none comes back as it is.
std::string find_model_folder(const std::string& name);

// ORG/NAME of a snapshot in the Hugging Face cache; empty for other folders.
std::string repository_name(const std::filesystem::path& folder);

Error check_folder(const std::filesystem::path& folder);        // it is one, and its links lead somewhere
Error check_model_folder(const std::filesystem::path& folder);  // that, and there are config.json and weights

// Why a folder has no such file: an unfinished download, another format, else not a model's folder.
Error missing_file(const std::filesystem::path& folder, const std::string& file);

// "`pinion get ORG/NAME` completes the download", or what else completes a folder.
std::string how_to_complete(const std::filesystem::path& folder);

}  // namespace pinion
