// The weights of a folder, by name: a safetensors file, or shards with an index, which decides between duplicates.
#pragma once

#include <set>

#include "loader/checkpoint/safetensors.h"
#include "loader/files/mapped_file.h"

namespace pinion {

// Move-only. The tensors point into the files.
struct Checkpoint {
  std::string folder;
  std::vector<MappedFile> files;
  std::vector<TensorView> tensors;  // sorted by name
  int64_t tensor_bytes = 0;         // of all tensors together
  bool is_gguf_file = false;
  std::vector<std::string> overlaid = {};  // "NAME in SHARD": tensors in several shards, and the index's shard
  // The factors of adapters (loader/quant/stored_weights.h), by the data of their tensors; 0 for tensors that replace
  // others.
  std::map<const std::byte*, float> adapter_scales = {};
  // Metadata of a packed model (loader/pack/pack_cache.h); empty: another model.
  std::map<std::string, std::string> pack_record = {};

  bool is_packed() const { return !pack_record.empty(); }
  const TensorView* find(std::string_view name) const;  // nullptr when there is none
  // "FILE: NAME" for errors, or "FOLDER: NAME" if no shard has the tensor. `name` may end in a row or a range of rows.
  std::string where(std::string_view name) const;

  // Finds the tensor and checks its shape and type. The error states what was expected and what was found. A packed
  // model has no data of matrices: a tensor that it lacks is bound without data.
  Error bind(std::string_view name, std::initializer_list<int64_t> shape, std::initializer_list<DType> dtypes,
             TensorView* out) const;
  // The same for floating-point weights: BF16, F16, F32.
  Error bind(std::string_view name, std::initializer_list<int64_t> shape, TensorView* out) const;
};

// Filter for folders that contain other tensors beside those of the language model.
struct TensorSelection {
  std::vector<std::string> skipped;                          // prefixes of names
  std::vector<std::pair<std::string, std::string>> renamed;  // prefix, its replacement: the first match applies
  std::vector<std::string> skipped_endings = {};             // suffixes of names
  std::vector<std::string> unread = {};                      // prefixes of renamed names, also skipped
  // Prefix, another one: renamed tensors without kOwnUpdate get this second name, too, unless the file has one of it.
  std::vector<std::pair<std::string, std::string>> copied = {};
};

// In place of an adapter's index in names of low-rank changes that belong to the model, see bind_updates().
constexpr std::string_view kOwnUpdate = "own";

// Removes and renames tensors. Two tensors of the same name are an error.
Error select_tensors(const TensorSelection& selection, Checkpoint* checkpoint);

// File names of the shards in an index file, without folders.
Error read_shards(const std::filesystem::path& index, std::set<std::string>* out);

Error open_checkpoint(const std::filesystem::path& folder, Checkpoint* out);

}  // namespace pinion
