#include "loader/checkpoint/checkpoint.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>

#include "loader/checkpoint/model_folder.h"
#include "loader/files/json.h"

namespace pinion {
namespace {

namespace fs = std::filesystem;

// Symbolic links are fine, since download caches consist of them; paths are not.
bool plain_name(std::string_view name) {
  return !name.empty() && name != "." && name != ".." && std::ranges::none_of(name, [](char c) {
    return c == '/' || c == '\\' || static_cast<unsigned char>(c) < 0x20;
  });
}

Error add_file(const fs::path& path, Checkpoint* out) {
  if (Error e = map_file(path, &out->files.emplace_back())) return e;
  Safetensors parsed;
  if (Error e = parse_safetensors(out->files.back().contents(), path.string(), &parsed)) return e;
  std::ranges::move(parsed.tensors, std::back_inserter(out->tensors));
  return {};
}

// Maps tensors to shards.
Error read_index(const fs::path& path, std::map<std::string, std::string>* out) {
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

// Drops the tensors of a shard, from the first-th on, that the index names for another shard. Files that correct some
// tensors of a model lie beside its shards in this way. Tensors that the index lacks stay.
void drop_overlaid(const std::map<std::string, std::string>& index, const std::string& shard, size_t first,
                   Checkpoint* out) {
  const auto dropped = std::ranges::remove_if(out->tensors.begin() + static_cast<std::ptrdiff_t>(first),
                                              out->tensors.end(), [&](const TensorView& tensor) {
                                                const auto entry = index.find(tensor.name);
                                                if (entry == index.end() || entry->second == shard) return false;
                                                out->overlaid.push_back(tensor.name + " in " + entry->second);
                                                return true;
                                              });
  out->tensors.erase(dropped.begin(), dropped.end());
}

Error check_shards_exist(const fs::path& folder, const std::set<std::string>& shards) {
  std::error_code code;
  const auto is_missing = [&](const std::string& shard) { return !fs::exists(folder / shard, code); };
  const auto first = std::ranges::find_if(shards, is_missing);
  if (first == shards.end()) return {};
  return error(std::to_string(std::ranges::count_if(shards, is_missing)) + " of " + std::to_string(shards.size()) +
                   " shards are missing, the first is " + *first + "; " + completion_hint(folder),
               folder.string());
}

Error add_shards(const fs::path& folder, Checkpoint* out) {
  std::map<std::string, std::string> index;
  if (Error e = read_index(folder / kIndexFile, &index)) return e;
  std::set<std::string> shards;
  for (const auto& [tensor, shard] : index) shards.insert(shard);
  if (Error e = check_shards_exist(folder, shards)) return e;
  for (const std::string& shard : shards) {
    const size_t before = out->tensors.size();
    if (Error e = add_file(folder / shard, out)) return e;
    drop_overlaid(index, shard, before, out);
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

}  // namespace

Error read_shards(const fs::path& index, std::set<std::string>* out) {
  std::map<std::string, std::string> shards;
  if (Error e = read_index(index, &shards)) return e;
  for (const auto& [tensor, shard] : shards) out->insert(shard);
  return {};
}

Error open_checkpoint(const fs::path& folder, Checkpoint* out) {
  std::error_code code;
  if (!fs::is_directory(folder, code)) return error("no such folder", folder.string());
  Checkpoint result;
  result.folder = folder.string();
  if (fs::exists(folder / kSingleFile, code)) {
    if (Error e = add_file(folder / kSingleFile, &result)) return e;
  } else if (fs::exists(folder / kIndexFile, code)) {
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
  std::erase_if(tensors, [&](const TensorView& tensor) {
    return std::ranges::any_of(selection.skipped, [&](const std::string& p) { return tensor.name.starts_with(p); }) ||
           std::ranges::any_of(selection.skipped_endings,
                               [&](const std::string& ending) { return tensor.name.ends_with(ending); });
  });
  for (TensorView& tensor : tensors) {
    const auto rename = std::ranges::find_if(selection.renamed,
                                             [&](const auto& names) { return tensor.name.starts_with(names.first); });
    if (rename != selection.renamed.end()) tensor.name.replace(0, rename->first.size(), rename->second);
  }
  std::erase_if(tensors, [&](const TensorView& tensor) {
    return std::ranges::any_of(selection.unread, [&](const std::string& p) { return tensor.name.starts_with(p); });
  });
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
  std::error_code code;
  const bool hides_index = files.size() == 1 && fs::exists(fs::path(folder) / kIndexFile, code);
  if (!tensor && is_packed()) {
    *out = {std::string(name), *dtypes.begin(), shape};
    return {};
  }
  if (!tensor && hides_index) {
    return error("no such tensor; this file hides " + std::string(kIndexFile) + ": remove one of the two", where(name));
  }
  if (!tensor) return error("no such tensor", where(name));
  if (!std::ranges::equal(tensor->shape, shape)) {
    return error("shape differs", where(name), shape_text(shape), shape_text(tensor->shape));
  }
  if (std::ranges::find(dtypes, tensor->dtype) == dtypes.end()) {
    return error("type differs", where(name), dtype_list(dtypes), std::string(dtype_name(tensor->dtype)));
  }
  *out = *tensor;
  return {};
}

Error Checkpoint::bind(std::string_view name, std::initializer_list<int64_t> shape, TensorView* out) const {
  return bind(name, shape, kFloatTypes, out);
}

}  // namespace pinion
