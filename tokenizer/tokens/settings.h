// The small files beside a tokenizer: tokenizer_config.json, special_tokens_map.json, added_tokens.json.
#pragma once

#include "kernels/base/error.h"
#include "loader/files/json.h"
#include "tokenizer/tokens/added_tokens.h"

namespace pinion {

struct TokenizerSettings {
  std::string bos_token, eos_token;     // empty: none
  std::vector<std::string> eos_tokens;  // of all files
  bool add_bos = true, add_eos = false;
  // All tokens named in the files; a token may be listed several times, each time with some of its properties. Id -1:
  // not given. Unused for tokenizer.json, which lists its added tokens itself.
  std::vector<AddedToken> added;
};

// `model`: a folder or a GGUF file. Missing files are no error.
Error read_settings(const std::filesystem::path& model, TokenizerSettings* out);

// A missing file gives an empty object.
Error read_settings_file(const std::filesystem::path& model, const char* name, JsonLimits limits, Json* out);

AddedToken read_added_token(JsonFields& fields);  // {"content": "text", flags}, without "id" and "normalized"

// A token of a settings file: "text", or {"content": "text", ...}. Empty if absent.
std::string setting_token(JsonFields& settings, std::string_view name);

}  // namespace pinion
