// The user's folders. Resolves the names of models to folders and explains incomplete folders, with a remedy: reads
// only file names and first bytes; the parsers check the contents.
#pragma once

#include <filesystem>

#include "kernels/base/error.h"

namespace pinion {

// Folders of the XDG Base Directory Specification: $VARIABLE/pinion if the variable holds an absolute path, else the
// folder below $HOME if $HOME is a folder, else empty: nothing is stored then.
std::string default_cache_folder();   // $XDG_CACHE_HOME, ~/.cache/pinion: data that can be rebuilt
std::string default_config_folder();  // $XDG_CONFIG_HOME, ~/.config/pinion: settings
std::string default_state_folder();   // $XDG_STATE_HOME, ~/.local/state/pinion: history
// Other programs' folders, else empty. The first is also $HF_HUB_CACHE or $HUGGINGFACE_HUB_CACHE.
std::string hugging_face_cache_folder();  // $HF_HOME/hub, ~/.cache/huggingface/hub
std::string llama_cache_folder();         // $LLAMA_CACHE, ~/.cache/llama.cpp
std::string ollama_folder();              // $OLLAMA_MODELS, ~/.ollama/models

// The folder or GGUF file for a name, which may be its path, DIR/model.safetensors or DIR/config.json; ORG/NAME or a
// repository's folder in the Hugging Face cache (the current snapshot); NAME:TAG there or in find_in_stores(). Any
// other name is returned unchanged.
std::string find_model_folder(const std::string& name);

constexpr const char* kSingleFile = "model.safetensors";
constexpr const char* kIndexFile = "model.safetensors.index.json";

bool is_model_file(const std::string& name);  // the names that a model's folder may have, besides its shards
std::filesystem::path absolute_path(const std::filesystem::path& path);  // without a trailing slash
bool path_exists(const std::filesystem::path& path);
// ORG/NAME of a snapshot in the Hugging Face cache; empty for other folders.
std::string repository_name(const std::filesystem::path& folder);

Error check_folder(const std::filesystem::path& folder);        // exists, and no link in it is broken
Error check_model_folder(const std::filesystem::path& folder);  // also has config.json and weights
// The error for a folder without this file: an unfinished download, another format, or not a model's folder.
Error missing_file(const std::filesystem::path& folder, const std::string& file);
// "`pinion get ORG/NAME` completes the download", or a hint for other folders.
std::string completion_hint(const std::filesystem::path& folder);

}  // namespace pinion
