// A GGUF file read as a model's folder: its metadata become the texts of the files that a Hugging Face folder has, so
// that configs, tokenizers and chat templates have one reader.
#pragma once

#include <map>

#include "kernels/base/error.h"
#include "loader/files/json.h"

namespace pinion {

struct GgufFile;

// True for a file that begins with GGUF's magic number.
bool is_gguf(const std::filesystem::path& path);

// For a folder: the file exists. For a GGUF file: its metadata have the contents of config.json,
// generation_config.json, tokenizer_config.json, and of tokenizer.json or tokenizer.model.
bool has_model_text(const std::filesystem::path& model, std::string_view name);

// Reads FOLDER/NAME, or makes the text from a GGUF file's metadata.
Error read_model_text(const std::filesystem::path& model, std::string_view name, int64_t max_bytes, std::string* out);

// --- gguf_config.cpp: config.json and generation_config.json, by the table configs/gguf.json.

// The config of the family's own files, with one more entry, kGgufRow: the row of the table. Metadata of the
// architecture that the table lacks are errors: they may be part of the computation.
inline constexpr const char* kGgufRow = "gguf_row";
Error make_config(const GgufFile& gguf, const std::string& where, Json* out);

// The differences between a family's files and GGUF's of a row, as changes of its description (configs/families.h).
Error family_changes(const std::string& row, const std::string& where, Json* out);

// The row for an adapter of a model if one of the two is a GGUF file. own_row: the model's, empty for a folder's.
// architecture: the adapter's, empty for PEFT's.
Error adapter_row(const std::string& own_row, const std::string& family, const std::string& architecture,
                  std::string* out);

// The tokens that end a text, and the recommended sampling.
Error make_generation_config(const Json& metadata, Json* out);

// --- gguf_tokenizer.cpp: texts by file name, from the metadata of a GgufFile: tokenizer.json for BPE, tokenizer.model
// for sentencepiece's, and tokenizer_config.json with BOS, EOS, the added tokens and the chat templates. None if the
// file has no tokenizer.
Error make_tokenizer_texts(const Json& metadata, const std::string& where, std::map<std::string, std::string>* out);

// --- Files by name, among those of a repository and in the stores of llama.cpp and Ollama, which are
// only read.

// The model among file names whose name ends in this tag: "Q4_K_M" for "Qwen3-0.6B-Q4_K_M.gguf", in any case of
// letters. Without a tag: the only one, or Q4_K_M. The first part of a split model. The error lists the tags.
Error choose_gguf(const std::vector<std::string>& names, std::string_view tag, const std::string& where,
                  std::string* out);

// All parts of a model, given its first part, as file names; itself if it is not split.
std::vector<std::string> gguf_parts(const std::string& name);

// "ORG/NAME:TAG" -> "ORG/NAME" and "TAG"; without a colon the tag is empty.
std::pair<std::string, std::string> split_tag(const std::string& name);

// The files of a folder and of the folders in it, relative to it.
std::vector<std::string> files_below(const std::filesystem::path& folder);

// The file of "ORG/NAME:TAG" in llama.cpp's cache, or of "NAME:TAG" or "ORG/NAME:TAG" in Ollama's. Empty: none.
std::filesystem::path find_in_stores(const std::string& name);

}  // namespace pinion
