#include "loader/gguf/gguf_folder.h"

#include <fnmatch.h>

#include <mutex>

#include "kernels/base/text.h"
#include "loader/checkpoint/model_folder.h"
#include "loader/gguf/gguf.h"

namespace pinion {
namespace {

namespace fs = std::filesystem;

constexpr const char* kPart = "*-[0-9][0-9][0-9][0-9][0-9]-of-[0-9][0-9][0-9][0-9][0-9].gguf";
constexpr size_t kPartLength = std::string_view("-00001-of-00003.gguf").size();

// "dir/Name-Q4_K_M-00001-of-00003.gguf" -> "Name-Q4_K_M"
std::string stem_of(const std::string& name) {
  const std::string file = name.substr(name.rfind('/') + 1);
  const bool is_part = fnmatch(kPart, file.c_str(), 0) == 0;
  return file.substr(0, file.size() - (is_part ? kPartLength : std::string_view(".gguf").size()));
}

bool is_model(const std::string& name) {
  const std::string file = name.substr(name.rfind('/') + 1);
  const bool is_first = fnmatch(kPart, file.c_str(), 0) != 0 || file.find("-00001-of-") != file.npos;
  return is_first && file.ends_with(".gguf") && !file.starts_with("mmproj") && !file.starts_with("imatrix");
}

bool has_tag(const std::string& stem, std::string_view tag) {
  if (tag.empty() || stem.size() < tag.size()) return tag.empty();
  const size_t at = stem.size() - tag.size();
  const auto same = [](char a, char b) { return std::tolower(a) == std::tolower(b); };
  return std::ranges::equal(std::string_view(stem).substr(at), tag, same) &&
         (at == 0 || std::string_view("-._").find(stem[at - 1]) != std::string_view::npos);
}

// A manifest of Ollama names the blob with the model by its hash.
fs::path ollama_blob(const fs::path& store, const fs::path& manifest) {
  Json json;
  if (read_json_file(manifest, &json)) return {};
  JsonFields fields{json, manifest.string()};
  for (const Json& entry : fields.list("layers")) {
    JsonFields layer{entry, fields.where};
    const std::string digest = layer.text("digest", "");
    const bool is_hash = digest.starts_with("sha256:") && is_hexadecimal(std::string_view(digest).substr(7), 64);
    if (!is_hash || layer.text("mediaType", "") != "application/vnd.ollama.image.model") continue;
    const fs::path blob = store / "blobs" / replaced(digest, ":", "-");
    std::error_code code;
    if (fs::is_regular_file(blob, code)) return blob;
  }
  return {};
}

bool is_config(std::string_view name) { return name == "config.json" || name == "generation_config.json"; }

Error make_config_text(const fs::path& path, std::string_view name, std::string* out) {
  std::vector<MappedFile> files;
  GgufFile gguf;
  if (Error e = open_gguf(path, &files, &gguf)) return e;
  Json config;
  Error e = name == "config.json" ? make_config(gguf, path.string(), &config)
                                  : make_generation_config(gguf.metadata, &config);
  if (!e) *out = config.dump();
  return e;
}

// The texts of the last tokenizer are kept: its loader asks for ten, and making them can take seconds on a board.
// Vocabularies are not, since they are large and read once: they are empty after that.
struct TokenizerTexts {
  std::mutex mutex;
  std::string file;  // path and last change
  std::map<std::string, std::string> texts;
} last_tokenizer;

// `name`: the text to read, empty for none. The caller holds the mutex.
Error make_tokenizer(const fs::path& path, const std::string& name) {
  auto& [mutex, last_file, texts] = last_tokenizer;
  std::vector<MappedFile> files(1);
  if (Error e = map_file(path, &files[0])) return e;
  const std::string file = path.string() + "\n" + std::to_string(files[0].inode) + " " +
                           std::to_string(files[0].mtime_ns) + " " + std::to_string(files[0].ctime_ns);
  const auto text = texts.find(name);
  if (file == last_file && (text == texts.end() || !text->second.empty())) return {};
  GgufFile gguf;
  last_file.clear();
  if (Error e = open_gguf(path, &files, &gguf, true)) return e;
  if (Error e = make_tokenizer_texts(gguf.metadata, path.string(), &texts)) return e;
  last_file = file;
  return {};
}

}  // namespace

bool is_gguf(const fs::path& path) {
  std::error_code code;
  MappedFile file;
  if (!fs::is_regular_file(path, code) || map_file(path, &file)) return false;
  const std::span<const std::byte> bytes = file.contents();
  return std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size()).starts_with(kGgufMagic);
}

bool has_model_text(const fs::path& model, std::string_view name) {
  std::error_code code;
  if (!is_gguf(model)) return fs::exists(model / name, code);
  if (is_config(name)) return true;
  const std::lock_guard lock(last_tokenizer.mutex);
  if (make_tokenizer(model, {})) return name == "tokenizer.json";  // its reader reports the failure
  return last_tokenizer.texts.contains(std::string(name));
}

Error read_model_text(const fs::path& model, std::string_view name, int64_t max_bytes, std::string* out) {
  if (!is_gguf(model)) return read_text_file(model / name, max_bytes, out);
  if (is_config(name)) return make_config_text(model, name, out);
  const std::lock_guard lock(last_tokenizer.mutex);
  if (Error e = make_tokenizer(model, std::string(name))) return e;
  const auto text = last_tokenizer.texts.find(std::string(name));
  if (text == last_tokenizer.texts.end()) return error("no such text in the metadata", model.string(), name);
  *out = name == "tokenizer_config.json" ? text->second : std::exchange(text->second, {});
  return {};
}

std::vector<std::string> gguf_parts(const std::string& name) {
  if (fnmatch(kPart, name.c_str(), 0) != 0) return {name};
  const std::string begin = name.substr(0, name.size() - kPartLength), end = name.substr(name.size() - 14);
  const int count = std::max(1, std::atoi(name.substr(name.size() - 10, 5).c_str()));
  std::vector<std::string> parts;
  for (int i = 1; i <= count; ++i) parts.push_back(begin + formatted("-%05d", i) + end);
  return parts;
}

Error choose_gguf(const std::vector<std::string>& names, std::string_view tag, const std::string& where,
                  std::string* out) {
  std::vector<std::string> models, fitting;
  std::ranges::copy_if(names, std::back_inserter(models), is_model);
  const std::string_view wanted = tag.empty() && models.size() > 1 ? "Q4_K_M" : tag;
  std::ranges::copy_if(models, std::back_inserter(fitting),
                       [&](const std::string& name) { return has_tag(stem_of(name), wanted); });
  // "Q4_K_M" also ends the name of a variant ("UD-Q4_K_M"), which is longer.
  std::ranges::sort(fitting, {}, [](const std::string& name) { return std::pair(stem_of(name).size(), name); });
  if (!fitting.empty()) {
    *out = fitting[0];
    return {};
  }
  std::vector<std::string> stems;
  for (const std::string& name : models) stems.push_back(stem_of(name));
  if (stems.empty()) return error("no GGUF file", where);
  return error(tag.empty() ? "several GGUF files: give one as NAME:TAG" : "no GGUF file with this tag", where,
               "the end of one of " + joined(stems), tag);
}

std::pair<std::string, std::string> split_tag(const std::string& name) {
  const size_t colon = name.rfind(':');
  if (colon == name.npos || name.find('/', colon) != name.npos) return {name, ""};
  return {name.substr(0, colon), name.substr(colon + 1)};
}

std::vector<std::string> files_below(const fs::path& folder) {
  std::vector<std::string> names;
  std::error_code code;
  for (fs::recursive_directory_iterator entry(folder, code), end; !code && entry != end; entry.increment(code)) {
    if (entry.depth() == 1) entry.disable_recursion_pending();
    if (!entry->is_directory(code)) names.push_back(entry->path().lexically_relative(folder).string());
  }
  std::ranges::sort(names);
  return names;
}

fs::path find_in_stores(const std::string& name) {
  const auto [repository, tag] = split_tag(name);
  if (tag.empty() || repository.starts_with('/') || name.find("..") != name.npos) return {};
  const fs::path llama = llama_cache_folder(), ollama = ollama_folder();
  std::vector<std::string> cached;
  // ORG_REPOSITORY_FILE: the file begins with the repository's name, so that Org/Model is not Org/Model_v2.
  const std::string stem = repository.substr(0, repository.size() - (repository.ends_with("-GGUF") ? 5 : 0));
  const std::string prefix = replaced(repository, "/", "_") + "_" + stem.substr(stem.rfind('/') + 1);
  for (const std::string& file : llama.empty() ? std::vector<std::string>{} : files_below(llama)) {
    if (file.starts_with(prefix)) cached.push_back(file);
  }
  std::string found;
  if (!choose_gguf(cached, tag, name, &found)) return llama / found;
  if (ollama.empty()) return {};
  const bool has_owner = repository.find('/') != repository.npos;
  for (const char* registry : {"registry.ollama.ai", "hf.co"}) {
    const fs::path owner = ollama / "manifests" / registry / (has_owner ? "" : "library");
    if (const fs::path blob = ollama_blob(ollama, owner / repository / tag); !blob.empty()) return blob;
  }
  return {};
}

}  // namespace pinion
