#include "loader/checkpoint/checkpoint.h"

#include <nlohmann/json.hpp>

#include "loader/checkpoint/model_folder.h"
#include "loader/files/json.h"
#include "loader/gguf/gguf.h"
#include "loader/gguf/gguf_folder.h"

namespace pinion {
namespace {

namespace fs = std::filesystem;

// Symbolic links are fine, since download caches consist of them; paths are not.
bool plain_name(std::string_view name) {
  return !name.empty() && name != "." && name != ".." && std::ranges::none_of(name, [](char c) {
    return c == '/' || c == '\\' || static_cast<unsigned char>(c) < 0x20;
  });
}

using ShardIndex = std::map<std::string, std::string>;  // tensors -> shards

// Leaves out the tensors that the index names for another shard: files that correct some tensors of a model lie beside
// its shards in this way. Tensors that the index lacks stay.
Error add_file(const fs::path& path, const ShardIndex& index, Checkpoint* out) {
  const std::string shard = path.filename().string();
  if (Error e = map_file(path, &out->files.emplace_back())) return e;
  Safetensors parsed;
  if (Error e = parse_safetensors(out->files.back().contents(), path.string(), &parsed)) return e;
  for (TensorView& tensor : parsed.tensors) {
    const auto entry = index.find(tensor.name);
    const bool is_overlaid = entry != index.end() && entry->second != shard;
    if (is_overlaid) out->overlaid.push_back(tensor.name + " in " + entry->second);
    if (!is_overlaid) out->tensors.push_back(std::move(tensor));
  }
  return {};
}

Error read_index(const fs::path& path, ShardIndex* out) {
  Json json;
  if (Error e = read_json_file(path, &json)) return e;
  JsonFields top{json, path.string()};
  if (!top.has("weight_map")) top.fail("weight_map", "missing field");
  const JsonFields map = top.fields("weight_map");
  if (map.error) return map.error;
  for (const auto& [name, value] : map.object.items()) {
    if (!value.is_string() || !plain_name(value.get_ref<const std::string&>())) {
      return error("invalid shard name", map.where, "a file name without folders", brief(value));
    }
    (*out)[name] = value.get<std::string>();
  }
  return {};
}

Error check_shards_exist(const fs::path& folder, const std::set<std::string>& shards) {
  const auto is_missing = [&](const std::string& shard) { return !path_exists(folder / shard); };
  const auto first = std::ranges::find_if(shards, is_missing);
  if (first == shards.end()) return {};
  return error(std::to_string(std::ranges::count_if(shards, is_missing)) + " of " + std::to_string(shards.size()) +
                   " shards are missing, the first is " + *first + "; " + completion_hint(folder),
               folder.string());
}

Error add_shards(const fs::path& folder, Checkpoint* out) {
  ShardIndex index;
  if (Error e = read_index(folder / kIndexFile, &index)) return e;
  std::set<std::string> shards;
  for (const auto& [tensor, shard] : index) shards.insert(shard);
  if (Error e = check_shards_exist(folder, shards)) return e;
  for (const std::string& shard : shards) {
    if (Error e = add_file(folder / shard, index, out)) return e;
  }
  std::ranges::sort(out->overlaid);
  std::set<std::string_view> found;
  for (const TensorView& tensor : out->tensors) {
    if (found.insert(tensor.name).second) continue;
    return error("in several shards, and the index names none of them", folder.string() + ": " + tensor.name,
                 "an entry in weight_map of " + std::string(kIndexFile));
  }
  for (const auto& [name, shard] : index) {
    if (found.contains(name)) continue;
    return error("tensor of the index is not in its shard", (folder / shard).string(), {}, brief(name));
  }
  return {};
}

std::string dtype_list(std::span<const DType> dtypes) {
  std::string text;
  for (size_t i = 0; i < dtypes.size(); i++) {
    text += (i == 0 ? "" : i + 1 < dtypes.size() ? ", " : " or ") + std::string(dtype_name(dtypes[i]));
  }
  return text;
}

// Converters to GGUF drop and add dimensions of size 1, and group the rows of matrices and the numbers of vectors.
bool is_regrouped(const TensorView& tensor, std::vector<int64_t> shape) {
  std::vector<int64_t> stored = tensor.shape;
  const bool has_numbers = !shape.empty() && !stored.empty();
  if (!has_numbers || tensor.elements() != TensorView{{}, {}, shape}.elements()) return stored == shape;
  if (stored.back() == shape.back()) return true;
  if (is_block(tensor.dtype)) return false;  // rows of blocks have their own length
  for (std::vector<int64_t>* sizes : {&stored, &shape}) std::erase(*sizes, 1);
  return shape.size() <= 1 || stored == shape;
}

}  // namespace

Error read_shards(const fs::path& index, std::set<std::string>* out) {
  ShardIndex shards;
  if (Error e = read_index(index, &shards)) return e;
  for (const auto& [tensor, shard] : shards) out->insert(shard);
  return {};
}

Error open_checkpoint(const fs::path& folder, Checkpoint* out) {
  std::error_code code;
  Checkpoint result;
  result.folder = folder.string();
  if (is_gguf(folder)) {
    GgufFile gguf;
    if (Error e = open_gguf(folder, &result.files, &gguf)) return e;
    result.tensors = std::move(gguf.tensors);
    for (TensorView& tensor : result.tensors) {
      if (tensor.name.ends_with(".ffn_norm")) tensor.name += ".weight";  // as Falcon-H1's converter calls it
    }
    result.is_gguf_file = true;
  } else if (!fs::is_directory(folder, code)) {
    return error("no such folder", folder.string());
  } else if (path_exists(folder / kSingleFile)) {
    if (Error e = add_file(folder / kSingleFile, {}, &result)) return e;
  } else if (path_exists(folder / kIndexFile)) {
    if (Error e = add_shards(folder, &result)) return e;
  } else {
    return missing_file(folder, kSingleFile);
  }
  for (const TensorView& tensor : result.tensors) result.tensor_bytes += tensor.bytes;
  std::ranges::sort(result.tensors, {}, &TensorView::name);
  *out = std::move(result);
  return {};
}

Error select_tensors(const TensorSelection& selection, Checkpoint* checkpoint) {
  std::vector<TensorView>& tensors = checkpoint->tensors;
  const auto has_prefix_of = [](const std::vector<std::string>& prefixes, const TensorView& tensor) {
    return std::ranges::any_of(prefixes, [&](const std::string& prefix) { return tensor.name.starts_with(prefix); });
  };
  std::erase_if(tensors, [&](const TensorView& tensor) {
    const auto is_end = [&](const std::string& ending) { return tensor.name.ends_with(ending); };
    return has_prefix_of(selection.skipped, tensor) || std::ranges::any_of(selection.skipped_endings, is_end);
  });
  for (TensorView& tensor : tensors) {
    const auto is_start = [&](const auto& names) { return tensor.name.starts_with(names.first); };
    const auto rename = std::ranges::find_if(selection.renamed, is_start);
    if (rename != selection.renamed.end()) tensor.name.replace(0, rename->first.size(), rename->second);
  }
  std::erase_if(tensors, [&](const TensorView& tensor) { return has_prefix_of(selection.unread, tensor); });
  for (const auto& [from, to] : selection.copied) {
    for (size_t i = 0, count = tensors.size(); i < count; ++i) {
      if (!tensors[i].name.starts_with(from) || tensors[i].name.ends_with(kOwnUpdate)) continue;
      TensorView copy = tensors[i];
      copy.name.replace(0, from.size(), to);
      if (std::ranges::find(tensors, copy.name, &TensorView::name) == tensors.end()) tensors.push_back(copy);
    }
  }
  std::ranges::sort(tensors, {}, &TensorView::name);
  const auto twin = std::ranges::adjacent_find(tensors, {}, &TensorView::name);
  if (twin == tensors.end()) return {};
  return error("two tensors of this name", checkpoint->folder + ": " + twin->name);
}

const TensorView* Checkpoint::find(std::string_view name) const {
  const auto found = std::ranges::lower_bound(tensors, name, {}, &TensorView::name);
  return found != tensors.end() && found->name == name ? &*found : nullptr;
}

std::string Checkpoint::where(std::string_view name) const {
  const TensorView* tensor = find(name.substr(0, name.find_first_of(" [")));
  const std::byte* inside = tensor ? tensor->data : files.size() == 1 ? files[0].contents().data() : nullptr;
  const char* file = mapped_file_at(inside);
  return (file ? file : folder) + ": " + std::string(name);
}

Error Checkpoint::bind(std::string_view name, std::initializer_list<int64_t> shape, std::initializer_list<DType> dtypes,
                       TensorView* out) const {
  const TensorView* tensor = find(name);
  const bool hides_index = files.size() == 1 && path_exists(fs::path(folder) / kIndexFile);
  if (!tensor && is_packed()) {
    *out = {std::string(name), *dtypes.begin(), shape};
    return {};
  }
  if (!tensor && hides_index) {
    return error("no such tensor; this file hides " + std::string(kIndexFile) + ": remove one of the two", where(name));
  }
  if (!tensor) return error("no such tensor", where(name));
  if (is_gguf_file ? !is_regrouped(*tensor, shape) : !std::ranges::equal(tensor->shape, shape)) {
    return error("shape differs", where(name), shape_text(shape), shape_text(tensor->shape));
  }
  const bool fits = std::ranges::equal(dtypes, kFloatTypes) ? is_float(tensor->dtype)
                                                            : std::ranges::find(dtypes, tensor->dtype) != dtypes.end();
  if (!fits) return error("type differs", where(name), dtype_list(dtypes), dtype_name(tensor->dtype));
  *out = *tensor;
  out->shape = shape;
  return {};
}

Error Checkpoint::bind(std::string_view name, std::initializer_list<int64_t> shape, TensorView* out) const {
  return bind(name, shape, kFloatTypes, out);
}

}  // namespace pinion
