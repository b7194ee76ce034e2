// A folder's weights: one safetensors file or shards with an index, every tensor by its name.
#pragma once

#include <cstdint>
#include <filesystem>
#include <initializer_list>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kernels/base/error.h"
#include "loader/checkpoint/safetensors.h"
#include "loader/files/mapped_file.h"

namespace pinion {

// Move-only. The tensors point into the files.
struct Checkpoint {
  std::string folder;
  std::vector<MappedFile> files;
  std::vector<TensorView> tensors;  // by name
  int64_t tensor_bytes = 0;         // of all tensors together

  const TensorView* find(std::string_view name) const;  // nullptr when there is none
  // "FILE: NAME" for errors; "FOLDER: NAME" when no shard has the tensor. A row or a part may follow in `name`.
  std::string where(std::string_view name) const;

  // Gives the tensor when it is there with this shape and one of these types, else an error with both sides.
  Error bind(std::string_view name, std::initializer_list<int64_t> shape, std::initializer_list<DType> dtypes,
             TensorView* out) const;
  // The same for weights in a floating-point type that read_floats and pack_all take: BF16, F16, F32.
  Error bind(std::string_view name, std::initializer_list<int64_t> shape, TensorView* out) const;
};

// Which of a folder's tensors a model takes where others lie beside it, and under which names; by prefixes.
struct TensorSelection {
  std::vector<std::string> skipped;
  std::vector<std::pair<std::string, std::string>> renamed;  // from, to: the first that fits
  std::vector<std::string> skipped_endings = {};             // these are no prefixes
  std::vector<std::string> unread = {};                      // skipped, too: prefixes of the new names
};

// Two tensors of one name are an error.
Error select_tensors(const TensorSelection& selection, Checkpoint* checkpoint);

// The names of the shards that an index file gives, without folders.
Error read_shards(const std::filesystem::path& index, std::set<std::string>* out);

Error open_checkpoint(const std::filesystem::path& folder, Checkpoint* out);

}  // namespace pinion
