#include "loader/gguf/gguf_folder.h"

#include <mutex>

#include "loader/gguf/gguf.h"

namespace pinion {
namespace {

namespace fs = std::filesystem;

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
  if (text == last_tokenizer.texts.end())
    return error("no such text in the metadata", model.string(), std::string(name));
  *out = name == "tokenizer_config.json" ? text->second : std::exchange(text->second, {});
  return {};
}

}  // namespace pinion
