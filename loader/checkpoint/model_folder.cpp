#include "loader/checkpoint/model_folder.h"

#include <fnmatch.h>

#include <algorithm>
#include <span>
#include <string_view>
#include <system_error>
#include <vector>

#include "loader/files/foreign_file.h"
#include "loader/files/mapped_file.h"
#include "loader/files/user_folders.h"

namespace pinion {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kRepositoryPrefix = "models--";
constexpr const char* kOwnFiles[] = {"config.json",    "model.safetensors", "model.safetensors.index.json",
                                     "tokenizer.json", "tekken.json",       "tokenizer.model"};
// A folder may be without them, but not where a link says that they belong to it: without generation_config.json, say,
// a model answers greedily and knows fewer ends of a text.
constexpr const char* kOptionalFiles[] = {"generation_config.json", "tokenizer_config.json", "special_tokens_map.json",
                                          "added_tokens.json",      "chat_template.jinja",   "chat_template.json"};
constexpr const char* kPartialFiles[] = {"*.incomplete", "*.part", "*.partial", "*.crdownload", "*.aria2"};

bool is_there(const fs::path& path) {
  std::error_code code;
  return fs::exists(path, code);
}

template <size_t n>
bool matches(const char* const (&patterns)[n], const std::string& name) {
  return std::ranges::any_of(patterns, [&](const char* pattern) { return fnmatch(pattern, name.c_str(), 0) == 0; });
}

// Sorted, so that the same folder gets the same words everywhere.
std::vector<std::string> file_names(const fs::path& folder) {
  std::vector<std::string> names;
  std::error_code code;
  for (fs::directory_iterator entry(folder, code), end; !code && entry != end; entry.increment(code)) {
    names.push_back(entry->path().filename().string());
  }
  std::ranges::sort(names);
  return names;
}

// ORG--NAME is split at its first "--": an ORG has none.
std::string name_of_repository(const std::string& folder) {
  if (!folder.starts_with(kRepositoryPrefix)) return {};
  std::string name = folder.substr(kRepositoryPrefix.size());
  if (const size_t dashes = name.find("--"); dashes != std::string::npos) name.replace(dashes, 2, "/");
  return name;
}

// ORG/NAME
bool may_be_repository(const std::string& name) {
  constexpr const char* kLetters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-.";
  const size_t slash = name.find_first_not_of(kLetters);
  return !name.starts_with('.') && slash != name.npos && slash > 0 && slash + 1 < name.size() && name[slash] == '/' &&
         name.find_first_not_of(kLetters, slash + 1) == std::string::npos && foreign_name(name).empty();
}

fs::path repository_folder(const std::string& name) {
  const std::string cache = hugging_face_cache_folder();
  if (cache.empty() || !may_be_repository(name)) return {};
  const size_t slash = name.find('/');
  return fs::path(cache) / (std::string(kRepositoryPrefix) + name.substr(0, slash) + "--" + name.substr(slash + 1));
}

// What refs/main of a repository in the cache names; empty where that is not there.
fs::path main_snapshot(const fs::path& repository) {
  constexpr int64_t kMostBytes = 256;
  std::string revision;
  if (Error e = read_text_file(repository / "refs/main", kMostBytes, &revision)) return {};
  revision.erase(revision.find_last_not_of("\r\n") + 1);
  if (revision.empty() || revision.find('/') != std::string::npos) return {};
  const fs::path snapshot = repository / "snapshots" / revision;
  std::error_code code;
  return fs::is_directory(snapshot, code) ? snapshot : fs::path();
}

// Without a slash at its end.
fs::path whole_path(const fs::path& folder) {
  std::error_code code;
  const fs::path path = fs::absolute(folder, code).lexically_normal();
  return path.has_filename() ? path : path.parent_path();
}

// Beside the files, or where the tools of Hugging Face keep what is on its way.
std::string unfinished_download(const fs::path& given) {
  const fs::path folder = whole_path(given);
  std::vector<fs::path> places = {folder, folder / ".cache/huggingface/download"};
  if (folder.parent_path().filename() == "snapshots") places.push_back(folder.parent_path().parent_path() / "blobs");
  for (const fs::path& place : places) {
    for (const std::string& name : file_names(place)) {
      if (matches(kPartialFiles, name)) return (place / name).lexically_relative(folder).string();
    }
  }
  return {};
}

Error no_such_folder(const std::string& name) {
  if (name.find("://") != name.npos) {
    return error("an address, where a folder or ORG/NAME was expected; `pinion get ORG/NAME` downloads a model", name);
  }
  if (!may_be_repository(name)) return error("no such folder", name.empty() ? "\"\"" : name);
  const fs::path repository = repository_folder(name);
  if (!repository.empty() && is_there(repository)) {
    return error("its download is not complete: `pinion get " + name + "` completes it", repository.string());
  }
  const std::string cache = hugging_face_cache_folder();
  return error("no such folder" + (cache.empty() ? "" : ", nor a model of that name in " + cache) + "; `pinion get " +
                   name + "` downloads it from Hugging Face",
               name);
}

Error not_a_folder(const fs::path& path) {
  MappedFile file;
  if (Error e = map_file(path, &file)) return e;
  const std::span<const std::byte> bytes = file.contents();
  std::string_view kind = foreign_content({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  if (kind.empty()) kind = foreign_name(path.filename().string());
  return error(kind.empty() ? "a file, where a model's folder was expected" : std::string(kind), path.string());
}

}  // namespace

std::string find_model_folder(const std::string& name) {
  const fs::path path(name);
  std::error_code code;
  if (fs::is_directory(path, code)) {
    const fs::path snapshot = main_snapshot(path);
    return snapshot.empty() ? name : snapshot.string();
  }
  const std::string file = path.filename().string();
  if (fs::exists(fs::symlink_status(path, code)) &&
      (matches(kOwnFiles, file) || fnmatch("model-*-of-*.safetensors", file.c_str(), 0) == 0)) {
    return path.has_parent_path() ? path.parent_path().string() : ".";
  }
  const fs::path snapshot = is_there(path) ? fs::path() : main_snapshot(repository_folder(name));
  return snapshot.empty() ? name : snapshot.string();
}

std::string repository_name(const fs::path& folder) {
  const fs::path path = whole_path(folder), snapshots = path.parent_path();
  const bool is_snapshot = snapshots.filename() == "snapshots";
  return name_of_repository((is_snapshot ? snapshots.parent_path() : path).filename().string());
}

std::string how_to_complete(const fs::path& folder) {
  const std::string name = repository_name(folder);
  return name.empty() ? "download what is missing" : "`pinion get " + name + "` completes the download";
}

Error missing_file(const fs::path& folder, const std::string& file) {
  if (const std::string partial = unfinished_download(folder); !partial.empty()) {
    return error(
        "the download is not complete: there is " + partial + ", but no " + file + "; " + how_to_complete(folder),
        folder.string());
  }
  for (const std::string& name : file_names(folder)) {
    const std::string_view kind = foreign_name(name);
    if (!kind.empty() && !matches(kOwnFiles, name)) {
      return error("no " + file + ", but " + name + ", " + std::string(kind), folder.string());
    }
  }
  const bool is_any_folder = file == "config.json" && repository_name(folder).empty();
  return error("no " + file + (is_any_folder ? ": not a model's folder" : "; " + how_to_complete(folder)),
               folder.string());
}

static Error check_link(const fs::path& folder, const char* file) {
  std::error_code code;
  const fs::path path = folder / file;
  if (!fs::is_symlink(path, code) || fs::exists(path, code)) return {};
  return error(
      "a link to " + fs::read_symlink(path, code).string() + ", which is not there; " + how_to_complete(folder),
      path.string());
}

Error check_folder(const fs::path& folder) {
  std::error_code code;
  if (!fs::exists(folder, code)) return no_such_folder(folder.string());
  if (!fs::is_directory(folder, code)) return not_a_folder(folder);
  if (fs::directory_iterator(folder, code); code) return error("cannot read", folder.string(), {}, code.message());
  for (const char* file : kOwnFiles) {
    if (Error e = check_link(folder, file)) return e;
  }
  for (const char* file : kOptionalFiles) {
    if (Error e = check_link(folder, file)) return e;
  }
  return {};
}

Error check_model_folder(const fs::path& folder) {
  if (Error e = check_folder(folder)) return e;
  if (!is_there(folder / "config.json")) return missing_file(folder, "config.json");
  if (is_there(folder / "model.safetensors") || is_there(folder / "model.safetensors.index.json")) return {};
  return missing_file(folder, "model.safetensors");
}

}  // namespace pinion
