#include "loader/checkpoint/model_folder.h"

#include <fnmatch.h>

#include <algorithm>
#include <cstdlib>
#include <system_error>

#include "loader/files/hints.h"
#include "loader/files/mapped_file.h"
#include "loader/gguf/gguf_folder.h"

namespace pinion {
namespace {

namespace fs = std::filesystem;

using Names = std::initializer_list<const char*>;

constexpr std::string_view kRepositoryPrefix = "models--";
constexpr Names kModelFiles = {"config.json",    kSingleFile,   kIndexFile,
                               "tokenizer.json", "tekken.json", "tokenizer.model"};
// Their absence is allowed but a broken link is an error: without generation_config.json, say, a model answers greedily
// and has fewer end-of-text tokens.
constexpr Names kOptionalFiles = {"generation_config.json", "tokenizer_config.json", "special_tokens_map.json",
                                  "added_tokens.json", "chat_template.jinja", "chat_template.json",
                                  // of sentence-transformers, with the folders of its modules
                                  "modules.json", "sentence_bert_config.json", "config_sentence_transformers.json",
                                  "[0-9]_*/config.json", "[0-9]_*/model.safetensors"};
constexpr Names kPartialFiles = {"*.incomplete", "*.part", "*.partial", "*.crdownload", "*.aria2"};

// The specification ignores relative paths.
std::string user_folder(const char* variable, const char* in_home, const char* name) {
  const char *base = std::getenv(variable), *home = std::getenv("HOME");
  std::error_code code;
  if (base && base[0] == '/') return std::string(base) + name;
  return home && home[0] == '/' && fs::is_directory(home, code) ? std::string(home) + in_home + name : "";
}

bool matches(Names patterns, const std::string& name) {
  return std::ranges::any_of(patterns,
                             [&](const char* pattern) { return fnmatch(pattern, name.c_str(), FNM_PATHNAME) == 0; });
}

// Sorted, so that messages do not depend on the file system.
std::vector<std::string> file_names(const fs::path& folder) {
  std::vector<std::string> names;
  std::error_code code;
  for (fs::directory_iterator entry(folder, code), end; !code && entry != end; entry.increment(code)) {
    names.push_back(entry->path().filename().string());
  }
  std::ranges::sort(names);
  return names;
}

// models--ORG--NAME -> ORG/NAME. ORG cannot contain "--".
std::string repository_of(const std::string& folder) {
  if (!folder.starts_with(kRepositoryPrefix)) return {};
  std::string name = folder.substr(kRepositoryPrefix.size());
  if (const size_t dashes = name.find("--"); dashes != std::string::npos) name.replace(dashes, 2, "/");
  return name;
}

// Matches ORG/NAME.
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

// The snapshot that refs/main of a cached repository names; empty if it does not exist.
fs::path main_snapshot(const fs::path& repository) {
  constexpr int64_t kMaxBytes = 256;
  std::string revision;
  if (Error e = read_text_file(repository / "refs/main", kMaxBytes, &revision)) return {};
  revision.erase(revision.find_last_not_of("\r\n") + 1);
  if (revision.empty() || revision.find('/') != std::string::npos) return {};
  const fs::path snapshot = repository / "snapshots" / revision;
  std::error_code code;
  return fs::is_directory(snapshot, code) ? snapshot : fs::path();
}

// The path of a partial file in the folder or where Hugging Face's tools store unfinished downloads, else empty.
std::string unfinished_download(const fs::path& given) {
  const fs::path folder = absolute_path(given);
  std::vector<fs::path> folders = {folder, folder / ".cache/huggingface/download"};
  if (folder.parent_path().filename() == "snapshots") folders.push_back(folder.parent_path().parent_path() / "blobs");
  for (const fs::path& searched : folders) {
    for (const std::string& name : file_names(searched)) {
      if (matches(kPartialFiles, name)) return (searched / name).lexically_relative(folder).string();
    }
  }
  return {};
}

Error no_such_folder(const std::string& name) {
  if (name.find("://") != name.npos) {
    return error("an address, where a folder or ORG/NAME was expected; `pinion get ORG/NAME` downloads a model", name);
  }
  const auto [hub_name, tag] = split_tag(name);
  if (!may_be_repository(hub_name)) {
    return error(name.ends_with(".gguf") ? "no such file" : "no such folder", name.empty() ? "\"\"" : name);
  }
  const fs::path repository = repository_folder(hub_name), cached = main_snapshot(repository);
  std::string gguf;
  if (!tag.empty() && !cached.empty()) return choose_gguf(files_below(cached), tag, name, &gguf);
  if (!repository.empty() && path_exists(repository)) {
    for (const std::string& snapshot : file_names(repository / "snapshots")) {
      if (!path_exists(repository / "snapshots" / snapshot / "config.json")) continue;
      return error("its refs/main names no snapshot: give the folder of one, such as snapshots/" + snapshot,
                   repository.string());
    }
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
  if (path.extension() == ".gguf") return error("not a GGUF file; download it again", path.string());
  std::string_view hint = foreign_content({reinterpret_cast<const char*>(file.pages.get()), file.contents().size()});
  if (hint.empty()) hint = foreign_name(path.filename().string());
  return error(hint.empty() ? "a file, where a model's folder was expected" : std::string(hint), path.string());
}

}  // namespace

std::string default_cache_folder() { return user_folder("XDG_CACHE_HOME", "/.cache", "/pinion"); }
std::string default_config_folder() { return user_folder("XDG_CONFIG_HOME", "/.config", "/pinion"); }
std::string default_state_folder() { return user_folder("XDG_STATE_HOME", "/.local/state", "/pinion"); }

std::string hugging_face_cache_folder() {
  for (const auto& [variable, name] :
       {std::pair("HF_HUB_CACHE", ""), {"HUGGINGFACE_HUB_CACHE", ""}, {"HF_HOME", "/hub"}}) {
    const char* folder = std::getenv(variable);
    if (folder && *folder) return std::string(folder) + name;
  }
  return user_folder("XDG_CACHE_HOME", "/.cache", "/huggingface/hub");
}

std::string llama_cache_folder() {
  const char* folder = std::getenv("LLAMA_CACHE");
  return folder && *folder ? folder : user_folder("XDG_CACHE_HOME", "/.cache", "/llama.cpp");
}

std::string ollama_folder() {
  const char* folder = std::getenv("OLLAMA_MODELS");
  return folder && *folder ? folder : user_folder("", "/.ollama", "/models");
}

std::string find_model_folder(const std::string& name) {
  const fs::path path(name);
  std::error_code code;
  const std::string file = path.filename().string();
  if (fs::exists(fs::symlink_status(path, code)) &&
      (matches(kModelFiles, file) || fnmatch("model-*-of-*.safetensors", file.c_str(), 0) == 0)) {
    return path.has_parent_path() ? path.parent_path().string() : ".";
  }
  const bool is_path = path_exists(path);
  const auto [repository, tag] = split_tag(name);
  fs::path folder = main_snapshot(is_path ? path : repository_folder(repository));
  if (folder.empty() && fs::is_directory(path, code)) folder = path;
  std::string gguf;
  const bool is_folder = path_exists(folder / "config.json") || path_exists(folder / "adapter_config.json");
  if (!folder.empty() && (is_path || tag.empty()) && is_folder) return folder.string();
  if (!folder.empty() && !choose_gguf(files_below(folder), is_path ? "" : tag, name, &gguf)) {
    return (folder / gguf).string();
  }
  const fs::path stored = is_path ? fs::path() : find_in_stores(name);
  return !stored.empty() ? stored.string() : folder.empty() || !tag.empty() ? name : folder.string();
}

bool is_model_file(const std::string& name) { return matches(kModelFiles, name) || matches(kOptionalFiles, name); }

bool path_exists(const fs::path& path) {
  std::error_code code;
  return fs::exists(path, code);
}

fs::path absolute_path(const fs::path& path) {
  std::error_code code;
  const fs::path whole = fs::absolute(path, code).lexically_normal();
  return whole.has_filename() ? whole : whole.parent_path();
}

std::string repository_name(const fs::path& folder) {
  const fs::path path = absolute_path(folder), snapshots = path.parent_path();
  const bool is_snapshot = snapshots.filename() == "snapshots";
  return repository_of((is_snapshot ? snapshots.parent_path() : path).filename().string());
}

std::string completion_hint(const fs::path& folder) {
  const std::string name = repository_name(folder);
  return name.empty() ? "download what is missing" : "`pinion get " + name + "` completes the download";
}

Error missing_file(const fs::path& folder, const std::string& file) {
  if (const std::string partial = unfinished_download(folder); !partial.empty()) {
    const std::string found = "there is " + partial + ", but no " + file;
    return error("the download is not complete: " + found + "; " + completion_hint(folder), folder.string());
  }
  for (const std::string& name : file_names(folder)) {
    const std::string_view hint = foreign_name(name);
    if (!hint.empty() && !matches(kModelFiles, name)) {
      return error("no " + file + ", but " + name + ", " + std::string(hint), folder.string());
    }
  }
  const bool is_any_folder = file == "config.json" && repository_name(folder).empty();
  const std::string hint = is_any_folder ? ": not a model's folder" : "; " + completion_hint(folder);
  return error("no " + file + hint, folder.string());
}

Error check_folder(const fs::path& folder) {
  std::error_code code;
  if (!path_exists(folder)) return no_such_folder(folder.string());
  if (is_gguf(folder)) return {};
  if (!fs::is_directory(folder, code)) return not_a_folder(folder);
  if (fs::directory_iterator(folder, code); code) return error("cannot read", folder.string(), {}, code.message());
  for (const Names& files : {kModelFiles, kOptionalFiles}) {
    for (const char* file : files) {
      const fs::path path = folder / file;
      if (!fs::is_symlink(path, code) || path_exists(path)) continue;
      const std::string target = fs::read_symlink(path, code).string();
      return error("a link to " + target + ", which is not there; " + completion_hint(folder), path.string());
    }
  }
  return {};
}

Error check_model_folder(const fs::path& folder) {
  if (Error e = check_folder(folder); e || is_gguf(folder)) return e;
  if (!path_exists(folder / "config.json")) return missing_file(folder, "config.json");
  if (path_exists(folder / kSingleFile) || path_exists(folder / kIndexFile)) return {};
  return missing_file(folder, kSingleFile);
}

}  // namespace pinion
